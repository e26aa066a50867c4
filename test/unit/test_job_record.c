/*-------------------------------------------------------------------------
 *
 * test_job_record.c
 *	  The record of a job: its text, and what it decides.
 *
 * test/unit/test_job_record.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "jobs/jobrecord.h"

#define MINUTE	INT64_C(60000000)
#define NOON	(INT64_C(1795348800) * 1000000)

static const ZklJobRecord example = {
	.tick = NOON,
	.state = ZKL_JOB_STARTED,
	.run = "00112233445566778899aabbccddeeff",
	.attempt = 2,
	.token = 281474976710657,
	.started = NOON + 1,
	.owner_text = "server=a pid=7 database=db role=r application="
};

static const char example_text[] = "zklock-job=1 tick=1795348800000000 state=started"
" run=00112233445566778899aabbccddeeff attempt=2 token=281474976710657"
" started=1795348800000001 ended=0"
" server=a pid=7 database=db role=r application=";

static void
assert_same_record(const ZklJobRecord *a, const ZklJobRecord *b)
{
	assert_int_equal(a->tick, b->tick);
	assert_int_equal(a->state, b->state);
	assert_string_equal(a->run, b->run);
	assert_int_equal(a->attempt, b->attempt);
	assert_int_equal(a->token, b->token);
	assert_int_equal(a->started, b->started);
	assert_int_equal(a->ended, b->ended);
	assert_string_equal(a->owner_text, b->owner_text);
}

TEST(a_record_has_a_text)
{
	char		text[ZKL_JOBRECORD_SIZE];
	ZklJobRecord parsed;

	zkl_job_record_format(&example, text);
	assert_string_equal(text, example_text);
	assert_true(zkl_job_record_parse(text, strlen(text), &parsed));
	assert_same_record(&parsed, &example);
}

TEST(records_survive_as_text)
{
	uint64_t	seed = 1;

	for (int i = 0; i < 20000; i++)
	{
		ZklJobRecord record;
		ZklJobRecord parsed;
		uint8_t		random[16];
		char		text[ZKL_JOBRECORD_SIZE];
		int			length = random_below(&seed, ZKL_OWNER_TEXT_SIZE);

		random_bytes(&seed, random, sizeof(random));
		zkl_path_make_id(random, record.run);
		random_bytes(&seed, (uint8_t *) &record.tick, sizeof(record.tick));
		random_bytes(&seed, (uint8_t *) &record.started, sizeof(record.started));
		random_bytes(&seed, (uint8_t *) &record.ended, sizeof(record.ended));
		if (random_below(&seed, 4) == 0)
			record.tick = random_below(&seed, 2) ? INT64_MIN : INT64_MAX;
		record.started &= INT64_MAX;
		record.ended &= INT64_MAX;
		record.token = record.tick;
		record.state = (ZklJobState) random_below(&seed, 3);
		record.attempt = 1 + (int) (random_below(&seed, UINT32_MAX) >> 2);
		memset(record.owner_text, 'x', sizeof(record.owner_text));
		record.owner_text[length] = '\0';

		zkl_job_record_format(&record, text);
		assert_true(strlen(text) < ZKL_JOBRECORD_SIZE - 1);
		assert_true(zkl_job_record_parse(text, strlen(text), &parsed));
		assert_same_record(&parsed, &record);
	}
}

static void
assert_unreadable(const char *text, size_t length)
{
	ZklJobRecord parsed;

	if (zkl_job_record_parse(text, length, &parsed))
		fail_msg("\"%.*s\" was taken for a record", (int) length, text);
}

TEST(other_texts_are_no_records)
{
	static const char *const changes[][2] = {
		{"zklock-job=1", "zklock-job=2"},
		{"tick=1795348800000000", "tick="},
		{"tick=1795348800000000", "tick=-"},
		{"tick=1795348800000000", "tick=-0"},
		{"tick=1795348800000000", "tick=01"},
		{"tick=1795348800000000", "tick=+1"},
		{"tick=1795348800000000", "tick=9223372036854775808"},
		{"tick=1795348800000000", "tick=-9223372036854775809"},
		{"tick=1795348800000000", "tick=18446744073709551617"},
		{"tick=1795348800000000", "tick=1e9"},
		{"state=started", "state=start"},
		{"state=started", "state=starteddone"},
		{"run=0011", "run=001G"},
		{"run=0011", "run=001"},
		{"run=0011", "run=00111"},
		{"attempt=2", "attempt=0"},
		{"attempt=2", "attempt=2147483648"},
		{"token=2", "token=2x"},
		{"started=1", "begun=1"},
		{"started=1", "started=-1"},
		{"ended=0", "ended=-1"},
		{"ended=0 ", "ended=0"},
		{" started", "  started"}
	};
	char		text[2 * ZKL_JOBRECORD_SIZE];

	assert_unreadable("", 0);
	assert_unreadable("127.0.0.1", 9);
	for (int i = 0; i < lengthof(changes); i++)
	{
		const char *at = strstr(example_text, changes[i][0]);

		assert_non_null(at);
		snprintf(text, sizeof(text), "%.*s%s%s", (int) (at - example_text),
				 example_text, changes[i][1], at + strlen(changes[i][0]));
		assert_unreadable(text, strlen(text));
	}

	/* cut, with a null in it, or too long */
	for (size_t length = 0; length < (size_t) (strstr(example_text, " server") - example_text); length++)
		assert_unreadable(example_text, length);
	memcpy(text, example_text, sizeof(example_text));
	text[strlen(text) - 3] = '\0';
	assert_unreadable(text, strlen(example_text));
	memset(text, 'x', sizeof(text));
	memcpy(text, example_text, strlen(example_text));
	assert_unreadable(text, ZKL_JOBRECORD_SIZE - 1);
	assert_unreadable(text, ZKL_JOBRECORD_SIZE);
	assert_unreadable(text, sizeof(text));
}

/*
 * Decisions
 */

/* May a tick be run, so many minutes after that of the record? */
static bool
may_run(ZklJobState last, int64_t minutes, bool retry, int64_t spacing, ZklJobRecord *next)
{
	ZklJobRecord record = example;
	ZklJobTick	wanted = {NOON + minutes * MINUTE, spacing, retry};

	record.state = last;
	return zkl_job_record_decide(&record, &wanted, next);
}

TEST(the_first_tick_runs)
{
	ZklJobRecord next;
	ZklJobTick	wanted = {NOON, 0, false};

	assert_true(zkl_job_record_decide(NULL, &wanted, &next));
	assert_int_equal(next.tick, NOON);
	assert_int_equal(next.attempt, 1);
}

TEST(a_tick_runs_once)
{
	ZklJobRecord next;

	for (int last = ZKL_JOB_STARTED; last <= ZKL_JOB_FAILED; last++)
	{
		assert_false(may_run((ZklJobState) last, 0, false, 0, &next));
		assert_false(may_run((ZklJobState) last, -1, false, 0, &next));
		assert_false(may_run((ZklJobState) last, -1, true, 0, &next));
		assert_true(may_run((ZklJobState) last, 1, false, 0, &next));
		assert_int_equal(next.tick, NOON + MINUTE);
		assert_int_equal(next.attempt, 1);
	}
}

TEST(a_run_that_failed_or_died_is_retried)
{
	ZklJobRecord next;

	assert_false(may_run(ZKL_JOB_DONE, 0, true, 0, &next));
	assert_true(may_run(ZKL_JOB_FAILED, 0, true, 0, &next));
	assert_int_equal(next.tick, NOON);
	assert_int_equal(next.attempt, example.attempt + 1);
	assert_true(may_run(ZKL_JOB_STARTED, 0, true, 0, &next));
	assert_int_equal(next.attempt, example.attempt + 1);
}

TEST(near_ticks_are_the_same)
{
	ZklJobRecord next;

	assert_false(may_run(ZKL_JOB_DONE, 60, false, 60 * MINUTE, &next));
	assert_true(may_run(ZKL_JOB_DONE, 61, false, 60 * MINUTE, &next));
	assert_int_equal(next.tick, NOON + 61 * MINUTE);
	assert_int_equal(next.attempt, 1);

	/* A retry keeps the tick, however its clock is wrong. */
	assert_true(may_run(ZKL_JOB_FAILED, 60, true, 60 * MINUTE, &next));
	assert_int_equal(next.tick, NOON);
	assert_int_equal(next.attempt, example.attempt + 1);
	assert_true(may_run(ZKL_JOB_FAILED, -60, true, 60 * MINUTE, &next));
	assert_int_equal(next.tick, NOON);
	assert_false(may_run(ZKL_JOB_FAILED, -61, true, 60 * MINUTE, &next));
	assert_false(may_run(ZKL_JOB_DONE, 60, true, 60 * MINUTE, &next));
}

TEST(ticks_at_the_ends_of_time_do_not_overflow)
{
	ZklJobRecord record = example;
	ZklJobRecord next;
	ZklJobTick	wanted = {INT64_MAX, INT64_MAX - 1, false};

	record.tick = INT64_MIN;
	assert_true(zkl_job_record_decide(&record, &wanted, &next));
	record.tick = INT64_MAX;
	wanted.tick = INT64_MIN;
	assert_false(zkl_job_record_decide(&record, &wanted, &next));
	record = example;
	record.attempt = INT32_MAX;
	wanted = (ZklJobTick) {record.tick, 0, true};
	assert_true(zkl_job_record_decide(&record, &wanted, &next));
	assert_int_equal(next.attempt, 1);
}

/* A tick that no caller could have used by then. */
TEST(a_closed_record_leaves_no_tick_that_may_have_been_used)
{
	ZklJobRecord record = {.tick = NOON,.state = ZKL_JOB_STARTED};
	ZklJobRecord next;
	ZklJobTick	wanted = {.tick = NOON + MINUTE,.retry = true};

	zkl_job_record_close(&record, NOON);
	assert_false(zkl_job_record_decide(&record, &wanted, &next));
	wanted.tick = NOON + 3 * MINUTE;
	assert_true(zkl_job_record_decide(&record, &wanted, &next));

	/* A record of the far future, which another client wrote, stays as it is. */
	record.tick = NOON + 1000 * MINUTE;
	zkl_job_record_close(&record, NOON);
	assert_true(record.tick == NOON + 1000 * MINUTE);
}

TEST(a_tick_may_be_a_minute_ahead)
{
	assert_false(zkl_job_record_is_ahead(NOON, NOON));
	assert_false(zkl_job_record_is_ahead(NOON + MINUTE, NOON));
	assert_true(zkl_job_record_is_ahead(NOON + MINUTE + 1, NOON));
	assert_false(zkl_job_record_is_ahead(NOON - 1000 * MINUTE, NOON));
	assert_true(zkl_job_record_is_ahead(INT64_MAX, INT64_MIN));
	assert_false(zkl_job_record_is_ahead(INT64_MIN, INT64_MAX));
}

int
main(void)
{
	return run_all_tests("job record");
}
