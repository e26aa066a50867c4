/*-------------------------------------------------------------------------
 *
 * command.h
 *	  Commands: what a backend asks the worker to do once, besides tickets.
 *
 * A fixed number of SLOTs in shared memory.  A slot belongs to the backend
 * that took it, until that backend puts it back; then its generation grows,
 * and the worker drops what it still does for the old one.  So a backend that
 * is cancelled or ends leaves nothing behind, and never waits for that.
 *
 *		from -> to			who			when
 *		FREE -> ASKED		backend		it has written down its command
 *		ASKED -> RUNNING	worker		it begins with it
 *		RUNNING -> ASKED	worker		a new worker: the old one's replies
 *										are lost
 *		RUNNING -> DONE		worker		outcome and answer are complete
 *		any -> FREE			backend		it has the answer, or does not want it
 *										any more; the generation grows
 *
 * All commands may be done twice: what reads changes nothing, a write writes
 * the same again, a request for release is the same as two, and a name that was deleted is never given out again.  So
 * where the connection or the worker was lost, a command begins anew.
 *
 * Locks.  One LWLock protects all slots, except for what is marked otherwise.
 * No other lock of zklock is taken while it is held, and nobody raises an
 * error meanwhile.  Wake-ups are sent while it is held.
 *
 * An answer that does not fit into the slot is in a dynamic shared memory
 * segment, which is pinned from DONE to FREE: whoever frees the slot unpins
 * it, and nothing else keeps it alive.
 *
 * src/command.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_COMMAND_H
#define ZKL_COMMAND_H

#include "path.h"

/* All commands are the first worker's, whichever session a ticket is in. */
#define ZKL_COMMAND_SESSION		0

#define ZKL_COMMANDS			16
#define ZKL_COMMAND_CHILD_SIZE	512 /* "leases/" and a name, with the null */
#define ZKL_COMMAND_DATA_SIZE	256

typedef enum ZklCommandKind
{
	ZKL_COMMAND_LIST,			/* the names in a lock's directories */
	ZKL_COMMAND_SURVEY,			/* the same, and what is in the znodes */
	ZKL_COMMAND_WRITE,			/* the data of a child or the directory */
	ZKL_COMMAND_REVOKE,			/* request the release of a child's lock */
	ZKL_COMMAND_DELETE			/* a child */
} ZklCommandKind;

typedef enum ZklCommandOutcome
{
	ZKL_COMMAND_OK,
	ZKL_COMMAND_ABSENT,			/* no such znode */
	ZKL_COMMAND_DENIED,			/* ZooKeeper's access control says no */
	ZKL_COMMAND_REFUSED,		/* by ZooKeeper, for another reason */
	ZKL_COMMAND_TOO_LARGE,		/* the answer is */
	ZKL_COMMAND_NO_MEMORY		/* no shared memory for the answer */
} ZklCommandOutcome;

typedef struct ZklCommand
{
	ZklCommandKind kind;
	char		path[ZKL_PATH_SIZE];	/* the lock */
	char		child[ZKL_COMMAND_CHILD_SIZE];	/* of its directory; empty:
												 * itself */
	char		data[ZKL_COMMAND_DATA_SIZE];	/* to be written */
} ZklCommand;

/* For the shared-memory hooks: once in the postmaster, once in each process. */
extern void zkl_command_request(void);
extern void zkl_command_startup(void);

/*
 * For backends.
 *
 * Take a slot and ask; -1 if none is free.  wait_for_slot returns when one may
 * be, or the time has passed, or raises an error if it is cancelled.  end
 * gives the slot back in whatever state it is, and never raises an error.
 */
extern int	zkl_command_ask(const ZklCommand *command);
extern void zkl_command_wait_for_slot(long timeout_ms);
extern bool zkl_command_is_done(int slot);
extern void zkl_command_end(int slot);

/* When ZooKeeper has answered anything for the command; 0: never. */
extern int64 zkl_command_heard_at(int slot);

/*
 * Of a command that is done: its outcome, and a copy of its answer in the
 * current memory context (NULL: none).  Raises an error if the segment cannot
 * be attached; the slot is still the caller's to end.
 */
extern ZklCommandOutcome zkl_command_result(int slot, char **answer);

/*
 * For the worker.
 *
 * adopt: a worker starts; what another one was doing is asked again.  take:
 * the next that is asked is running now; false if none is.  "again" says that
 * it may have been done already.  is_wanted: the slot is still of this
 * generation.  finish copies the answer and wakes the backend, unless that
 * does not want it any more.  It never raises an error.
 */
extern void zkl_command_adopt(void);
extern bool zkl_command_take(int *slot, uint32 *generation,
							 ZklCommand *command, bool *again);
extern bool zkl_command_is_wanted(int slot, uint32 generation);
extern void zkl_command_note_heard(int slot, uint32 generation);
extern void zkl_command_finish(int slot, uint32 generation,
							   ZklCommandOutcome outcome,
							   const char *answer, Size size);

#endif							/* ZKL_COMMAND_H */
