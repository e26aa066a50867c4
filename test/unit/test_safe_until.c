/*-------------------------------------------------------------------------
 *
 * test_safe_until.c
 *	  Until when a session may be believed, against a model of ZooKeeper.
 *
 * The walks let a worker, two followers and their leaders exchange messages,
 * while anything may stand still, the worker changes its follower, and leaders
 * change.  At each step, the moment that the worker has published must not lie
 * behind the one at which the leader would end the session if it heard nothing
 * more.  The mutants of safeuntil.c show that a wrong rule is found.
 *
 * test/unit/test_safe_until.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/cadence.h"
#include "protocol/safeuntil.h"

/*
 * Single cases.  The unit is a thousandth of the session timeout.
 */
#define T 1000
#define J (T / 40)

/* A new session, whose connect request was sent at 1000. */
static ZklSafeUntil
connected(void)
{
	ZklSafeUntil safe;

	zkl_safe_until_begin(&safe, 0, 0);
	zkl_safe_until_connected(&safe, 1000, T);
	return safe;
}

/* A write that is an echo as well: a heartbeat. */
static void
heartbeat(ZklSafeUntil *safe, int64_t sent, int64_t answered)
{
	int64_t		provable = zkl_safe_until_provable(safe);

	zkl_safe_until_echo(safe, sent, answered);
	zkl_safe_until_proof(safe, provable);
}

/* Heartbeats that are answered at once, one each period. */
static void
beat(ZklSafeUntil *safe, int64_t from, int64_t to)
{
	for (int64_t at = from; at <= to; at += T / 20)
		heartbeat(safe, at, at);
}

TEST(nothing_is_known_before_a_proof)
{
	ZklSafeUntil safe = connected();

	assert_int_equal(zkl_safe_until(&safe), 0);
	zkl_safe_until_sign(&safe, 1005, 1006);
	zkl_safe_until_echo(&safe, 1010, 1020);
	assert_int_equal(zkl_safe_until(&safe), 0);
	zkl_safe_until_proof(&safe, zkl_safe_until_provable(&safe));
	assert_int_equal(zkl_safe_until(&safe), 1000 + T - J);
}

/* The echo at 1280 shows that there was a ping at 1280 - 275 or later, once another one is answered. */
TEST(an_echo_tells_of_the_ping_before_the_one_before)
{
	ZklSafeUntil safe = connected();

	heartbeat(&safe, 1001, 1003);
	zkl_safe_until_echo(&safe, 1278, 1279);
	assert_int_equal(zkl_safe_until_provable(&safe), 1000);
	zkl_safe_until_echo(&safe, 1279 + J - 1, 1279 + J);	/* too soon */
	assert_int_equal(zkl_safe_until_provable(&safe), 1000);
	zkl_safe_until_echo(&safe, 1279 + J, 1279 + J);
	assert_int_equal(zkl_safe_until_provable(&safe), 1001);
	assert_int_equal(zkl_safe_until(&safe), 1000 + T - J);
	zkl_safe_until_proof(&safe, zkl_safe_until_provable(&safe));
	assert_int_equal(zkl_safe_until(&safe), 1001 + T - J);
}

/* Several writes may be under way, and each proves what was provable when it was sent. */
TEST(a_write_proves_what_was_known_when_it_was_sent)
{
	ZklSafeUntil safe = connected();
	int64_t		early = zkl_safe_until_provable(&safe);
	int64_t		late;

	beat(&safe, 1000, 2000);
	late = zkl_safe_until_provable(&safe);
	zkl_safe_until_connected(&safe, 3000, T);
	early = zkl_safe_until_provable(&safe);
	for (int at = 3001; at < 4000; at += T / 20)
		zkl_safe_until_echo(&safe, at, at);
	late = zkl_safe_until_provable(&safe);
	assert_true(late > early);
	zkl_safe_until_proof(&safe, late);
	zkl_safe_until_proof(&safe, early);
	assert_int_equal(zkl_safe_until(&safe), late + T - J);
}

/* In the usual course of things, never less than 0.58 T from the last proof. */
TEST(heartbeats_give_six_tenths)
{
	for (int period = 1; period <= T / 20; period++)
	{
		ZklSafeUntil safe = connected();

		for (int64_t at = 1001; at < 1000 + 5 * T; at += period)
		{
			heartbeat(&safe, at, at);
			assert_true(zkl_safe_until(&safe) >= at + 57 * T / 100);
			assert_true(zkl_safe_until(&safe) <= at + T);
		}
	}
}

/* However long the session wrote nothing: the echoes have prepared the proof. */
TEST(one_write_is_enough_after_idling)
{
	for (int64_t at = 2000; at < 2400; at++)
	{
		ZklSafeUntil safe = connected();

		heartbeat(&safe, 1001, 1002);
		for (int64_t i = 1; 1001 + i * T / 20 < at; i++)
			zkl_safe_until_echo(&safe, 1001 + i * T / 20, 1002 + i * T / 20);
		assert_int_equal(zkl_safe_until(&safe), 1000 + T - J);
		zkl_safe_until_proof(&safe, zkl_safe_until_provable(&safe));
		assert_true(zkl_safe_until(&safe) >= at + T / 2);
	}
}

/* Reads alone prepare no proof: nothing shows that the leader knows of them. */
TEST(reads_prepare_nothing)
{
	ZklSafeUntil safe = connected();

	heartbeat(&safe, 1001, 1002);
	for (int64_t at = 1050; at < 5000; at += T / 20)
		zkl_safe_until_sign(&safe, at, at);
	assert_int_equal(zkl_safe_until_provable(&safe), 1000);
	zkl_safe_until_echo(&safe, 5000, 5001);
	assert_int_equal(zkl_safe_until_provable(&safe), 1000);
}

/*
 * The worker stands still, goes on, and its follower is cut off from the leader
 * before it has told of that: the leader knows of nothing after 5000.
 */
TEST(after_a_gap_the_leader_must_be_told)
{
	for (int gap = T / 3; gap < 2 * T; gap++)
	{
		ZklSafeUntil safe = connected();

		beat(&safe, 1000, 5000);
		beat(&safe, 5000 + gap, 5000 + gap + T / 4);
		assert_true(zkl_safe_until(&safe) <= 5000 + T);
		beat(&safe, 5000 + gap + T / 4 + T / 20, 5000 + gap + 9 * T / 20);
		assert_true(zkl_safe_until(&safe) >= 5000 + gap + T - J);
	}
}

/*
 * The leader pinged at 5599 and then at 5865, though it was due at 5849.  It
 * replied to two echoes in between, and what it is told after that may be lost.
 */
TEST(a_ping_may_be_late)
{
	ZklSafeUntil safe = connected();

	beat(&safe, 1000, 5000);
	for (const int64_t *at = (int64_t[]) {5600, 5851, 5880, 5905, 0}; *at != 0; at++)
		heartbeat(&safe, *at, *at + 1);
	assert_true(zkl_safe_until(&safe) <= 5000 + T);
}

/*
 * The leader stood still from 5000 to 5700, and replied to two echoes before
 * it sent the ping that was due.  Meanwhile the follower has answered reads,
 * of which the leader is not told before it loses the follower.
 */
TEST(a_leader_may_reply_before_it_pings)
{
	ZklSafeUntil safe = connected();

	beat(&safe, 1000, 5000);
	for (int64_t at = 5050; at < 5690; at += T / 20)
		zkl_safe_until_sign(&safe, at, at);
	for (const int64_t *at = (int64_t[]) {5690, 5702, 5704, 0}; *at != 0; at++)
		heartbeat(&safe, *at, *at < 5700 ? 5701 : *at + 1);
	assert_true(zkl_safe_until(&safe) <= 5000 + T);
}

/*
 * The same, but the leader sends the ping that was due at 5725.  The write has
 * passed the follower before the ping arrives there, so it does not show that
 * the leader has the answer; the echo before the write shows that only to
 * later ones.
 */
TEST(a_write_may_overtake_the_answer_to_a_ping)
{
	ZklSafeUntil safe = connected();
	int64_t		provable;

	beat(&safe, 1000, 5000);
	for (int64_t at = 5050; at < 5690; at += T / 20)
		zkl_safe_until_sign(&safe, at, at);
	zkl_safe_until_echo(&safe, 5690, 5701);
	provable = zkl_safe_until_provable(&safe);	/* the write is sent at 5727 */
	zkl_safe_until_echo(&safe, 5726, 5731);
	zkl_safe_until_proof(&safe, provable);
	assert_true(zkl_safe_until(&safe) <= 5000 + T);
}

/* Requests that are held up on their way to the follower may all reach it at once. */
TEST(what_was_sent_has_not_arrived)
{
	ZklSafeUntil safe = connected();

	beat(&safe, 1000, 5000);
	for (int at = 5050; at < 5500; at += 50)
		zkl_safe_until_sign(&safe, at, 5600);
	heartbeat(&safe, 5500, 5600);
	beat(&safe, 5625, 5850);
	assert_int_equal(zkl_safe_until(&safe), 5000 + T - J);
	beat(&safe, 5875, 6025);
	assert_true(zkl_safe_until(&safe) >= 5450 + T - J);
}

TEST(a_connection_begins_anew)
{
	ZklSafeUntil safe = connected();
	int64_t		until;

	beat(&safe, 1000, 5000);
	until = zkl_safe_until(&safe);
	zkl_safe_until_connected(&safe, 5100, T);
	assert_int_equal(zkl_safe_until(&safe), until);
	zkl_safe_until_sign(&safe, 5110, 5111);
	assert_int_equal(zkl_safe_until(&safe), until);
	heartbeat(&safe, 5120, 5121);
	assert_int_equal(zkl_safe_until(&safe), 5100 + T - J);
	beat(&safe, 5170, 5420);
	assert_int_equal(zkl_safe_until(&safe), 5100 + T - J);
	beat(&safe, 5470, 5570);
	assert_true(zkl_safe_until(&safe) > 5100 + T - J);
}

TEST(the_shortest_timeout_counts)
{
	ZklSafeUntil safe = connected();
	int64_t		base;

	beat(&safe, 1000, 5000);
	base = zkl_safe_until(&safe) - T + J;

	zkl_safe_until_connected(&safe, 5100, T / 2);
	assert_int_equal(zkl_safe_until(&safe), base + T / 2 - T / 2 / 40);
	heartbeat(&safe, 5110, 5111);
	assert_int_equal(zkl_safe_until(&safe), 5100 + T / 2 - T / 2 / 40);

	/* A new leader would still count with the shorter timeout. */
	zkl_safe_until_connected(&safe, 5200, 2 * T);
	assert_int_equal(zkl_safe_until(&safe), 5100 + T / 2 - T / 2 / 40);
	heartbeat(&safe, 5210, 5211);
	assert_int_equal(zkl_safe_until(&safe), 5200 + T / 2 - T / 2 / 40);
}

/* Another worker knows what this one has published, and has no history. */
TEST(a_worker_carries_on)
{
	ZklSafeUntil safe = connected();
	int64_t		until;

	beat(&safe, 1000, 5000);
	until = zkl_safe_until(&safe);
	zkl_safe_until_begin(&safe, T, until);
	assert_int_equal(zkl_safe_until(&safe), until);
	zkl_safe_until_connected(&safe, 5100, T);
	assert_int_equal(zkl_safe_until(&safe), until);
	heartbeat(&safe, 5110, 5111);
	assert_int_equal(zkl_safe_until(&safe), 5100 + T - J);

	zkl_safe_until_begin(&safe, T, until);
	zkl_safe_until_connected(&safe, 5100, T / 2);
	assert_int_equal(zkl_safe_until(&safe), until - T + J + T / 2 - T / 2 / 40);

	/* The worker moved it back, and ended before it published the timeout. */
	zkl_safe_until_begin(&safe, T, until - T / 2);
	zkl_safe_until_connected(&safe, 5100, T / 2);
	assert_true(zkl_safe_until(&safe) <= until - T / 2);

	/* It knows nothing of an idle session. */
	zkl_safe_until_begin(&safe, T, 0);
	zkl_safe_until_connected(&safe, 5100, T);
	assert_int_equal(zkl_safe_until(&safe), 0);
	heartbeat(&safe, 5110, 5111);
	assert_int_equal(zkl_safe_until(&safe), 5100 + T - J);
}

/* Proofs may be much rarer than signs, and signs so dense that not all are kept. */
TEST(signs_may_be_dense)
{
	const int64_t period = T / 5;
	ZklSafeUntil safe = connected();

	for (int64_t at = 1001; at < 1000 + 5 * T; at++)
	{
		zkl_safe_until_sign(&safe, at, at);
		if (at % period == T / 20)
			zkl_safe_until_echo(&safe, at, at);
		if (at % period != T / 10)
			continue;
		heartbeat(&safe, at, at);
		if (at > 1000 + T)
			assert_true(zkl_safe_until(&safe) >= at - period - T / 4 - J - T / ZKL_SAFE_UNTIL_SIGNS + T - J);
	}

	/* No proof for long: the last one has shown what was known then. */
	for (int64_t at = 6000; at < 9000; at++)
		zkl_safe_until_sign(&safe, at, at);
	heartbeat(&safe, 9000, 9000);
	assert_true(zkl_safe_until(&safe) <= 5900 + T);
}

/*
 * The model.  One step is a hundredth of the usual session timeout.
 */
#define SHORT	200
#define LONG	300
#define STEPS	800
#define STEP_TIME 10000			/* of the cadence */
#define NFOLLOWERS 2
#define NLEADERS 8
#define QUEUE	64

typedef enum What
{
	CONNECT, WRITE, SYNC, READ, /* worker to follower */
	CONNECTED, WRITTEN, SYNCED, HAS_READ,	/* back */
	PONG, REQUEST, REQUEST_SYNC, REVALIDATE,	/* follower to leader */
	PING, COMMIT, REPLY_SYNC, VALID /* back */
} What;

typedef struct Message
{
	What		what;
	int64_t		due;
	int64_t		sent;			/* by the worker */
	int64_t		provable;		/* then */
	bool		is_sign;		/* else it is a write of a ticket */
	int64_t		timeout;		/* CONNECT..., REVALIDATE, VALID; of a PONG: 0: not touched */
	int			connection;
} Message;

typedef struct Way
{
	int64_t		open_at;		/* it is stalled until then */
	int			n;
	Message		message[QUEUE];
} Way;

typedef struct Leader
{
	bool		deposed;
	int64_t		awake_at;
	int64_t		ping_at;
	int64_t		touched;
	int64_t		timeout;		/* with which it was touched */
	bool		ended;
} Leader;

typedef struct Follower
{
	int64_t		awake_at;
	int			leader;
	int			connection;		/* 0: none, with this timeout: */
	int64_t		timeout;
	int64_t		touch_table;	/* the session's timeout; 0: not touched */
	int			nwaiting;
	Message		waiting[QUEUE]; /* behind a write that is under way */
	Way			to_leader;
	Way			from_leader;
	Way			from_worker;
	Way			to_worker;
} Follower;

typedef struct Walk
{
	uint64_t	seed;
	int64_t		now;
	int64_t		half_tick;
	int64_t		latency;
	int64_t		created_with;
	int			writes;			/* how rare writes of tickets are */
	bool		hasty;			/* signs follow one another at once */
	bool		reconfigured;	/* other session timeouts may be negotiated */
	int			calm;			/* how rare faults are */
	int			leader;			/* the one that is not deposed */
	Leader		leaders[NLEADERS];
	Follower	follower[NFOLLOWERS];

	/* the worker */
	int64_t		awake_at;
	int			at;				/* which follower */
	int			connection;
	bool		connecting;
	bool		connected;
	bool		sign_is_out;
	bool		holds;
	ZklCadence	cadence;
	int64_t		told;			/* the shortest session timeout that it was told */
	ZklSafeUntil safe;
	int64_t		until;			/* published */
} Walk;

static int64_t
up_to(Walk *walk, int64_t limit)
{
	return random_below(&walk->seed, (uint32_t) limit + 1);
}

static bool
one_in(Walk *walk, int n)
{
	return random_below(&walk->seed, (uint32_t) n) == 0;
}

/* Packets that do not fit in are lost with all that follow, as if the worker had sent fewer. */
static void
put(Walk *walk, Way *way, Message message)
{
	if (way->n == QUEUE)
		return;
	message.due = walk->now + up_to(walk, walk->latency);
	if (way->n > 0 && way->message[way->n - 1].due > message.due)
		message.due = way->message[way->n - 1].due;
	way->message[way->n++] = message;
}

static bool
take(Walk *walk, Way *way, Message *message)
{
	if (way->n == 0 || walk->now < way->open_at || walk->now < way->message[0].due)
		return false;
	*message = way->message[0];
	memmove(way->message, way->message + 1, --way->n * sizeof(Message));
	return true;
}

/* Published as sessionkeeper.c does it. */
static void
publish(Walk *walk)
{
	walk->until = zkl_safe_until(&walk->safe);
}

static void
worker_connect(Walk *walk)
{
	Follower   *follower;

	walk->at = (int) up_to(walk, NFOLLOWERS - 1);
	follower = &walk->follower[walk->at];
	walk->connection++;
	walk->connecting = true;
	walk->connected = false;
	walk->sign_is_out = false;
	follower->from_worker.n = 0;
	follower->to_worker.n = 0;
	follower->connection = 0;
	follower->nwaiting = 0;
	put(walk, &follower->from_worker, (Message)
		{
			.what = CONNECT, .connection = walk->connection, .sent = walk->now,
			.timeout = walk->reconfigured && one_in(walk, 2) ? LONG + SHORT - walk->created_with : walk->created_with
		});
}

static void
worker_heard_sign(Walk *walk, ZklSign sign, const Message *message)
{
	walk->sign_is_out = false;
	if (sign == ZKL_SIGN_READ)
		zkl_safe_until_sign(&walk->safe, message->sent, walk->now);
	else
		zkl_safe_until_echo(&walk->safe, message->sent, walk->now);
	zkl_cadence_answered(&walk->cadence, sign, STEP_TIME * walk->now);
	if (walk->hasty)
		walk->cadence.due_at = 0;
}

static void
worker_heard(Walk *walk, Message message)
{
	switch (message.what)
	{
		case CONNECTED:
			walk->connecting = false;
			walk->connected = true;
			if (message.timeout < walk->told)
				walk->told = message.timeout;
			zkl_cadence_connected(&walk->cadence, STEP_TIME * walk->told);
			zkl_safe_until_connected(&walk->safe, message.sent, message.timeout);
			break;
		case WRITTEN:
			if (message.is_sign)
				worker_heard_sign(walk, ZKL_SIGN_PROOF, &message);
			zkl_safe_until_proof(&walk->safe, message.provable);
			break;
		case SYNCED:
			worker_heard_sign(walk, ZKL_SIGN_ECHO, &message);
			break;
		default:
			worker_heard_sign(walk, ZKL_SIGN_READ, &message);
			break;
	}
	publish(walk);
}

static void
worker_send(Walk *walk, What what, bool is_sign)
{
	put(walk, &walk->follower[walk->at].from_worker, (Message)
		{
			.what = what, .connection = walk->connection, .sent = walk->now,
			.is_sign = is_sign, .provable = zkl_safe_until_provable(&walk->safe)
		});
}

static void
worker_step(Walk *walk)
{
	Follower   *follower = &walk->follower[walk->at];
	Message		message;
	ZklSign		sign;

	if (walk->now < walk->awake_at)
		return;
	while (take(walk, &follower->to_worker, &message))
	{
		if (message.connection == walk->connection)
			worker_heard(walk, message);
	}
	if (!walk->connected)
	{
		if (!walk->connecting || one_in(walk, 50))
			worker_connect(walk);
		return;
	}
	if (follower->connection != walk->connection)	/* it was closed there */
	{
		worker_connect(walk);
		return;
	}
	if (one_in(walk, 100))
		walk->holds = !walk->holds;
	sign = zkl_cadence_next(&walk->cadence, STEP_TIME * walk->now, walk->holds, STEP_TIME * walk->until);
	if (!walk->sign_is_out && sign != ZKL_SIGN_NONE)
	{
		walk->sign_is_out = true;
		worker_send(walk, sign == ZKL_SIGN_PROOF ? WRITE : sign == ZKL_SIGN_ECHO ? SYNC : READ, true);
		zkl_cadence_sent(&walk->cadence, sign, STEP_TIME * walk->now);
	}
	/* Not before the barrier. */
	if (!walk->cadence.barrier && one_in(walk, walk->writes))
	{
		walk->holds = true;
		worker_send(walk, WRITE, false);
		zkl_cadence_wrote(&walk->cadence, STEP_TIME * walk->now);
	}
}

/* Answer what does not wait for a write any more. */
static void
follower_answer(Walk *walk, Follower *follower)
{
	int			n = 0;

	while (n < follower->nwaiting && follower->waiting[n].what == READ)
	{
		Message		message = follower->waiting[n++];

		message.what = HAS_READ;
		put(walk, &follower->to_worker, message);
	}
	follower->nwaiting -= n;
	memmove(follower->waiting, follower->waiting + n, follower->nwaiting * sizeof(Message));
}

static void
follower_heard_worker(Walk *walk, Follower *follower, Message message)
{
	if (message.what == CONNECT)
	{
		follower->connection = message.connection;
		follower->timeout = message.timeout;
		follower->nwaiting = 0;
		message.what = REVALIDATE;
		put(walk, &follower->to_leader, message);
		return;
	}
	if (message.connection != follower->connection || follower->nwaiting == QUEUE)
		return;
	follower->touch_table = follower->timeout;
	follower->waiting[follower->nwaiting++] = message;
	if (message.what != READ)
	{
		message.what = message.what == WRITE ? REQUEST : REQUEST_SYNC;
		put(walk, &follower->to_leader, message);
	}
	follower_answer(walk, follower);
}

static void
follower_heard_leader(Walk *walk, Follower *follower, Message message)
{
	if (message.what == PING)
	{
		message.what = PONG;
		message.timeout = follower->touch_table;
		follower->touch_table = 0;
		put(walk, &follower->to_leader, message);
	}
	else if (message.connection != follower->connection)
		return;
	else if (message.what == VALID)
	{
		message.what = CONNECTED;
		put(walk, &follower->to_worker, message);
	}
	else if (follower->nwaiting > 0 && follower->waiting[0].what != READ)
	{
		message.what = message.what == COMMIT ? WRITTEN : SYNCED;
		put(walk, &follower->to_worker, message);
		memmove(follower->waiting, follower->waiting + 1, --follower->nwaiting * sizeof(Message));
		follower_answer(walk, follower);
	}
}

static void
follower_step(Walk *walk, Follower *follower)
{
	Message		message;

	if (walk->now < follower->awake_at)
		return;

	/* By two threads, so in any order. */
	for (int i = 0, first = (int) up_to(walk, 1); i < 2; i++)
	{
		if (i == first)
			while (take(walk, &follower->from_worker, &message))
				follower_heard_worker(walk, follower, message);
		else
			while (take(walk, &follower->from_leader, &message))
				follower_heard_leader(walk, follower, message);
	}
}

/* It may commit a little later than it was asked, but in order. */
static void
leader_heard(Walk *walk, Leader *leader, Follower *follower, Message message)
{
	if (leader->ended)
		return;
	if ((message.what == PONG && message.timeout != 0) || message.what == REVALIDATE)
	{
		leader->touched = walk->now;
		leader->timeout = message.timeout;
	}
	if (message.what == REVALIDATE)
		message.what = VALID;
	else if (message.what == REQUEST && !leader->deposed)
		message.what = COMMIT;
	else if (message.what == REQUEST_SYNC)
		message.what = REPLY_SYNC;
	else
		return;
	put(walk, &follower->from_leader, message);
}

/* A leader that wakes may do other things before it sends the ping that is due. */
static void
leader_step(Walk *walk, int index)
{
	Leader	   *leader = &walk->leaders[index];
	Message		message;

	if (walk->now < leader->awake_at)
		return;
	if (!leader->ended && walk->now > leader->touched + leader->timeout &&
		walk->now % (2 * walk->half_tick) == 0)
		leader->ended = true;
	if (walk->now >= leader->ping_at)
	{
		leader->ping_at = walk->now + walk->half_tick + up_to(walk, SHORT / 40);
		for (int i = 0; i < NFOLLOWERS; i++)
		{
			if (walk->follower[i].leader == index)
				put(walk, &walk->follower[i].from_leader, (Message)
					{
						.what = PING
					});
		}
	}
	for (int i = 0; i < NFOLLOWERS; i++)
	{
		Follower   *follower = &walk->follower[i];

		while (follower->leader == index && take(walk, &follower->to_leader, &message))
			leader_heard(walk, leader, follower, message);
	}
}

static void
follow(Walk *walk, Follower *follower)
{
	follower->leader = walk->leader;
	follower->connection = 0;
	follower->touch_table = 0;
	follower->nwaiting = 0;
	follower->to_leader.n = 0;
	follower->from_leader.n = 0;
	follower->from_worker.n = 0;
}

/* One follower may go on for a while to follow the old one. */
static void
elect(Walk *walk)
{
	if (walk->leader == NLEADERS - 1)
		return;
	walk->leaders[walk->leader].deposed = true;
	walk->leader++;
	walk->leaders[walk->leader] = (Leader)
	{
		.touched = walk->now, .timeout = walk->created_with,
		.ping_at = walk->now + walk->half_tick,
		.ended = walk->leaders[walk->leader - 1].ended
	};
	follow(walk, &walk->follower[up_to(walk, NFOLLOWERS - 1)]);
}

/* The worker that carries the session on knows only what was published. */
static void
restart_worker(Walk *walk)
{
	zkl_safe_until_begin(&walk->safe, walk->told, walk->until);
	walk->connected = walk->connecting = false;
	walk->connection++;
}

/* The leader does not stop again before it has sent the ping that was due when it woke up. */
static void
stop_leader(Walk *walk, Leader *leader, int64_t until)
{
	int64_t		ping_at = until + up_to(walk, SHORT / 40);

	if (walk->now < leader->awake_at || walk->now >= leader->ping_at)
		return;
	leader->awake_at = until;
	if (leader->ping_at < ping_at)
		leader->ping_at = ping_at;
}

static void
fault(Walk *walk)
{
	Follower   *follower = &walk->follower[up_to(walk, NFOLLOWERS - 1)];
	int64_t		until = walk->now + (one_in(walk, 2) ? up_to(walk, SHORT) : up_to(walk, SHORT / 4));

	switch (random_below(&walk->seed, 11))
	{
		case 0:
		case 1:
			walk->awake_at = until;
			break;
		case 2:
			follower->awake_at = until;
			break;
		case 3:
			stop_leader(walk, &walk->leaders[walk->leader], until);
			break;
		case 4:
			follower->to_leader.open_at = until;
			break;
		case 5:
			follower->from_leader.open_at = until;
			break;
		case 6:
			follower->from_worker.open_at = until;
			break;
		case 7:
			follower->to_worker.open_at = until;
			break;
		case 8:
			walk->connected = false;
			walk->connecting = false;
			walk->connection++;
			break;
		case 9:
			elect(walk);
			break;
		case 10:
			restart_worker(walk);
			break;
	}
}

/* Returns by how much what the worker has published is too late, at most. */
static int64_t
walk(uint64_t seed)
{
	static Walk walk;
	int64_t		worst = 0;

	memset(&walk, 0, sizeof(walk));
	walk.seed = seed;
	walk.now = 1000;
	walk.half_tick = one_in(&walk, 2) ? SHORT / 4 : 10 + up_to(&walk, SHORT / 4 - 10);
	walk.latency = up_to(&walk, one_in(&walk, 4) ? 10 : 2);
	walk.hasty = one_in(&walk, 4);
	walk.writes = one_in(&walk, 2) ? 1000 : 10 + (int) up_to(&walk, 200);
	walk.reconfigured = one_in(&walk, 4);
	walk.created_with = walk.reconfigured && one_in(&walk, 2) ? LONG : SHORT;
	walk.told = walk.created_with;
	walk.calm = 10 + (int) up_to(&walk, 100);
	walk.leaders[0] = (Leader)
	{
		.touched = walk.now, .timeout = walk.created_with,
		.ping_at = walk.now + up_to(&walk, walk.half_tick)
	};
	zkl_safe_until_connected(&walk.safe, walk.now, walk.created_with);

	for (; walk.now < 1000 + STEPS; walk.now++)
	{
		const Leader *leader = &walk.leaders[walk.leader];
		int64_t		ends;

		if (one_in(&walk, walk.calm))
			fault(&walk);
		if (one_in(&walk, 50))
		{
			Follower   *late = &walk.follower[up_to(&walk, NFOLLOWERS - 1)];

			if (late->leader != walk.leader)
				follow(&walk, late);
		}
		for (int i = 0; i <= walk.leader; i++)
			leader_step(&walk, i);
		for (int i = 0; i < NFOLLOWERS; i++)
			follower_step(&walk, &walk.follower[i]);
		worker_step(&walk);

		/*
		 * The leader has a shorter timeout before the worker can know.
		 */
		leader = &walk.leaders[walk.leader];
		ends = leader->touched + (leader->timeout < walk.told ? walk.told : leader->timeout);
		if (walk.until - ends > worst)
			worst = walk.until - ends;
	}
	return worst;
}

TEST(walks)
{
	for (uint64_t seed = 1; seed <= 10000; seed++)
	{
		int64_t		late = walk(seed);

		if (late > 0)
			fail_msg("seed %d: too late by %d", (int) seed, (int) late);
	}
}

int
main(void)
{
	return run_all_tests("safe until");
}
