/*-------------------------------------------------------------------------
 *
 * test_ticket_try.c
 *	  How a try asks a ticket that may linger, and how that ticket answers.
 *
 * test/unit/test_ticket_try.c
 *
 *-------------------------------------------------------------------------
 */
#include "play.h"

#define WRITE_TICKET	ZKLOCKS("c") "__WRIT__0000000003"
#define WRITE_TRY		ZKLOCKS("d") "__WRIT__0000000004"
#define READ_TICKET(number)	ZKLOCKS("c") "__READ__000000000" #number

/* A ticket that was made for a try, and whose list is awaited. */
static ZklTicket
try_of(ZklMode mode)
{
	ZklTicket	ticket;
	uint8_t		random[16] = {1};

	memset(&ticket, 0, sizeof(ticket));
	wants(&ticket, mode);
	zkl_ticket_begin_attempt(&ticket, random, true);
	created(&ticket);
	return ticket;
}

static ZklTicketStep
watched(ZklTicket *ticket, bool answered)
{
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = ZKL_REQUEST_WATCH,
		.outcome = ZKL_OUTCOME_OK,
		.answered = answered
	};

	return feed(ticket, &event);
}

/* One that asks the ticket before it. */
static ZklTicket
asking_try(void)
{
	ZklTicket	ticket = try_of(ZKL_MODE_LOCK);

	assert_step(listed(&ticket, NAMES(OTHER_TICKET(1), ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_true(ticket.asking);
	assert_nothing(watched(&ticket, false));
	assert_int_equal(ticket.state, ZKL_TICKET_QUEUED);
	return ticket;
}

/*
 * The ticket that tries
 */

static void
a_try_gets_what_lingered(void **state)
{
	ZklTicket	ticket = asking_try();

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_PREDECESSOR_CHANGED),
				ZKL_REQUEST_LIST);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

static void
a_try_is_told_that_it_is_in_use(void **state)
{
	ZklTicket	ticket = asking_try();

	(void) state;
	happens(&ticket, ZKL_EVENT_PREDECESSOR_CHANGED);
	listed(&ticket, NAMES(OTHER_TICKET(1), ticket.name));
	assert_true(ticket.asking);
	assert_reports(watched(&ticket, true), ZKL_REPORT_QUEUED);
	assert_false(ticket.asking);
}

/* Tries that come later find the answer there. */
static void
a_later_try_reads_the_answer_at_once(void **state)
{
	ZklTicket	ticket = try_of(ZKL_MODE_LOCK);

	(void) state;
	listed(&ticket, NAMES(OTHER_TICKET(1), ticket.name));
	assert_reports(watched(&ticket, true), ZKL_REPORT_QUEUED);
	assert_false(ticket.asking);
}

/* The same server need not even read it again. */
static void
an_answer_is_remembered_for_the_next_try(void **state)
{
	ZklTicket	ticket = asking_try();
	uint8_t		random[16] = {2};

	(void) state;
	happens(&ticket, ZKL_EVENT_PREDECESSOR_CHANGED);
	listed(&ticket, NAMES(OTHER_TICKET(1), ticket.name));
	watched(&ticket, true);
	happens(&ticket, ZKL_EVENT_UNWANT);
	reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK);

	wants(&ticket, ZKL_MODE_LOCK);
	zkl_ticket_begin_attempt(&ticket, random, true);
	created_as(&ticket, "0000000006", true);
	assert_step(listed(&ticket, NAMES(OTHER_TICKET(1), ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_false(ticket.asking);
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
	reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK);

	/* Another ticket does have to be asked. */
	wants(&ticket, ZKL_MODE_LOCK);
	zkl_ticket_begin_attempt(&ticket, random, true);
	created_as(&ticket, "0000000007", true);
	listed(&ticket, NAMES(OTHER_TICKET(2), ticket.name));
	assert_true(ticket.asking);
}

static void
does_not_ask(ZklTicket ticket, const char *const *children, int nchildren)
{
	const char *names[8];

	memcpy(names, children, sizeof(char *) * (size_t) nchildren);
	names[nchildren] = ticket.name;
	assert_step(listed(&ticket, names, nchildren + 1),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_false(ticket.asking);
}

/* Only zklock's tickets answer, and one that waits behind the owner wants it. */
static void
a_try_does_not_ask_where_the_answer_is_known(void **state)
{
	(void) state;
	does_not_ask(try_of(ZKL_MODE_LOCK), NAMES(FOREIGN(1)));
	does_not_ask(try_of(ZKL_MODE_LOCK), NAMES(FOREIGN(1), OTHER_TICKET(3)));
	does_not_ask(try_of(ZKL_MODE_LOCK), NAMES(OTHER_TICKET(1), FOREIGN(3)));
	does_not_ask(try_of(ZKL_MODE_LOCK),
				 NAMES(OTHER_TICKET(1), OTHER_TICKET(3)));
	does_not_ask(try_of(ZKL_MODE_LOCK),
				 NAMES(OTHER_TRY(1), OTHER_TICKET(3), OTHER_TRY(4)));
	does_not_ask(try_of(ZKL_MODE_WRITE),
				 NAMES(READ_TICKET(1), WRITE_TICKET, READ_TICKET(4)));
	does_not_ask(try_of(ZKL_MODE_READ), NAMES(READ_TICKET(1), WRITE_TICKET));
	does_not_ask(ticket_as(ZKL_MODE_LOCK, ZKL_TICKET_CREATED),
				 NAMES(OTHER_TICKET(1)));
}

static void
asks(ZklTicket ticket, const char *whom, const char *const *children,
	 int nchildren)
{
	const char *names[8];

	memcpy(names, children, sizeof(char *) * (size_t) nchildren);
	names[nchildren] = ticket.name;
	assert_step(listed(&ticket, names, nchildren + 1),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_true(ticket.asking);
	assert_string_equal(ticket.predecessor, whom);
}

/* Whatever it was made for, an owner may linger; other tries do not count. */
static void
a_try_asks_the_first(void **state)
{
	(void) state;
	asks(try_of(ZKL_MODE_LOCK), OTHER_TRY(1), NAMES(OTHER_TRY(1)));
	asks(try_of(ZKL_MODE_LOCK), OTHER_TICKET(1),
		 NAMES(OTHER_TRY(4), OTHER_TICKET(1), OTHER_TRY(3), FOREIGN(7)));
	asks(try_of(ZKL_MODE_WRITE), READ_TICKET(1),
		 NAMES(READ_TICKET(2), READ_TICKET(1), WRITE_TRY));
	asks(try_of(ZKL_MODE_READ), WRITE_TICKET, NAMES(WRITE_TICKET, WRITE_TRY));
	asks(try_of(ZKL_MODE_READ), WRITE_TRY, NAMES(READ_TICKET(1), WRITE_TRY));
}

static void
another_kind_is_refused_only_where_it_is_in_use(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_LOCK, ZKL_TICKET_CREATED);
	ZklTicket	other;

	(void) state;
	listed(&ticket, NAMES(WRITE_TICKET, ticket.name));
	assert_true(ticket.asking);
	other = ticket;
	assert_fails(watched(&other, true), ZKL_REQUEST_DELETE,
				 ZKL_FAILURE_OTHER_KIND);

	watched(&ticket, false);
	happens(&ticket, ZKL_EVENT_PREDECESSOR_CHANGED);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

static void
a_try_that_is_withdrawn_while_it_asks_is_deleted(void **state)
{
	ZklTicket	ticket = asking_try();

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
	assert_nothing(happens(&ticket, ZKL_EVENT_PREDECESSOR_CHANGED));
	assert_nothing(watched(&ticket, true));
}

/*
 * The ticket that is asked
 */

/* An owner with a try behind it. */
static ZklTicket
asked_owner(void)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CHECKING);

	assert_step(listed(&ticket, NAMES(ticket.name, OTHER_TRY(6))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_true(ticket.asked);
	return ticket;
}

static void
an_owner_is_asked_by_tries_and_by_other_kinds(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CHECKING);

	(void) state;
	asked_owner();
	listed(&ticket, NAMES(ticket.name, ZKLOCKS("c") "__WRIT__0000000006"));
	assert_true(ticket.asked && ticket.contended);

	ticket = ticket_in_state(ZKL_TICKET_CHECKING);
	listed(&ticket, NAMES(ticket.name, OTHER_TICKET(6), FOREIGN(7)));
	assert_true(!ticket.asked && ticket.contended);
}

static void
an_answer_is_written_once(void **state)
{
	ZklTicket	ticket = asked_owner();

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_ANSWER), ZKL_REQUEST_ANSWER);
	assert_nothing(happens(&ticket, ZKL_EVENT_SELF_CHANGED));
	assert_asks(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK),
				ZKL_REQUEST_WATCH_SELF);
	assert_nothing(watched_own(&ticket, 1, true, false));
	assert_nothing(happens(&ticket, ZKL_EVENT_ANSWER));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
}

/* What another client has written meanwhile is read first. */
static void
an_answer_does_not_hide_who_asks_for_the_lock(void **state)
{
	ZklTicket	ticket = asked_owner();

	(void) state;
	happens(&ticket, ZKL_EVENT_ANSWER);
	assert_int_equal(ticket.version, 0);
	assert_asks(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_WATCH_SELF);
	assert_step(watched_own(&ticket, 1, false, true),
				ZKL_REQUEST_ANSWER, ZKL_REPORT_REVOKED);
	assert_int_equal(ticket.version, 1);
	reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK);
	assert_nothing(watched_own(&ticket, 2, true, false));
	assert_true(ticket.revoked);
}

/* ZooKeeper's servers do not agree about the data. */
static void
an_answer_ends_where_zookeeper_contradicts_itself(void **state)
{
	ZklTicket	ticket = asked_owner();

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_ANSWER), ZKL_REQUEST_ANSWER);
	assert_asks(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_CHANGED),
				ZKL_REQUEST_WATCH_SELF);
	assert_reports(watched_stale(&ticket, 0, false, false), ZKL_REPORT_DIFFERS);

	/* A stale name does not lead to the next write; but a try does. */
	assert_nothing(watched_stale(&ticket, 0, false, false));
	assert_nothing(happens(&ticket, ZKL_EVENT_DESCRIBE));
	assert_asks(happens(&ticket, ZKL_EVENT_ANSWER), ZKL_REQUEST_ANSWER);
	reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK);
	assert_nothing(watched_own(&ticket, 1, true, false));
	assert_false(ticket.mute);
}

static void
an_answer_that_was_overwritten_is_written_again(void **state)
{
	ZklTicket	ticket = asked_owner();

	(void) state;
	happens(&ticket, ZKL_EVENT_ANSWER);
	reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK);
	watched_own(&ticket, 1, true, false);
	assert_asks(happens(&ticket, ZKL_EVENT_SELF_CHANGED), ZKL_REQUEST_LIST);
	listed(&ticket, NAMES(ticket.name));
	assert_step(watched_own(&ticket, 2, false, true),
				ZKL_REQUEST_ANSWER, ZKL_REPORT_REVOKED);
}

static void
an_answer_with_a_lost_reply_is_recognized(void **state)
{
	ZklTicket	ticket = asked_owner();

	(void) state;
	happens(&ticket, ZKL_EVENT_ANSWER);
	reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_UNKNOWN);
	assert_nothing(watched_own(&ticket, 1, true, false));

	/* The connection is another one, or the worker. */
	ticket = asked_owner();
	happens(&ticket, ZKL_EVENT_ANSWER);
	assert_asks(happens(&ticket, ZKL_EVENT_RECONNECTED), ZKL_REQUEST_LIST);
	assert_nothing(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_UNKNOWN));
	assert_step(listed(&ticket, NAMES(ticket.name, OTHER_TRY(6))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_nothing(happens(&ticket, ZKL_EVENT_ANSWER));
	assert_asks(watched_own(&ticket, 0, false, false), ZKL_REQUEST_ANSWER);
}

static void
who_may_not_write_does_not_try_in_circles(void **state)
{
	ZklTicket	ticket = asked_owner();

	(void) state;
	happens(&ticket, ZKL_EVENT_ANSWER);
	assert_asks(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_WATCH_SELF);
	assert_nothing(watched_own(&ticket, 0, false, false));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);

	/* but tries whenever it is told to */
	assert_asks(happens(&ticket, ZKL_EVENT_ANSWER), ZKL_REQUEST_ANSWER);
	assert_asks(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_WATCH_SELF);
	assert_nothing(watched_stale(&ticket, 0, false, false));
	assert_asks(happens(&ticket, ZKL_EVENT_ANSWER), ZKL_REQUEST_ANSWER);
	assert_asks(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK),
				ZKL_REQUEST_WATCH_SELF);

	/* Now it may write, so it writes the holder as well. */
	assert_asks(watched_stale(&ticket, 1, true, false), ZKL_REQUEST_ANSWER);
}

static void
an_owner_that_answers_may_be_lost_or_given_up(void **state)
{
	ZklTicket	ticket = asked_owner();

	(void) state;
	happens(&ticket, ZKL_EVENT_ANSWER);
	assert_reports(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_LOST);

	ticket = asked_owner();
	happens(&ticket, ZKL_EVENT_ANSWER);
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
	assert_nothing(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK));
}

/* The reader's znode is a new one, which has told no try anything yet. */
static void
a_downgrade_overtakes_an_answer_and_forgets_it(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_OWNED);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_ANSWER), ZKL_REQUEST_ANSWER);
	assert_asks(happens(&ticket, ZKL_EVENT_DOWNGRADE), ZKL_REQUEST_DOWNGRADE);
	assert_nothing(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK));
	assert_asks(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_CHANGED),
				ZKL_REQUEST_WATCH_SELF);
	assert_asks(watched_own(&ticket, 1, true, false), ZKL_REQUEST_DOWNGRADE);
	assert_step(reply(&ticket, ZKL_REQUEST_DOWNGRADE, ZKL_OUTCOME_OK),
				ZKL_REQUEST_LIST, ZKL_REPORT_DOWNGRADED);
	assert_false(ticket.answers || ticket.answered);
	listed(&ticket, NAMES(ticket.name, WRITER(6)));
	assert_asks(happens(&ticket, ZKL_EVENT_ANSWER), ZKL_REQUEST_ANSWER);
}

/*
 * The backend that holds the lock is another one than the znode says.
 */

static void
another_holder_is_written_down(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_DESCRIBE), ZKL_REQUEST_ANSWER);
	assert_false(ticket.answers);
	assert_asks(reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK),
				ZKL_REQUEST_WATCH_SELF);
	assert_false(ticket.answered);
	assert_nothing(watched_own(&ticket, 1, false, false));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
}

/* The write that is under way may have the old text, the look at it will tell. */
static void
a_holder_that_changes_during_a_write_is_written_after_it(void **state)
{
	ZklTicket	ticket = asked_owner();

	(void) state;
	happens(&ticket, ZKL_EVENT_ANSWER);
	assert_nothing(happens(&ticket, ZKL_EVENT_DESCRIBE));
	reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK);
	assert_asks(watched_stale(&ticket, 1, true, false), ZKL_REQUEST_ANSWER);
	assert_int_equal(ticket.version, 1);
	assert_true(ticket.answers);
	reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK);
	assert_nothing(watched_own(&ticket, 2, true, false));
}

static void
a_holder_that_changes_during_a_list_is_written_after_it(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CHECKING);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_DESCRIBE));
	assert_asks(listed(&ticket, NAMES(ticket.name)), ZKL_REQUEST_WATCH_SELF);
	assert_asks(watched_stale(&ticket, 0, false, false), ZKL_REQUEST_ANSWER);
}

/* Curator's word hides the holder, until it has been read. */
static void
a_holder_is_written_again_over_a_request_for_release(void **state)
{
	ZklTicket	ticket = asked_owner();

	(void) state;
	happens(&ticket, ZKL_EVENT_SELF_CHANGED);
	listed(&ticket, NAMES(ticket.name));
	assert_step(watched_stale(&ticket, 1, false, true), ZKL_REQUEST_ANSWER,
				ZKL_REPORT_REVOKED);
	assert_int_equal(ticket.version, 1);
	reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_OK);
	assert_nothing(watched_own(&ticket, 2, false, false));
	assert_true(ticket.revoked);
}

static void
a_holder_whose_write_was_lost_is_written_again(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);

	(void) state;
	happens(&ticket, ZKL_EVENT_DESCRIBE);
	reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_UNKNOWN);
	assert_asks(watched_stale(&ticket, 1, false, false), ZKL_REQUEST_ANSWER);

	ticket = ticket_in_state(ZKL_TICKET_OWNED);
	happens(&ticket, ZKL_EVENT_DESCRIBE);
	assert_asks(happens(&ticket, ZKL_EVENT_RESTARTED), ZKL_REQUEST_LIST);
	assert_asks(listed(&ticket, NAMES(ticket.name)), ZKL_REQUEST_WATCH_SELF);
	assert_asks(watched_stale(&ticket, 0, false, false), ZKL_REQUEST_ANSWER);
}

static void
a_holder_that_may_not_be_written_is_left_alone(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);

	(void) state;
	happens(&ticket, ZKL_EVENT_DESCRIBE);
	reply(&ticket, ZKL_REQUEST_ANSWER, ZKL_OUTCOME_REFUSED);
	assert_nothing(watched_stale(&ticket, 0, false, false));
	assert_nothing(happens(&ticket, ZKL_EVENT_DESCRIBE));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_try_gets_what_lingered),
		cmocka_unit_test(a_try_is_told_that_it_is_in_use),
		cmocka_unit_test(a_later_try_reads_the_answer_at_once),
		cmocka_unit_test(an_answer_is_remembered_for_the_next_try),
		cmocka_unit_test(a_try_does_not_ask_where_the_answer_is_known),
		cmocka_unit_test(a_try_asks_the_first),
		cmocka_unit_test(another_kind_is_refused_only_where_it_is_in_use),
		cmocka_unit_test(a_try_that_is_withdrawn_while_it_asks_is_deleted),
		cmocka_unit_test(an_owner_is_asked_by_tries_and_by_other_kinds),
		cmocka_unit_test(an_answer_is_written_once),
		cmocka_unit_test(an_answer_does_not_hide_who_asks_for_the_lock),
		cmocka_unit_test(an_answer_that_was_overwritten_is_written_again),
		cmocka_unit_test(an_answer_ends_where_zookeeper_contradicts_itself),
		cmocka_unit_test(an_answer_with_a_lost_reply_is_recognized),
		cmocka_unit_test(who_may_not_write_does_not_try_in_circles),
		cmocka_unit_test(an_owner_that_answers_may_be_lost_or_given_up),
		cmocka_unit_test(a_downgrade_overtakes_an_answer_and_forgets_it),
		cmocka_unit_test(another_holder_is_written_down),
		cmocka_unit_test(a_holder_that_changes_during_a_write_is_written_after_it),
		cmocka_unit_test(a_holder_that_changes_during_a_list_is_written_after_it),
		cmocka_unit_test(a_holder_is_written_again_over_a_request_for_release),
		cmocka_unit_test(a_holder_whose_write_was_lost_is_written_again),
		cmocka_unit_test(a_holder_that_may_not_be_written_is_left_alone),
	};

	return cmocka_run_group_tests_name("ticket, tried", tests, NULL, NULL);
}
