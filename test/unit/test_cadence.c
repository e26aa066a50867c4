/*-------------------------------------------------------------------------
 *
 * test_cadence.c
 *	  What is sent when, and how far ahead that keeps safe until.
 *
 * test/unit/test_cadence.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/cadence.h"
#include "protocol/safeuntil.h"

#define MS		INT64_C(1000)
#define T		(10000 * MS)
#define PERIOD	(T / 20)
#define STEP	MS

/* A worker, and a ZooKeeper that answers each request after the same time. */
typedef struct World
{
	ZklCadence	cadence;
	ZklSafeUntil safe;
	int64_t		now;
	int64_t		latency;
	bool		holds;
	bool		away;			/* ZooKeeper does not answer */

	/* the sign under way */
	ZklSign		sign;
	int64_t		sent;
	int64_t		provable;

	/* another write under way */
	bool		writing;
	bool		succeeds;
	int64_t		write_sent;
	int64_t		write_provable;

	int			nsent[ZKL_SIGN_PROOF + 1];
	int64_t		last_sent[ZKL_SIGN_PROOF + 1];
	int64_t		widest[ZKL_SIGN_PROOF + 1];
	int64_t		least;			/* how far safe until was ahead */
} World;

static void
connect(World *world)
{
	zkl_cadence_connected(&world->cadence, T);
	zkl_safe_until_connected(&world->safe, world->now, T);
	world->sign = ZKL_SIGN_NONE;
	world->writing = false;
}

static World
begin(int64_t latency, bool holds)
{
	World		world = {.now = T, .latency = latency, .holds = holds, .least = T};

	zkl_safe_until_begin(&world.safe, 0, 0);
	connect(&world);
	return world;
}

static int64_t
ahead(const World *world)
{
	return zkl_safe_until(&world->safe) - world->now;
}

static void
write_something(World *world, bool succeeds)
{
	world->writing = true;
	world->succeeds = succeeds;
	world->write_sent = world->now;
	world->write_provable = zkl_safe_until_provable(&world->safe);
	zkl_cadence_wrote(&world->cadence, world->now);
}

static void
hear(World *world)
{
	if (world->writing && world->now >= world->write_sent + world->latency)
	{
		world->writing = false;
		if (world->succeeds)
			zkl_safe_until_proof(&world->safe, world->write_provable);
		else
			zkl_cadence_failed(&world->cadence);
	}
	if (world->sign == ZKL_SIGN_NONE || world->away || world->now < world->sent + world->latency)
		return;
	if (world->sign == ZKL_SIGN_READ)
		zkl_safe_until_sign(&world->safe, world->sent, world->now);
	else
		zkl_safe_until_echo(&world->safe, world->sent, world->now);
	if (world->sign == ZKL_SIGN_PROOF)
		zkl_safe_until_proof(&world->safe, world->provable);
	zkl_cadence_answered(&world->cadence, world->sign, world->now);
	world->sign = ZKL_SIGN_NONE;
}

static void
speak(World *world)
{
	ZklSign		sign;

	if (world->sign != ZKL_SIGN_NONE)
		return;
	sign = zkl_cadence_next(&world->cadence, world->now, world->holds, zkl_safe_until(&world->safe));

	/* Nothing is due before the moment that zkl_cadence_due() names. */
	if (sign != ZKL_SIGN_NONE)
		assert_true(zkl_cadence_due(&world->cadence, world->holds) <= world->now);
	else
	{
		assert_true(zkl_cadence_due(&world->cadence, world->holds) > world->now);
		return;
	}
	if (world->nsent[sign] > 0 && world->now - world->last_sent[sign] > world->widest[sign])
		world->widest[sign] = world->now - world->last_sent[sign];
	world->nsent[sign]++;
	world->last_sent[sign] = world->now;
	world->sign = sign;
	world->sent = world->now;
	world->provable = zkl_safe_until_provable(&world->safe);
	zkl_cadence_sent(&world->cadence, sign, world->now);
}

static void
run(World *world, int64_t time)
{
	for (int64_t until = world->now + time; world->now < until; world->now += STEP)
	{
		hear(world);
		speak(world);
		if (ahead(world) < world->least)
			world->least = ahead(world);
	}
}

/* Forget what was counted so far. */
static void
count_anew(World *world)
{
	memset(world->nsent, 0, sizeof(world->nsent));
	memset(world->widest, 0, sizeof(world->widest));
	world->least = T;
}

TEST(a_connection_begins_with_a_proof)
{
	for (int holds = 0; holds <= 1; holds++)
	{
		World		world = begin(MS, holds);

		run(&world, STEP);
		assert_int_equal(world.sign, ZKL_SIGN_PROOF);
		assert_int_equal(world.nsent[ZKL_SIGN_READ] + world.nsent[ZKL_SIGN_ECHO], 0);
		run(&world, PERIOD);
		assert_int_equal(world.nsent[ZKL_SIGN_PROOF], 1);
		assert_true(ahead(&world) > T * 9 / 10);
	}
}

TEST(an_idle_session_writes_nothing)
{
	World		world = begin(2 * MS, false);

	run(&world, T);
	count_anew(&world);
	run(&world, 20 * T);
	assert_int_equal(world.nsent[ZKL_SIGN_PROOF], 0);
	assert_true(world.nsent[ZKL_SIGN_READ] >= 198 && world.nsent[ZKL_SIGN_READ] <= 202);
	assert_true(world.nsent[ZKL_SIGN_ECHO] >= 198 && world.nsent[ZKL_SIGN_ECHO] <= 202);
	assert_true(ahead(&world) < 0);
	/* None of them is missed for long, so a connection that is cut is noticed. */
	assert_true(world.widest[ZKL_SIGN_READ] <= 3 * PERIOD + 2 * STEP);
	assert_true(world.widest[ZKL_SIGN_ECHO] <= 3 * PERIOD + 2 * STEP);
}

TEST(a_holder_writes_five_times_in_a_timeout)
{
	for (int64_t latency = 0; latency <= 100 * MS; latency += 10 * MS)
	{
		World		world = begin(latency, true);

		run(&world, 2 * T);
		count_anew(&world);
		run(&world, 20 * T);
		assert_true(world.nsent[ZKL_SIGN_PROOF] >= 80 && world.nsent[ZKL_SIGN_PROOF] <= 101);
		assert_true(world.least >= T * 2 / 5 - 4 * latency);
	}
}

/* If ZooKeeper is slow, each sign is a proof, and safe until stays ahead. */
TEST(a_slow_zookeeper_gets_more_proofs)
{
	for (int64_t latency = 100 * MS; latency <= T / 10; latency += 20 * MS)
	{
		World		world = begin(latency, true);

		run(&world, 2 * T);
		count_anew(&world);
		run(&world, 20 * T);
		assert_true(world.least >= (latency <= T / 20 ? T / 4 : 0));
		assert_true(world.nsent[ZKL_SIGN_PROOF] <= 400);
	}
}

/* The lock may come at any moment, however long the session was idle. */
TEST(the_first_write_proves_enough)
{
	for (int64_t at = 3 * T; at < 3 * T + 5 * PERIOD; at += 7 * MS)
	{
		World		world = begin(2 * MS, false);

		run(&world, at);
		assert_true(ahead(&world) < 0);
		count_anew(&world);
		world.holds = true;
		write_something(&world, true);
		run(&world, world.latency + STEP);
		assert_int_equal(world.nsent[ZKL_SIGN_PROOF], 0);
		assert_true(ahead(&world) >= T * 2 / 5);
		world.least = T;
		run(&world, 3 * T);
		assert_true(world.least >= T * 35 / 100);
	}
}

/* A standby becomes the leader without a write of its own. */
TEST(a_proof_follows_at_once_if_no_write_does)
{
	World		world = begin(2 * MS, false);

	run(&world, 3 * T);
	count_anew(&world);
	world.holds = true;
	run(&world, STEP);
	assert_int_equal(world.sign == ZKL_SIGN_PROOF || world.nsent[ZKL_SIGN_ECHO] > 0, true);
	run(&world, PERIOD);
	assert_true(ahead(&world) >= T * 2 / 5);
}

TEST(a_write_that_fails_is_no_proof)
{
	World		world = begin(2 * MS, false);

	run(&world, 3 * T);
	count_anew(&world);
	world.holds = true;
	write_something(&world, false);
	run(&world, 3 * STEP);
	assert_true(ahead(&world) < 0);
	run(&world, PERIOD + 3 * STEP);
	assert_int_equal(world.nsent[ZKL_SIGN_PROOF], 1);
	assert_true(ahead(&world) >= T * 2 / 5);
}

/* However many writes fail, the locks of others do not fall into doubt. */
TEST(writes_that_fail_do_not_keep_proofs_away)
{
	World		world = begin(2 * MS, true);

	run(&world, 2 * T);
	count_anew(&world);
	world.least = T;
	for (int i = 0; i < 400; i++)
	{
		write_something(&world, false);
		run(&world, 20 * MS);
	}
	assert_true(world.least >= T * 3 / 10);
}

/* A server that makes tickets all the time needs no proofs of its own. */
TEST(other_writes_take_the_place_of_proofs)
{
	World		world = begin(2 * MS, true);

	run(&world, 2 * T);
	count_anew(&world);
	for (int i = 0; i < 400; i++)
	{
		write_something(&world, true);
		run(&world, 20 * MS);
	}
	assert_int_equal(world.nsent[ZKL_SIGN_PROOF], 0);
	assert_true(world.least >= T * 2 / 5 - 25 * MS);
}

/* After a gap, safe until is far ahead again as soon as proofs can show it. */
TEST(a_gap_is_made_up_for)
{
	for (int64_t gap = T / 2; gap < T; gap += T / 50)
	{
		World		world = begin(2 * MS, true);

		run(&world, 2 * T);
		world.away = true;
		run(&world, gap);
		world.away = false;
		run(&world, T * 9 / 20);
		assert_true(ahead(&world) > T / 4);
	}
}

TEST(patience_ends_before_safe_until)
{
	for (int64_t at = 3 * T; at < 3 * T + 5 * PERIOD; at += 7 * MS)
	{
		World		world = begin(2 * MS, true);
		int64_t		silent_at;

		run(&world, at);
		world.away = true;
		silent_at = world.now;
		while (world.sign == ZKL_SIGN_NONE || world.now < world.sent + zkl_cadence_patience(T))
			run(&world, STEP);
		assert_true(world.now - silent_at <= zkl_cadence_patience(T) + PERIOD + 2 * STEP);
		/* There is time for one server that is silent, and for one that is not. */
		assert_true(ahead(&world) > T / 9 + 200 * MS);
	}
}

TEST(periods)
{
	assert_int_equal(zkl_cadence_period(20000 * MS), 1000 * MS);
	assert_int_equal(zkl_cadence_period(1000 * MS), 100 * MS);
}

/* Long replies that arrive are a reason to wait for the sign behind them. */
TEST(bytes_that_arrive_are_patience_up_to_a_bound)
{
	const int64_t sent = 1000;

	assert_int_equal(zkl_cadence_give_up_at(T, sent, 0), sent + T / 4);
	assert_int_equal(zkl_cadence_give_up_at(T, sent, sent - 1), sent + T / 4);
	assert_int_equal(zkl_cadence_give_up_at(T, sent, sent + T / 8), sent + T / 8 * 3);
	assert_int_equal(zkl_cadence_give_up_at(T, sent, sent + T / 3), sent + T / 2);
	assert_int_equal(zkl_cadence_give_up_at(T, sent, sent + T), sent + T / 2);
}

int
main(void)
{
	return run_all_tests("cadence");
}
