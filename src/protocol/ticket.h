/*-------------------------------------------------------------------------
 *
 * ticket.h
 *	  The life of one ticket as a pure step function: event in, request out.
 *
 * A ticket is this server's znode in a lock's queue.  The worker feeds each
 * ticket with events: a backend wants it, a reply came, the session expired.
 * The worker then does what the step says: it sends one request to ZooKeeper,
 * tells the lock table one thing, or both.
 *
 * Every request that is sent gets exactly one reply event, in the order of
 * sending.  If the connection was lost, the outcome is UNKNOWN.
 *
 * CREATE is two requests, the create and a list that is sent after it.  It
 * gets two replies, CREATE and LIST.  The list may serve other leases as well.
 *
 * Creates, and deletes, of several tickets may be one transaction in
 * ZooKeeper, which is done as a whole or not at all.  If it fails, the reply
 * of the ticket that made it fail says why.  The others are UNDONE: ZooKeeper
 * has done nothing, and the ticket requests the same again.
 *
 * CREATE_BOTH creates the directory, from the second round on also the
 * directories above it, and then the znode.  The reply is the znode's: it is
 * ABSENT if the directory is still missing.  A znode with number 0 is the
 * first that was ever made in its directory, and needs no list.
 *
 * DOWNGRADE deletes one znode and creates another, both or none.  It is ABSENT
 * if the znode to delete is not there.
 *
 * ANSWER and DOWNGRADE are CHANGED if the znode's data have changed since the
 * ticket read them: another client may have written a request to release the
 * lock.  The ticket reads the data before it tries again, so it does not
 * overwrite or delete a request that it has not seen.  A refusal has a place
 * in the order of ZooKeeper's writes, so the ZooKeeper server that passes it
 * on has applied all writes before it.  If that server still shows the data
 * that the ticket expected, its data differ from the leader's, and the ticket
 * does not try again.
 *
 * A znode's text names the backend for which the znode was made.  While other
 * clients wait, the text must name the backend that holds the lock now.
 * ANSWER writes the whole text: the holder and, once a try has queried the
 * znode, that the lock is in use.  The ticket reads the text again after each
 * write.  So it notices whatever was lost or overwritten, and writes again.
 *
 * A try must not report "held" because of a ticket that lingers.  So the UUID
 * of a znode says that its ticket only tries.  The owner before that znode
 * takes such a UUID as a query when it lists the directory.  If the owner
 * lingers, it gives the ticket up; if the lock is in use, it writes so into
 * its own znode.  The ticket that tries reads and watches that znode, and so
 * learns which of the two is the case.  The text stays true, because a ticket
 * that has answered never lingers.  A downgrade makes a new znode, which has
 * not answered yet.
 *
 * WATCH and LOOK come once while the lock is owned, because entrystate.c notes
 * that they were sent.  So no state of an owner may forget them.
 *
 * A client that is in no queue behind the ticket, such as a server that wants
 * a semaphore with another number of leases, queries the ticket by a mark in
 * the ticket's own znode.  The ticket's next write leaves the mark out.
 *
 * A create whose reply was lost with its connection may be done late, even
 * after requests of the next connection (src/worker/request/orphans.h says
 * when).  The ticket goes by what the list shows, and does not wait.  The
 * step says that an ORPHAN may come: a znode with the UUID that the ticket
 * has at this moment, and that no ticket will know.  The caller then takes
 * the UUID from the ticket.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/protocol/ticket.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TICKET_H
#define ZKL_TICKET_H

#include "protocol/recipe.h"

#define ZKL_CHILD_SIZE	128		/* the longest name of another client's
								 * contender */

/*
 * The greatest czxid of which a token can be made: the token is the czxid
 * times 65536 plus a counter.  The upper 32 bits of a czxid count the
 * ensemble's elections, so ZKL_TICKET_CZXID_MAX is reached after 32,767
 * elections.  At ZKL_TICKET_CZXID_HIGH, a quarter of the elections is left.
 */
#define ZKL_TICKET_CZXID_MAX	(INT64_MAX >> 16)
#define ZKL_TICKET_CZXID_HIGH	(ZKL_TICKET_CZXID_MAX / 4 * 3)

typedef enum ZklTicketState
{
	ZKL_TICKET_NONE,			/* no znode and nothing under way */
	ZKL_TICKET_CREATING_BOTH,	/* directory and znode requested */
	ZKL_TICKET_CREATING,		/* create and list sent */
	ZKL_TICKET_CREATED,			/* create and list sent; the create was
								 * answered, the list not yet */
	ZKL_TICKET_NO_DIRECTORY,	/* create and list sent; the directory is
								 * missing */
	ZKL_TICKET_UNSURE,			/* create and list sent; the create's outcome
								 * is unknown */
	ZKL_TICKET_REFUSED,			/* create and list sent; the create was
								 * refused */
	ZKL_TICKET_UNDONE,			/* create and list sent; the create was not
								 * done, because another one in its
								 * transaction failed */
	ZKL_TICKET_FINDING,			/* list sent, to find out whether the znode
								 * exists */
	ZKL_TICKET_INSPECTING,		/* found; its czxid and owner requested */
	ZKL_TICKET_LISTING,			/* znode exists; list sent to see its place */
	ZKL_TICKET_CHECKING_KIND,	/* list showed a child "leases"; its children
								 * requested */
	ZKL_TICKET_WATCHING,		/* not first; watch on the predecessor sent */
	ZKL_TICKET_QUEUED,			/* waits for the predecessor's watch */

	/* the states of an owner, up to CONFIRMING: */
	ZKL_TICKET_OWNED,			/* first in the queue */
	ZKL_TICKET_CHECKING,		/* owned; list sent to see the znodes behind
								 * it */
	ZKL_TICKET_WRITING_DATA,	/* owned; write of the znode's text sent: the
								 * holder, and that the lock is in use */
	ZKL_TICKET_DOWNGRADING,		/* owned; a reader's znode requested in the
								 * writer's place */
	ZKL_TICKET_REREADING,		/* reader's znode requested; the data of the
								 * writer's znode have changed; they are
								 * requested */
	ZKL_TICKET_CONFIRMING,		/* reader's znode requested; the writer's
								 * znode is gone; the owner of the reader's
								 * znode is requested */

	/* the ticket is given up: */
	ZKL_TICKET_DELETING,		/* delete sent */
	ZKL_TICKET_STUCK			/* delete refused: the znode may stay until
								 * the session ends */
} ZklTicketState;

#define ZKL_TICKET_NSTATES	(ZKL_TICKET_STUCK + 1)

/* What to request from ZooKeeper. */
typedef enum ZklRequest
{
	ZKL_REQUEST_NOTHING,
	ZKL_REQUEST_CREATE_BOTH,	/* directories, then create under a new UUID */
	ZKL_REQUEST_CREATE,			/* create under a new UUID, then LIST */
	ZKL_REQUEST_LIST,			/* children of the directory, with a watch */
	ZKL_REQUEST_LIMIT,			/* data of the semaphore's limit, with a
								 * watch: goes before each LIST of a lease,
								 * and no step requests it */
	ZKL_REQUEST_INSPECT,		/* Stat of the own znode */
	ZKL_REQUEST_SURVEY,			/* children of the directory's "leases" */
	ZKL_REQUEST_WATCH,			/* data of the predecessor, with a watch */
	ZKL_REQUEST_WATCH_SELF,		/* data of the own znode, with a watch */
	ZKL_REQUEST_ANSWER,			/* set the own znode's data, unless they
								 * changed since the ticket read them */
	ZKL_REQUEST_DOWNGRADE,		/* replace the writer's znode by a reader's
								 * with the same sequence number, unless its
								 * data changed since the ticket read them */
	ZKL_REQUEST_DELETE			/* the own znode */
} ZklRequest;

typedef enum ZklOutcome
{
	ZKL_OUTCOME_OK,
	ZKL_OUTCOME_ABSENT,			/* no such znode */
	ZKL_OUTCOME_CHANGED,		/* ANSWER, DOWNGRADE: not done, because the
								 * znode's data have changed */
	ZKL_OUTCOME_UNKNOWN,		/* perhaps done, perhaps not */
	ZKL_OUTCOME_REFUSED,		/* not done, and a retry would not help */
	ZKL_OUTCOME_UNDONE			/* CREATE_BOTH, CREATE, DELETE: not done,
								 * because another operation of the same
								 * transaction failed */
} ZklOutcome;

/* Why a lock cannot be acquired. */
typedef enum ZklFailure
{
	ZKL_FAILURE_NONE,
	ZKL_FAILURE_PERMISSION,		/* ZooKeeper's access control forbids it */
	ZKL_FAILURE_ACL,			/* ZooKeeper does not accept zklock.acl */
	ZKL_FAILURE_EPHEMERAL_PARENT,	/* an ancestor cannot have children */
	ZKL_FAILURE_DIRECTORY,		/* the directory vanishes again and again */
	ZKL_FAILURE_SEQUENCE,		/* the directory's counter is used up */
	ZKL_FAILURE_TOKENS,			/* the ensemble's znodes have numbers that are
								 * too great for tokens */
	ZKL_FAILURE_FOREIGN_NAME,	/* a contender's name is too long */
	ZKL_FAILURE_SESSION_FULL,	/* the session may not hold more znodes */
	ZKL_FAILURE_STUCK,			/* an earlier znode cannot be deleted */
	ZKL_FAILURE_OTHER_KIND,		/* the path is in use as another kind of lock */
	ZKL_FAILURE_QUOTA,			/* a quota in ZooKeeper is used up */
	ZKL_FAILURE_LIMIT,			/* nothing says how many leases there are */
	ZKL_FAILURE_TOO_LONG,		/* a reply is too long for the connection */
	ZKL_FAILURE_REFUSED			/* anything else */
} ZklFailure;

/* What to tell the lock table. */
typedef enum ZklReport
{
	ZKL_REPORT_NOTHING,
	ZKL_REPORT_QUEUED,			/* the znode exists and is not first; reported
								 * again when it no longer queries another */
	ZKL_REPORT_OWNED,			/* the server owns the lock now */
	ZKL_REPORT_CONTENDED,		/* another client queues behind the owned
								 * ticket */
	ZKL_REPORT_UNCONTENDED,		/* no other client queues behind any more */
	ZKL_REPORT_DOWNGRADED,		/* the ticket is a reader's now; not contended
								 * yet */
	ZKL_REPORT_REVOKED,			/* the release of the lock has been requested */
	ZKL_REPORT_QUERIED,			/* another client queries whether the lock is
								 * in use */
	ZKL_REPORT_DIFFERS,			/* ZooKeeper's servers do not agree about the
								 * znode's data */
	ZKL_REPORT_LOST,			/* the ticket was owned, and is not any more */
	ZKL_REPORT_FAILED,			/* the lock cannot be acquired; see failure */
	ZKL_REPORT_GONE				/* no znode is left, as requested */
} ZklReport;

typedef enum ZklTicketEventKind
{
	ZKL_EVENT_WANT,				/* get the lock; only in state NONE */
	ZKL_EVENT_UNWANT,			/* give it up; STUCK: try again */
	ZKL_EVENT_DOWNGRADE,		/* no claim writes any more */
	ZKL_EVENT_WATCH,			/* the lock is held for longer: watch the
								 * znode */
	ZKL_EVENT_ANSWER,			/* the lock is held: say so to tickets that
								 * only try */
	ZKL_EVENT_DESCRIBE,			/* another backend holds the lock: write which
								 * one into the znode */
	ZKL_EVENT_LOOK,				/* the ticket has never been listed */
	ZKL_EVENT_RECHECK,			/* check whether the ticket is still contended */
	ZKL_EVENT_REPLY,			/* to "request", with "outcome" */
	ZKL_EVENT_CHILDREN_CHANGED, /* the directory's watch fired */
	ZKL_EVENT_PREDECESSOR_CHANGED,	/* the predecessor's watch fired */
	ZKL_EVENT_PREDECESSOR_GONE, /* the predecessor was deleted */
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
	bool		is_new;			/* the directory is probably missing */
	ZklMode		mode;

	/* UNWANT: the last step's request was never sent */
	bool		unsent;

	/* REPLY */
	ZklRequest	request;
	ZklOutcome	outcome;
	ZklFailure	failure;		/* if the outcome is REFUSED */

	const char *name;			/* CREATE_BOTH, CREATE: the znode's name */
	int64_t		czxid;			/* CREATE_BOTH, CREATE, INSPECT */
	bool		ours;			/* CREATE_BOTH, CREATE, INSPECT, WATCH: the
								 * live session owns the znode */
	bool		revoked;		/* WATCH_SELF: the znode's text requests the
								 * release */
	bool		queried;		/* the text queries whether the lock is in use */
	bool		answered;		/* WATCH, WATCH_SELF: the text says that the
								 * lock is in use */
	bool		stale;			/* WATCH_SELF: the text does not name the
								 * backend that it must name */
	int32_t		version;		/* WATCH_SELF: of the znode's data */
	const char *const *children;	/* LIST, SURVEY */
	int			nchildren;
	const ZklLease *leases;		/* LIST, of a lease: the children in order */
	int			limit;			/* LIST, of a lease: how many leases the
								 * semaphore has, or ZKL_LIMIT_NONE */
} ZklTicketEvent;

typedef struct ZklTicketStep
{
	ZklRequest	request;
	ZklReport	report;
	ZklFailure	failure;
	bool		orphan;			/* the create may still be done; see the top */
} ZklTicketStep;

/*
 * What a ticket knows, and how long each fact holds.  After a reconnect or a
 * restart of the worker, a ticket that relies on a watch lists the directory
 * again, and so sets the watch again.  Only the worker uses a ticket, so no
 * lock protects it.
 */
typedef struct ZklTicket
{
	ZklTicketState state;
	uint32_t	attempt;		/* counts creates; tags requests and replies */

	/*
	 * about the ticket that is wanted, from WANT on; "mode" changes with a
	 * downgrade
	 */
	ZklMode		mode;
	bool		unwanted;		/* delete it as soon as its name is known */
	bool		rechecks;		/* it lists again, to see whether it is still
								 * contended */
	int			rounds;			/* how often the directory was missing */
	ZklFailure	failure;		/* in states REFUSED and STUCK; of an owner:
								 * why its last list failed */

	/* about the znode, until the next attempt to make one */
	char		uuid[ZKL_UUID_SIZE];	/* of the attempt */
	char		name[ZKL_ZNODE_SIZE];	/* of the znode, once it is known */
	int64_t		czxid;
	int32_t		version;		/* of its data */
	bool		refused;		/* ZooKeeper has refused a write, because the
								 * data no longer have that version */
	bool		surveyed;		/* the path is no semaphore: the ticket saw no
								 * lease since its znode exists */

	/*
	 * the fields below, up to the list, are for as long as the ticket is
	 * owned, until a downgrade
	 */
	bool		watched;		/* it watches its own znode */
	bool		revoked;		/* REVOKED was reported */
	bool		queried;		/* the text, as last read, queries whether the
								 * lock is in use */
	bool		answers;		/* the lock is in use, and the znode has to
								 * say so */
	bool		answered;		/* the znode said that the lock is in use when
								 * the ticket last read it */
	bool		writes_answer;	/* the write under way says that the lock is
								 * in use */
	bool		write_refused;	/* ZooKeeper refused the last write of the
								 * znode's data, so a read that finds them out
								 * of date leads to no other write */

	/* what the last list showed; later lists only add to it */
	bool		listed;			/* there was a list */
	bool		contended;		/* another client waits for the znode to go */
	bool		asked;			/* another client queries whether the lock is
								 * in use */
	bool		asking;			/* this ticket queries the one before it,
								 * which may linger */
	bool		other_kind;		/* the ticket before this one takes the path
								 * for another kind of lock */
	char		predecessor[ZKL_CHILD_SIZE];	/* the znode that it waits
												 * for, or empty */
	char		front[ZKL_CHILD_SIZE];	/* if it waits: the znode that owns
										 * the lock; empty: not known */

	/* true until the directory changes or its watch is lost */
	bool		next;			/* no other znode than the predecessor goes
								 * before it */

	/* about another client's znode; true as long as that exists */
	char		in_use[ZKL_CHILD_SIZE]; /* the znode that answered last */
} ZklTicket;

/*
 * Feed one event, and return what to do.  If the event means nothing in the
 * ticket's state (a watch that fired late, say), the step is empty.
 */
extern ZklTicketStep zkl_ticket_step(ZklTicket *ticket,
									 const ZklTicketEvent *event);

/*
 * Begin an attempt to make a znode.  Call this before each CREATE or
 * CREATE_BOTH is sent.  "random" becomes the UUID by which the ticket finds
 * the znode if the reply is lost.
 */
extern void zkl_ticket_begin_attempt(ZklTicket *ticket,
									 const uint8_t random[16],
									 bool only_tries);

#endif							/* ZKL_TICKET_H */
