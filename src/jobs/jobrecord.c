/*-------------------------------------------------------------------------
 *
 * jobrecord.c
 *	  The record of a job: which tick it has used up, and what became of the run.
 *
 * src/jobs/jobrecord.c
 *
 *-------------------------------------------------------------------------
 */
#include "jobs/jobrecord.h"

#include <stdio.h>
#include <string.h>

#include "protocol/fieldtext.h"

static bool take_state(const char **at, ZklJobState *state);
static bool take_id(const char **at, char id[ZKL_PATH_ID_SIZE]);
static int64_t distance(int64_t a, int64_t b);

static const char *const state_names[] = {
	[ZKL_JOB_STARTED] = "started",
	[ZKL_JOB_DONE] = "done",
	[ZKL_JOB_FAILED] = "failed"
};

#define NSTATES	((int) (sizeof(state_names) / sizeof(state_names[0])))

/* The text about the backend comes last, because it contains blanks. */
void
zkl_job_record_format(const ZklJobRecord *record, char str[ZKL_JOBRECORD_SIZE])
{
	snprintf(str, ZKL_JOBRECORD_SIZE,
			 "zklock-job=1 tick=%lld state=%s run=%s attempt=%d token=%lld"
			 " started=%lld ended=%lld %s",
			 (long long) record->tick, state_names[record->state], record->run,
			 record->attempt, (long long) record->token,
			 (long long) record->started, (long long) record->ended,
			 record->owner_text);
}

/* A text of the maximum length may have been cut off, so refuse it. */
bool
zkl_job_record_parse(const char *str, size_t length, ZklJobRecord *record)
{
	char		copy[ZKL_JOBRECORD_SIZE];
	const char *at = copy;
	int64_t		attempt;

	/* A null byte would hide the rest of the text from the parser. */
	if (length >= sizeof(copy) || memchr(str, '\0', length) != NULL)
		return false;
	memcpy(copy, str, length);
	copy[length] = '\0';

	if (!zkl_field_text_take_word(&at, "zklock-job=1 ") ||
		!zkl_field_text_take_number(&at, "tick=", INT64_MIN, INT64_MAX, &record->tick) ||
		!take_state(&at, &record->state) ||
		!take_id(&at, record->run) ||
		!zkl_field_text_take_number(&at, "attempt=", 1, INT32_MAX, &attempt) ||
		!zkl_field_text_take_number(&at, "token=", INT64_MIN, INT64_MAX, &record->token) ||
		!zkl_field_text_take_number(&at, "started=", 0, INT64_MAX, &record->started) ||
		!zkl_field_text_take_number(&at, "ended=", 0, INT64_MAX, &record->ended) ||
		strlen(at) >= sizeof(record->owner_text))
		return false;
	record->attempt = (int) attempt;
	strcpy(record->owner_text, at);
	return true;
}

static bool
take_state(const char **at, ZklJobState *state)
{
	if (!zkl_field_text_take_word(at, "state="))
		return false;
	for (int i = 0; i < NSTATES; i++)
	{
		if (zkl_field_text_take_word(at, state_names[i]))
		{
			*state = (ZklJobState) i;
			return zkl_field_text_take_word(at, " ");
		}
	}
	return false;
}

static bool
take_id(const char **at, char id[ZKL_PATH_ID_SIZE])
{
	if (!zkl_field_text_take_word(at, "run=") ||
		strspn(*at, "0123456789abcdef") != ZKL_PATH_ID_SIZE - 1)
		return false;
	memcpy(id, *at, ZKL_PATH_ID_SIZE - 1);
	id[ZKL_PATH_ID_SIZE - 1] = '\0';
	*at += ZKL_PATH_ID_SIZE - 1;
	return zkl_field_text_take_word(at, " ");
}

const char *
zkl_job_record_state_name(ZklJobState state)
{
	return state_names[state];
}

/*
 * The caller holds the job's lock.  So if the record still says "started", its
 * runner has died.  If the wanted tick is near enough to the last tick to be
 * the same one, the record keeps the number of the last tick.  Otherwise each
 * retry would move the span in which ticks count as used.
 */
bool
zkl_job_record_decide(const ZklJobRecord *last, const ZklJobTick *wanted,
					  ZklJobRecord *next)
{
	bool		same = last != NULL &&
	distance(wanted->tick, last->tick) <= wanted->spacing;

	/* A tick earlier than the last one counts as used up. */
	if (last != NULL && !same && wanted->tick < last->tick)
		return false;

	/*
	 * A run that failed or died may be repeated; a run that is done may not.
	 */
	if (same && (!wanted->retry || last->state == ZKL_JOB_DONE))
		return false;
	next->tick = same ? last->tick : wanted->tick;
	next->attempt = same && last->attempt < INT32_MAX ? last->attempt + 1 : 1;
	return true;
}

/* The distance, or the greatest number if the distance overflows. */
static int64_t
distance(int64_t a, int64_t b)
{
	uint64_t	distance = a > b ? (uint64_t) a - (uint64_t) b :
	(uint64_t) b - (uint64_t) a;

	return distance > INT64_MAX ? INT64_MAX : (int64_t) distance;
}

/*
 * The caller knows ZooKeeper's time a little late, so allow twice the time by
 * which a tick may be ahead.  No record names a tick beyond that.
 */
void
zkl_job_record_close(ZklJobRecord *record, int64_t zookeeper_time)
{
	int64_t		last = zookeeper_time + 2 * ZKL_JOBRECORD_AHEAD_MAX;

	record->state = ZKL_JOB_DONE;
	if (record->tick < last)
		record->tick = last;
}

/* A plain difference of two times could overflow. */
bool
zkl_job_record_is_ahead(int64_t tick, int64_t zookeeper_time)
{
	return tick > zookeeper_time &&
		distance(tick, zookeeper_time) > ZKL_JOBRECORD_AHEAD_MAX;
}
