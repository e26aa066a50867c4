/*
 * waits.pml: how a deadlock between servers is found and broken, for spin.
 *
 * Each of two servers has a backend that holds a lock, and another that waits for the
 * lock of the other server.  The holder is stuck as long as it waits for the other one
 * of its server, say for a row; this local wait may end and begin again.  The backends
 * may act at any moment: waits begin and time out, holders get stuck and
 * get free, release, and acquire again.  A worker may stand still between any two steps.
 *
 * One number here stands for one in src/deadlock/waitrecord.h: the wait (its claim and
 * czxid), the claim that is held, and "stuck".
 *
 * README.md has the properties, and the defects that spin must find.  USES is another world, no
 * defect.
 */

#ifndef CHANGES
#define CHANGES 2				/* timeouts, local waits that end, releases, acquires */
#endif

#define N			2
#define NEXT(m)		(1 - m)
#define STATES		16			/* of one server, one after the other */

/* a server's shared memory */
byte wait[N];					/* its number; 0: none */
byte claim[N];					/* the holder's; 0: none */
byte stuck[N];					/* since which of its local waits; 0: it is not */
byte changes;
byte zxid;						/* numbers the waits */
byte claims[N], locals[N];

/* the data of its znode */
typedef Record {
	byte wait;
	byte claim;
	byte stuck;
	byte search;
	byte confirms;
	byte ghost
}
Record record[N];
byte nonces;

/* ghosts, which no server knows */
byte ghost[N];					/* changes with wait, claim and stuck */
bit existed[STATES * STATES];	/* this deadlock, by both ghosts */
bit broken[STATES * STATES];	/* ... has had its victim */

/* USES: the holders use detached claims, whose number comes back with the next use. */
#ifdef USES
#define NUMBER(m)	1
#else
#define NUMBER(m)	claims[m]
#endif

#define DEAD		(wait[0] && claim[0] && stuck[0] && wait[1] && claim[1] && stuck[1])

hidden byte i;

inline note(m) {
	ghost[m]++;
	assert(ghost[m] < STATES);
	if
	:: DEAD -> existed[ghost[0] * STATES + ghost[1]] = 1
	:: else
	fi
}

proctype Backends(byte m) {
end:
	do
	/* one waits; the other one holds, and waits for that one */
	:: d_step { !wait[m] && claim[m] -> zxid++; wait[m] = zxid; note(m) }
	:: d_step { wait[m] && claim[m] && !stuck[m] -> locals[m]++; stuck[m] = locals[m]; note(m) }

	/* the lock is free: both go on, and are gone */
	:: d_step { wait[m] && !claim[NEXT(m)] -> wait[m] = 0; stuck[m] = 0; claim[m] = 0; note(m) }

	/* a timeout; then the other one is not stuck either */
	:: d_step { wait[m] && changes < CHANGES -> changes++; wait[m] = 0; stuck[m] = 0; note(m) }
	/* only the local wait ends */
	:: d_step { stuck[m] && changes < CHANGES -> changes++; stuck[m] = 0; note(m) }
	/* the holder is free and releases, and later another one acquires */
	:: d_step { claim[m] && !stuck[m] && changes < CHANGES -> changes++; claim[m] = 0; note(m) }
	:: d_step { !claim[m] && changes < CHANGES -> changes++; claims[m]++; claim[m] = NUMBER(m); note(m) }
	od
}

/* The record as it is to be published now. */
inline compute() {
	d_step {
		if
		:: wait[m] && claim[m] && stuck[m] ->
			mine.wait = wait[m]; mine.claim = claim[m]; mine.stuck = stuck[m]; mine.ghost = ghost[m]
		:: else ->
			mine.wait = 0; mine.claim = 0; mine.stuck = 0; mine.ghost = 0
		fi;
		mine.search = search;
		mine.confirms = confirms
	}
}

inline publish() {
	d_step {
		record[m].wait = mine.wait; record[m].claim = mine.claim; record[m].stuck = mine.stuck;
		record[m].search = mine.search; record[m].confirms = mine.confirms; record[m].ghost = mine.ghost
	}
}

inline read() {
	d_step {
		other.wait = record[NEXT(m)].wait; other.claim = record[NEXT(m)].claim;
		other.stuck = record[NEXT(m)].stuck; other.search = record[NEXT(m)].search;
		other.confirms = record[NEXT(m)].confirms; other.ghost = record[NEXT(m)].ghost
	}
}

#ifdef STUCK_UNSEEN
#define SAME_STUCK(a, b)	1
#else
#define SAME_STUCK(a, b)	(a == b)
#endif
#define SAME(a, b)			(a.wait == b.wait && a.claim == b.claim && SAME_STUCK(a.stuck, b.stuck))

/* zkl_wait_graph_is_victim */
#define IS_CIRCLE			(mine.wait && other.wait)
#ifdef EACH_A_VICTIM
#define IS_VICTIM			IS_CIRCLE
#else
#define IS_VICTIM			(IS_CIRCLE && mine.wait > other.wait)
#endif

inline note_evidence() {
	d_step {
		seen_mine.wait = mine.wait; seen_mine.claim = mine.claim; seen_mine.stuck = mine.stuck;
		seen_other.wait = other.wait; seen_other.claim = other.claim; seen_other.stuck = other.stuck;
#ifdef NONCE_KEPT
		if
		:: nonce == 0 -> nonces++; nonce = nonces
		:: else
		fi;
#else
		nonces++; nonce = nonces;
#endif
		search = nonce
	}
}

inline forget() {
	d_step {
		search = 0;
		seen_mine.wait = 0; seen_mine.claim = 0; seen_mine.stuck = 0;
		seen_other.wait = 0; seen_other.claim = 0; seen_other.stuck = 0
	}
}

/*
 * The holder of the lock gets 40P01.  In the end the one that waits goes on waiting.  With USES,
 * the one that waits gets it, and the holder goes on, and is gone.
 */
inline act() {
	d_step {
		if
#ifdef NO_LAST_LOOK
		:: claim[m] ->
			mine.ghost = ghost[m];
#else
		:: wait[m] == mine.wait && claim[m] == mine.claim && stuck[m] && SAME_STUCK(stuck[m], mine.stuck) ->
#endif
			i = (m == 0 -> mine.ghost : other.ghost);
			assert(existed[i * STATES + (m == 0 -> other.ghost : mine.ghost)]);			/* EXISTED */
			assert(!broken[i * STATES + (m == 0 -> other.ghost : mine.ghost)]);			/* ONE */
			broken[i * STATES + (m == 0 -> other.ghost : mine.ghost)] = 1;
			i = 0;
#ifdef USES
			wait[m] = 0;
#endif
			claim[m] = 0;
			stuck[m] = 0;
			note(m)
		:: else
		fi
	}
}

proctype Worker(byte m) {
	Record mine, other;
	Record seen_mine, seen_other;
	byte search, confirms, nonce;

end:
	do
	:: compute();
		publish();
		read();

		/* zkl_wait_graph_searches: for the next record, which is computed after this */
#ifndef NO_CONFIRM
		confirms = (IS_CIRCLE -> other.search : 0);
#endif
#ifdef OLD_RECORD
		mine.confirms = confirms;
		publish();
#endif
		if
#ifdef NO_NONCE
		:: IS_VICTIM -> act()
#endif
		:: IS_VICTIM && !search -> note_evidence()
		:: IS_VICTIM && search && mine.search == search && SAME(mine, seen_mine) && SAME(other, seen_other) ->
			if
			:: other.confirms == search -> act(); forget()
			:: else
			fi
		:: search && !(IS_VICTIM && mine.search == search && SAME(mine, seen_mine) && SAME(other, seen_other)) -> forget()
		:: !search && !IS_VICTIM
		fi
	od
}

init {
	atomic {
		i = 0;
		do
		:: i < N -> claims[i] = 1; claim[i] = 1; run Backends(i); run Worker(i); i++
		:: else -> break
		od;
		i = 0
	}
}

#ifdef BROKEN
ltl broken_in_time { [] (DEAD -> <> !DEAD) }
#endif
