/*-------------------------------------------------------------------------
 *
 * jobrecord.h
 *	  The record of a job: which tick it has used up, and what became of the run.
 *
 * Each job has one persistent znode, <root>/.zklock/jobs/<name>.  It has the
 * name of the job's lock (zkl_path_name).  So the record of "/jobs" has no
 * children.
 *
 * The record is a line of text, at most ZKL_JOBRECORD_SIZE - 1 bytes long:
 *
 *		zklock-job=1 tick=N state=S run=R attempt=N token=N started=N ended=N
 *		server=... pid=N database=... role=... application=...
 *
 * with one blank between two fields.  The times are microseconds since 1970;
 * "ended" is 0 while the state is "started".  S is "started", "done" or
 * "failed".  R is 32 hexadecimal digits that identify the run.  The last five
 * fields are the same as in a lock's znode.
 *
 * Any client may have written the znode, so the text is parsed strictly: a
 * text that zklock cannot have written is no record.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation, no clock.
 *
 * src/jobs/jobrecord.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_JOBRECORD_H
#define ZKL_JOBRECORD_H

#include "protocol/path.h"
#include "protocol/recipe.h"

#define ZKL_JOBRECORD_SIZE			512 /* with the terminating null */

/* A tick may be ahead of ZooKeeper's time by this many microseconds. */
#define ZKL_JOBRECORD_AHEAD_MAX		INT64_C(60000000)

typedef enum ZklJobState
{
	ZKL_JOB_STARTED,
	ZKL_JOB_DONE,
	ZKL_JOB_FAILED
} ZklJobState;

typedef struct ZklJobRecord
{
	int64_t		tick;			/* microseconds since 1970 */
	ZklJobState state;
	char		run[ZKL_PATH_ID_SIZE];
	int			attempt;		/* how often the tick has been run; from 1 */
	int64_t		token;			/* of the claim on the job's lock */
	int64_t		started;		/* by the clock of the server that ran it */
	int64_t		ended;			/* when the run ended, by the same clock; 0
								 * until then */
	char		owner_text[ZKL_OWNER_TEXT_SIZE];	/* the backend, as in the
													 * znodes of locks */
} ZklJobRecord;

/* The tick that a caller wants to run. */
typedef struct ZklJobTick
{
	int64_t		tick;
	int64_t		spacing;		/* a tick this near to the last used one is
								 * the same tick */
	bool		retry;			/* a run that failed or died may be repeated */
} ZklJobTick;

/*
 * Write and read the text of a record.  The second function returns false if
 * the text is not a record.
 */
extern void zkl_job_record_format(const ZklJobRecord *record,
								  char str[ZKL_JOBRECORD_SIZE]);
extern bool zkl_job_record_parse(const char *str, size_t length,
								 ZklJobRecord *record);

extern const char *zkl_job_record_state_name(ZklJobState state);

/*
 * May a caller that holds the job's lock run this tick?  "last" is the
 * current record, or NULL if there is none.  If so, *next gets the tick and
 * the attempt of the new record; its other fields stay as they are.
 */
extern bool zkl_job_record_decide(const ZklJobRecord *last,
								  const ZklJobTick *wanted,
								  ZklJobRecord *next);

/*
 * Make the record of a run that must not begin, because its write has replaced
 * a record that its backend had not read.  The replaced record may have named
 * any tick that was allowed by this moment of ZooKeeper's time.  So the new
 * record rules out all of these ticks.
 */
extern void zkl_job_record_close(ZklJobRecord *record, int64_t zookeeper_time);

/* Is a tick too far ahead of this moment of ZooKeeper's time? */
extern bool zkl_job_record_is_ahead(int64_t tick, int64_t zookeeper_time);

#endif							/* ZKL_JOBRECORD_H */
