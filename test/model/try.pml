/*
 * try.pml: a try against a ticket that may linger, for spin.
 *
 * Server 0 has the ticket when all begins, and its backends take the lock and
 * release it.  The other servers try once each, and the one that gets the lock then has
 * the ticket in the same way.  Failures are not here, but in zklock.pml and in
 * test/unit/test_ticket_walk.c.
 *
 * A request is executed in one step, and its reply is handled in a later one.
 *
 * README.md has the properties, and the defects that spin must find.
 */

#define TRIES 2
#ifndef CLAIMS
#define CLAIMS 2				/* of server 0, one after the other */
#endif
#define N (TRIES + 1)

#define NOBODY_BEHIND(s) (seq[0] <= seq[s] && seq[1] <= seq[s] && seq[TRIES] <= seq[s])

#define CHILDREN	1			/* ZKL_EVENT_CHILDREN_CHANGED */
#define CHANGED		2			/* ZKL_EVENT_PREDECESSOR_CHANGED */

/* ZooKeeper: a place for each server's znode */
byte seq[N];					/* its number; 0: none */
bit in_use[N];					/* its data say so */
byte watched[N];				/* 1 + whose znode the server watches */
bit children[N];				/* it watches the directory */
byte sequence;
chan events[N] = [6] of { byte };

/* the entry */
bit owned[N];
bit held[N];
bit contended[N];
bit answered[N];				/* entry->answered */
bit releasing[N];
bit unused[N];					/* RELEASING because it lingered */
byte claims[N];					/* still to come */

/* the try */
bit saw_use[N];
bit decided[N];

bit for_ever;					/* server 0 does not release what it has */

hidden byte i, j;

inline look() {
	i = 1;
	do
	:: i < N ->
		j = 0;
		do
		:: j < N ->
			if
			:: seq[i] && seq[j] && seq[j] < seq[i] &&
				(held[j] || (releasing[j] && !unused[j])) -> saw_use[i] = 1
			:: else
			fi;
			j++
		:: else -> break
		od;
		i++
	:: else -> break
	od;
	i = 0; j = 0
}

/* A znode was changed, or is gone. */
inline fire(s) {
	i = 0;
	do
	:: i < N ->
		if
		:: watched[i] == s + 1 -> watched[i] = 0; events[i]!CHANGED
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline fire_children() {
	i = 0;
	do
	:: i < N ->
		if
		:: children[i] -> children[i] = 0; events[i]!CHILDREN
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* The first before it, if any (1 + number), and whether another is behind. */
inline list(s, before, behind) {
	before = 0; behind = 0;
	i = 0;
	do
	:: i < N ->
		if
		:: seq[i] && seq[i] < seq[s] && (before == 0 || seq[i] < seq[before - 1]) ->
			before = i + 1
		:: seq[i] > seq[s] -> behind = 1
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	children[s] = 1
}

inline delete(s) {
	seq[s] = 0;
	look();
	owned[s] = 0;
	children[s] = 0;
	watched[s] = 0;
	fire(s);
	fire_children()
}

/* entry.c: zkl_entry_settle_idle, shall_linger */
inline end_claim(s) {
	held[s] = 0;
	if
#ifdef LINGERS_ON
	:: !contended[s]
#else
	:: !contended[s] && !answered[s]
#endif
	:: releasing[s] = 1; unused[s] = 0
	fi;
	look()
}

/* entrystate.c: zkl_entry_state_set_contended, zkl_entry_state_shall_answer */
inline become_contended(s, answer) {
	contended[s] = 1;
	answer = 0;
	if
	:: releasing[s]
	:: !releasing[s] && held[s] -> answer = !answered[s]
	:: !releasing[s] && !held[s] ->
#ifdef ANSWERS_IDLE
		answer = !answered[s]
#else
		releasing[s] = 1; unused[s] = 1
#endif
	fi;
#ifdef NO_ANSWER
	answer = 0;
#endif
	answered[s] = answered[s] || answer;
	look()
}

/* Server s has the ticket, until it gives the ticket up. */
inline have_ticket(s, before, behind, answer) {
endhave:
	do
	:: answer -> atomic { in_use[s] = 1; fire(s); answer = 0 }
	:: !answer && releasing[s] -> atomic { delete(s) } break
	:: atomic { events[s]?CHILDREN -> if :: !contended[s] -> list(s, before, behind) :: else -> behind = 0 fi }
		atomic { if :: behind -> become_contended(s, answer) :: else fi; behind = 0 }
	:: atomic { events[s]?CHANGED }
	/* entrystate.c: zkl_entry_state_set_uncontended; the list has set the watch again */
	:: atomic { !answer && contended[s] && held[s] && NOBODY_BEHIND(s) ->
			contended[s] = 0; children[s] = 1 }
	od
}

/* The backends of server s. */
proctype Backends(byte s) {
end:
	do
	:: atomic { held[s] && !(s == 0 && for_ever) -> end_claim(s) }
	:: atomic { owned[s] && !held[s] && !releasing[s] && claims[s] > 0 ->
			claims[s]--; held[s] = 1; look() }
	/* its time is over */
	:: atomic { owned[s] && !held[s] && !releasing[s] -> releasing[s] = 1; unused[s] = 1 }
	od
}

proctype Owner() {
	byte before;
	bit behind, answer;

	have_ticket(0, before, behind, answer)
}

proctype Try(byte s) {
	byte before;
	bit behind, answer, answers, absent;

	atomic { sequence++; seq[s] = sequence; fire_children(); look() }
	do
	:: atomic { list(s, before, behind) }
		if
		:: before == 0 -> break
		:: else
		fi;
#ifdef NO_QUESTION
		decided[s] = 1;
#endif
		atomic {				/* ZKL_REQUEST_WATCH */
			answers = 0;
			absent = seq[before - 1] == 0;
			if
			:: absent
			:: else -> watched[s] = before; answers = in_use[before - 1]
			fi
		}
		if
		:: answers || decided[s] -> decided[s] = 1; break
		:: absent && !answers && !decided[s]
		:: !absent && !answers && !decided[s] ->
			do
			:: events[s]?CHILDREN
			:: events[s]?CHANGED -> break
			od
		fi
	od;
	if
	:: decided[s] ->
		assert(saw_use[s]);		/* HELD */
		atomic { delete(s) }
	:: else ->
		atomic { decided[s] = 1; owned[s] = 1; held[s] = 1; look() }
		atomic { if :: behind -> become_contended(s, answer) :: else fi; behind = 0 }
		have_ticket(s, before, behind, answer)
	fi
}

init {
	byte s;
	atomic {
		sequence = 1;
		seq[0] = 1;
		owned[0] = 1;
		children[0] = 1;
		claims[0] = CLAIMS;
		run Owner();
		run Backends(0);
		if
		:: for_ever = 1
		:: skip
		fi;
		s = 1;
		do
		:: s < N -> run Try(s); run Backends(s); s++
		:: else -> break
		od
	}
}
