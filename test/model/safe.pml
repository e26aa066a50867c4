/*
 * safe.pml: until when a session may be believed, for spin.
 *
 * A worker, the follower that it is connected to, and the leader.  Messages keep
 * their order, but may take any time: so each connection may stall, even in one direction
 * only, and the follower may be cut off at any moment.  The
 * leader pings each half tick, unless it stands still, which it may do PAUSES times.
 * When it wakes, it sends the ping that is due in the same step of the clock, but may
 * do other things before.
 *
 * The worker is src/protocol/safeuntil.c.  One step of the clock is its jitter.  It is
 * idle until it writes; the write may be the create of a ticket, which is granted when
 * the write is answered.  Several writes may be under way.
 *
 * README.md has the property, and the defects that spin must find.
 */

#ifndef HALF_TICK
#define HALF_TICK 2
#endif
#ifndef END
#define END 6					/* the clock stops here */
#endif
#ifndef WRITES
#define WRITES 1
#endif
#ifndef SYNCS
#define SYNCS 3
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

/* To search further: in this order of sending. */
#ifdef ORDERED
#define MAY_SYNC (reads == 0)
#define MAY_WRITE (syncs == 0)
#else
#define MAY_SYNC 1
#define MAY_WRITE 1
#endif

#define SIGNS (WRITES + SYNCS + READS)

mtype = { CONNECT, WRITE, SYNC, READ, REVALIDATE, REQUEST, REQUEST_SYNC, PONG, PING, VALID, COMMIT, REPLY_SYNC };

/* A message on its way: the moment at which the worker began it, and what was provable then. */
chan to_follower = [1] of { mtype, byte, byte };
chan to_worker = [1] of { mtype, byte, byte };
chan to_leader = [2] of { mtype, byte, byte };
chan from_leader = [2] of { mtype, byte, byte };
#ifdef OVERTAKES
chan pings = [2] of { mtype, byte, byte };
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
byte syncs = SYNCS;
byte reads = READS;
bit connecting;
bit connected = (CONNECTS == 0);	/* at 0 */
byte under_way;
bit has_echo;
byte echo_sent;
byte echo_answered;
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

/* What the follower has told the leader by the time at which the proof was sent. */
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

#ifdef ECHO_TOO_SOON
#define COUNTS(sent) 1
#else
#define COUNTS(sent) (!has_echo || sent > echo_answered)
#endif

/* zkl_safe_until_echo */
inline echo(sent) {
	if
	:: COUNTS(sent) ->
#ifdef ONE_ECHO
		collect(sent);
#else
		if
		:: has_echo -> collect(echo_sent)
		:: else
		fi;
#endif
		has_echo = 1; echo_sent = sent; echo_answered = now
	:: else
	fi;
	sign(sent)
#ifdef ECHO_BELIEVED
	; base = (provable > base -> provable : base)
#endif
}

/* zkl_safe_until_proof */
inline proof(sent, proves) {
#ifdef NO_ECHO
	collect(sent);
	proves = provable;
#endif
#ifdef PROVABLE_LATE
	proves = provable;
#endif
	if
	:: proves > base -> base = proves
	:: else
	fi;
#ifdef FROM_SENT
	if
	:: sent > HALF_TICK + 1 && base < sent - HALF_TICK - 1 -> base = sent - HALF_TICK - 1
	:: else
	fi;
#endif
}

proctype Worker() {
	byte sent, proves;
end:
	do
	:: atomic { !connecting && connects > 0 && nfull(to_follower) && len(to_follower) + len(to_worker) == 0 && under_way == 0 ->
			connects--; connecting = 1; connected = 0; to_follower!CONNECT(now, 0) }
	:: atomic { connected && writes > 0 && MAY_WRITE && nfull(to_follower) ->
			writes--; under_way++; to_follower!WRITE(now, provable) }
	:: atomic { connected && syncs > 0 && MAY_SYNC && nfull(to_follower) -> syncs--; under_way++; to_follower!SYNC(now, 0) }
	:: atomic { connected && reads > 0 && nfull(to_follower) -> reads--; to_follower!READ(now, 0) }
	:: d_step { to_worker?CONNECT(sent, proves) ->		/* zkl_safe_until_connected */
			connecting = 0; connected = 1;
			provable = sent;
			has_echo = 0; echo_sent = 0; echo_answered = 0;
			do
			:: nsigns > 0 -> nsigns--; sign_sent[nsigns] = 0; sign_answered[nsigns] = 0
			:: else -> break
			od;
#ifdef CONNECTED_BELIEVED
			base = sent;
			assert(base <= touched);
#endif
			sent = 0 }
	:: d_step { to_worker?WRITE(sent, proves) ->
			under_way--;
			proof(sent, proves);
			assert(base <= touched);	/* BASE */
			echo(sent);
			sent = 0; proves = 0 }
	:: d_step { to_worker?SYNC(sent, proves) ->
			under_way--;
			echo(sent);
			assert(base <= touched);	/* BASE */
			sent = 0; proves = 0 }
	:: d_step { to_worker?READ(sent, proves) -> sign(sent); sent = 0 }
	od
}

/* LearnerSessionTracker, Learner.ping, Follower.processPacket */
proctype Follower() {
	byte sent, proves;
end:
	do
	:: atomic { nfull(to_leader) && to_follower?[CONNECT, _, _] -> to_follower?CONNECT(sent, proves); to_leader!REVALIDATE(sent, 0); sent = 0 }
	:: atomic { nfull(to_leader) && to_follower?[WRITE, _, _] -> to_follower?WRITE(sent, proves); touch_table = 1; to_leader!REQUEST(sent, proves); sent = 0; proves = 0 }
	:: atomic { nfull(to_leader) && to_follower?[SYNC, _, _] -> to_follower?SYNC(sent, proves); touch_table = 1; to_leader!REQUEST_SYNC(sent, 0); sent = 0 }
	:: atomic { nfull(to_worker) && to_follower?[READ, _, _] -> to_follower?READ(sent, proves); touch_table = 1; to_worker!READ(sent, 0); sent = 0 }
	:: atomic { nfull(to_leader) && pings?[PING, _, _] -> pings?PING(sent, proves); to_leader!PONG(touch_table, 0); touch_table = 0; sent = 0 }
	:: atomic { nfull(to_worker) && from_leader?[VALID, _, _] -> from_leader?VALID(sent, proves); to_worker!CONNECT(sent, 0); sent = 0 }
	:: atomic { nfull(to_worker) && from_leader?[COMMIT, _, _] -> from_leader?COMMIT(sent, proves); to_worker!WRITE(sent, proves); sent = 0; proves = 0 }
	:: atomic { nfull(to_worker) && from_leader?[REPLY_SYNC, _, _] -> from_leader?REPLY_SYNC(sent, proves); to_worker!SYNC(sent, 0); sent = 0 }
	od
}

inline touch() {
	if
	:: !deposed -> touched = now
	:: else
	fi
}

/* Leader.lead, LearnerHandler.run */
proctype Leader() {
	byte sent, proves;
end:
	do
	:: atomic { !stands_still && now >= ping_at && nfull(pings) -> pings!PING(0, 0); ping_at = now + HALF_TICK }
	:: atomic { !stands_still && to_leader?[PONG, _, _] -> to_leader?PONG(sent, proves);
			if
			:: sent -> touch()
			:: else
			fi;
			sent = 0 }
	:: atomic { !stands_still && nfull(from_leader) && to_leader?[REVALIDATE, _, _] -> to_leader?REVALIDATE(sent, proves); touch(); from_leader!VALID(sent, 0); sent = 0 }
	:: atomic { !stands_still && nfull(from_leader) && to_leader?[REQUEST, _, _] -> to_leader?REQUEST(sent, proves);
			if
			:: !deposed -> from_leader!COMMIT(sent, proves)
			:: else
			fi;
			sent = 0; proves = 0 }
	/* A leader that was deposed does not know it. */
	:: atomic { !stands_still && nfull(from_leader) && to_leader?[REQUEST_SYNC, _, _] -> to_leader?REQUEST_SYNC(sent, proves);
			from_leader!REPLY_SYNC(sent, 0); sent = 0 }
	/* Not again before it has sent the ping that was due when it woke up. */
	:: atomic { !stands_still && pauses > 0 && now <= ping_at -> pauses--; stands_still = 1 }
	:: stands_still = 0
	/* The other servers have a new leader, which begins to count. */
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
