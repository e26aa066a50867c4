/*-------------------------------------------------------------------------
 *
 * jobruns.h
 *	  The runs of jobs on this server, whose begin and end must be recorded.
 *
 * A run has a SLOT in shared memory from the moment at which a backend wants
 * its record to be written, until the record says how the run has ended.
 * Backends make the requests, and the worker of the ZooKeeper session that
 * has the ticket of the job's lock writes.  A slot outlives its backend: a
 * run always ends.
 *
 *		from -> to				by			when
 *		FREE -> STARTING		backend		it holds the job's lock
 *		STARTING -> ANSWERED	worker		ZooKeeper has answered.  If the
 *											record was written, the run goes on
 *		ANSWERED -> STARTING	backend		it tries again with what the record
 *											says now
 *		ANSWERED -> FREE		backend,	the run has ended, and the record
 *								worker		was not written
 *		STARTING, ANSWERED		backend,	the run has ended
 *		-> ENDED				worker
 *		ENDED -> FREE			worker		the record says so, or it is certain
 *											that it is not this run's any more
 *
 * The claim on the job's lock has the slot's number.  Whatever ends the claim,
 * or loses it, ends the run: as failed, unless its backend has ended the run
 * before.  The worker writes the end of a run into the record before it
 * deletes the ticket.  So the next client that gets the lock finds the end in
 * the record.
 *
 * Writes are conditional on the version of the record.  If the record has
 * another version, the worker reads it, and recognizes its own write by the
 * run's ID.  A run is UNSURE if it was lost, or if it has ended before it was
 * certain that its start was written.  Then the worker reads before it
 * writes.
 *
 * Locks.  One LWLock protects all slots.  A process may take it while it holds
 * a partition of the lock table, and takes no other lock of zklock after it.
 * No function raises an error.
 *
 * src/jobs/jobruns.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_JOBRUNS_H
#define ZKL_JOBRUNS_H

#include "datatype/timestamp.h"
#include "storage/lwlock.h"

#include "jobs/jobrecord.h"
#include "shared/lockentry.h"

#define ZKL_JOBRUNS_PER_BACKEND	64

typedef enum ZklJobRunState
{
	ZKL_JOBRUN_FREE,
	ZKL_JOBRUN_STARTING,
	ZKL_JOBRUN_ANSWERED,
	ZKL_JOBRUN_ENDED
} ZklJobRunState;

/* The outcome of the write that begins a run. */
typedef enum ZklJobAnswer
{
	ZKL_JOB_ANSWER_NONE,		/* there is none yet */
	ZKL_JOB_ANSWER_WRITTEN,
	ZKL_JOB_ANSWER_OVERTAKEN,	/* written, but over a record that the backend
								 * had not read */
	ZKL_JOB_ANSWER_CHANGED,		/* not written: the record has changed since
								 * it was read */
	ZKL_JOB_ANSWER_AHEAD,		/* the tick is too far in the future */
	ZKL_JOB_ANSWER_FULL,		/* there are zklock.max_jobs records already */
	ZKL_JOB_ANSWER_DENIED,		/* ZooKeeper's access control forbids it */
	ZKL_JOB_ANSWER_QUOTA,		/* a quota in ZooKeeper is used up */
	ZKL_JOB_ANSWER_REFUSED,		/* ZooKeeper refuses it for another reason */
	ZKL_JOB_ANSWER_DIFFERS,		/* ZooKeeper's servers do not agree about the
								 * record */
	ZKL_JOB_ANSWER_ENDED		/* the claim was lost, and so was the run */
} ZklJobAnswer;

/* The znode of a record: its text and version. */
typedef struct ZklJobZnode
{
	bool		exists;
	int64		czxid;
	int32		version;
	int			length;
	char		data[ZKL_JOBRECORD_SIZE];
} ZklJobZnode;

/* What the backend learns of the write of its run's record. */
typedef struct ZklJobReply
{
	ZklJobAnswer answer;
	ZklJobZnode last;			/* CHANGED: the record as it is now */
	int64		zookeeper_time; /* AHEAD */
} ZklJobReply;

typedef struct ZklJobRun
{
	ZklJobRunState state;
	uint32		serial;			/* grows whenever the worker has to begin
								 * again */
	int			proc_number;	/* of the backend */
	Oid			role;			/* the role that logged in */
	bool		look;			/* STARTING: the record may have been deleted
								 * and created again since the backend read it */
	bool		unsure;
	char		path[ZKL_PATH_SIZE];
	ZklJobRecord record;		/* the record that the worker must write */
	ZklJobZnode last;			/* the record that the write replaces; from
								 * WRITTEN on, version and czxid of the run's
								 * own record */

	/* from ANSWERED on */
	ZklJobAnswer answer;
	uint64		epoch;			/* of the ZooKeeper session */
	int64		zookeeper_time; /* AHEAD */
} ZklJobRun;

/* The part of shared memory, for the table in zklock.c. */
extern Size zkl_job_runs_size(void);
extern void zkl_job_runs_attach(void *memory, LWLockPadded *locks, bool is_new);

/*
 * For backends:
 *
 * mine: how many runs this backend has.  It may begin another run only if it
 * has fewer than ZKL_JOBRUNS_PER_BACKEND: if all of them end together, the
 * worker writes all their ends at once, and other backends' requests wait for
 * that.
 *
 * take: FREE -> STARTING.  Returns the slot, or ZKL_RUN_NONE if all are in
 * use, or if the role has its share (rolequota.h).  The caller puts the number
 * into its claim, which wakes the worker (zkl_claim_set_run).
 *
 * ask_again: ANSWERED -> STARTING, to replace this record.
 *
 * answer: after NONE, the backend's latch will be set when there is another
 * answer.  "id" is the ID of the run, because the worker may have ended that
 * run with its claim.
 */
extern int	zkl_job_runs_mine(void);
extern int	zkl_job_runs_take(const char *path, const ZklJobRecord *record,
							  const ZklJobZnode *last, bool look);
extern void zkl_job_runs_ask_again(int slot, const ZklJobRecord *record,
								   const ZklJobZnode *last);
extern ZklJobReply zkl_job_runs_answer(int slot, const char *id);

/*
 * For the worker:
 *
 * any: may there be slots to work on?  get: copy a slot that is STARTING or
 * ENDED; false for all others.  is_ending: is a slot of this job ENDED?
 *
 * set_answer and finish are for the request with this serial; if the slot has
 * another one by now, they do nothing.  For WRITTEN, OVERTAKEN and CHANGED
 * the slot takes over *znode.  finish: ENDED -> FREE.
 */
extern int	zkl_job_runs_number(void);
extern bool zkl_job_runs_any(void);
extern bool zkl_job_runs_get(int slot, ZklJobRun *run);
extern bool zkl_job_runs_is_ending(const char *path);
extern void zkl_job_runs_set_answer(int slot, uint32 serial, ZklJobAnswer answer,
									const ZklJobZnode *znode,
									int64 zookeeper_time);
extern void zkl_job_runs_finish(int slot, uint32 serial);

#endif							/* ZKL_JOBRUNS_H */
