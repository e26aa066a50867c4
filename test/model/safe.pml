/*
 * safe.pml: until when a session may be believed, for spin.
 *
 * A worker, the follower that it is connected to, and the leader.  Messages keep
 * their order, but may take any time: so each way may stall, also the one from the
 * leader to the follower alone, and the follower may be cut off at any moment.  The
 * leader pings each half tick, unless it stands still, which it may do PAUSES times.
 *
 * The worker is src/protocol/safeuntil.c.  One step of the clock is its jitter.
 *
 * Property:
 *	BASE	the leader has heard of the session at the base, or later
 *
 * Defects, each of which spin must find: FROM_SENT, ONE_PROOF, PROOFS_OVERLAP,
 * NO_HALF_TICK, NO_JITTER, SENT_FOR_ANSWERED, CONNECTED_BELIEVED.  And a ZooKeeper that
 * is not as we assume: OVERTAKES (a commit may overtake a ping), WAKES_LATE (a leader
 * that wakes commits before it pings).
 */

#ifndef HALF_TICK
#define HALF_TICK 2
#endif
#ifndef END
#define END 6					/* the clock stops here */
#endif
#ifndef WRITES
#define WRITES 3
#endif
#ifndef READS
#define READS 0
#endif
#ifndef PAUSES
#define PAUSES 1
#endif
#ifndef ELECTIONS
#define ELECTIONS 0
#endif
#ifndef CONNECTS
#define CONNECTS 1
#endif

#define SIGNS (WRITES + READS)

mtype = { CONNECT, WRITE, READ, REVALIDATE, REQUEST, PONG, PING, VALID, COMMIT };

/* What is on its way; the number is the moment at which the worker began it. */
chan to_follower = [1] of { mtype, byte };
chan to_worker = [1] of { mtype, byte };
chan to_leader = [2] of { mtype, byte };
chan from_leader = [2] of { mtype, byte };
#ifdef OVERTAKES
chan pings = [2] of { mtype, byte };
#else
#define pings from_leader
#endif

byte now;

/* the leader */
bit stands_still;
byte pauses = PAUSES;
byte ping_at;
bit deposed;
byte elections = ELECTIONS;
byte touched;					/* by the leader that is not deposed */

/* the follower */
bit touch_table;

/* the worker */
byte connects = CONNECTS;
byte writes = WRITES;
byte reads = READS;
bit connecting;
bit connected;
byte under_way;
byte base;
byte provable;
byte nsigns;
byte sign_sent[SIGNS];
byte sign_answered[SIGNS];

hidden byte i, j;

/* zkl_safe_until_sign */
inline sign(sent) {
	sign_sent[nsigns] = sent;
	sign_answered[nsigns] = now;
	nsigns++
}

#ifdef SENT_FOR_ANSWERED
#define REACHED sign_sent
#else
#define REACHED sign_answered
#endif

#ifdef NO_HALF_TICK
#define AGO 0
#else
#define AGO HALF_TICK
#endif

#ifdef NO_JITTER
#define WAS_TOLD(k, sent) (REACHED[k] + AGO <= sent)
#else
#define WAS_TOLD(k, sent) (REACHED[k] + AGO < sent)
#endif

/* What the follower has told of when the proof was sent. */
inline collect(sent) {
	i = 0;
	do
	:: i < nsigns && WAS_TOLD(i, sent) -> provable = sign_sent[i]; i++
	:: else -> break
	od;
	j = 0;
	do
	:: i + j < nsigns ->
		sign_sent[j] = sign_sent[i + j];
		sign_answered[j] = sign_answered[i + j];
		j++
	:: else -> break
	od;
	do
	:: nsigns > j -> nsigns--; sign_sent[nsigns] = 0; sign_answered[nsigns] = 0
	:: else -> break
	od;
	i = 0; j = 0
}

/* zkl_safe_until_proof */
inline proof(sent) {
#ifdef ONE_PROOF
	collect(sent);
#endif
	if
	:: provable > base -> base = provable
	:: else
	fi;
#ifdef FROM_SENT
	if
	:: sent > HALF_TICK + 1 && base < sent - HALF_TICK - 1 -> base = sent - HALF_TICK - 1
	:: else
	fi;
#endif
	collect(sent);
	sign(sent)
}

#ifdef PROOFS_OVERLAP
#define MAY_PROVE (under_way < 2)
#else
#define MAY_PROVE (under_way == 0)
#endif

proctype Worker() {
	byte sent;
end:
	do
	:: atomic { !connecting && connects > 0 && nfull(to_follower) && len(to_follower) + len(to_worker) == 0 && under_way == 0 ->
			connects--; connecting = 1; connected = 0; to_follower!CONNECT(now) }
	:: atomic { connected && writes > 0 && MAY_PROVE && nfull(to_follower) ->
			writes--; under_way++; to_follower!WRITE(now) }
	:: atomic { connected && reads > 0 && nfull(to_follower) -> reads--; to_follower!READ(now) }
	:: d_step { to_worker?CONNECT(sent) ->		/* zkl_safe_until_connected */
			connecting = 0; connected = 1;
			provable = sent;
			do
			:: nsigns > 0 -> nsigns--; sign_sent[nsigns] = 0; sign_answered[nsigns] = 0
			:: else -> break
			od;
#ifdef CONNECTED_BELIEVED
			base = sent;
			assert(base <= touched);
#endif
			sent = 0 }
	:: d_step { to_worker?WRITE(sent) ->
			under_way--;
			proof(sent);
			assert(base <= touched);	/* BASE */
			sent = 0 }
	:: d_step { to_worker?READ(sent) -> sign(sent); sent = 0 }
	od
}

/* LearnerSessionTracker, Learner.ping, Follower.processPacket */
proctype Follower() {
	byte sent;
end:
	do
	:: atomic { nfull(to_leader) && to_follower?[CONNECT, _] -> to_follower?CONNECT(sent); to_leader!REVALIDATE(sent); sent = 0 }
	:: atomic { nfull(to_leader) && to_follower?[WRITE, _] -> to_follower?WRITE(sent); touch_table = 1; to_leader!REQUEST(sent); sent = 0 }
	:: atomic { nfull(to_worker) && to_follower?[READ, _] -> to_follower?READ(sent); touch_table = 1; to_worker!READ(sent); sent = 0 }
	:: atomic { nfull(to_leader) && pings?[PING, _] -> pings?PING(sent); to_leader!PONG(touch_table); touch_table = 0; sent = 0 }
	:: atomic { nfull(to_worker) && from_leader?[VALID, _] -> from_leader?VALID(sent); to_worker!CONNECT(sent); sent = 0 }
	:: atomic { nfull(to_worker) && from_leader?[COMMIT, _] -> from_leader?COMMIT(sent); to_worker!WRITE(sent); sent = 0 }
	od
}

/* When it wakes, it pings first. */
#ifdef WAKES_LATE
#define WORKS (!stands_still)
#else
#define WORKS (!stands_still && now <= ping_at)
#endif

inline touch() {
	if
	:: !deposed -> touched = now
	:: else
	fi
}

/* Leader.lead, LearnerHandler.run */
proctype Leader() {
	byte sent;
end:
	do
	:: atomic { !stands_still && now >= ping_at && nfull(pings) -> pings!PING(0); ping_at = now + HALF_TICK }
	:: atomic { WORKS && to_leader?[PONG, _] -> to_leader?PONG(sent);
			if
			:: sent -> touch()
			:: else
			fi;
			sent = 0 }
	:: atomic { WORKS && nfull(from_leader) && to_leader?[REVALIDATE, _] -> to_leader?REVALIDATE(sent); touch(); from_leader!VALID(sent); sent = 0 }
	:: atomic { WORKS && nfull(from_leader) && to_leader?[REQUEST, _] -> to_leader?REQUEST(sent);
			if
			:: !deposed -> from_leader!COMMIT(sent)
			:: else
			fi;
			sent = 0 }
	:: atomic { !stands_still && pauses > 0 -> pauses--; stands_still = 1 }
	:: stands_still = 0
	/* The others have a new leader, which begins to count. */
	:: atomic { !deposed && elections > 0 -> elections--; deposed = 1; touched = now }
	od
}

proctype Clock() {
end:
	do
	:: atomic { now < END && (stands_still || now < ping_at) -> now++ }
	od
}

init {
	atomic {
		if
		:: ping_at = 0
		:: ping_at = 1
		:: ping_at = HALF_TICK
		fi;
		run Worker();
		run Follower();
		run Leader();
		run Clock()
	}
}
