/*-------------------------------------------------------------------------
 *
 * ticketagain.c
 *	  What a ticket does when it does not know what is in ZooKeeper.
 *
 * src/protocol/ticketagain.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/ticketint.h"

ZklTicketStep
zkl_ticket_look_again(ZklTicket *ticket)
{
	ticket->next = false;
	switch (ticket->state)
	{
		case ZKL_TICKET_NONE:
			return nothing;
		case ZKL_TICKET_CREATING_BOTH:
		case ZKL_TICKET_CREATING:
		case ZKL_TICKET_UNSURE:
		case ZKL_TICKET_FINDING:
			return become(ticket, ZKL_TICKET_FINDING, ZKL_REQUEST_LIST);
		case ZKL_TICKET_HOMELESS:
			return create_both(ticket);
		case ZKL_TICKET_REFUSED:
			return fail(ticket, ticket->failure);
		case ZKL_TICKET_INSPECTING:
			return become(ticket, ZKL_TICKET_INSPECTING, ZKL_REQUEST_INSPECT);
		case ZKL_TICKET_CREATED:
		case ZKL_TICKET_LISTING:
		case ZKL_TICKET_SURVEYING:
		case ZKL_TICKET_WATCHING:
		case ZKL_TICKET_QUEUED:
			if (ticket->unwanted)
				return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);
			return become(ticket, ZKL_TICKET_LISTING, ZKL_REQUEST_LIST);
		case ZKL_TICKET_OWNED:
		case ZKL_TICKET_CHECKING:
		case ZKL_TICKET_ANSWERING:
			return become(ticket, ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST);
		case ZKL_TICKET_DOWNGRADING:
			return become(ticket, ZKL_TICKET_DOWNGRADING,
						  ZKL_REQUEST_DOWNGRADE);
		case ZKL_TICKET_REREADING:
			return become(ticket, ZKL_TICKET_REREADING,
						  ZKL_REQUEST_WATCH_SELF);
		case ZKL_TICKET_CONFIRMING:
			return become(ticket, ZKL_TICKET_CONFIRMING, ZKL_REQUEST_INSPECT);
		case ZKL_TICKET_STUCK:
			if (ticket->name[0] == '\0')
				return become(ticket, ZKL_TICKET_FINDING, ZKL_REQUEST_LIST);
			return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);
		case ZKL_TICKET_DELETING:
			return become(ticket, ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE);
	}
	return nothing;
}
