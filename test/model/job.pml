/*
 * job.pml: a job that runs once a tick, for spin.
 *
 * SERVERS servers call for a run, CALLS times each, of one of TICKS ticks.  ZooKeeper has
 * the record, and knows which server has the lock.  zklock.pml proves the lock itself: one
 * server has it, and the commit guard refuses a server that does not have it any more.
 * Each run commits or is rolled back.
 *
 * A write, and the delete of the ticket behind it, are sent, executed and answered in steps
 * of their own.  Requests on their way get lost with the connection, or the caller is
 * cancelled (LOSSES); a server's session may expire (EXPIRIES); a server may crash
 * (CRASHES); a user may remove the record (FORGETS), unless a run is under way.
 *
 * README.md has the properties, and the defects that spin must find: they are where the
 * #ifdefs are.
 *
 * QUICK is no defect: a caller that gets the lock at once does not look at the record again.
 */

#ifndef SERVERS
#define SERVERS 2
#endif
#ifndef CALLS
#define CALLS 2					/* of each server */
#endif
#ifndef TICKS
#define TICKS 2
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef EXPIRIES
#define EXPIRIES 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef FORGETS
#define FORGETS 0
#endif

/* ZklJobState, jobrecord.h */
#define STARTED		1
#define DONE		2
#define FAILED		3

/* The state of a request: none, to be sent, on its way, executed and its answer on its way */
#define NONE		0
#define DUE			1
#define SENT		2
#define ANSWERED	3

/* What became of a write: ZklOutcome, ticket.h */
#define OK			1
#define CHANGED		2			/* or there is a record already */
#define ABSENT		3

/* What a caller does */
#define IDLE		0
#define WAITS		1			/* for the lock */
#define HOLDS		2			/* it, and has to look at the record again */
#define WRITES		3			/* the start of its run */
#define RUNS		4

/* A record, or what is known of it */
typedef Record {
	byte czxid;					/* 0: there is none */
	byte version;
	byte tick;
	byte state;
	byte id;
}

typedef Server {
	byte calls = CALLS;
	byte what = IDLE;
	byte tick;
	byte id;
	Record last;				/* attempt->last ... */
	bit is_old;					/* ... which was read before a user removed the record */

	/* the start of the run */
	byte start;
	byte outcome;
	byte czxid;					/* of the record that was written, and its version */
	byte version;

	/* its end */
	byte end;
	byte end_run;
	byte end_state;
	byte end_version;
	byte end_tick;
	byte end_last;				/* the czxid that the start was to replace; 0: it has */
	bit unsure;
	bit unheard;				/* committed, and ZooKeeper does not know */

	byte delete;				/* of the ticket */
}

Server s[SERVERS];
Record record;
byte holder;					/* 1 + the server whose ticket is the first */
byte records;					/* how many were made */
byte runs;
byte losses = LOSSES, expiries = EXPIRIES, crashes = CRASHES, forgets = FORGETS;
bit has_crashed;

/* For the properties */
byte nruns[TICKS + 1];
byte ncommitted[TICKS + 1];
bit committed_ever[TICKS + 1];

hidden byte yes;				/* the result of may_run() */

/* jobrecord.c: zkl_job_record_decide */
inline may_run(n) {
	yes = s[n].last.czxid == 0 || s[n].tick > s[n].last.tick;
#ifdef RETRY
	yes = yes || (s[n].tick == s[n].last.tick
#ifndef FAILED_IS_DONE
		&& s[n].last.state != DONE
#else
		&& s[n].last.state == STARTED
#endif
	);
	assert(yes || s[n].tick < s[n].last.tick || committed_ever[s[n].tick])	/* LEAST */
#endif
}

inline copy(to, from) {
	to.czxid = from.czxid; to.version = from.version; to.tick = from.tick;
	to.state = from.state; to.id = from.id
}

inline clear(r) { r.czxid = 0; r.version = 0; r.tick = 0; r.state = 0; r.id = 0 }

/* The caller has an answer.  Its memory of the call does not count any more. */
inline become_idle(n) {
	s[n].what = IDLE; s[n].tick = 0; s[n].id = 0;
	s[n].start = NONE; s[n].outcome = 0; s[n].czxid = 0; s[n].version = 0;
	clear(s[n].last);
	s[n].is_old = 0
}

/* jobruns.c: end_run */
inline finish(n, state, is_unsure) {
	s[n].end = DUE; s[n].end_run = s[n].id; s[n].end_state = state;
	s[n].end_version = s[n].version; s[n].end_tick = s[n].tick;
	s[n].end_last = s[n].last.czxid;
#ifdef NO_READ
	if
	:: is_unsure -> s[n].end_version = s[n].last.version
	:: else
	fi
#else
	s[n].unsure = is_unsure
#endif
}

inline ended(n) {
	s[n].end = NONE; s[n].end_run = 0; s[n].end_state = 0; s[n].end_version = 0;
	s[n].end_tick = 0; s[n].end_last = 0; s[n].unsure = 0; s[n].unheard = 0
}

inline give_up(n) {
	if
	:: holder == n + 1 -> s[n].delete = DUE
	:: else
	fi
}

/* A run counts unless its record was removed. */
#ifdef TRUE_TOO_EARLY
#define COUNTS(n) true
#else
#define COUNTS(n) (s[n].czxid == record.czxid)
#endif

/* runonce.c: start(); true is returned */
inline begin_run(n) {
	s[n].what = RUNS; s[n].start = NONE; s[n].outcome = 0;
	clear(s[n].last);
	if
	:: COUNTS(n) ->
#ifndef RETRY
		assert(nruns[s[n].tick] == 0);		/* ONCE */
#endif
		nruns[s[n].tick] = 1
	:: else
	fi
}

/* runonce.c: start(); the record is another one, decide again */
inline decide_again(n) {
	s[n].start = NONE; s[n].outcome = 0;
	copy(s[n].last, record);
	may_run(n);
	if
	:: yes -> s[n].what = WRITES; s[n].start = DUE
	:: else -> become_idle(n); give_up(n)
	fi
}

/* runonce.c: zkl_run_once_begin */
inline call(n) {
	s[n].calls--;
	if
	:: s[n].tick = 1
	:: TICKS > 1 -> s[n].tick = 2
	fi;
	copy(s[n].last, record);
	may_run(n);
	if
#ifdef NO_LOCK
	:: yes -> s[n].what = HOLDS; runs++; s[n].id = runs
#else
	:: yes -> s[n].what = WAITS; runs++; s[n].id = runs
#endif
	:: else -> become_idle(n)
	fi
}

#if defined(NO_LOOK) || defined(QUICK)
#define IS_OLD(n) false
#else
#define IS_OLD(n) s[n].is_old
#endif

/* jobwriter.c: next_of_start */
inline look(n) {
#ifdef TRUE_TOO_EARLY
	begin_run(n); s[n].start = DUE
#else
	if
	:: IS_OLD(n) && s[n].last.czxid != 0 &&
		(s[n].last.czxid != record.czxid || s[n].last.version != record.version) ->
		decide_again(n)
	:: else -> s[n].what = WRITES; s[n].start = DUE
	fi;
	s[n].is_old = 0
#endif
}

inline write_record(n, new_state, the_run, the_tick) {
	record.state = new_state; record.id = the_run; record.tick = the_tick;
	record.version++
}

/* ZooKeeper */
inline execute_start(n) {
	if
	:: s[n].last.czxid == 0 && record.czxid == 0 ->
		records++;
		record.czxid = records; record.version = 0;
		record.state = STARTED; record.id = s[n].id; record.tick = s[n].tick;
		s[n].outcome = OK
	:: s[n].last.czxid == 0 && record.czxid != 0 -> s[n].outcome = CHANGED
	:: s[n].last.czxid != 0 && record.czxid == 0 -> s[n].outcome = ABSENT
	:: s[n].last.czxid != 0 && record.czxid != 0 ->
		if
#ifndef NO_CONDITION
		:: s[n].last.version != record.version -> s[n].outcome = CHANGED
#endif
		:: else -> write_record(n, STARTED, s[n].id, s[n].tick); s[n].outcome = OK
		fi
	fi;
	s[n].start = ANSWERED;
	s[n].czxid = record.czxid; s[n].version = record.version
}

/* jobrecord.c: zkl_job_record_close */
inline close_record(n) {
#ifndef NO_CLOSE
	s[n].end_state = DONE; s[n].end_tick = TICKS + 1;
#endif
	skip
}

/* The answer OVERTAKEN */
inline be_overtaken(n) {
	finish(n, FAILED, 0); close_record(n); become_idle(n); give_up(n)
}

/* jobwriter.c: answer_written */
inline written(n) {
	s[n].czxid = record.czxid; s[n].version = record.version;
	if
	:: s[n].last.czxid != 0 && s[n].last.czxid != s[n].czxid -> be_overtaken(n)
	:: else -> begin_run(n)
	fi
}

/* jobwriter.c: on_start_written, on_start_read */
inline answer_start(n) {
	if
	:: s[n].outcome == OK && s[n].last.czxid != 0 && s[n].last.czxid != s[n].czxid -> be_overtaken(n)
	:: s[n].outcome == OK && !(s[n].last.czxid != 0 && s[n].last.czxid != s[n].czxid) -> begin_run(n)
#ifdef CHANGED_BELIEVED
	:: s[n].outcome == CHANGED -> begin_run(n)
#endif
#ifdef NO_ID
	:: s[n].outcome == CHANGED -> decide_again(n)
#else
	:: s[n].outcome == CHANGED && record.czxid != 0 && record.id == s[n].id -> written(n)
	:: s[n].outcome == CHANGED && !(record.czxid != 0 && record.id == s[n].id) -> decide_again(n)
#endif
	:: s[n].outcome == ABSENT -> decide_again(n)
	fi
}

/* xact.c: guard_commit, then zkl_hold_counts_end_xact */
inline commit(n) {
	finish(n, DONE, 0);
	if
	:: COUNTS(n) ->
#ifdef RETRY
		assert(ncommitted[s[n].tick] == 0);	/* TWICE */
#endif
		ncommitted[s[n].tick]++;
		committed_ever[s[n].tick] = 1;
		s[n].unheard = 1
	:: else
	fi;
	become_idle(n);
	give_up(n)
}

inline fail(n, is_unsure) {
	finish(n, FAILED, is_unsure);
	become_idle(n);
	give_up(n)
}

/* jobwriter.c: on_end_read */
inline read_end(n) {
	if
	:: record.czxid != 0 && record.id == s[n].end_run && record.state == STARTED ->
		s[n].end_version = record.version; s[n].unsure = 0;
		if
		:: s[n].end_last != 0 && s[n].end_last != record.czxid -> close_record(n)
		:: else
		fi
	:: else -> ended(n)
	fi
}

inline execute_end(n) {
	if
	:: record.czxid != 0 && record.version == s[n].end_version ->
		write_record(n, s[n].end_state, s[n].end_run, s[n].end_tick)
	:: else
	fi;
	s[n].unheard = 0;
	s[n].end = ANSWERED
}

/* The requests on their way are lost.  The worker sends them again, in the same order. */
inline lose(n) {
	if
	:: s[n].start > DUE -> s[n].start = DUE; s[n].outcome = 0
	:: else
	fi;
	if
	:: s[n].end > DUE -> s[n].end = DUE
	:: else
	fi;
	if
	:: s[n].delete > DUE -> s[n].delete = DUE
	:: else
	fi
}

/* No property holds for a commit of which ZooKeeper did not hear in time. */
inline excuse(n) {
	if
	:: s[n].unheard -> ncommitted[s[n].end_tick]--; s[n].unheard = 0
	:: else
	fi
}

inline lose_ticket(n) {
	if
	:: holder == n + 1 -> holder = 0
	:: else
	fi;
	s[n].delete = NONE
}

/* entrystate.c: the claims are lost, and so are their runs */
inline expire(n) {
	excuse(n);
	lose(n);
	lose_ticket(n);
	if
	:: s[n].end != NONE -> s[n].unsure = 1
	:: else
	fi;
	if
	:: s[n].what == WRITES -> finish(n, FAILED, 1); become_idle(n)
#ifdef NO_GUARD
	:: s[n].what == RUNS
#else
	:: s[n].what == RUNS -> finish(n, FAILED, 1); become_idle(n)
#endif
	:: s[n].what == HOLDS -> become_idle(n)
	:: else
	fi
}

inline crash(n) {
	has_crashed = 1;
	excuse(n);
	lose_ticket(n);
	become_idle(n);
	ended(n)
}

#ifdef FORGET_ANY_TIME
#define IS_AT_REST(n) true
#else
#define IS_AT_REST(n) (s[n].what < WRITES && s[n].end == NONE)
#endif

/* Only with two servers. */
inline forget() {
	clear(record);
	s[0].is_old = s[0].last.czxid != 0; s[SERVERS - 1].is_old = s[SERVERS - 1].last.czxid != 0;
	nruns[1] = 0; ncommitted[1] = 0; committed_ever[1] = 0;
	nruns[TICKS] = 0; ncommitted[TICKS] = 0; committed_ever[TICKS] = 0;
	s[0].unheard = 0; s[SERVERS - 1].unheard = 0
}

/* The requests of a server keep their order. */
#ifdef DELETE_FIRST
#define MAY_DELETE(n) true
#define MAY_END(n) (s[n].delete == NONE)
#else
#define MAY_DELETE(n) (s[n].end != DUE)
#define MAY_END(n) true
#endif

#if defined(NO_GUARD) || defined(NO_LOCK)
#define PASSES(n) true
#else
#define PASSES(n) (holder == n + 1)
#endif

proctype Caller(byte n) {
end:
	do
	:: atomic { s[n].what == IDLE && s[n].calls > 0 && s[n].end == NONE && s[n].delete == NONE -> call(n) }
	:: atomic { s[n].what == WAITS && holder == 0 -> holder = n + 1; s[n].what = HOLDS }
	:: d_step { s[n].what == WAITS -> become_idle(n) }			/* its time is over */
	:: atomic { s[n].what == HOLDS -> look(n) }
	/* cancelled while the write is under way, or done */
	:: atomic { s[n].what == WRITES && losses > 0 -> losses--;
			if
			:: s[n].start == SENT -> execute_start(n)
			:: true
			fi;
			fail(n, 1) }
	:: d_step { s[n].what == RUNS && s[n].start == NONE && PASSES(n) -> commit(n) }
	:: d_step { s[n].what == RUNS && s[n].start == NONE -> fail(n, 0) }

	/* the worker and ZooKeeper */
	:: d_step { s[n].start == DUE -> s[n].start = SENT }
	:: d_step { s[n].start == SENT -> execute_start(n) }
#ifdef TRUE_TOO_EARLY
	:: d_step { s[n].start == ANSWERED -> s[n].start = NONE; s[n].outcome = 0 }
#else
	:: atomic { s[n].start == ANSWERED -> answer_start(n) }
#endif
	:: d_step { s[n].end == DUE && MAY_END(n) && s[n].unsure -> read_end(n) }
	:: d_step { s[n].end == DUE && MAY_END(n) && !s[n].unsure -> s[n].end = SENT }
	:: d_step { s[n].end == SENT -> execute_end(n) }
	:: d_step { s[n].end == ANSWERED -> ended(n) }
	:: d_step { s[n].delete == DUE && MAY_DELETE(n) -> s[n].delete = SENT }
	:: d_step { s[n].delete == SENT && (s[n].end != SENT || !MAY_END(n)) ->
			s[n].delete = ANSWERED;
			if
			:: holder == n + 1 -> holder = 0
			:: else
			fi }
	:: d_step { s[n].delete == ANSWERED -> s[n].delete = NONE }

	/* what goes wrong */
	:: d_step { losses > 0 && (s[n].start > DUE || s[n].end > DUE || s[n].delete > DUE) -> losses--; lose(n) }
	:: d_step { expiries > 0 -> expiries--; expire(n) }
	:: d_step { crashes > 0 -> crashes--; crash(n) }
	od
}

proctype User() {
end:
	do
	:: d_step { forgets > 0 && record.czxid != 0 && IS_AT_REST(0) && IS_AT_REST(SERVERS - 1) -> forgets--; forget() }
	od
}

proctype Quiet() {
	timeout ->
	assert(holder == 0);												/* QUIET */
	assert(record.czxid == 0 || record.state != STARTED || has_crashed)
}

init {
	atomic {
		byte n = 0;
		do
		:: n < SERVERS -> run Caller(n); n++
		:: else -> break
		od;
		run User();
		run Quiet()
	}
}
