/*-------------------------------------------------------------------------
 *
 * mailbox.h
 *	  Commands: what a backend makes the worker do once, besides tickets.
 *
 * There is a fixed number of SLOTs in shared memory.  A slot belongs to the
 * backend that took it, until that backend puts it back.  Then the slot's
 * serial grows, and the worker stops its work for the old serial.  So a
 * backend that is cancelled or ends leaves nothing behind, and does not have
 * to wait for the worker.
 *
 *		from -> to			by			when
 *		FREE -> ASKED		backend		its command is in the slot
 *		ASKED -> RUNNING	worker		it begins with the command
 *		RUNNING -> ASKED	worker		a new worker starts: the replies to
 *										the old one are lost
 *		RUNNING -> DONE		worker		outcome and answer are complete
 *		any -> FREE			backend		it has the answer, or no longer wants
 *										it; the serial grows
 *
 * All commands may be begun again.  A read changes nothing.  A second write
 * writes the same.  Two requests for release are the same as one.  ZooKeeper
 * never gives out a deleted name again.  So if the connection or the worker is
 * lost, the worker simply does the command again.  Only REPLACE is not sent
 * again after an unknown outcome.  If the next worker begins with it again,
 * its condition fails where the first one had written.
 *
 * Locks.  One LWLock protects all slots, except for the fields that say
 * otherwise.  A process that holds it takes no other lock of zklock and raises
 * no error.  Wake-ups are sent while it is held.
 *
 * A result that does not fit into the slot is in a dynamic shared memory
 * segment.  The segment is pinned from DONE to FREE.  The process that frees
 * the slot unpins it, and nothing else keeps it alive.
 *
 * src/shared/mailbox.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_MAILBOX_H
#define ZKL_MAILBOX_H

#include "storage/lwlock.h"

#include "protocol/path.h"

#define ZKL_COMMANDS			16
#define ZKL_WALK_MAX			20000	/* znodes of a WALK */
#define ZKL_COMMAND_CHILD_SIZE	ZKL_PATH_NAME_SIZE	/* room for "leases/" and
													 * a name */
#define ZKL_COMMAND_DATA_SIZE	256

typedef enum ZklCommandKind
{
	ZKL_COMMAND_LIST,			/* the names in a lock's directories */
	ZKL_COMMAND_SURVEY,			/* the names and the contents of the znodes */
	ZKL_COMMAND_WRITE,			/* write the data of a child or of the
								 * directory */
	ZKL_COMMAND_LIMIT,			/* write the first bytes of "data" as a
								 * semaphore's limit */
	ZKL_COMMAND_REVOKE,			/* request the release of a child's lock */
	ZKL_COMMAND_QUERY,			/* query whether a child's lock is in use */
	ZKL_COMMAND_DELETE,			/* delete a child */
	ZKL_COMMAND_READ,			/* read one child */
	ZKL_COMMAND_JOBS,			/* read all records */
	ZKL_COMMAND_WAITS,			/* read the records of waits, of all servers */
	ZKL_COMMAND_SERVERS,		/* read the records of all servers */
	ZKL_COMMAND_WALK,			/* list the locks at "path" and below */
	ZKL_COMMAND_READ_NEWEST,	/* READ, but at least as new as the last write
								 * of any client */
	ZKL_COMMAND_REPLACE			/* WRITE over "version", or make the child.
								 * REFUSED, unless this command has certainly
								 * written it */
} ZklCommandKind;

typedef enum ZklCommandOutcome
{
	ZKL_COMMAND_OK,
	ZKL_COMMAND_ABSENT,			/* no such znode */
	ZKL_COMMAND_DENIED,			/* ZooKeeper's access control forbids it */
	ZKL_COMMAND_QUOTA,			/* a quota in ZooKeeper is used up */
	ZKL_COMMAND_REFUSED,		/* ZooKeeper refuses it for another reason */
	ZKL_COMMAND_AWAY,			/* ZooKeeper cannot be reached */
	ZKL_COMMAND_DIFFERS,		/* ZooKeeper's servers do not agree about the
								 * znode */
	ZKL_COMMAND_TOO_LARGE,		/* the result is too large */
	ZKL_COMMAND_TOO_MANY,		/* more than ZKL_WALK_MAX znodes */
	ZKL_COMMAND_NO_MEMORY		/* no shared memory for the answer */
} ZklCommandOutcome;

/*
 * What to do if ZooKeeper cannot be reached.  A try gives up as early as a
 * try for a lock does.
 */
typedef enum ZklPatience
{
	ZKL_PATIENCE_LOOK,			/* report it when all servers were tried */
	ZKL_PATIENCE_TRY,			/* report it when it is silent */
	ZKL_PATIENCE_WAIT			/* wait, as an acquire does */
} ZklPatience;

typedef struct ZklCommand
{
	ZklCommandKind kind;
	char		path[ZKL_PATH_SIZE];	/* the lock, or another directory */
	char		child[ZKL_COMMAND_CHILD_SIZE];	/* a znode in the lock's
												 * directory; empty: the
												 * directory itself */
	char		data[ZKL_COMMAND_DATA_SIZE];	/* the data to write */
	ZklPatience patience;
	int32		version;		/* REPLACE: of the child; -1: it is absent */
} ZklCommand;

/* A command that the worker has taken. */
typedef struct ZklTakenCommand
{
	int			slot;
	uint32		serial;
	Oid			role;			/* the role that logged in to the backend */
	bool		again;			/* it may have been done already */
	ZklCommand	command;
} ZklTakenCommand;

/* The part of shared memory, for the table in zklock.c. */
extern Size zkl_mailbox_size(void);
extern void zkl_mailbox_attach(void *memory, LWLockPadded *locks, bool is_new);

/*
 * For backends:
 *
 * ask takes a slot and hands over the command; -1 if no slot is free, or the
 * role has its share (rolequota.h).  wait_for_slot returns when a slot may be
 * free or the time has passed, and raises an error if the backend is
 * cancelled.  end gives the slot back in whatever state it is, and never
 * raises an error.
 */
extern int	zkl_mailbox_ask(const ZklCommand *command);
extern void zkl_mailbox_wait_for_slot(long timeout_ms);
extern bool zkl_mailbox_is_done(int slot);
extern void zkl_mailbox_end(int slot);

/* When ZooKeeper last replied to any request for the command; 0 if never. */
extern int64 zkl_mailbox_heard_at(int slot);

/*
 * The outcome of a command that is done, and a copy of its result in the
 * current memory context (NULL if there is none).  Raises an error if the
 * segment cannot be attached; the caller must still end the slot.
 */
extern ZklCommandOutcome zkl_mailbox_result(int slot, char **answer);

/*
 * For the worker:
 *
 * adopt: a worker starts, and does again what its predecessor was doing.
 * take: get the next command, which is RUNNING now; false if there is none.
 * is_wanted: the slot still has this serial.  finish: copy
 * the answer into the slot and wake the backend, unless the slot has another
 * serial by now.  finish never raises an error.
 */
extern void zkl_mailbox_adopt(void);
extern bool zkl_mailbox_take(ZklTakenCommand *taken);
extern bool zkl_mailbox_is_wanted(int slot, uint32 serial);
extern void zkl_mailbox_note_heard(int slot, uint32 serial);
extern void zkl_mailbox_finish(int slot, uint32 serial,
							   ZklCommandOutcome outcome,
							   const char *answer, Size size);

#endif							/* ZKL_MAILBOX_H */
