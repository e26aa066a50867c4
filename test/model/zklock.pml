/*
 * zklock.pml: the two-tier protocol, for spin.
 *
 * One lock, a mutex, and everything that handles it: SERVERS PostgreSQL servers with
 * a worker and BACKENDS backends each, and ZooKeeper.  Each backend acquires the
 * lock, or gives up; writes; commits under the guard, or rolls back; and releases.
 * At most FAULTS times, something goes wrong.  README.md lists what is left out.
 *
 * A step of the model (an "atomic" or "d_step") is what the C code does under the partition's
 * lock, or between two such moments in the worker.  Each step names the file and the
 * function in src/ for which it stands.
 *
 * README.md has the properties, and the defects that spin must find: they are where the
 * #ifdefs are.
 */

#ifndef SERVERS
#define SERVERS 2
#endif
#ifndef BACKENDS
#define BACKENDS 2				/* of each server */
#endif
#ifndef IMPATIENT
#define IMPATIENT 1				/* backends that may stop waiting */
#endif
#ifndef FAULTY
#define FAULTY SERVERS			/* servers to which they may happen */
#endif
#ifndef FAULTS
#define FAULTS 1
#endif

#define ALL			(SERVERS * BACKENDS)
#ifndef STARTED
#define STARTED ALL				/* so many of the backends do something */
#endif
#define SERVER(b)	((b) / BACKENDS)

/* ZklEntryState, locktable.h */
#define E_NONE		0
#define E_WANTED	1
#define E_QUEUED	2
#define E_OWNED		3
#define E_RELEASING 4

/* ZklTicketState, ticket.h; UNSURE and INSPECTING are parts of FINDING */
#define T_NONE		0
#define T_CREATING	1
#define T_CREATED	2
#define T_FINDING	3
#define T_LISTING	4
#define T_WATCHING	5
#define T_QUEUED	6
#define T_OWNED		7
#define T_CHECKING	8
#define T_DELETING	9
#define T_FOUNDING	10			/* only with FOUNDING */
#define T_UNDONE	11			/* only with UNDONE */

/* ZklRequest, ticket.h, and what comes back: their replies, and watches that fired */
#define NOTHING		0
#define CREATE		1
#define LIST		2
#define WATCH		3
#define DELETE		4
#define WATCH_SELF	5			/* only with FOREIGN: see there */
#define CHILDREN	6			/* ZKL_EVENT_CHILDREN_CHANGED */
#define CHANGED		7			/* a znode that was watched is gone */

#define FOUND		8			/* only with FOUNDING: the directory may be new */

/* What a list says, besides: another is behind, exactly one is before */
#define BEHIND		1
#define NEXT		2

/* ZklClaimState, locktable.h */
#define C_GONE		0
#define C_WAITING	1
#define C_HELD		2
#define C_LOST		3

typedef Server {
	/* shared memory: the entry */
	byte entry = E_NONE;
	byte generation = 1;
	byte entry_epoch;			/* entry->epoch */
	byte entry_czxid;
	byte number;				/* claim_number */
	bit contended;
	bit seen;
	bit in_work;

	/* shared memory: the session */
	byte epoch = 1;
	bit safe = 1;					/* now < safe_until */
	bit known = 1;					/* info->id is not 0 */

	/* shared memory: the ticket */
	byte ticket = T_NONE;
	bit unwanted;
	byte attempt = 1;			/* which is the uuid, too */
	byte name;					/* sequence number, which is the czxid, too */
	byte predecessor;
	bit next;					/* no other goes before it */
	bit unlisted;				/* only with FOUNDING: not listed since it is owned */

	/* the worker's memory */
	bit connected = 1;
	byte due = NOTHING;
	bit expiring;				/* in the middle of on_expired of keeper.c */
	bit beat;					/* a heartbeat is answered, but not received ... */
	bit stale;					/* ... and it was sent too long ago */

	/* ZooKeeper */
	bit alive = 1;					/* the session */
	bit fresh = 1;					/* its timeout has not passed */
	byte watched;				/* znode that it watches */
	byte watched_self;
	bit children;				/* it watches the directory */
	byte late;					/* NO_BARRIER: a create on its way elsewhere */
}

typedef Backend {
	byte claim = C_GONE;
	byte generation;
	byte epoch;
	bit needs;					/* needs_ticket */
	bit latch;
	byte locked;				/* generation of the advisory lock it holds; 0: none */
	bit inside;					/* in a transaction, before the guard */
	bit spoilt;					/* ... and another one passed the guard meanwhile */
	bit done;
}

Server s[SERVERS];
Backend b[ALL];

/* To ZooKeeper: request, attempt or name.  Back: what, and three results. */
chan req[SERVERS] = [3] of { byte, byte };
chan rep[SERVERS] = [6] of { byte, byte, byte, byte };

/* The lock's directory: a place for each server's znode. */
byte znode[SERVERS];			/* sequence number; 0: none */
byte uuid[SERVERS];
byte sequence;

byte last_token;
byte faults = FAULTS;
byte impatient = IMPATIENT;
#ifdef FOREIGN
byte foreign = FOREIGN;
#endif
#ifdef UNDONE
byte undone = UNDONE;			/* how many operations may still fail with their batch */
#endif

hidden byte i, x, y, own, before, ahead, behind;

/* --- the lock table ---------------------------------------------------------- */

#define FOR_CLAIMS(k)	i = (k) * BACKENDS; do :: i < ((k) + 1) * BACKENDS ->
#define END_CLAIMS		i++ :: else -> break od; i = 0

#if BACKENDS == 1
#define ANY(is, k)		is(k, (k))
#else
#define ANY(is, k)		(is(k, (k) * 2) || is(k, (k) * 2 + 1))
#endif

#define IS_HELD(k, c)	(b[c].claim == C_HELD)
#define NEEDS(k, c)		(b[c].needs)
#define IS_WAITING(k, c) (b[c].claim == C_WAITING && b[c].generation == s[k].generation)

#define ANY_HELD(k)		ANY(IS_HELD, k)
#define ANY_WAITING(k)	ANY(IS_WAITING, k)		/* nwaiting: in this generation */
#define ANY_NEEDS(k)	ANY(NEEDS, k)
#define IDLE(k)			(!ANY_HELD(k) && !ANY_WAITING(k))	/* zkl_entry_is_idle */

/* Does no other backend of the server hold the advisory lock of this generation? */
#if BACKENDS == 1
#define LOCK_IS_FREE(me) true
#else
#define LOCK_IS_FREE(me) (b[(me) ^ 1].locked != b[me].generation)
#endif

inline wake_needing(k) {		/* entry.c: zkl_entry_wake_needing */
	FOR_CLAIMS(k) if :: b[i].needs -> b[i].latch = 1 :: else fi; END_CLAIMS
}

inline give_up(k) {				/* entry.c: zkl_entry_give_up */
	s[k].entry = E_RELEASING;
	s[k].in_work = 1
}

/* --- the ticket's steps, and their reports ------------------------------------ */

inline become(k, state, request) {
	s[k].ticket = state;
	s[k].due = request
}

/* entry.c: zkl_entry_become_none.  A value without a meaning now is 0: fewer states. */
inline forget(k) {
	s[k].entry = E_NONE;
	s[k].attempt = 1;
	s[k].contended = 0;
	s[k].seen = 0;
	s[k].entry_epoch = 0;
	s[k].entry_czxid = 0;
	s[k].number = 0
}

/*
 * ticket.c: on_want.  Whether the directory is there the worker can only guess;
 * another znode may come before the request is executed.
 */
#ifdef FOUNDING
#define WANT_TICKET(k) \
	if \
	:: znode[0] == 0 && znode[SERVERS - 1] == 0 -> become(k, T_FOUNDING, FOUND) \
	:: else -> become(k, T_CREATING, CREATE) \
	fi
#else
#define WANT_TICKET(k)	become(k, T_CREATING, CREATE)
#endif

/* ticket.c: gone, on_want; entrystate.c: zkl_entry_state_set_gone, want_again */
inline gone(k) {
	become(k, T_NONE, NOTHING);
	s[k].name = 0;
	s[k].predecessor = 0;
	s[k].next = 0;
	s[k].unwanted = 0;
	forget(k);
	if
	:: ANY_NEEDS(k) ->
		s[k].entry = E_WANTED;
		s[k].seen = 1;
		WANT_TICKET(k)
	:: else
	fi
}

/* ticket.c: lose; entrystate.c: zkl_entry_state_set_lost, new_generation */
inline lose(k) {
	become(k, T_NONE, NOTHING);
	s[k].name = 0;
	forget(k);
	s[k].generation++;
	FOR_CLAIMS(k)
		if :: b[i].claim == C_HELD -> b[i].claim = C_LOST :: else fi;
		if :: b[i].needs -> b[i].needs = 0; b[i].latch = 1 :: else fi;
	END_CLAIMS
}

inline create_anew(k) {			/* ticket.c: create_anew */
	if
	:: s[k].unwanted -> gone(k)
	:: else -> s[k].name = 0; become(k, T_CREATING, CREATE)
	fi
}

/* A create whose outcome is not known: ticket.c, UNSURE, look_again */
inline look_for_create(k) {
#ifdef NO_SEARCH
	create_anew(k)
#else
	become(k, T_FINDING, LIST)
#endif
}

inline delete_it(k) {
	s[k].unwanted = 1;
	become(k, T_DELETING, DELETE)
}

inline on_unwant(k) {			/* ticket.c: on_unwant */
	if
	:: s[k].ticket == T_NONE -> gone(k)
	:: (s[k].ticket == T_CREATING || s[k].ticket == T_FOUNDING) &&
		s[k].due != NOTHING -> gone(k)
	:: ((s[k].ticket == T_CREATING || s[k].ticket == T_FOUNDING) &&
		s[k].due == NOTHING) ||
		s[k].ticket == T_FINDING || s[k].ticket == T_UNDONE -> s[k].unwanted = 1
	:: s[k].ticket == T_DELETING
	:: else -> delete_it(k)
	fi
}

/* ticket.c: take_place; entrystate.c: zkl_entry_state_set_owned */
inline become_owned(k, is_contended) {
	s[k].ticket = T_OWNED;
	s[k].due = NOTHING;
	s[k].predecessor = 0;
	s[k].next = 0;
#ifdef FOREIGN
	if :: is_contended -> s[k].due = WATCH_SELF :: else fi;
#endif
	if
	:: s[k].entry == E_WANTED || s[k].entry == E_QUEUED ->
		s[k].entry = E_OWNED;
		s[k].entry_epoch = s[k].epoch;
		s[k].entry_czxid = s[k].name;
		s[k].number = 0;
		s[k].contended = is_contended;
#ifndef NO_WAKE_UP
		wake_needing(k)
#endif
	:: else -> on_unwant(k)
	fi
}

/* ticket.c: take_over */
inline take_over(k) {
	become_owned(k, s[k].contended);
	if
	:: s[k].ticket == T_OWNED -> become(k, T_CHECKING, LIST)
	:: else
	fi
}

/* entrystate.c: zkl_entry_state_set_queued */
inline become_queued(k) {
	s[k].predecessor = y;
	s[k].next = (behind & NEXT) != 0;
	s[k].contended = behind & BEHIND;
	become(k, T_WATCHING, WATCH);
	if
	:: s[k].entry == E_WANTED -> s[k].entry = E_QUEUED; wake_needing(k)
	:: else
	fi
}

/* ticket.c: on_place_reply */
inline on_place(k) {
	if
	:: s[k].unwanted -> delete_it(k)
	:: !s[k].unwanted && x == 0 -> create_anew(k)
	:: !s[k].unwanted && x != 0 && y == 0 -> become_owned(k, behind & BEHIND)
	:: else -> become_queued(k)
	fi
}

/* ticket.c: on_check_reply; entrystate.c: zkl_entry_state_set_contended */
inline on_check(k) {
	s[k].ticket = T_OWNED;
	if
	:: x == 0 -> lose(k)
	:: x != 0 && (behind & BEHIND) ->
#ifdef FOREIGN
		s[k].due = WATCH_SELF;
#endif
		if
		:: s[k].entry == E_OWNED ->
			s[k].contended = 1;
			if
			:: IDLE(k) -> s[k].entry = E_RELEASING; on_unwant(k)
			:: else
			fi
		:: else
		fi
	:: else -> if :: s[k].entry == E_OWNED -> s[k].contended = 0 :: else fi
	fi
}

/* ticket.c: on_find_reply, on_inspect_reply */
inline on_find(k) {
	if
	:: x == 0 -> create_anew(k)
	:: else ->
		s[k].name = x;
		if
		:: s[k].unwanted -> delete_it(k)
		:: else -> become(k, T_LISTING, LIST)
		fi
	fi
}

/* ticket.c: on_inspect_reply */
inline on_found(k) {
	s[k].name = x;
	if
	:: s[k].unwanted -> delete_it(k)
#ifndef FOUND_BELIEVED
	:: !s[k].unwanted && y != 0 -> become(k, T_LISTING, LIST)
#endif
	:: else ->
		become_owned(k, 0);
		s[k].unlisted = (s[k].ticket == T_OWNED)
	fi
}

/* ticketfeed.c: zkl_ticket_feed_take_reply; ticket.c: on_reply */
inline on_reply(k, what) {
	if
	:: what == CREATE && s[k].ticket == T_CREATING ->
		s[k].ticket = T_CREATED;
		s[k].name = x;
#ifdef UNDONE
		if :: x == 0 -> s[k].ticket = T_UNDONE :: else fi
	:: what == LIST && s[k].ticket == T_UNDONE -> create_anew(k)
	:: what == FOUND && s[k].ticket == T_FOUNDING && x == 0 ->
		if
		:: s[k].unwanted -> gone(k)
		:: else -> become(k, T_FOUNDING, FOUND)
		fi
#endif
#ifdef FOUNDING
	:: what == FOUND && s[k].ticket == T_FOUNDING && x != 0 -> on_found(k)
#endif
	:: what == LIST && (s[k].ticket == T_CREATED || s[k].ticket == T_LISTING) -> on_place(k)
	:: what == LIST && s[k].ticket == T_FINDING -> on_find(k)
	:: what == LIST && s[k].ticket == T_CHECKING -> on_check(k)
	:: what == WATCH && s[k].ticket == T_WATCHING ->
		if
		:: x != 0 -> s[k].ticket = T_QUEUED
		:: else -> become(k, T_LISTING, LIST)
		fi
	:: what == WATCH_SELF && s[k].ticket == T_OWNED && x == 0 -> lose(k)
	:: what == DELETE && s[k].ticket == T_DELETING ->
#ifdef UNDONE_BELIEVED
		gone(k)
#else
		if
		:: x != 0 -> s[k].due = DELETE		/* it was not done */
		:: else -> gone(k)
		fi
#endif
	:: what == CHANGED && s[k].ticket == T_QUEUED && x == s[k].predecessor ->
#ifdef WATCH_BELIEVED
		take_over(k)
#else
		if
		:: s[k].next -> take_over(k)
		:: else -> become(k, T_LISTING, LIST)
		fi
#endif
	:: what == CHANGED && s[k].ticket == T_OWNED && x == s[k].name ->
		become(k, T_CHECKING, LIST)
	:: what == CHILDREN && (s[k].ticket == T_WATCHING || s[k].ticket == T_QUEUED) ->
		s[k].next = 0
	:: what == CHILDREN && s[k].ticket == T_OWNED && !s[k].contended ->
		become(k, T_CHECKING, LIST)
	:: else
	fi
}

/* The replies to what is under way are UNKNOWN: ticket.c: look_again */
inline on_unknown(k) {
	if
	:: (s[k].ticket == T_CREATING || s[k].ticket == T_FOUNDING) &&
		s[k].due == NOTHING -> look_for_create(k)
	:: s[k].ticket == T_UNDONE -> create_anew(k)
	:: s[k].ticket == T_FINDING -> s[k].due = LIST
	:: s[k].ticket == T_CREATED || s[k].ticket == T_LISTING || s[k].ticket == T_WATCHING ->
		s[k].next = 0;
		become(k, T_LISTING, LIST)
	:: s[k].ticket == T_CHECKING -> s[k].due = LIST
	:: s[k].ticket == T_DELETING -> s[k].due = DELETE
	:: else
	fi
}

inline on_reconnected(k) {		/* ticket.c: on_reconnected */
#ifndef NO_RELOOK
	if
	:: s[k].ticket == T_QUEUED -> s[k].next = 0; become(k, T_LISTING, LIST)
#ifndef NEXT_KEPT
	:: s[k].ticket == T_WATCHING -> s[k].next = 0; become(k, T_LISTING, LIST)
#endif
	:: s[k].ticket == T_OWNED -> become(k, T_CHECKING, LIST)
	:: else
	fi
#else
	skip
#endif
}

inline on_restarted(k) {		/* ticket.c: look_again */
	s[k].next = 0;
	if
	:: s[k].ticket == T_CREATING || s[k].ticket == T_FOUNDING ||
		s[k].ticket == T_FINDING -> look_for_create(k)
	:: s[k].ticket == T_UNDONE -> create_anew(k)
	:: s[k].ticket == T_CREATED || s[k].ticket == T_LISTING ||
		s[k].ticket == T_WATCHING || s[k].ticket == T_QUEUED -> become(k, T_LISTING, LIST)
	:: s[k].ticket == T_OWNED || s[k].ticket == T_CHECKING -> become(k, T_CHECKING, LIST)
	:: s[k].ticket == T_DELETING -> s[k].due = DELETE
	:: else
	fi
}

inline on_expired(k) {			/* ticket.c: on_expired */
	if
	:: s[k].ticket == T_NONE
	:: !s[k].unwanted && (s[k].ticket == T_OWNED || s[k].ticket == T_CHECKING) -> lose(k)
	:: else -> gone(k)
	fi
}

/* --- ZooKeeper ---------------------------------------------------------------- */

/* A znode was created or deleted in the directory. */
inline fire_children() {
	i = 0;
	do
	:: i < SERVERS ->
		if
		:: s[i].children -> s[i].children = 0; rep[i]!CHILDREN, 0, 0, 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline remove(k) {
	i = 0;
	do
	:: i < SERVERS ->
		if
		:: s[i].watched == znode[k] ->
#ifndef ONLY_PROMISES
			assert(s[i].ticket != T_QUEUED || !s[i].next || s[i].children ||
				rep[i]??[CHILDREN, 0, 0, 0]);	/* NEXT */
#endif
			s[i].watched = 0;
			rep[i]!CHANGED, znode[k], 0, 0
		:: else
		fi;
		if
		:: s[i].watched_self == znode[k] ->
			s[i].watched_self = 0;
			rep[i]!CHANGED, znode[k], 0, 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	znode[k] = 0;
	uuid[k] = 0;
	fire_children()
}

/* A create, ephemeral and sequential. */
inline put(k, attempt) {
#ifndef ONLY_PROMISES
	assert(znode[k] == 0);			/* SLOTS */
#endif
	sequence++;
	znode[k] = sequence;
	uuid[k] = attempt;
	fire_children()
}

/* What recipe.c, zkl_recipe_judge, makes of the children: own, before, behind. */
inline judge(k, attempt) {
	own = (uuid[k] == attempt -> znode[k] : 0);
	before = 0;
	ahead = 0;
	behind = 0;
	i = 0;
	do
	:: i < SERVERS ->
		if
		:: znode[i] != 0 && own != 0 && znode[i] < own ->
			ahead++;
			if :: znode[i] > before -> before = znode[i] :: else fi
		:: own != 0 && znode[i] > own -> behind = 1
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline empty_out(channel) {
	do :: nempty(channel) -> channel?_ , _ :: empty(channel) -> break od
}

/* The connection is gone, and with it all watches and replies. */
inline cut(k) {
	do :: nempty(rep[k]) -> rep[k]?_, _, _, _ :: empty(rep[k]) -> break od;
	s[k].connected = 0;
	s[k].watched = 0;
	s[k].watched_self = 0;
	s[k].children = 0;
	s[k].beat = 0;
	s[k].stale = 0
}

/* Execute one request; a worker without a connection gets no reply. */
inline execute(k) {
	req[k]?x, y;
	if
	:: x == CREATE ->
		put(k, y);
		if :: s[k].connected -> rep[k]!CREATE, znode[k], 0, 0 :: else fi
#ifdef FOUNDING
	:: x == FOUND ->
		before = znode[0] + znode[SERVERS - 1];	/* that of the other */
		put(k, y);
		if :: s[k].connected -> rep[k]!FOUND, znode[k], before, 0 :: else fi
#endif
	:: x == LIST ->
		judge(k, y);
		if
		:: s[k].connected ->
			/* A ticket that knows of others takes no notice, unless it is next */
			if
			:: own != 0 && ((before == 0 && !behind) || ahead == 1) -> s[k].children = 1
			:: else
			fi;
			rep[k]!LIST, own, before, behind + (ahead == 1 -> NEXT : 0)
		:: else
		fi
	:: x == WATCH || x == WATCH_SELF ->
		own = 0;
		i = 0;
		do
		:: i < SERVERS -> if :: znode[i] == y -> own = y :: else fi; i++
		:: else -> break
		od;
		i = 0;
		if
		:: s[k].connected ->
			if
			:: x == WATCH -> s[k].watched = own
			:: else -> s[k].watched_self = own
			fi;
			rep[k]!x, own, 0, 0
		:: else
		fi
	:: x == DELETE ->
		s[k].children = 0;			/* what it would say is ignored */
		if :: znode[k] != 0 && znode[k] == y -> remove(k) :: else fi;
		if :: s[k].connected -> rep[k]!DELETE, 0, 0, 0 :: else fi
	fi;
	x = 0; y = 0; own = 0; before = 0; ahead = 0; behind = 0
}

#ifdef UNDONE
/*
 * Another operation of the batch fails, so this one is not done.  batches.c:
 * zkl_batches_answered
 */
inline leave_undone(k) {
	undone--;
	req[k]?x, y;
	if :: s[k].connected -> rep[k]!x, (x == DELETE), 0, 0 :: else fi;
	x = 0; y = 0
}
#define IN_BATCH(k)	(req[k]?[CREATE, _] || req[k]?[FOUND, _] || req[k]?[DELETE, _])
#endif

/* One for each session, in whose order requests are executed. */
proctype zookeeper(byte k) {
end:
	do
	:: d_step { s[k].alive && nempty(req[k]) -> execute(k) }
#ifdef UNDONE
	:: d_step { s[k].alive && undone > 0 && IN_BATCH(k) -> leave_undone(k) }
#endif
#ifdef NO_BARRIER
	:: d_step { s[k].alive && s[k].late != 0 -> put(k, s[k].late); s[k].late = 0 }
#endif
	od
}

/* --- the worker --------------------------------------------------------------- */

#define RUNS(k)		(!s[k].expiring)

/* At the end of each turn: requests.c: zkl_send_queue_send, send_create */
inline send(k) {
	if
	:: s[k].connected ->
		if
		:: s[k].due == CREATE ->
			s[k].attempt = 3 - s[k].attempt;	/* differs from the last one */
			req[k]!CREATE, s[k].attempt;
			req[k]!LIST, s[k].attempt
#ifdef FOUNDING
		:: s[k].due == FOUND ->
			s[k].attempt = 3 - s[k].attempt;
			req[k]!FOUND, s[k].attempt
#endif
		:: s[k].due == LIST -> req[k]!LIST, s[k].attempt
		:: s[k].due == WATCH -> req[k]!WATCH, s[k].predecessor
		:: s[k].due == WATCH_SELF -> req[k]!WATCH_SELF, s[k].name
		:: s[k].due == DELETE ->
			s[k].watched = 0;
			s[k].predecessor = 0;
			req[k]!DELETE, s[k].name
		:: else
		fi;
		s[k].due = NOTHING;
#ifdef DELETE_UNCONFIRMED
		if :: s[k].ticket == T_DELETING -> gone(k) :: else fi
#endif
	:: else
	fi
}

/*
 * The barrier: a request that the old connection has not executed by now never will be.
 * session.h: zkl_session_heartbeat; keeper.c: on_connected, publish_session
 */
inline connect(k) {
#ifdef NO_BARRIER
	do
	:: nempty(req[k]) ->
		req[k]?x, y;
		if :: x == CREATE -> s[k].late = y :: else fi
	:: empty(req[k]) -> break
	od;
	x = 0; y = 0;
#else
	empty_out(req[k]);
#endif
	s[k].connected = 1;
	on_reconnected(k);
	send(k)
}

proctype worker(byte k) {
end:
	do
	/* keeper.c: zkl_session_keeper_tend, on_connected; with a new session or the old one */
	:: d_step { RUNS(k) && !s[k].connected && s[k].known && s[k].alive -> connect(k) }
	:: d_step {
			RUNS(k) && !s[k].connected && !s[k].known ->
			s[k].known = 1;
			s[k].alive = 1;
			s[k].fresh = 1;
			connect(k)
		}

	/*
	 * heartbeat.c: zkl_heartbeat_send; only where it can change
	 * anything.  It is a write, so the quorum knows.
	 */
	:: d_step {
			RUNS(k) && s[k].connected && s[k].alive && !s[k].beat && !s[k].safe ->
			s[k].beat = 1;
			s[k].fresh = 1
		}

	/* keeper.c: on_heartbeat.  Safe until counts from when it was sent. */
	:: d_step {
			RUNS(k) && s[k].beat ->
			s[k].beat = 0;
#ifndef SAFE_FROM_ANSWER
			if :: !s[k].stale -> s[k].safe = 1; wake_needing(k) :: else fi;
#else
			s[k].safe = 1;
			wake_needing(k);
#endif
			s[k].stale = 0
		}

	/* ticketfeed.c: zkl_ticket_feed_note_change */
	:: d_step {
			RUNS(k) && nempty(rep[k]) ->
			rep[k]?before, x, y, behind;
			on_reply(k, before);
			send(k);
			before = 0; x = 0; y = 0; behind = 0
		}

	/* ticketfeed.c: zkl_ticket_feed_take_work; entrystate.c: zkl_entry_state_next */
	:: d_step {
			RUNS(k) && s[k].in_work ->
			s[k].in_work = 0;
			if
			:: s[k].entry == E_WANTED ->
				s[k].seen = 1;
				if
				:: s[k].ticket == T_NONE -> WANT_TICKET(k)
				:: else
				fi
			:: s[k].entry == E_RELEASING -> on_unwant(k)
			:: else
			fi;
			send(k)
		}

	/* entrystate.c: zkl_entry_state_next_due, when it has lingered long enough */
	:: d_step {
			RUNS(k) && s[k].entry == E_OWNED && IDLE(k) ->
			s[k].entry = E_RELEASING;
			on_unwant(k);
			send(k)
		}

#ifdef FOUNDING
	/* ticket.c: on_look, when a moment has passed */
	:: d_step {
			RUNS(k) && s[k].unlisted ->
			s[k].unlisted = 0;
			if
			:: s[k].ticket == T_OWNED -> become(k, T_CHECKING, LIST); send(k)
			:: else
			fi
		}
#endif

#ifdef DELETE_UNCONFIRMED
	:: d_step { RUNS(k) && s[k].connected && s[k].due != NOTHING -> send(k) }
#endif

	/* keeper.c: on_expired, in two steps between which others go on */
	:: d_step {
			RUNS(k) && s[k].known && !s[k].alive ->
			empty_out(req[k]);
			cut(k);
			s[k].safe = 0;
			s[k].epoch++;
			s[k].known = 0;
			s[k].expiring = 1
		}
	:: d_step {					/* ticketfeed.c: zkl_ticket_feed_tell_all */
			s[k].expiring ->
			on_expired(k);
			s[k].expiring = 0
		}
	od
}

/* --- the backends ------------------------------------------------------------- */

/* locktable.c: zkl_session_info_is_in_doubt */
#ifdef NO_EPOCH_CHECK
#define EPOCH_HOLDS(k, of)	true
#else
#define EPOCH_HOLDS(k, of)	((of) == s[k].epoch)
#endif
#ifdef NO_DOUBT
#define IS_GOOD(k, of)		EPOCH_HOLDS(k, of)
#else
#define IS_GOOD(k, of)		(EPOCH_HOLDS(k, of) && s[k].safe)
#endif

#define TOKEN(k)	(s[k].entry_czxid * 8 + s[k].number)

/* grant.c: hold */
inline hold(me, k) {
	b[me].needs = 0;
	b[me].claim = C_HELD;
	b[me].epoch = s[k].entry_epoch;
	s[k].number++;
	b[me].inside = 1;
	b[me].spoilt = 0;
#ifndef FOREIGN
	assert(TOKEN(k) > last_token);		/* TOKEN */
	last_token = TOKEN(k);
#endif
}

/* grant.c: ask_for_ticket, answer_owned */
inline ask_for_ticket(me, k) {
	b[me].needs = 1;
	if
	:: s[k].entry == E_NONE ->
		s[k].entry = E_WANTED;
		s[k].seen = 0;
		s[k].in_work = 1
	:: s[k].entry == E_OWNED ->
		if
		:: !ANY_HELD(k) && IS_GOOD(k, s[k].entry_epoch) -> hold(me, k)
		:: else
		fi
	:: else
	fi
}

/* claim.c: detach; entry.c: zkl_entry_settle, zkl_entry_settle_idle */
inline end_claim(me, k) {
	b[me].needs = 0;
	b[me].latch = 0;
	b[me].epoch = 0;
	b[me].locked = 0;
	b[me].generation = 0;
	b[me].done = 1;
	if
	:: b[me].claim == C_LOST -> b[me].claim = C_GONE
	:: else ->
		b[me].claim = C_GONE;
		if
		:: ANY_HELD(k)
		:: !ANY_HELD(k) && ANY_WAITING(k) ->
			if			/* tenure: handed on, or given up if it is over */
			:: true
			:: s[k].entry == E_OWNED && s[k].contended -> give_up(k)
			fi;
			wake_needing(k)
		:: IDLE(k) ->
			if
			:: s[k].entry == E_WANTED && !s[k].seen ->
				s[k].entry = E_NONE;	/* entry.c: take_back */
				s[k].in_work = 0
			:: (s[k].entry == E_WANTED && s[k].seen) || s[k].entry == E_QUEUED ->
				give_up(k)
			:: s[k].entry == E_OWNED && !s[k].contended	/* entry.c: shall_linger */
			:: s[k].entry == E_OWNED -> give_up(k)
			:: s[k].entry == E_NONE || s[k].entry == E_RELEASING
			fi
		fi
	fi
}

/* wait.c: zkl_wait_for_ticket; grant.c: zkl_grant_request */
inline ask(me, k) {
	b[me].latch = 0;
	if
	:: b[me].generation != s[k].generation ->
		b[me].locked = 0;		/* acquire.c: zkl_acquire_claim, STALE */
		b[me].generation = s[k].generation
	:: else -> ask_for_ticket(me, k)
	fi
}

/* xact.c: guard_commit; standing.c: zkl_claim_status */
inline guard(me, k) {
	if
	:: b[me].claim == C_HELD && IS_GOOD(k, b[me].epoch) ->
#ifndef FOREIGN
		assert(!b[me].spoilt);				/* EXCLUSION */
#endif
#ifndef ONLY_PROMISES
		assert(s[k].alive && s[k].fresh);	/* SAFE */
#endif
		i = 0;
		do
		:: i < ALL ->
			if :: i != me && b[i].inside -> b[i].spoilt = 1 :: else fi;
			i++
		:: else -> break
		od;
		i = 0
	:: else
	fi;
	b[me].inside = 0;
	b[me].spoilt = 0
}

proctype backend(byte me) {
	byte k = SERVER(me);
	bit patient = 1;

	atomic {	/* claim.c: zkl_claim_begin */
		b[me].claim = C_WAITING;
		b[me].generation = s[k].generation;

		/* An impatient backend may be cancelled, or run out of time, at any moment. */
		if
		:: true
		:: impatient > 0 -> impatient--; patient = 0
		fi
	}

	do
	/* acquire.c: zkl_acquire_locally; claim.c: zkl_claim_generation */
	:: d_step {
			b[me].claim == C_WAITING && b[me].locked == 0 &&
			b[me].generation == s[k].generation && LOCK_IS_FREE(me) ->
			b[me].locked = b[me].generation;
			ask(me, k)
		}

	/* The worker nudges it, or it is only about to look at the generation. */
	:: d_step {
			b[me].claim == C_WAITING && b[me].locked == 0 &&
			b[me].generation != s[k].generation ->
			b[me].generation = s[k].generation
		}

	/* wait.c: sleep_until_next, and then again */
	:: d_step { b[me].claim == C_WAITING && b[me].latch -> ask(me, k) }

	/*
	 * It holds the lock, or has lost it; has written, commits, and releases the lock.
	 * localclaim.c: zkl_local_claim_end; claim.c: zkl_claim_end
	 */
	:: atomic { b[me].claim >= C_HELD -> guard(me, k); end_claim(me, k); patient = 1; break }

	/* It is cancelled in any of its waits. */
	:: atomic { b[me].claim == C_WAITING && !patient -> end_claim(me, k); patient = 1; break }
	od;
}

/* --- what goes wrong ---------------------------------------------------------- */

proctype fault(byte k) {
end:
	do
	/* The connection breaks; requests may still be executed for a while. */
	:: d_step {
			faults > 0 && RUNS(k) && s[k].connected ->
			faults--;
			cut(k);
			on_unknown(k)
		}

	/* Or just after a reply has come: the request that follows from it is not sent yet. */
	:: d_step {
			faults > 0 && RUNS(k) && s[k].connected && nempty(rep[k]) ->
			faults--;
			rep[k]?before, x, y, behind;
			on_reply(k, before);
			cut(k);
			if :: s[k].due == NOTHING -> on_unknown(k) :: else fi;
			before = 0; x = 0; y = 0; behind = 0
		}

	/*
	 * The worker ends, by an error or because it was told to, and another one
	 * starts.  (How long that takes makes no difference: the next worker still has to connect.)
	 * ticketfeed.c: zkl_ticket_feed_start; entrystate.c: zkl_entry_state_adopt
	 */
	:: d_step {
			faults > 0 ->
			faults--;
			cut(k);
			s[k].due = NOTHING;
			s[k].expiring = 0;
			on_restarted(k);
			if :: s[k].entry != E_NONE -> s[k].in_work = 1 :: else fi
		}

	/* Safe until passes: the heartbeats were too slow, or the worker stood still. */
	:: d_step {
			faults > 0 && (s[k].safe || s[k].fresh) ->
			faults--;
			s[k].safe = 0;
			s[k].fresh = 0;
			if :: s[k].beat -> s[k].stale = 1 :: else fi
		}

	/* Only then may ZooKeeper end the session, whatever the worker knows. */
	:: d_step {
			s[k].alive && !s[k].fresh ->
			s[k].alive = 0;
			s[k].watched = 0;
			s[k].watched_self = 0;
			s[k].children = 0;
			s[k].late = 0;
			if :: znode[k] != 0 -> remove(k) :: else fi
		}
#ifdef FOREIGN
	/* A client deletes a znode that is not its own. */
	:: d_step { foreign > 0 && znode[k] != 0 -> foreign--; remove(k) }
	:: foreign > 0 -> foreign = 0
#endif
	:: faults > 0 -> faults = 0		/* nothing more */
	od
}

/* --- all together ------------------------------------------------------------- */

/* When nothing moves any more. */
proctype quiet() {
	byte n, nothing_left = 1;

	timeout;
	d_step {
		n = 0;
		do
		:: n < ALL ->
			assert(b[n].done);			/* QUIET: no backend waits for ever */
			n++
		:: else -> break
		od;
		n = 0;
		do
		:: n < SERVERS ->
			assert(znode[n] == 0);		/* QUIET: no znode without an owner */
			assert(s[n].ticket == T_NONE && s[n].entry == E_NONE && !s[n].in_work);
			n++
		:: else -> break
		od
	}
}

init {
	atomic {
		byte n = 0;
		do
		:: n < SERVERS ->
			run zookeeper(n);
			run worker(n);
			if :: n < FAULTY -> run fault(n) :: else fi;
			n++
		:: else -> break
		od;
		n = 0;
		do
		:: n < ALL ->
			if :: n < STARTED -> run backend(n) :: else -> b[n].done = 1 fi;
			n++
		:: else -> break
		od;
		run quiet();
		n = 0
	}
}

#ifdef SERVED
ltl served { [] (b[0].claim == C_WAITING -> <> (b[0].claim != C_WAITING)) }
#endif
