/*-------------------------------------------------------------------------
 *
 * ticket.h
 *	  The life of one ticket as a pure step function: event in, request out.
 *
 * A ticket is this server's znode in a lock's queue.  The worker feeds each
 * ticket with events (somebody wants it, a reply came, the session expired)
 * and does what the step says: send one request to ZooKeeper, tell the lock
 * table one thing, or both.
 *
 * Every request that is sent gets exactly one reply event, in the order of
 * sending, with outcome UNKNOWN where the connection was lost.  CREATE is
 * two requests, the create and a list that is sent after it, and gets the two
 * replies CREATE and LIST; the list may be for other leases as well.  FOUND creates the directory, and from the second
 * round on all above it, and then the znode, which alone decides: it is ABSENT
 * if the directory still is.  If the znode has number 0, it is the first that was
 * ever in the directory, and needs no list.  DOWNGRADE deletes one znode and
 * creates another, both or none; it is ABSENT where the one to delete is not
 * there.  ANSWER is UNKNOWN where the data are others than those that were seen
 * last.
 *
 * A znode's text names the backend for which it was made.  While other clients
 * wait, the text shall name the backend that holds the lock now.  ANSWER writes
 * the whole text: who holds the lock and, once a try has asked, that it is in
 * use.  The text is read again after each write, so that whatever was lost or
 * overwritten is noticed and written again.
 *
 * A try must not say "held" for a ticket that lingers.  So who only tries asks,
 * by its mere being there: its UUID says what it is.  The owner before it is
 * contended then, and gives up if it lingers; if it is in use, it writes so into
 * its own znode.  The one who tries reads and watches that znode, which tells
 * either.  What is written there stays true: a ticket that has answered never
 * lingers.  A downgrade makes a new znode, which has not answered yet.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/ticket.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TICKET_H
#define ZKL_TICKET_H

#include "recipe.h"

#define ZKL_CHILD_SIZE	128		/* the longest name of a foreign contender */

typedef enum ZklTicketState
{
	ZKL_TICKET_NONE,			/* no znode and nothing under way */
	ZKL_TICKET_FOUNDING,		/* directory and znode requested */
	ZKL_TICKET_CREATING,		/* create and list sent */
	ZKL_TICKET_CREATED,			/* ... create answered, the list is not */
	ZKL_TICKET_HOMELESS,		/* ... it said that the directory is missing */
	ZKL_TICKET_UNSURE,			/* ... its outcome is unknown */
	ZKL_TICKET_REFUSED,			/* ... it was refused */
	ZKL_TICKET_FINDING,			/* list sent, to find out if the znode exists */
	ZKL_TICKET_INSPECTING,		/* found; its czxid and owner requested */
	ZKL_TICKET_LISTING,			/* znode exists; list sent to see its place */
	ZKL_TICKET_SURVEYING,		/* ... which showed what may be a semaphore */
	ZKL_TICKET_WATCHING,		/* not first; watch on the predecessor sent */
	ZKL_TICKET_QUEUED,			/* waits for the predecessor's watch */
	ZKL_TICKET_OWNED,			/* first in the queue */
	ZKL_TICKET_CHECKING,		/* owned; list sent to see who queues behind */
	ZKL_TICKET_ANSWERING,		/* owned; its data requested to say that, and
								 * who holds it */
	ZKL_TICKET_DOWNGRADING,		/* owned; reader's znode requested in the
								 * writer's place */
	ZKL_TICKET_CONFIRMING,		/* ... the writer's is gone; owner of the
								 * reader's requested */
	ZKL_TICKET_DELETING,		/* delete sent */
	ZKL_TICKET_STUCK			/* ... and refused: the znode may stay until
								 * the session ends */
} ZklTicketState;

#define ZKL_TICKET_NSTATES	(ZKL_TICKET_STUCK + 1)

/* What to ask ZooKeeper. */
typedef enum ZklRequest
{
	ZKL_REQUEST_NOTHING,
	ZKL_REQUEST_FOUND,			/* directories, then create under a new UUID */
	ZKL_REQUEST_CREATE,			/* create under a new UUID, then LIST */
	ZKL_REQUEST_LIST,			/* children of the directory, with a watch */
	ZKL_REQUEST_INSPECT,		/* Stat of the own znode */
	ZKL_REQUEST_SURVEY,			/* children of the directory's "leases" */
	ZKL_REQUEST_WATCH,			/* data of the predecessor, with a watch */
	ZKL_REQUEST_WATCH_SELF,		/* data of the own znode, with a watch */
	ZKL_REQUEST_ANSWER,			/* set the own znode's data, if they are those
								 * that were seen last */
	ZKL_REQUEST_DOWNGRADE,		/* the reader's znode instead of the writer's,
								 * with the same sequence number */
	ZKL_REQUEST_DELETE			/* the own znode */
} ZklRequest;

typedef enum ZklOutcome
{
	ZKL_OUTCOME_OK,
	ZKL_OUTCOME_ABSENT,			/* no such znode */
	ZKL_OUTCOME_UNKNOWN,		/* perhaps done, perhaps not */
	ZKL_OUTCOME_REFUSED			/* not done, and asking again is no use */
} ZklOutcome;

/* Why a lock cannot be had. */
typedef enum ZklFailure
{
	ZKL_FAILURE_NONE,
	ZKL_FAILURE_PERMISSION,		/* ZooKeeper's access control says no */
	ZKL_FAILURE_EPHEMERAL_PARENT,	/* an ancestor cannot have children */
	ZKL_FAILURE_DIRECTORY,		/* the directory vanishes again and again */
	ZKL_FAILURE_SEQUENCE,		/* the directory's counter is used up */
	ZKL_FAILURE_FOREIGN_NAME,	/* a contender's name is too long */
	ZKL_FAILURE_SESSION_FULL,	/* the session may not hold more znodes */
	ZKL_FAILURE_STUCK,			/* an earlier znode cannot be deleted */
	ZKL_FAILURE_OTHER_KIND,		/* the path is in use as another kind of lock */
	ZKL_FAILURE_REFUSED			/* anything else */
} ZklFailure;

/* What to tell the lock table. */
typedef enum ZklReport
{
	ZKL_REPORT_NOTHING,
	ZKL_REPORT_QUEUED,			/* the znode exists and is not first; again
								 * when it does not ask any more */
	ZKL_REPORT_OWNED,			/* the server owns the lock now */
	ZKL_REPORT_CONTENDED,		/* somebody queues behind the owned ticket */
	ZKL_REPORT_UNCONTENDED,		/* nobody does any more */
	ZKL_REPORT_DOWNGRADED,		/* it is a reader's now; not contended yet */
	ZKL_REPORT_REVOKED,			/* somebody asks for the lock */
	ZKL_REPORT_LOST,			/* it was owned, and is no more */
	ZKL_REPORT_FAILED,			/* it cannot be had; see failure */
	ZKL_REPORT_GONE				/* no znode is left, as was wished */
} ZklReport;

typedef enum ZklTicketEventKind
{
	ZKL_EVENT_WANT,				/* get the lock; only in state NONE */
	ZKL_EVENT_UNWANT,			/* give it up; STUCK: try again */
	ZKL_EVENT_DOWNGRADE,		/* nobody writes any more */
	ZKL_EVENT_WATCH,			/* it is held for longer: watch the znode */
	ZKL_EVENT_ANSWER,			/* it is held: say so to who only tries */
	ZKL_EVENT_DESCRIBE,			/* another backend holds it: the znode shall
								 * say which */
	ZKL_EVENT_LOOK,				/* it has never been listed */
	ZKL_EVENT_RECHECK,			/* perhaps it is not contended any more */
	ZKL_EVENT_REPLY,			/* to "request", with "outcome" */
	ZKL_EVENT_CHILDREN_CHANGED, /* the directory's watch fired */
	ZKL_EVENT_PREDECESSOR_CHANGED,	/* the predecessor's watch fired ... */
	ZKL_EVENT_PREDECESSOR_GONE, /* ... because it is deleted */
	ZKL_EVENT_SELF_CHANGED,		/* the own znode's watch fired */
	ZKL_EVENT_RECONNECTED,		/* same session, but all watches are gone */
	ZKL_EVENT_RESTARTED,		/* new worker, same session: replies are lost */
	ZKL_EVENT_EXPIRED			/* the session and its znodes are gone */
} ZklTicketEventKind;

#define ZKL_TICKET_NEVENTS	(ZKL_EVENT_EXPIRED + 1)

typedef struct ZklTicketEvent
{
	ZklTicketEventKind kind;

	/* WANT */
	bool		is_new;			/* the directory is probably not there */
	ZklMode		mode;
	int			limit;			/* where that is LEASE: of the semaphore */

	/* UNWANT: the request that the last step asked for was never sent */
	bool		unsent;

	/* REPLY */
	ZklRequest	request;
	ZklOutcome	outcome;
	ZklFailure	failure;		/* where the outcome is REFUSED */
	const char *name;			/* FOUND, CREATE: the znode's name */
	int64_t		czxid;			/* FOUND, CREATE, INSPECT */
	bool		ours;			/* FOUND, CREATE, INSPECT, WATCH: the live
								 * session owns it */
	bool		revoked;		/* WATCH_SELF: the znode says so */
	bool		answered;		/* WATCH, WATCH_SELF: it says that it is in
								 * use */
	bool		stale;			/* WATCH_SELF: it does not name the backend
								 * that it shall name */
	int32_t		version;		/* WATCH_SELF: of the znode's data */
	const char *const *children;	/* LIST, SURVEY */
	int			nchildren;
	const ZklLease *leases;		/* LIST, of a lease: the children in order */
} ZklTicketEvent;

typedef struct ZklTicketStep
{
	ZklRequest	request;
	ZklReport	report;
	ZklFailure	failure;
} ZklTicketStep;

/*
 * What a ticket knows, and how long that holds.  After a reconnect or a restart,
 * a ticket that rests on a watch lists the directory again, and sets it anew.
 */
typedef struct ZklTicket
{
	ZklTicketState state;
	uint32_t	attempt;		/* counts creates; tags requests and replies */

	/* of a wish, from WANT on; "mode" changes with a downgrade */
	ZklMode		mode;
	int			limit;			/* of a lease */
	bool		unwanted;		/* delete it as soon as its name is known */
	bool		rechecks;		/* it wants to know when it is not contended
								 * any more */
	int			rounds;			/* how often the directory was missing */
	ZklFailure	failure;		/* in state REFUSED */

	/* of a znode, until the next attempt to make one */
	char		uuid[ZKL_UUID_SIZE];	/* of the attempt */
	char		name[ZKL_ZNODE_SIZE];	/* of the znode, once it is known */
	int64_t		czxid;
	int32_t		version;		/* of its data */
	bool		surveyed;		/* it is no semaphore: no lease was there
								 * since the znode is */

	/* ... that is owned, until it is downgraded */
	bool		watched;		/* it watches its own znode */
	bool		revoked;		/* REVOKED was reported */
	bool		answers;		/* it is in use, and the znode shall say so */
	bool		answered;		/* ... and did so when it was seen last */
	bool		writes_answer;	/* the write under way says so */
	bool		mute;			/* it may not write its znode's data */

	/* what the last list said, of which the next one says the same or more */
	bool		listed;			/* there was one */
	bool		contended;		/* somebody waits for the znode to go */
	bool		asked;			/* ... or wants to know if it is in use */
	bool		asking;			/* the ticket before it may linger */
	bool		other_kind;		/* ... and takes this for another kind */
	char		predecessor[ZKL_CHILD_SIZE];	/* that it waits for, or empty */

	/* ... until the directory changes or its watch is lost */
	bool		next;			/* nobody but the predecessor goes before it */

	/* of another's znode, for good */
	char		in_use[ZKL_CHILD_SIZE]; /* the one that has answered last */
} ZklTicket;

/*
 * Feed one event.  An event that means nothing in the ticket's state (a
 * watch that fired late, say) asks for nothing and reports nothing.
 */
extern ZklTicketStep zkl_ticket_step(ZklTicket *ticket,
									 const ZklTicketEvent *event);

/*
 * Begin an attempt: the sender of a CREATE or FOUND calls this first.  "random" makes
 * the UUID by which the znode is found again if the reply gets lost.
 */
extern void zkl_ticket_begin_attempt(ZklTicket *ticket,
									 const uint8_t random[16],
									 bool only_tries);

#endif							/* ZKL_TICKET_H */
