/*-------------------------------------------------------------------------
 *
 * test_ticket_modes.c
 *	  The life of a ticket that is not a mutex's, told in sentences.
 *
 * Read-write locks, semaphores, paths that are in use as another kind of
 * lock; and what a long-held ticket learns from its own znode.
 *
 * test/unit/test_ticket_modes.c
 *
 *-------------------------------------------------------------------------
 */
#include "play.h"

/*
 * Read-write locks
 */

static void
readers_go_together(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_READ, ZKL_TICKET_CREATED);

	(void) state;
	assert_reports(listed(&ticket, NAMES(READER(1), READER(3), ticket.name,
										 READER(7))), ZKL_REPORT_OWNED);
	assert_false(ticket.contended);
}

static void
a_reader_waits_for_the_last_writer_before_it(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_READ, ZKL_TICKET_CREATED);

	(void) state;
	assert_step(listed(&ticket, NAMES(WRITER(1), WRITER(2), READER(3),
									  ticket.name, WRITER(6))),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_string_equal(ticket.predecessor, WRITER(2));
}

static void
a_writer_waits_for_readers(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_CREATED);

	(void) state;
	assert_step(listed(&ticket, NAMES(WRITER(1), READER(3), ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_string_equal(ticket.predecessor, READER(3));
}

/* Each mode is created, and found again, under its own name. */
static void
a_lost_create_of_any_mode_is_found(void **state)
{
	static const ZklMode modes[] = {
		ZKL_MODE_LOCK, ZKL_MODE_WRITE, ZKL_MODE_READ, ZKL_MODE_LEASE
	};

	(void) state;
	for (int i = 0; i < lengthof(modes); i++)
	{
		ZklTicket	ticket = ticket_as(modes[i], ZKL_TICKET_FINDING);
		char		name[ZKL_ZNODE_SIZE + 16];

		strcpy(name, own_name(&ticket, "0000000005"));
		assert_asks(listed(&ticket, NAMES(rival_of(modes[i]), name)),
					ZKL_REQUEST_INSPECT);
		assert_string_equal(ticket.name, name);
		assert_int_equal(ticket.mode, modes[i]);
		assert_asks(inspected(&ticket, true), ZKL_REQUEST_LIST);
		assert_reports(listed(&ticket, NAMES(name)), ZKL_REPORT_OWNED);
	}
}

static void
a_downgrade_puts_the_readers_znode_in_the_writers_place(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_OWNED);
	char		writer[ZKL_ZNODE_SIZE];
	char		reader[ZKL_ZNODE_SIZE];

	(void) state;
	strcpy(writer, ticket.name);
	zkl_recipe_make_downgrade(writer, reader);
	assert_asks(happens(&ticket, ZKL_EVENT_DOWNGRADE), ZKL_REQUEST_DOWNGRADE);
	assert_string_equal(ticket.name, writer);
	assert_step(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_OK),
				ZKL_REQUEST_LIST, ZKL_REPORT_DOWNGRADED);
	assert_string_equal(ticket.name, reader);
	assert_int_equal(ticket.mode, ZKL_MODE_READ);

	/* only a writer is in its way now */
	assert_nothing(listed(&ticket, NAMES(reader, READER(6))));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	assert_int_equal(ticket.czxid, MY_CZXID);
	assert_asks(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED),
				ZKL_REQUEST_LIST);
	assert_step(listed(&ticket, NAMES(reader, READER(6), WRITER(7))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
	assert_string_equal(ticket.name, reader);
}

static void
a_contended_writer_starts_uncontended_as_a_reader(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_CHECKING);

	(void) state;
	listed(&ticket, NAMES(ticket.name, READER(6)));
	assert_true(ticket.contended);
	happens(&ticket, ZKL_EVENT_DOWNGRADE);
	assert_step(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_OK),
				ZKL_REQUEST_LIST, ZKL_REPORT_DOWNGRADED);
	assert_false(ticket.contended);
	assert_asks(listed(&ticket, NAMES(ticket.name, READER(6))),
				ZKL_REQUEST_WATCH_SELF);
	assert_false(ticket.contended);
}

static void
only_who_owns_as_a_writer_is_downgraded(void **state)
{
	static const ZklMode others[] = {
		ZKL_MODE_LOCK, ZKL_MODE_READ, ZKL_MODE_LEASE
	};

	(void) state;
	for (int i = 0; i < lengthof(others); i++)
	{
		ZklTicket	ticket = ticket_as(others[i], ZKL_TICKET_OWNED);

		assert_nothing(happens(&ticket, ZKL_EVENT_DOWNGRADE));
		assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	}
	for (int s = 0; s < ZKL_TICKET_NSTATES; s++)
	{
		ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, (ZklTicketState) s);

		if (s == ZKL_TICKET_OWNED || s == ZKL_TICKET_CHECKING ||
			s == ZKL_TICKET_ANSWERING)
			continue;
		assert_nothing(happens(&ticket, ZKL_EVENT_DOWNGRADE));
		assert_int_equal(ticket.state, s);
	}
}

/* The reply to the list comes first, and is not for it any more. */
static void
a_downgrade_does_not_wait_for_a_list(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_CHECKING);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_DOWNGRADE), ZKL_REQUEST_DOWNGRADE);
	assert_nothing(listed(&ticket, NAMES(ticket.name, WRITER(6))));
	assert_int_equal(ticket.state, ZKL_TICKET_DOWNGRADING);
}

static void
a_refused_downgrade_leaves_the_writer(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_DOWNGRADING);

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_LIST);
	assert_nothing(listed(&ticket, NAMES(ticket.name)));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	assert_int_equal(ticket.mode, ZKL_MODE_WRITE);

	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_DOWNGRADING);
	assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
	assert_asks(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_DELETE);
}

/* It does not lead in circles, and znodes behind it are still reported. */
static void
a_refused_downgrade_is_not_asked_for_again_by_itself(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_DOWNGRADING);

	(void) state;
	reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_REFUSED);
	assert_step(listed(&ticket, NAMES(ticket.name, READER(6))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_nothing(watched_itself(&ticket, false));
	assert_nothing(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED));
	assert_int_equal(ticket.mode, ZKL_MODE_WRITE);
	assert_true(ticket.contended);

	/* but it can be */
	assert_asks(happens(&ticket, ZKL_EVENT_DOWNGRADE), ZKL_REQUEST_DOWNGRADE);
	assert_string_equal(ticket.name, own_name(&ticket, "0000000005"));
}

static void
a_downgrade_with_a_lost_reply_is_recognized(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_DOWNGRADING);
	char		reader[ZKL_ZNODE_SIZE];

	(void) state;
	zkl_recipe_make_downgrade(ticket.name, reader);
	assert_asks(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_DOWNGRADE);
	assert_asks(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_INSPECT);
	assert_string_equal(ticket.name, reader);
	assert_asks(reply(&ticket, ZKL_REQUEST_INSPECT, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_INSPECT);
	assert_step(inspected(&ticket, true),
				ZKL_REQUEST_LIST, ZKL_REPORT_DOWNGRADED);
	assert_int_equal(ticket.mode, ZKL_MODE_READ);
	assert_nothing(listed(&ticket, NAMES(reader)));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
}

/* Another client wrote into the writer's znode after the ticket read it. */
static void
a_downgrade_reads_what_it_would_delete(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_DOWNGRADING);

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_CHANGED),
				ZKL_REQUEST_WATCH_SELF);
	assert_non_null(strstr(ticket.name, "__WRIT__"));
	assert_asks(reply(&ticket, ZKL_REQUEST_WATCH_SELF, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_WATCH_SELF);
	assert_step(watched_own(&ticket, 1, false, true),
				ZKL_REQUEST_DOWNGRADE, ZKL_REPORT_REVOKED);
	assert_int_equal(ticket.version, 1);

	/* ... and once more */
	assert_asks(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_CHANGED),
				ZKL_REQUEST_WATCH_SELF);
	assert_asks(watched_own(&ticket, 2, false, true), ZKL_REQUEST_DOWNGRADE);
	assert_step(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_OK),
				ZKL_REQUEST_LIST, ZKL_REPORT_DOWNGRADED);
	assert_int_equal(ticket.version, 0);
}

/* ZooKeeper's servers do not agree about the data, so another try would fail, too. */
static void
a_downgrade_ends_where_zookeeper_contradicts_itself(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_REREADING);

	(void) state;
	assert_step(watched_own(&ticket, 0, false, false), ZKL_REQUEST_LIST,
				ZKL_REPORT_DIFFERS);
	assert_int_equal(ticket.state, ZKL_TICKET_CHECKING);
	assert_int_equal(ticket.mode, ZKL_MODE_WRITE);
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
}

/* A request that this server may not read cannot be heard later either. */
static void
a_downgrade_that_may_not_read_leaves_the_writer(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_REREADING);

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_WATCH_SELF, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_LIST);
	assert_int_equal(ticket.state, ZKL_TICKET_CHECKING);
	assert_int_equal(ticket.mode, ZKL_MODE_WRITE);
}

static void
a_downgrade_withdrawn_when_the_data_have_changed_is_deleted(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_DOWNGRADING);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
	assert_asks(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_CHANGED),
				ZKL_REQUEST_DELETE);
	assert_non_null(strstr(ticket.name, "__WRIT__"));

	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_REREADING);
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
	assert_nothing(watched_own(&ticket, 1, false, true));
	assert_non_null(strstr(ticket.name, "__WRIT__"));

	/* deleted by another client meanwhile */
	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_REREADING);
	assert_reports(reply(&ticket, ZKL_REQUEST_WATCH_SELF, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_LOST);
}

/* The token of the claims that hold the lock is made of the writer's. */
static void
a_recognized_downgrade_keeps_the_czxid(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_CONFIRMING);

	(void) state;
	ticket.czxid = MY_CZXID - 1;
	inspected(&ticket, true);
	assert_int_equal(ticket.czxid, MY_CZXID - 1);
}

/* Deleted, and perhaps another client has made one of the reader's name. */
static void
a_downgrade_without_the_writers_znode_is_lost(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_CONFIRMING);

	(void) state;
	assert_reports(reply(&ticket, ZKL_REQUEST_INSPECT, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_LOST);
	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_CONFIRMING);
	assert_reports(inspected(&ticket, false), ZKL_REPORT_LOST);
}

static void
who_may_not_look_for_its_downgrade_loses(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_CONFIRMING);

	(void) state;
	assert_reports(reply(&ticket, ZKL_REQUEST_INSPECT, ZKL_OUTCOME_REFUSED),
				   ZKL_REPORT_LOST);
}

/* A reply may have been lost before: then the znode has the reader's name. */
static void
a_withdrawn_downgrade_deletes_the_znode_by_the_name_that_it_has(void **state)
{
	static const struct
	{
		ZklOutcome	outcome;
		const char *mark;
	}			cases[] = {
		{ZKL_OUTCOME_OK, "__READ__"},
		{ZKL_OUTCOME_ABSENT, "__READ__"},
		{ZKL_OUTCOME_REFUSED, "__WRIT__"},
	};

	(void) state;
	for (int i = 0; i < lengthof(cases); i++)
	{
		ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_DOWNGRADING);

		assert_nothing(unwant_unsent(&ticket));
		assert_asks(reply(&ticket, ZKL_REQUEST_DOWNGRADE, cases[i].outcome),
					ZKL_REQUEST_DELETE);
		assert_non_null(strstr(ticket.name, cases[i].mark));
	}
}

static void
a_downgrade_withdrawn_while_it_is_looked_for_is_deleted(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_CONFIRMING);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
	assert_non_null(strstr(ticket.name, "__READ__"));
	assert_nothing(inspected(&ticket, true));
	assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_GONE);
}

/* It was given up: nothing is lost by it. */
static void
an_expired_session_ends_a_withdrawn_downgrade(void **state)
{
	static const ZklTicketState states[] = {
		ZKL_TICKET_DOWNGRADING, ZKL_TICKET_CONFIRMING
	};

	(void) state;
	for (int i = 0; i < lengthof(states); i++)
	{
		ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, states[i]);

		happens(&ticket, ZKL_EVENT_UNWANT);
		assert_reports(happens(&ticket, ZKL_EVENT_EXPIRED), ZKL_REPORT_GONE);
	}
}

/* The watch and what it says were about the writer's znode. */
static void
a_downgraded_owner_watches_its_new_znode(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_OWNED);

	(void) state;
	happens(&ticket, ZKL_EVENT_WATCH);
	assert_reports(watched_itself(&ticket, true), ZKL_REPORT_REVOKED);
	happens(&ticket, ZKL_EVENT_DOWNGRADE);
	reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_OK);
	assert_asks(listed(&ticket, NAMES(ticket.name)), ZKL_REQUEST_WATCH_SELF);
	assert_nothing(watched_itself(&ticket, false));
	happens(&ticket, ZKL_EVENT_SELF_CHANGED);
	listed(&ticket, NAMES(ticket.name));
	assert_reports(watched_itself(&ticket, true), ZKL_REPORT_REVOKED);
}

/* It was told so while it looked, or is so since a downgrade. */
static void
who_may_not_look_still_watches_its_own_znode(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_CHECKING);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_WATCH));
	assert_step(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	happens(&ticket, ZKL_EVENT_DOWNGRADE);
	reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_OK);
	assert_step(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
}

/* Else it would be told again and again to try what is forbidden, too. */
static void
who_may_not_look_assumes_only_once_that_others_wait(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_CHECKING);

	(void) state;
	assert_step(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	happens(&ticket, ZKL_EVENT_DOWNGRADE);
	assert_asks(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_LIST);
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_WATCH_SELF);
}

/*
 * Semaphores
 */

static void
a_lease_is_had_while_there_are_enough(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_LEASE, ZKL_TICKET_CREATED);

	(void) state;
	assert_reports(listed(&ticket, NAMES(LEASE(9), ticket.name)),
				   ZKL_REPORT_OWNED);
	ticket = ticket_as(ZKL_MODE_LEASE, ZKL_TICKET_CREATED);
	assert_reports(listed(&ticket, NAMES(LEASE(1), ticket.name, "junk")),
				   ZKL_REPORT_QUEUED);
	assert_int_equal(ticket.state, ZKL_TICKET_QUEUED);
}

/* There is no predecessor: the directory's watch tells that one was freed. */
static void
who_waits_for_a_lease_listens_to_the_directory(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_LEASE, ZKL_TICKET_QUEUED);

	(void) state;
	assert_string_equal(ticket.predecessor, "");
	for (int i = 0; i < 3; i++)
	{
		assert_asks(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED),
					ZKL_REQUEST_LIST);
		assert_reports(listed(&ticket, NAMES(LEASE(1), LEASE(2),
											 ticket.name)),
					   ZKL_REPORT_QUEUED);
	}
	assert_asks(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED),
				ZKL_REQUEST_LIST);
	assert_reports(listed(&ticket, NAMES(LEASE(2), ticket.name)),
				   ZKL_REPORT_OWNED);
}

static void
the_number_of_a_lease_does_not_matter(void **state)
{
	static const char *const numbers[] = {
		"2000000000", "2147483647", "-2147483648"
	};

	(void) state;
	for (int i = 0; i < lengthof(numbers); i++)
	{
		ZklTicket	ticket = ticket_as(ZKL_MODE_LEASE, ZKL_TICKET_CREATING);

		created_as(&ticket, numbers[i], true);
		assert_reports(listed(&ticket, NAMES(ticket.name)),
					   ZKL_REPORT_OWNED);
	}
}

static void
a_wish_for_another_lease_has_its_own_limit(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_LEASE, ZKL_TICKET_DELETING);
	const ZklTicketEvent event = {
		.kind = ZKL_EVENT_WANT,.mode = ZKL_MODE_LEASE,.limit = 3
	};

	(void) state;
	reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK);
	assert_asks(feed(&ticket, &event), ZKL_REQUEST_CREATE);
	created(&ticket);
	assert_reports(listed(&ticket, NAMES(LEASE(1), LEASE(2), ticket.name)),
				   ZKL_REPORT_OWNED);
}

/*
 * Another kind of lock
 */

static void
a_path_in_use_as_another_kind_is_refused(void **state)
{
	static const struct
	{
		ZklMode		mode;
		const char *other;
	}			cases[] = {
		{ZKL_MODE_LOCK, WRITER(1)},
		{ZKL_MODE_LOCK, READER(1)},
		{ZKL_MODE_WRITE, FOREIGN(1)},
		{ZKL_MODE_READ, FOREIGN(1)},
	};

	(void) state;
	for (int i = 0; i < lengthof(cases); i++)
	{
		ZklTicket	ticket = ticket_as(cases[i].mode, ZKL_TICKET_CREATED);

		assert_fails(listed(&ticket, NAMES(ticket.name, cases[i].other)),
					 ZKL_REQUEST_DELETE, ZKL_FAILURE_OTHER_KIND);
		assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK),
					   ZKL_REPORT_GONE);
	}
}

/* The client that comes later is the one to be refused. */
static void
an_owner_does_not_mind_another_kind_behind(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_LOCK, ZKL_TICKET_CHECKING);

	(void) state;
	assert_nothing(listed(&ticket, NAMES(ticket.name, WRITER(7))));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
}

static void
a_semaphore_in_use_is_refused(void **state)
{
	static const ZklMode modes[] = {
		ZKL_MODE_LOCK, ZKL_MODE_WRITE, ZKL_MODE_READ
	};

	(void) state;
	for (int i = 0; i < lengthof(modes); i++)
	{
		ZklTicket	ticket = ticket_as(modes[i], ZKL_TICKET_CREATED);

		assert_asks(listed(&ticket, NAMES("leases", "locks", ticket.name)),
					ZKL_REQUEST_SURVEY);
		assert_fails(surveyed(&ticket, NAMES("junk", LEASE(1))),
					 ZKL_REQUEST_DELETE, ZKL_FAILURE_OTHER_KIND);
	}
}

/* The list is from before the survey, so it is made anew. */
static void
an_empty_semaphore_is_no_obstacle(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_SURVEYING);

	(void) state;
	assert_asks(surveyed(&ticket, NAMES("junk")), ZKL_REQUEST_LIST);
	assert_reports(listed(&ticket, NAMES("leases", ticket.name)),
				   ZKL_REPORT_OWNED);

	/* the next wish looks again */
	happens(&ticket, ZKL_EVENT_UNWANT);
	reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK);
	wants(&ticket, ZKL_MODE_LOCK);
	created(&ticket);
	assert_asks(listed(&ticket, NAMES("leases", ticket.name)),
				ZKL_REQUEST_SURVEY);
}

static void
a_survey_without_an_answer_is_made_again(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_SURVEYING);

	(void) state;
	for (int i = 0; i < 5; i++)
	{
		assert_asks(reply(&ticket, ZKL_REQUEST_SURVEY, ZKL_OUTCOME_UNKNOWN),
					ZKL_REQUEST_LIST);
		assert_asks(listed(&ticket, NAMES("leases", ticket.name)),
					ZKL_REQUEST_SURVEY);
	}
}

static void
who_may_not_survey_goes_on(void **state)
{
	static const ZklOutcome outcomes[] = {
		ZKL_OUTCOME_REFUSED, ZKL_OUTCOME_ABSENT
	};

	(void) state;
	for (int i = 0; i < lengthof(outcomes); i++)
	{
		ZklTicket	ticket = ticket_in_state(ZKL_TICKET_SURVEYING);

		assert_asks(reply(&ticket, ZKL_REQUEST_SURVEY, outcomes[i]),
					ZKL_REQUEST_LIST);
		assert_reports(listed(&ticket, NAMES("leases", ticket.name)),
					   ZKL_REPORT_OWNED);
	}
}

/* Its own znodes are in "leases". */
static void
a_lease_takes_no_survey(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_LEASE, ZKL_TICKET_CREATED);

	(void) state;
	assert_reports(listed(&ticket, NAMES("leases", ticket.name)),
				   ZKL_REPORT_OWNED);
}

/*
 * Watching the own znode on request, and being asked for the lock
 */

static void
an_owner_watches_its_own_znode_when_told(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_WATCH), ZKL_REQUEST_WATCH_SELF);
	assert_nothing(happens(&ticket, ZKL_EVENT_WATCH));
	assert_nothing(watched_itself(&ticket, false));

	/* the directory is still listened to */
	assert_asks(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED),
				ZKL_REQUEST_LIST);
	assert_asks(listed(&ticket, NAMES(ticket.name)), ZKL_REQUEST_WATCH_SELF);
}

/*
 * A contended ticket does not heed the directory any more, until a claim
 * would like to share the lock.
 */
static void
a_contended_owner_looks_again_when_told(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_READ, ZKL_TICKET_CHECKING);

	(void) state;
	assert_step(listed(&ticket, NAMES(ticket.name, WRITER(9))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_nothing(watched_itself(&ticket, false));
	assert_nothing(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED));

	assert_asks(happens(&ticket, ZKL_EVENT_RECHECK), ZKL_REQUEST_LIST);
	assert_step(listed(&ticket, NAMES(ticket.name, WRITER(9))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_nothing(watched_itself(&ticket, false));
	assert_asks(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED),
				ZKL_REQUEST_LIST);
	assert_step(listed(&ticket, NAMES(ticket.name)),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_UNCONTENDED);
	assert_false(ticket.rechecks);
}

static void
told_to_watch_early_the_owner_does_when_it_owns(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_QUEUED);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_WATCH));
	happens(&ticket, ZKL_EVENT_PREDECESSOR_CHANGED);
	assert_step(listed(&ticket, NAMES(ticket.name)),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_OWNED);

	/* the next wish begins without */
	happens(&ticket, ZKL_EVENT_UNWANT);
	reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK);
	wants(&ticket, ZKL_MODE_LOCK);
	created(&ticket);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

static void
a_revocation_is_reported_once(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	assert_nothing(watched_itself(&ticket, false));
	assert_asks(happens(&ticket, ZKL_EVENT_SELF_CHANGED), ZKL_REQUEST_LIST);
	listed(&ticket, NAMES(ticket.name, FOREIGN(6)));
	assert_reports(watched_itself(&ticket, true), ZKL_REPORT_REVOKED);
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	happens(&ticket, ZKL_EVENT_SELF_CHANGED);
	listed(&ticket, NAMES(ticket.name, FOREIGN(6)));
	assert_nothing(watched_itself(&ticket, true));

	/* of the next life, again */
	happens(&ticket, ZKL_EVENT_UNWANT);
	reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK);
	wants(&ticket, ZKL_MODE_LOCK);
	created(&ticket);
	listed(&ticket, NAMES(ticket.name, FOREIGN(6)));
	assert_reports(watched_itself(&ticket, true), ZKL_REPORT_REVOKED);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(readers_go_together),
		cmocka_unit_test(a_reader_waits_for_the_last_writer_before_it),
		cmocka_unit_test(a_writer_waits_for_readers),
		cmocka_unit_test(a_lost_create_of_any_mode_is_found),
		cmocka_unit_test(a_downgrade_puts_the_readers_znode_in_the_writers_place),
		cmocka_unit_test(a_contended_writer_starts_uncontended_as_a_reader),
		cmocka_unit_test(only_who_owns_as_a_writer_is_downgraded),
		cmocka_unit_test(a_downgrade_does_not_wait_for_a_list),
		cmocka_unit_test(a_refused_downgrade_leaves_the_writer),
		cmocka_unit_test(a_refused_downgrade_is_not_asked_for_again_by_itself),
		cmocka_unit_test(a_downgrade_with_a_lost_reply_is_recognized),
		cmocka_unit_test(a_downgrade_reads_what_it_would_delete),
		cmocka_unit_test(a_downgrade_that_may_not_read_leaves_the_writer),
		cmocka_unit_test(a_downgrade_ends_where_zookeeper_contradicts_itself),
		cmocka_unit_test(a_downgrade_withdrawn_when_the_data_have_changed_is_deleted),
		cmocka_unit_test(a_recognized_downgrade_keeps_the_czxid),
		cmocka_unit_test(a_downgrade_without_the_writers_znode_is_lost),
		cmocka_unit_test(who_may_not_look_for_its_downgrade_loses),
		cmocka_unit_test(a_withdrawn_downgrade_deletes_the_znode_by_the_name_that_it_has),
		cmocka_unit_test(a_downgrade_withdrawn_while_it_is_looked_for_is_deleted),
		cmocka_unit_test(an_expired_session_ends_a_withdrawn_downgrade),
		cmocka_unit_test(a_downgraded_owner_watches_its_new_znode),
		cmocka_unit_test(who_may_not_look_still_watches_its_own_znode),
		cmocka_unit_test(who_may_not_look_assumes_only_once_that_others_wait),
		cmocka_unit_test(a_lease_is_had_while_there_are_enough),
		cmocka_unit_test(who_waits_for_a_lease_listens_to_the_directory),
		cmocka_unit_test(the_number_of_a_lease_does_not_matter),
		cmocka_unit_test(a_wish_for_another_lease_has_its_own_limit),
		cmocka_unit_test(a_path_in_use_as_another_kind_is_refused),
		cmocka_unit_test(an_owner_does_not_mind_another_kind_behind),
		cmocka_unit_test(a_semaphore_in_use_is_refused),
		cmocka_unit_test(an_empty_semaphore_is_no_obstacle),
		cmocka_unit_test(a_survey_without_an_answer_is_made_again),
		cmocka_unit_test(who_may_not_survey_goes_on),
		cmocka_unit_test(a_lease_takes_no_survey),
		cmocka_unit_test(an_owner_watches_its_own_znode_when_told),
		cmocka_unit_test(a_contended_owner_looks_again_when_told),
		cmocka_unit_test(told_to_watch_early_the_owner_does_when_it_owns),
		cmocka_unit_test(a_revocation_is_reported_once),
	};

	return cmocka_run_group_tests_name("ticket, other modes", tests, NULL, NULL);
}
