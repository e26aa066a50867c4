/*-------------------------------------------------------------------------
 *
 * test_ticket.c
 *	  The life of one ticket: what happens, told in sentences.
 *
 * A mutex's, that is; test_ticket_modes.c has the other modes.
 * test_ticket_table.c has every event in every state, and
 * test_ticket_walk.c many tickets at once.
 *
 * test/unit/test_ticket.c
 *
 *-------------------------------------------------------------------------
 */
#include "play.h"

/*
 * The usual course
 */

static void
a_free_lock_is_owned_after_one_round_trip(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_NONE);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_WANT), ZKL_REQUEST_CREATE);
	assert_nothing(created(&ticket));
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	assert_int_equal(ticket.czxid, MY_CZXID);
	assert_false(ticket.contended);
}

static void
a_lock_taken_with_others_behind_is_contended_from_the_start(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATED);

	(void) state;
	assert_step(listed(&ticket, NAMES(FOREIGN(6), ticket.name)),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_OWNED);
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	assert_true(ticket.contended);
}

static void
behind_others_the_nearest_predecessor_is_watched(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATED);

	(void) state;
	assert_step(listed(&ticket, NAMES(FOREIGN(1), ticket.name, FOREIGN(3),
									  FOREIGN(8))),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_string_equal(ticket.predecessor, FOREIGN(3));
	assert_string_equal(ticket.front, FOREIGN(1));
	assert_nothing(reply(&ticket, ZKL_REQUEST_WATCH, ZKL_OUTCOME_OK));
	assert_int_equal(ticket.state, ZKL_TICKET_QUEUED);
}

/* A list still shows which znodes wait behind it. */
static void
when_the_only_predecessor_leaves_the_lock_is_owned_at_once(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_QUEUED);

	(void) state;
	assert_step(happens(&ticket, ZKL_EVENT_PREDECESSOR_GONE),
				ZKL_REQUEST_LIST, ZKL_REPORT_OWNED);
	assert_string_equal(ticket.predecessor, "");
	assert_step(listed(&ticket, NAMES(ticket.name, FOREIGN(6))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
}

/* ... and whether the own znode was deleted after the predecessor's. */
static void
who_takes_over_without_a_znode_loses_the_lock(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_QUEUED);

	(void) state;
	happens(&ticket, ZKL_EVENT_PREDECESSOR_GONE);
	assert_reports(listed(&ticket, NO_NAMES), ZKL_REPORT_LOST);
}

/* It may have been the own znode that was deleted before the predecessor's. */
static void
after_another_change_nobody_takes_over(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_QUEUED);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED));
	assert_asks(happens(&ticket, ZKL_EVENT_PREDECESSOR_GONE), ZKL_REQUEST_LIST);
	assert_asks(listed(&ticket, NO_NAMES), ZKL_REQUEST_CREATE);
}

static void
when_one_of_two_predecessors_leaves_there_is_another(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATED);

	(void) state;
	listed(&ticket, NAMES(FOREIGN(1), FOREIGN(4), ticket.name));
	reply(&ticket, ZKL_REQUEST_WATCH, ZKL_OUTCOME_OK);
	assert_asks(happens(&ticket, ZKL_EVENT_PREDECESSOR_GONE), ZKL_REQUEST_LIST);
	assert_step(listed(&ticket, NAMES(FOREIGN(1), ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	reply(&ticket, ZKL_REQUEST_WATCH, ZKL_OUTCOME_OK);
	assert_step(happens(&ticket, ZKL_EVENT_PREDECESSOR_GONE),
				ZKL_REQUEST_LIST, ZKL_REPORT_OWNED);
}

/*
 * A directory that is probably not there
 */

#define FIRST	"0000000000"
#define SECOND	"0000000001"

static void
the_first_znode_ever_in_a_directory_owns_the_lock(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_NONE);

	(void) state;
	assert_asks(wants_anew(&ticket, ZKL_MODE_LOCK, true), ZKL_REQUEST_CREATE_BOTH);
	assert_reports(founded(&ticket, FIRST), ZKL_REPORT_OWNED);
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	assert_int_equal(ticket.czxid, MY_CZXID);

	/* Released soon, it is deleted; it has never looked. */
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
}

static void
a_founder_looks_once_when_it_is_told_to(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);

	(void) state;
	founded(&ticket, FIRST);
	assert_asks(happens(&ticket, ZKL_EVENT_LOOK), ZKL_REQUEST_LIST);
	assert_step(listed(&ticket, NAMES(ticket.name, FOREIGN(1))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_nothing(happens(&ticket, ZKL_EVENT_LOOK));
}

static void
who_is_not_the_first_looks_for_its_place(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);

	(void) state;
	assert_asks(founded(&ticket, SECOND), ZKL_REQUEST_LIST);
	assert_step(listed(&ticket, NAMES(FOREIGN(0), ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);

	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);
	founded(&ticket, SECOND);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

static void
without_a_parent_all_directories_are_made(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);

	(void) state;
	assert_int_equal(ticket.rounds, 0);
	assert_asks(reply(&ticket, ZKL_REQUEST_CREATE_BOTH, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_CREATE_BOTH);
	assert_int_equal(ticket.rounds, 1);
	assert_reports(founded(&ticket, "0000000000"), ZKL_REPORT_OWNED);
}

static void
a_founder_that_is_refused_fails(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);

	(void) state;
	assert_fails(reply(&ticket, ZKL_REQUEST_CREATE_BOTH, ZKL_OUTCOME_REFUSED),
				 ZKL_REQUEST_NOTHING, ZKL_FAILURE_PERMISSION);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

static void
a_founder_whose_reply_is_lost_looks_for_its_znode(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);
	const char *name = own_name(&ticket, FIRST);

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_CREATE_BOTH, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_LIST);
	assert_asks(listed(&ticket, NAMES(name)), ZKL_REQUEST_INSPECT);
	assert_asks(inspected(&ticket, true), ZKL_REQUEST_LIST);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);

	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);
	reply(&ticket, ZKL_REQUEST_CREATE_BOTH, ZKL_OUTCOME_UNKNOWN);
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_CREATE);
}

static void
a_founder_that_is_unwanted_meanwhile_is_deleted(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
	assert_asks(founded(&ticket, FIRST), ZKL_REQUEST_DELETE);

	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);
	happens(&ticket, ZKL_EVENT_UNWANT);
	assert_asks(founded(&ticket, SECOND), ZKL_REQUEST_DELETE);

	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);
	happens(&ticket, ZKL_EVENT_UNWANT);
	assert_reports(reply(&ticket, ZKL_REQUEST_CREATE_BOTH, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_GONE);

	ticket = ticket_in_state(ZKL_TICKET_CREATING_BOTH);
	assert_reports(unwant_unsent(&ticket), ZKL_REPORT_GONE);
}

/* Its data may have changed, or a znode in the middle may have gone. */
static void
a_watch_that_fires_for_nothing_only_makes_us_look(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_QUEUED);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_PREDECESSOR_CHANGED),
				ZKL_REQUEST_LIST);
	assert_step(listed(&ticket, NAMES(FOREIGN(1), ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_nothing(reply(&ticket, ZKL_REQUEST_WATCH, ZKL_OUTCOME_OK));
	assert_int_equal(ticket.state, ZKL_TICKET_QUEUED);
}

static void
a_vanished_predecessor_is_looked_at_again(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_WATCHING);

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_WATCH, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_LIST);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

static void
the_next_predecessor_is_watched_when_the_nearest_leaves(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATED);

	(void) state;
	listed(&ticket, NAMES(FOREIGN(1), FOREIGN(4), ticket.name));
	assert_string_equal(ticket.predecessor, FOREIGN(4));
	assert_string_equal(ticket.front, FOREIGN(1));
	reply(&ticket, ZKL_REQUEST_WATCH, ZKL_OUTCOME_OK);
	happens(&ticket, ZKL_EVENT_PREDECESSOR_CHANGED);
	assert_step(listed(&ticket, NAMES(FOREIGN(1), ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_string_equal(ticket.predecessor, FOREIGN(1));
}

static void
a_given_up_ticket_is_deleted_and_then_gone(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
	assert_int_equal(ticket.state, ZKL_TICKET_DELETING);
	assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK),
				   ZKL_REPORT_GONE);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

static void
a_ticket_deleted_by_somebody_else_meanwhile_is_gone_as_well(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_DELETING);

	(void) state;
	assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_GONE);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

static void
a_delete_is_repeated_until_its_outcome_is_known(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_DELETING);

	(void) state;
	for (int i = 0; i < 100; i++)
		assert_asks(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_UNKNOWN),
					ZKL_REQUEST_DELETE);
	assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_GONE);
}

static void
a_refused_delete_is_tried_again_by_who_wants_the_lock(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_DELETING);

	(void) state;
	assert_fails(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_REFUSED),
				 ZKL_REQUEST_NOTHING, ZKL_FAILURE_STUCK);
	assert_int_equal(ticket.state, ZKL_TICKET_STUCK);
	assert_nothing(happens(&ticket, ZKL_EVENT_WANT));
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
	assert_fails(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_REFUSED),
				 ZKL_REQUEST_NOTHING, ZKL_FAILURE_STUCK);
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
	assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK),
				   ZKL_REPORT_GONE);
}

static void
a_refused_delete_is_tried_again_on_a_new_connection(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_STUCK);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_RECONNECTED), ZKL_REQUEST_DELETE);
	assert_asks(happens(&ticket, ZKL_EVENT_RESTARTED), ZKL_REQUEST_DELETE);
	reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_REFUSED);
	assert_reports(happens(&ticket, ZKL_EVENT_EXPIRED), ZKL_REPORT_GONE);
}

static void
a_ticket_lives_many_lives_under_new_names(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);
	char		uuid[ZKL_UUID_SIZE];

	(void) state;
	strcpy(uuid, ticket.uuid);
	ticket.contended = true;
	happens(&ticket, ZKL_EVENT_UNWANT);
	reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK);

	assert_asks(happens(&ticket, ZKL_EVENT_WANT), ZKL_REQUEST_CREATE);
	assert_int_equal(ticket.attempt, 2);
	assert_string_not_equal(ticket.uuid, uuid);
	assert_false(ticket.contended);
	assert_false(ticket.unwanted);
	created(&ticket);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

static void
an_attempt_begins_without_a_name(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);
	const uint8_t random[16] = {0};
	bool		only_tries = false;
	char		prefix[ZKL_ZNODE_SIZE];

	(void) state;
	zkl_ticket_begin_attempt(&ticket, random, true);
	assert_string_equal(ticket.name, "");
	assert_int_equal(ticket.attempt, 2);
	zkl_recipe_make_prefix(ticket.mode, ticket.uuid, prefix);
	assert_true(zkl_recipe_is_zklock(prefix, &only_tries));
	assert_true(only_tries);
}

/*
 * A create whose reply is lost
 */

static void
a_lost_create_reply_is_found_by_its_uuid(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);
	char		name[ZKL_ZNODE_SIZE + 16];

	(void) state;
	strcpy(name, own_name(&ticket, "0000000005"));
	assert_nothing(reply(&ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_UNKNOWN));
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_LIST);
	assert_asks(listed(&ticket, NAMES(FOREIGN(1), name, FOREIGN(6))),
				ZKL_REQUEST_INSPECT);
	assert_string_equal(ticket.name, name);
	assert_asks(inspected(&ticket, true), ZKL_REQUEST_LIST);
	assert_int_equal(ticket.czxid, MY_CZXID);
	assert_step(listed(&ticket, NAMES(name, FOREIGN(6))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_OWNED);
	assert_int_equal(ticket.attempt, 1);
}

static void
a_lost_create_that_was_not_done_is_done_again(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_FINDING);

	(void) state;
	assert_asks(listed(&ticket, NAMES(FOREIGN(1))), ZKL_REQUEST_CREATE);
	assert_int_equal(ticket.attempt, 2);

	ticket = ticket_in_state(ZKL_TICKET_FINDING);
	assert_asks(listed(&ticket, NO_NAMES), ZKL_REQUEST_CREATE);

	/* without the directory there is no znode either */
	ticket = ticket_in_state(ZKL_TICKET_FINDING);
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_CREATE);
}

/* ZooKeeper may still do the create, so the worker has to know. */
static void
a_znode_that_is_not_found_may_come_late(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_FINDING);

	(void) state;
	assert_true(listed(&ticket, NAMES(FOREIGN(1))).stray);

	ticket = ticket_in_state(ZKL_TICKET_FINDING);
	happens(&ticket, ZKL_EVENT_UNWANT);
	assert_true(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT).stray);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);

	/* ... but not one that is found, was refused, or was never asked for */
	ticket = ticket_in_state(ZKL_TICKET_FINDING);
	assert_false(listed(&ticket, NAMES(own_name(&ticket, "0000000005"))).stray);
	ticket = ticket_in_state(ZKL_TICKET_REFUSED);
	assert_false(listed(&ticket, NO_NAMES).stray);
	ticket = ticket_in_state(ZKL_TICKET_FINDING);
	ticket.uuid[0] = '\0';
	assert_false(listed(&ticket, NAMES(FOREIGN(1))).stray);
}

static void
a_search_goes_on_until_there_is_an_answer(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_FINDING);

	(void) state;
	for (int i = 0; i < 100; i++)
		assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN),
					ZKL_REQUEST_LIST);
	assert_asks(listed(&ticket, NAMES(own_name(&ticket, "0000000005"))),
				ZKL_REQUEST_INSPECT);
	for (int i = 0; i < 100; i++)
		assert_asks(reply(&ticket, ZKL_REQUEST_INSPECT, ZKL_OUTCOME_UNKNOWN),
					ZKL_REQUEST_INSPECT);
	assert_asks(inspected(&ticket, true), ZKL_REQUEST_LIST);
}

/* It cannot be told by its name then, so it cannot be deleted either. */
static void
a_search_that_is_refused_fails(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_FINDING);

	(void) state;
	assert_fails(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_REFUSED),
				 ZKL_REQUEST_NOTHING, ZKL_FAILURE_PERMISSION);

	/* There may be a znode; so it goes on when it may look. */
	assert_int_equal(ticket.state, ZKL_TICKET_STUCK);
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_LIST);
	assert_asks(listed(&ticket, NAMES(own_name(&ticket, "0000000005"))),
				ZKL_REQUEST_DELETE);
}

static void
a_found_znode_of_another_session_is_left_alone(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_INSPECTING);

	(void) state;
	assert_asks(inspected(&ticket, false), ZKL_REQUEST_CREATE);
	assert_int_equal(ticket.attempt, 2);
}

static void
a_created_znode_of_another_session_is_looked_at_again(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

	(void) state;
	assert_nothing(created_as(&ticket, "0000000005", false));
	assert_asks(listed(&ticket, NAMES(own_name(&ticket, "0000000005"))),
				ZKL_REQUEST_LIST);
	assert_int_equal(ticket.state, ZKL_TICKET_FINDING);
	assert_asks(listed(&ticket, NAMES(own_name(&ticket, "0000000005"))),
				ZKL_REQUEST_INSPECT);
	assert_asks(inspected(&ticket, false), ZKL_REQUEST_CREATE);
}

static void
a_found_znode_that_vanishes_is_made_again(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_INSPECTING);

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_INSPECT, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_CREATE);
}

static void
a_create_that_is_known_without_its_list_is_listed(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATED);

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_LIST);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

/*
 * Withdrawing
 */

static void
a_withdrawn_create_is_deleted_as_soon_as_it_has_a_name(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
	assert_nothing(created(&ticket));
	assert_asks(listed(&ticket, NAMES(ticket.name)), ZKL_REQUEST_DELETE);
	assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK),
				   ZKL_REPORT_GONE);
}

/* Whatever the list says: the create's reply has told the name. */
static void
a_withdrawn_create_is_deleted_without_its_list(void **state)
{
	static const ZklOutcome outcomes[] = {
		ZKL_OUTCOME_UNKNOWN, ZKL_OUTCOME_REFUSED, ZKL_OUTCOME_ABSENT
	};

	(void) state;
	for (int i = 0; i < lengthof(outcomes); i++)
	{
		ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

		happens(&ticket, ZKL_EVENT_UNWANT);
		created(&ticket);
		assert_asks(reply(&ticket, ZKL_REQUEST_LIST, outcomes[i]),
					ZKL_REQUEST_DELETE);
	}
}

static void
a_withdrawn_create_with_a_lost_reply_is_found_and_deleted(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

	(void) state;
	happens(&ticket, ZKL_EVENT_UNWANT);
	assert_nothing(reply(&ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_UNKNOWN));
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_LIST);
	assert_asks(listed(&ticket, NAMES(FOREIGN(1),
									  own_name(&ticket, "0000000005"))),
				ZKL_REQUEST_DELETE);
	assert_string_equal(ticket.name, own_name(&ticket, "0000000005"));
	assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK),
				   ZKL_REPORT_GONE);
}

static void
a_withdrawn_search_that_finds_nothing_is_gone(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_FINDING);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
	assert_reports(listed(&ticket, NAMES(FOREIGN(1))), ZKL_REPORT_GONE);

	ticket = ticket_in_state(ZKL_TICKET_UNSURE);
	assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
	assert_asks(listed(&ticket, NO_NAMES), ZKL_REQUEST_LIST);
	assert_reports(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_GONE);
}

static void
an_unsent_create_leaves_nothing(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

	(void) state;
	assert_reports(unwant_unsent(&ticket), ZKL_REPORT_GONE);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

static void
an_unsent_directory_leaves_nothing(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_HOMELESS);

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_CREATE_BOTH);
	assert_reports(unwant_unsent(&ticket), ZKL_REPORT_GONE);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

/* What was not sent is then the list; the znode is from before. */
static void
an_unsent_list_does_not_make_the_znode_forgotten(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_FINDING);

	(void) state;
	assert_nothing(unwant_unsent(&ticket));
	assert_int_equal(ticket.state, ZKL_TICKET_FINDING);
	assert_asks(listed(&ticket, NAMES(own_name(&ticket, "0000000005"))),
				ZKL_REQUEST_DELETE);

	ticket = ticket_in_state(ZKL_TICKET_LISTING);
	assert_asks(unwant_unsent(&ticket), ZKL_REQUEST_DELETE);
}

static void
a_withdrawn_create_without_a_directory_is_gone(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_HOMELESS);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
	assert_reports(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_GONE);
}

/* No claim is there to be told why. */
static void
a_withdrawn_create_that_is_refused_is_gone(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_REFUSED);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
	assert_reports(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_OK),
				   ZKL_REPORT_GONE);
}

static void
a_znode_with_a_name_is_deleted_at_once_when_withdrawn(void **state)
{
	static const ZklTicketState states[] = {
		ZKL_TICKET_CREATED, ZKL_TICKET_INSPECTING, ZKL_TICKET_LISTING,
		ZKL_TICKET_SURVEYING, ZKL_TICKET_WATCHING, ZKL_TICKET_QUEUED, ZKL_TICKET_OWNED,
		ZKL_TICKET_CHECKING
	};

	(void) state;
	for (int i = 0; i < lengthof(states); i++)
	{
		ZklTicket	ticket = ticket_in_state(states[i]);

		assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
		assert_string_equal(ticket.name, own_name(&ticket, "0000000005"));
	}
}

/* They were sent before the delete, so they come before its reply. */
static void
replies_under_way_when_the_ticket_is_given_up_are_ignored(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_LISTING);

	(void) state;
	happens(&ticket, ZKL_EVENT_UNWANT);
	assert_nothing(listed(&ticket, NAMES(ticket.name)));
	assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK),
				   ZKL_REPORT_GONE);

	ticket = ticket_in_state(ZKL_TICKET_WATCHING);
	happens(&ticket, ZKL_EVENT_UNWANT);
	assert_nothing(reply(&ticket, ZKL_REQUEST_WATCH, ZKL_OUTCOME_OK));
	assert_int_equal(ticket.state, ZKL_TICKET_DELETING);
}

static void
a_wish_withdrawn_twice_is_withdrawn_once(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_DELETING);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
	assert_int_equal(ticket.state, ZKL_TICKET_DELETING);
}

static void
without_a_ticket_a_withdrawal_is_answered_at_once(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_NONE);

	(void) state;
	assert_reports(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REPORT_GONE);
}

static void
a_wish_while_the_ticket_lives_changes_nothing(void **state)
{
	(void) state;
	for (int s = ZKL_TICKET_NONE + 1; s < ZKL_TICKET_NSTATES; s++)
	{
		ZklTicket	ticket = ticket_in_state((ZklTicketState) s);

		assert_nothing(happens(&ticket, ZKL_EVENT_WANT));
		assert_int_equal(ticket.state, s);
	}
}

/*
 * The directory
 */

static void
a_missing_directory_is_made_together_with_the_znode(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

	(void) state;
	assert_nothing(reply(&ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_ABSENT));
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_CREATE_BOTH);
	assert_int_equal(ticket.rounds, 1);
	assert_asks(founded(&ticket, "0000000005"), ZKL_REQUEST_LIST);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

/* Its list was of a znode that is gone, and so is the watch. */
static void
a_founder_that_was_queued_before_has_not_looked(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATED);

	(void) state;
	listed(&ticket, NAMES(FOREIGN(1), ticket.name, FOREIGN(6)));
	assert_asks(reply(&ticket, ZKL_REQUEST_WATCH, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_LIST);
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_CREATE);
	assert_nothing(reply(&ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_ABSENT));
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_CREATE_BOTH);
	assert_reports(founded(&ticket, "0000000000"), ZKL_REPORT_OWNED);
	assert_false(ticket.listed);
	assert_false(ticket.contended);
	assert_asks(happens(&ticket, ZKL_EVENT_LOOK), ZKL_REQUEST_LIST);
}

/* The leases of a semaphore rest on one list. */
static void
the_first_lease_ever_is_listed_all_the_same(void **state)
{
	ZklTicket	ticket = ticket_as(ZKL_MODE_LEASE, ZKL_TICKET_CREATING_BOTH);

	(void) state;
	assert_asks(founded(&ticket, "0000000000"), ZKL_REQUEST_LIST);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

/* Another client may make it between the create and the list. */
static void
a_directory_that_turns_up_late_does_not_confuse(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_HOMELESS);

	(void) state;
	assert_asks(listed(&ticket, NAMES(FOREIGN(1))), ZKL_REQUEST_CREATE_BOTH);
}

/* Returns how often it was made before the ticket failed. */
static int
rounds_until_failure(ZklTicket *ticket)
{
	ZklTicketStep step;
	int			rounds = 0;

	assert_nothing(reply(ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_ABSENT));
	step = reply(ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT);
	while (step.report != ZKL_REPORT_FAILED && rounds++ < 1000)
	{
		assert_asks(step, ZKL_REQUEST_CREATE_BOTH);
		step = reply(ticket, ZKL_REQUEST_CREATE_BOTH, ZKL_OUTCOME_ABSENT);
	}
	assert_fails(step, ZKL_REQUEST_NOTHING, ZKL_FAILURE_DIRECTORY);
	assert_int_equal(ticket->state, ZKL_TICKET_NONE);
	return rounds;
}

static void
a_reaped_directory_is_made_again_but_not_for_ever(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

	(void) state;
	assert_int_equal(rounds_until_failure(&ticket), 10);

	/* a new wish begins to count anew */
	assert_asks(happens(&ticket, ZKL_EVENT_WANT), ZKL_REQUEST_CREATE);
	assert_int_equal(rounds_until_failure(&ticket), 10);
}

/*
 * Failing
 */

static void
a_refused_create_fails_when_its_list_is_answered(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = ZKL_REQUEST_CREATE,
		.outcome = ZKL_OUTCOME_REFUSED,
		.failure = ZKL_FAILURE_EPHEMERAL_PARENT
	};

	(void) state;
	assert_nothing(feed(&ticket, &event));
	assert_fails(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_OK),
				 ZKL_REQUEST_NOTHING, ZKL_FAILURE_EPHEMERAL_PARENT);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

/* FAILED for the claims that wait; GONE once the znode is out of the way. */
static void
a_refusal_after_the_create_fails_and_deletes(void **state)
{
	static const struct
	{
		ZklTicketState state;
		ZklRequest	request;
	}			cases[] = {
		{ZKL_TICKET_CREATED, ZKL_REQUEST_LIST},
		{ZKL_TICKET_LISTING, ZKL_REQUEST_LIST},
		{ZKL_TICKET_INSPECTING, ZKL_REQUEST_INSPECT},
		{ZKL_TICKET_WATCHING, ZKL_REQUEST_WATCH},
	};

	(void) state;
	for (int i = 0; i < lengthof(cases); i++)
	{
		ZklTicket	ticket = ticket_in_state(cases[i].state);

		assert_fails(reply(&ticket, cases[i].request, ZKL_OUTCOME_REFUSED),
					 ZKL_REQUEST_DELETE, ZKL_FAILURE_PERMISSION);
		assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK),
					   ZKL_REPORT_GONE);
	}
}

static void
a_used_up_counter_is_refused_and_the_znode_deleted(void **state)
{
	static const char *const numbers[] = {
		"2000000000", "2147483647", "-2147483648", "-2147483647",
		"-000000001"
	};

	(void) state;
	for (int i = 0; i < lengthof(numbers); i++)
	{
		ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

		assert_nothing(created_as(&ticket, numbers[i], true));
		assert_fails(listed(&ticket, NAMES(ticket.name)),
					 ZKL_REQUEST_DELETE, ZKL_FAILURE_SEQUENCE);
		assert_string_equal(ticket.name, own_name(&ticket, numbers[i]));
		assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK),
					   ZKL_REPORT_GONE);
	}
}

static void
the_last_number_below_the_limit_is_good(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

	(void) state;
	created_as(&ticket, "1999999999", true);
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

/* A found znode is no better than a created one. */
static void
a_found_znode_with_a_used_up_counter_is_refused_too(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_FINDING);

	(void) state;
	listed(&ticket, NAMES(own_name(&ticket, "2147483647")));
	assert_asks(inspected(&ticket, true), ZKL_REQUEST_LIST);
	assert_fails(listed(&ticket, NAMES(ticket.name)),
				 ZKL_REQUEST_DELETE, ZKL_FAILURE_SEQUENCE);
}

/* A child's name of "length" bytes that goes before ours. */
static const char *
long_name(int length)
{
	static char name[2 * ZKL_CHILD_SIZE];

	memset(name, 'x', sizeof(name));
	strcpy(name + length - strlen("lock-0000000001"), "lock-0000000001");
	return name;
}

static void
a_predecessor_with_too_long_a_name_is_refused(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATED);

	(void) state;
	assert_step(listed(&ticket, NAMES(long_name(ZKL_CHILD_SIZE - 1),
									  ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_string_equal(ticket.predecessor, long_name(ZKL_CHILD_SIZE - 1));

	/* Of the first znode, only the name is missing then. */
	assert_step(happens(&ticket, ZKL_EVENT_RECONNECTED), ZKL_REQUEST_LIST,
				ZKL_REPORT_NOTHING);
	assert_step(listed(&ticket, NAMES(long_name(ZKL_CHILD_SIZE), FOREIGN(4),
									  ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
	assert_string_equal(ticket.predecessor, FOREIGN(4));
	assert_string_equal(ticket.front, "");

	ticket = ticket_in_state(ZKL_TICKET_CREATED);
	assert_fails(listed(&ticket, NAMES(long_name(ZKL_CHILD_SIZE),
									   ticket.name)),
				 ZKL_REQUEST_DELETE, ZKL_FAILURE_FOREIGN_NAME);
}

static void
a_long_name_that_is_not_next_does_not_matter(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATED);

	(void) state;
	assert_step(listed(&ticket, NAMES(long_name(200), FOREIGN(3),
									  ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);
}

static void
a_withdrawn_refusal_is_deleted_in_silence(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

	(void) state;
	happens(&ticket, ZKL_EVENT_UNWANT);
	created_as(&ticket, "2147483647", true);
	assert_asks(listed(&ticket, NAMES(ticket.name)), ZKL_REQUEST_DELETE);
}

/*
 * Foreign hands
 */

static void
an_own_znode_deleted_by_a_foreign_hand_is_made_again(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATED);

	(void) state;
	assert_asks(listed(&ticket, NAMES(FOREIGN(1))), ZKL_REQUEST_CREATE);
	assert_int_equal(ticket.attempt, 2);

	ticket = ticket_in_state(ZKL_TICKET_QUEUED);
	happens(&ticket, ZKL_EVENT_PREDECESSOR_CHANGED);
	assert_asks(listed(&ticket, NO_NAMES), ZKL_REQUEST_CREATE);
}

static void
a_directory_deleted_with_the_znode_is_made_again(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_LISTING);

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT),
				ZKL_REQUEST_CREATE);
}

static void
an_owned_znode_deleted_by_a_foreign_hand_is_lost(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED),
				ZKL_REQUEST_LIST);
	assert_reports(listed(&ticket, NAMES(FOREIGN(6))), ZKL_REPORT_LOST);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);

	ticket = ticket_in_state(ZKL_TICKET_CHECKING);
	assert_reports(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_LOST);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

/* What a reply about a missing directory carries besides is no list. */
static void
a_list_of_a_missing_directory_is_empty(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CHECKING);
	char		name[ZKL_ZNODE_SIZE];
	const char *const children[] = {name};
	ZklTicketEvent event = {
		.kind = ZKL_EVENT_REPLY,
		.request = ZKL_REQUEST_LIST,
		.outcome = ZKL_OUTCOME_ABSENT,
		.children = children,
		.nchildren = lengthof(children)
	};

	(void) state;
	strcpy(name, ticket.name);
	assert_reports(feed(&ticket, &event), ZKL_REPORT_LOST);
}

/*
 * Contended
 */

static void
an_owner_learns_by_push_that_somebody_queues_behind(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED),
				ZKL_REQUEST_LIST);
	assert_step(listed(&ticket, NAMES(ticket.name, FOREIGN(6))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	assert_true(ticket.contended);
}

/* Else each newcomer would cost the owner a list of the whole queue. */
static void
a_contended_owner_does_not_listen_to_the_directory(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	for (int i = 0; i < 3; i++)
	{
		assert_nothing(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED));
		assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	}
}

/* The report goes with the request, and its receiver may give up at once. */
static void
an_owner_that_gives_way_deletes_instead_of_watching(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CHECKING);

	(void) state;
	assert_step(listed(&ticket, NAMES(ticket.name, FOREIGN(6))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_asks(unwant_unsent(&ticket), ZKL_REQUEST_DELETE);
	assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK),
				   ZKL_REPORT_GONE);

	ticket = ticket_in_state(ZKL_TICKET_LISTING);
	assert_step(listed(&ticket, NAMES(ticket.name, FOREIGN(6))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_OWNED);
	assert_asks(unwant_unsent(&ticket), ZKL_REQUEST_DELETE);
}

static void
a_contended_owner_watches_its_own_znode(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	assert_nothing(reply(&ticket, ZKL_REQUEST_WATCH_SELF, ZKL_OUTCOME_OK));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	assert_true(ticket.contended);
}

static void
a_contended_owner_learns_that_its_znode_was_deleted(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	reply(&ticket, ZKL_REQUEST_WATCH_SELF, ZKL_OUTCOME_OK);
	assert_asks(happens(&ticket, ZKL_EVENT_SELF_CHANGED), ZKL_REQUEST_LIST);
	assert_int_equal(ticket.state, ZKL_TICKET_CHECKING);
	assert_reports(listed(&ticket, NAMES(FOREIGN(6))), ZKL_REPORT_LOST);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

/* ... also if that was between the list and the watch. */
static void
a_znode_that_is_gone_before_it_is_watched_is_lost(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	assert_reports(reply(&ticket, ZKL_REQUEST_WATCH_SELF, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_LOST);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

/* Another client has set its data. */
static void
a_contended_owner_whose_znode_still_exists_watches_it_again(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	for (int i = 0; i < 3; i++)
	{
		assert_nothing(reply(&ticket, ZKL_REQUEST_WATCH_SELF,
							 ZKL_OUTCOME_OK));
		assert_asks(happens(&ticket, ZKL_EVENT_SELF_CHANGED),
					ZKL_REQUEST_LIST);
		assert_step(listed(&ticket, NAMES(ticket.name, FOREIGN(7))),
					ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
		assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	}
}

/* The next list shows what is not answered; a ticket that may not list keeps it. */
static void
a_watch_on_itself_without_an_answer_leaves_the_lock_owned(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_WATCH_SELF, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_LIST);
	assert_int_equal(ticket.state, ZKL_TICKET_CHECKING);

	ticket = contended_owner();
	assert_nothing(reply(&ticket, ZKL_REQUEST_WATCH_SELF,
						 ZKL_OUTCOME_REFUSED));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
}

/* The list was sent after it, and knows better. */
static void
while_the_owner_looks_the_watch_on_itself_decides_nothing(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	happens(&ticket, ZKL_EVENT_SELF_CHANGED);
	assert_nothing(reply(&ticket, ZKL_REQUEST_WATCH_SELF,
						 ZKL_OUTCOME_ABSENT));
	assert_nothing(happens(&ticket, ZKL_EVENT_SELF_CHANGED));
	assert_int_equal(ticket.state, ZKL_TICKET_CHECKING);
	assert_reports(listed(&ticket, NAMES(FOREIGN(6))), ZKL_REPORT_LOST);
}

/* The delete itself makes it fire. */
static void
a_late_watch_on_itself_means_nothing_once_deleting(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_UNWANT), ZKL_REQUEST_DELETE);
	assert_nothing(reply(&ticket, ZKL_REQUEST_WATCH_SELF,
						 ZKL_OUTCOME_ABSENT));
	assert_nothing(happens(&ticket, ZKL_EVENT_SELF_CHANGED));
	assert_int_equal(ticket.state, ZKL_TICKET_DELETING);
	assert_reports(reply(&ticket, ZKL_REQUEST_DELETE, ZKL_OUTCOME_OK),
				   ZKL_REPORT_GONE);
	assert_nothing(happens(&ticket, ZKL_EVENT_SELF_CHANGED));
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

/*
 * The client that queued has given up.  Only the directory's watch can tell
 * that another one comes; the one on the znode itself is renewed with it.
 */
static void
an_owner_that_is_alone_again_listens_to_the_directory(void **state)
{
	static const ZklTicketEventKind reasons[] = {
		ZKL_EVENT_SELF_CHANGED, ZKL_EVENT_RECONNECTED, ZKL_EVENT_RESTARTED
	};

	(void) state;
	for (int i = 0; i < lengthof(reasons); i++)
	{
		ZklTicket	ticket = contended_owner();

		assert_asks(happens(&ticket, reasons[i]), ZKL_REQUEST_LIST);
		assert_step(listed(&ticket, NAMES(ticket.name)),
					ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_UNCONTENDED);
		assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
		assert_false(ticket.contended);
		assert_asks(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED),
					ZKL_REQUEST_LIST);
		assert_reports(listed(&ticket, NO_NAMES), ZKL_REPORT_LOST);
	}
}

/* The one that came has gone again, or it was no contender. */
static void
an_owner_with_nobody_behind_goes_on_listening(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);

	(void) state;
	for (int i = 0; i < 3; i++)
	{
		assert_asks(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED),
					ZKL_REQUEST_LIST);
		assert_nothing(listed(&ticket, NAMES(ticket.name, "leases")));
		assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
		assert_false(ticket.contended);
	}
}

static void
a_look_behind_is_repeated_until_it_is_answered(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CHECKING);

	(void) state;
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_LIST);
	assert_int_equal(ticket.state, ZKL_TICKET_CHECKING);
	assert_step(listed(&ticket, NAMES(ticket.name, FOREIGN(6))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
}

static void
an_owner_that_may_not_look_keeps_the_lock(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CHECKING);

	(void) state;
	assert_step(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_REFUSED),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	assert_nothing(watched_itself(&ticket, false));
	assert_asks(happens(&ticket, ZKL_EVENT_SELF_CHANGED), ZKL_REQUEST_LIST);
	reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_REFUSED);
	assert_reports(reply(&ticket, ZKL_REQUEST_WATCH_SELF, ZKL_OUTCOME_ABSENT),
				   ZKL_REPORT_LOST);
}

static void
only_an_owner_cares_about_the_directory(void **state)
{
	(void) state;
	for (int s = 0; s < ZKL_TICKET_NSTATES; s++)
	{
		ZklTicket	ticket = ticket_in_state((ZklTicketState) s);

		if (s == ZKL_TICKET_OWNED || s == ZKL_TICKET_ANSWERING)
			continue;
		assert_nothing(happens(&ticket, ZKL_EVENT_CHILDREN_CHANGED));
		assert_int_equal(ticket.state, s);
	}
}

static void
only_who_is_queued_cares_about_the_predecessor(void **state)
{
	(void) state;
	for (int s = 0; s < ZKL_TICKET_NSTATES; s++)
	{
		ZklTicket	ticket = ticket_in_state((ZklTicketState) s);

		if (s == ZKL_TICKET_QUEUED)
			continue;
		assert_nothing(happens(&ticket, ZKL_EVENT_PREDECESSOR_CHANGED));
		assert_int_equal(ticket.state, s);
	}
}

/* A queued ticket looks for it when its turn comes. */
static void
only_an_owner_cares_about_its_own_znode(void **state)
{
	(void) state;
	for (int s = 0; s < ZKL_TICKET_NSTATES; s++)
	{
		ZklTicket	ticket = ticket_in_state((ZklTicketState) s);

		if (s == ZKL_TICKET_OWNED || s == ZKL_TICKET_REREADING)
			continue;
		assert_nothing(happens(&ticket, ZKL_EVENT_SELF_CHANGED));
		assert_nothing(reply(&ticket, ZKL_REQUEST_WATCH_SELF,
							 ZKL_OUTCOME_ABSENT));
		assert_int_equal(ticket.state, s);
	}
}

/*
 * Expiry
 */

static void
an_expired_session_loses_an_owned_ticket(void **state)
{
	static const ZklTicketState states[] = {
		ZKL_TICKET_OWNED, ZKL_TICKET_CHECKING, ZKL_TICKET_ANSWERING,
		ZKL_TICKET_DOWNGRADING, ZKL_TICKET_REREADING, ZKL_TICKET_CONFIRMING
	};

	(void) state;
	for (int i = 0; i < lengthof(states); i++)
	{
		ZklTicket	ticket = ticket_in_state(states[i]);

		assert_reports(happens(&ticket, ZKL_EVENT_EXPIRED), ZKL_REPORT_LOST);
		assert_int_equal(ticket.state, ZKL_TICKET_NONE);
	}
}

/* A claim that still wants it wants it anew. */
static void
an_expired_session_takes_any_other_ticket_with_it(void **state)
{
	(void) state;
	for (int s = ZKL_TICKET_NONE + 1; s < ZKL_TICKET_NSTATES; s++)
	{
		ZklTicket	ticket = ticket_in_state((ZklTicketState) s);

		if (s == ZKL_TICKET_OWNED || s == ZKL_TICKET_CHECKING ||
			s == ZKL_TICKET_ANSWERING || s == ZKL_TICKET_DOWNGRADING ||
			s == ZKL_TICKET_REREADING || s == ZKL_TICKET_CONFIRMING)
			continue;
		assert_reports(happens(&ticket, ZKL_EVENT_EXPIRED), ZKL_REPORT_GONE);
		assert_int_equal(ticket.state, ZKL_TICKET_NONE);
	}
}

/* It was given up already, so there is nothing to be lost. */
static void
an_expired_session_ends_a_delete(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_DELETING);

	(void) state;
	assert_reports(happens(&ticket, ZKL_EVENT_EXPIRED), ZKL_REPORT_GONE);
}

static void
without_a_ticket_an_expired_session_is_no_matter(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_NONE);

	(void) state;
	assert_nothing(happens(&ticket, ZKL_EVENT_EXPIRED));
}

/* The tag tells replies apart only once the new create is sent. */
static void
late_replies_of_an_expired_session_do_no_harm(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

	(void) state;
	happens(&ticket, ZKL_EVENT_EXPIRED);
	assert_nothing(reply(&ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_UNKNOWN));
	assert_nothing(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN));
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);

	/* or they come when it is wanted again: then it is looked for first */
	ticket = ticket_in_state(ZKL_TICKET_CREATING);
	happens(&ticket, ZKL_EVENT_EXPIRED);
	happens(&ticket, ZKL_EVENT_WANT);
	assert_nothing(reply(&ticket, ZKL_REQUEST_CREATE, ZKL_OUTCOME_UNKNOWN));
	assert_asks(reply(&ticket, ZKL_REQUEST_LIST, ZKL_OUTCOME_UNKNOWN),
				ZKL_REQUEST_LIST);
	assert_asks(listed(&ticket, NAMES(FOREIGN(1))), ZKL_REQUEST_CREATE);
}

/*
 * Reconnecting and restarting
 */

static void
a_reconnect_lets_look_again_who_rests_on_a_watch(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_QUEUED);

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_RECONNECTED), ZKL_REQUEST_LIST);
	assert_step(listed(&ticket, NAMES(FOREIGN(1), ticket.name)),
				ZKL_REQUEST_WATCH, ZKL_REPORT_QUEUED);

	ticket = ticket_in_state(ZKL_TICKET_OWNED);
	assert_asks(happens(&ticket, ZKL_EVENT_RECONNECTED), ZKL_REQUEST_LIST);
	assert_nothing(listed(&ticket, NAMES(ticket.name)));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
}

/* Also one that is contended: its znode may have been deleted meanwhile. */
static void
a_reconnect_shows_an_owner_that_the_lock_was_lost(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_RECONNECTED), ZKL_REQUEST_LIST);
	assert_reports(listed(&ticket, NAMES(FOREIGN(6))), ZKL_REPORT_LOST);
}

/* The outstanding reply comes as "unknown", and that is what counts. */
static void
a_reconnect_changes_nothing_where_a_reply_is_outstanding(void **state)
{
	(void) state;
	for (int s = 0; s < ZKL_TICKET_NSTATES; s++)
	{
		ZklTicket	ticket = ticket_in_state((ZklTicketState) s);

		if (s == ZKL_TICKET_WATCHING || s == ZKL_TICKET_QUEUED ||
			s == ZKL_TICKET_OWNED || s == ZKL_TICKET_ANSWERING ||
			s == ZKL_TICKET_STUCK)
			continue;
		assert_nothing(happens(&ticket, ZKL_EVENT_RECONNECTED));
		assert_int_equal(ticket.state, s);
	}
}

/* The predecessor's watch is set on the new connection, the directory's was not. */
static void
after_a_reconnect_nobody_takes_over_by_an_old_list(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_WATCHING);

	(void) state;
	assert_true(ticket.next);
	assert_asks(happens(&ticket, ZKL_EVENT_RECONNECTED), ZKL_REQUEST_LIST);
	assert_false(ticket.next);
	assert_nothing(happens(&ticket, ZKL_EVENT_PREDECESSOR_GONE));
	assert_reports(listed(&ticket, NAMES(ticket.name)), ZKL_REPORT_OWNED);
}

/* A client that made leases while there was no znode of ours saw none. */
static void
a_znode_that_is_made_again_is_surveyed_again(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_SURVEYING);

	(void) state;
	assert_asks(surveyed(&ticket, NO_NAMES), ZKL_REQUEST_LIST);
	assert_asks(listed(&ticket, NAMES("leases")), ZKL_REQUEST_CREATE);
	assert_nothing(created(&ticket));
	assert_asks(listed(&ticket, NAMES("leases", ticket.name)),
				ZKL_REQUEST_SURVEY);
}

static void
a_restart_goes_on_where_the_last_worker_ended(void **state)
{
	static const struct
	{
		ZklTicketState before;
		ZklRequest	request;
		ZklTicketState after;
	}			cases[] = {
		{ZKL_TICKET_NONE, ZKL_REQUEST_NOTHING, ZKL_TICKET_NONE},
		{ZKL_TICKET_CREATING_BOTH, ZKL_REQUEST_LIST, ZKL_TICKET_FINDING},
		{ZKL_TICKET_CREATING, ZKL_REQUEST_LIST, ZKL_TICKET_FINDING},
		{ZKL_TICKET_CREATED, ZKL_REQUEST_LIST, ZKL_TICKET_LISTING},
		{ZKL_TICKET_HOMELESS, ZKL_REQUEST_CREATE_BOTH, ZKL_TICKET_CREATING_BOTH},
		{ZKL_TICKET_UNSURE, ZKL_REQUEST_LIST, ZKL_TICKET_FINDING},
		{ZKL_TICKET_FINDING, ZKL_REQUEST_LIST, ZKL_TICKET_FINDING},
		{ZKL_TICKET_INSPECTING, ZKL_REQUEST_INSPECT, ZKL_TICKET_INSPECTING},
		{ZKL_TICKET_LISTING, ZKL_REQUEST_LIST, ZKL_TICKET_LISTING},
		{ZKL_TICKET_SURVEYING, ZKL_REQUEST_LIST, ZKL_TICKET_LISTING},
		{ZKL_TICKET_WATCHING, ZKL_REQUEST_LIST, ZKL_TICKET_LISTING},
		{ZKL_TICKET_QUEUED, ZKL_REQUEST_LIST, ZKL_TICKET_LISTING},
		{ZKL_TICKET_OWNED, ZKL_REQUEST_LIST, ZKL_TICKET_CHECKING},
		{ZKL_TICKET_CHECKING, ZKL_REQUEST_LIST, ZKL_TICKET_CHECKING},
		{ZKL_TICKET_ANSWERING, ZKL_REQUEST_LIST, ZKL_TICKET_CHECKING},
		{ZKL_TICKET_DOWNGRADING, ZKL_REQUEST_DOWNGRADE, ZKL_TICKET_DOWNGRADING},
		{ZKL_TICKET_REREADING, ZKL_REQUEST_WATCH_SELF, ZKL_TICKET_REREADING},
		{ZKL_TICKET_CONFIRMING, ZKL_REQUEST_INSPECT, ZKL_TICKET_CONFIRMING},
		{ZKL_TICKET_DELETING, ZKL_REQUEST_DELETE, ZKL_TICKET_DELETING},
		{ZKL_TICKET_STUCK, ZKL_REQUEST_DELETE, ZKL_TICKET_DELETING},
	};

	(void) state;
	for (int i = 0; i < lengthof(cases); i++)
	{
		ZklTicket	ticket = ticket_in_state(cases[i].before);

		assert_asks(happens(&ticket, ZKL_EVENT_RESTARTED), cases[i].request);
		assert_int_equal(ticket.state, cases[i].after);
	}
}

static void
a_restart_tells_of_a_refusal_that_was_known(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_REFUSED);

	(void) state;
	assert_fails(happens(&ticket, ZKL_EVENT_RESTARTED),
				 ZKL_REQUEST_NOTHING, ZKL_FAILURE_PERMISSION);
	assert_int_equal(ticket.state, ZKL_TICKET_NONE);
}

static void
a_restart_keeps_an_owned_lock(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_OWNED);

	(void) state;
	happens(&ticket, ZKL_EVENT_RESTARTED);
	assert_nothing(listed(&ticket, NAMES(ticket.name)));
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
	assert_int_equal(ticket.attempt, 1);
}

static void
after_a_restart_a_contended_owner_watches_its_own_znode_again(void **state)
{
	ZklTicket	ticket = contended_owner();

	(void) state;
	assert_asks(happens(&ticket, ZKL_EVENT_RESTARTED), ZKL_REQUEST_LIST);
	assert_step(listed(&ticket, NAMES(ticket.name, FOREIGN(6))),
				ZKL_REQUEST_WATCH_SELF, ZKL_REPORT_CONTENDED);
	assert_int_equal(ticket.state, ZKL_TICKET_OWNED);
}

/* It has no UUID yet, and nothing in the directory can be its znode. */
static void
a_restart_before_the_first_create_finds_nothing(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_NONE);
	const ZklTicketEvent want = {.kind = ZKL_EVENT_WANT};

	(void) state;
	assert_asks(zkl_ticket_step(&ticket, &want), ZKL_REQUEST_CREATE);
	assert_asks(happens(&ticket, ZKL_EVENT_RESTARTED), ZKL_REQUEST_LIST);
	assert_string_equal(ticket.uuid, "");
	assert_asks(listed(&ticket, NAMES("_c_-lock-0000000001", FOREIGN(2))),
				ZKL_REQUEST_CREATE);
	assert_string_equal(ticket.name, "");
}

/* The znode would be left behind otherwise. */
static void
a_restart_remembers_what_was_withdrawn(void **state)
{
	static const ZklTicketState states[] = {
		ZKL_TICKET_CREATING, ZKL_TICKET_UNSURE, ZKL_TICKET_FINDING
	};

	(void) state;
	for (int i = 0; i < lengthof(states); i++)
	{
		ZklTicket	ticket = ticket_in_state(states[i]);

		assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
		assert_asks(happens(&ticket, ZKL_EVENT_RESTARTED), ZKL_REQUEST_LIST);
		assert_asks(listed(&ticket, NAMES(own_name(&ticket, "0000000005"))),
					ZKL_REQUEST_DELETE);
	}
}

/* Withdrawn before the create was answered, restarted before the list was. */
static void
a_restart_deletes_a_withdrawn_znode_whose_name_is_known(void **state)
{
	ZklTicket	ticket = ticket_in_state(ZKL_TICKET_CREATING);

	(void) state;
	happens(&ticket, ZKL_EVENT_UNWANT);
	created(&ticket);
	assert_asks(happens(&ticket, ZKL_EVENT_RESTARTED), ZKL_REQUEST_DELETE);
}

static void
a_restart_drops_a_withdrawn_wish_without_a_znode(void **state)
{
	static const ZklTicketState states[] = {
		ZKL_TICKET_HOMELESS, ZKL_TICKET_REFUSED
	};

	(void) state;
	for (int i = 0; i < lengthof(states); i++)
	{
		ZklTicket	ticket = ticket_in_state(states[i]);

		assert_nothing(happens(&ticket, ZKL_EVENT_UNWANT));
		assert_reports(happens(&ticket, ZKL_EVENT_RESTARTED),
					   ZKL_REPORT_GONE);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_free_lock_is_owned_after_one_round_trip),
		cmocka_unit_test(a_lock_taken_with_others_behind_is_contended_from_the_start),
		cmocka_unit_test(behind_others_the_nearest_predecessor_is_watched),
		cmocka_unit_test(when_the_only_predecessor_leaves_the_lock_is_owned_at_once),
		cmocka_unit_test(who_takes_over_without_a_znode_loses_the_lock),
		cmocka_unit_test(after_another_change_nobody_takes_over),
		cmocka_unit_test(when_one_of_two_predecessors_leaves_there_is_another),
		cmocka_unit_test(the_first_znode_ever_in_a_directory_owns_the_lock),
		cmocka_unit_test(a_founder_looks_once_when_it_is_told_to),
		cmocka_unit_test(who_is_not_the_first_looks_for_its_place),
		cmocka_unit_test(without_a_parent_all_directories_are_made),
		cmocka_unit_test(a_founder_that_is_refused_fails),
		cmocka_unit_test(a_founder_whose_reply_is_lost_looks_for_its_znode),
		cmocka_unit_test(a_founder_that_is_unwanted_meanwhile_is_deleted),
		cmocka_unit_test(a_watch_that_fires_for_nothing_only_makes_us_look),
		cmocka_unit_test(a_vanished_predecessor_is_looked_at_again),
		cmocka_unit_test(the_next_predecessor_is_watched_when_the_nearest_leaves),
		cmocka_unit_test(a_given_up_ticket_is_deleted_and_then_gone),
		cmocka_unit_test(a_ticket_deleted_by_somebody_else_meanwhile_is_gone_as_well),
		cmocka_unit_test(a_delete_is_repeated_until_its_outcome_is_known),
		cmocka_unit_test(a_refused_delete_is_tried_again_by_who_wants_the_lock),
		cmocka_unit_test(a_refused_delete_is_tried_again_on_a_new_connection),
		cmocka_unit_test(a_ticket_lives_many_lives_under_new_names),
		cmocka_unit_test(an_attempt_begins_without_a_name),
		cmocka_unit_test(a_lost_create_reply_is_found_by_its_uuid),
		cmocka_unit_test(a_lost_create_that_was_not_done_is_done_again),
		cmocka_unit_test(a_znode_that_is_not_found_may_come_late),
		cmocka_unit_test(a_search_goes_on_until_there_is_an_answer),
		cmocka_unit_test(a_search_that_is_refused_fails),
		cmocka_unit_test(a_found_znode_of_another_session_is_left_alone),
		cmocka_unit_test(a_created_znode_of_another_session_is_looked_at_again),
		cmocka_unit_test(a_found_znode_that_vanishes_is_made_again),
		cmocka_unit_test(a_create_that_is_known_without_its_list_is_listed),
		cmocka_unit_test(a_withdrawn_create_is_deleted_as_soon_as_it_has_a_name),
		cmocka_unit_test(a_withdrawn_create_is_deleted_without_its_list),
		cmocka_unit_test(a_withdrawn_create_with_a_lost_reply_is_found_and_deleted),
		cmocka_unit_test(a_withdrawn_search_that_finds_nothing_is_gone),
		cmocka_unit_test(an_unsent_create_leaves_nothing),
		cmocka_unit_test(an_unsent_directory_leaves_nothing),
		cmocka_unit_test(an_unsent_list_does_not_make_the_znode_forgotten),
		cmocka_unit_test(a_withdrawn_create_without_a_directory_is_gone),
		cmocka_unit_test(a_withdrawn_create_that_is_refused_is_gone),
		cmocka_unit_test(a_znode_with_a_name_is_deleted_at_once_when_withdrawn),
		cmocka_unit_test(replies_under_way_when_the_ticket_is_given_up_are_ignored),
		cmocka_unit_test(a_wish_withdrawn_twice_is_withdrawn_once),
		cmocka_unit_test(without_a_ticket_a_withdrawal_is_answered_at_once),
		cmocka_unit_test(a_wish_while_the_ticket_lives_changes_nothing),
		cmocka_unit_test(a_missing_directory_is_made_together_with_the_znode),
		cmocka_unit_test(a_founder_that_was_queued_before_has_not_looked),
		cmocka_unit_test(the_first_lease_ever_is_listed_all_the_same),
		cmocka_unit_test(a_directory_that_turns_up_late_does_not_confuse),
		cmocka_unit_test(a_reaped_directory_is_made_again_but_not_for_ever),
		cmocka_unit_test(a_refused_create_fails_when_its_list_is_answered),
		cmocka_unit_test(a_refusal_after_the_create_fails_and_deletes),
		cmocka_unit_test(a_used_up_counter_is_refused_and_the_znode_deleted),
		cmocka_unit_test(the_last_number_below_the_limit_is_good),
		cmocka_unit_test(a_found_znode_with_a_used_up_counter_is_refused_too),
		cmocka_unit_test(a_predecessor_with_too_long_a_name_is_refused),
		cmocka_unit_test(a_long_name_that_is_not_next_does_not_matter),
		cmocka_unit_test(a_withdrawn_refusal_is_deleted_in_silence),
		cmocka_unit_test(an_own_znode_deleted_by_a_foreign_hand_is_made_again),
		cmocka_unit_test(a_directory_deleted_with_the_znode_is_made_again),
		cmocka_unit_test(an_owned_znode_deleted_by_a_foreign_hand_is_lost),
		cmocka_unit_test(a_list_of_a_missing_directory_is_empty),
		cmocka_unit_test(an_owner_learns_by_push_that_somebody_queues_behind),
		cmocka_unit_test(a_contended_owner_does_not_listen_to_the_directory),
		cmocka_unit_test(an_owner_that_gives_way_deletes_instead_of_watching),
		cmocka_unit_test(a_contended_owner_watches_its_own_znode),
		cmocka_unit_test(a_contended_owner_learns_that_its_znode_was_deleted),
		cmocka_unit_test(a_znode_that_is_gone_before_it_is_watched_is_lost),
		cmocka_unit_test(a_contended_owner_whose_znode_still_exists_watches_it_again),
		cmocka_unit_test(a_watch_on_itself_without_an_answer_leaves_the_lock_owned),
		cmocka_unit_test(while_the_owner_looks_the_watch_on_itself_decides_nothing),
		cmocka_unit_test(a_late_watch_on_itself_means_nothing_once_deleting),
		cmocka_unit_test(an_owner_that_is_alone_again_listens_to_the_directory),
		cmocka_unit_test(an_owner_with_nobody_behind_goes_on_listening),
		cmocka_unit_test(a_look_behind_is_repeated_until_it_is_answered),
		cmocka_unit_test(an_owner_that_may_not_look_keeps_the_lock),
		cmocka_unit_test(only_an_owner_cares_about_the_directory),
		cmocka_unit_test(only_who_is_queued_cares_about_the_predecessor),
		cmocka_unit_test(only_an_owner_cares_about_its_own_znode),
		cmocka_unit_test(an_expired_session_loses_an_owned_ticket),
		cmocka_unit_test(an_expired_session_takes_any_other_ticket_with_it),
		cmocka_unit_test(an_expired_session_ends_a_delete),
		cmocka_unit_test(without_a_ticket_an_expired_session_is_no_matter),
		cmocka_unit_test(late_replies_of_an_expired_session_do_no_harm),
		cmocka_unit_test(a_reconnect_lets_look_again_who_rests_on_a_watch),
		cmocka_unit_test(a_reconnect_shows_an_owner_that_the_lock_was_lost),
		cmocka_unit_test(a_reconnect_changes_nothing_where_a_reply_is_outstanding),
		cmocka_unit_test(after_a_reconnect_nobody_takes_over_by_an_old_list),
		cmocka_unit_test(a_znode_that_is_made_again_is_surveyed_again),
		cmocka_unit_test(a_restart_goes_on_where_the_last_worker_ended),
		cmocka_unit_test(a_restart_tells_of_a_refusal_that_was_known),
		cmocka_unit_test(a_restart_keeps_an_owned_lock),
		cmocka_unit_test(after_a_restart_a_contended_owner_watches_its_own_znode_again),
		cmocka_unit_test(a_restart_before_the_first_create_finds_nothing),
		cmocka_unit_test(a_restart_remembers_what_was_withdrawn),
		cmocka_unit_test(a_restart_deletes_a_withdrawn_znode_whose_name_is_known),
		cmocka_unit_test(a_restart_drops_a_withdrawn_wish_without_a_znode),
	};

	return cmocka_run_group_tests_name("ticket", tests, NULL, NULL);
}
