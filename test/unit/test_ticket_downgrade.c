/*-------------------------------------------------------------------------
 *
 * test_ticket_downgrade.c
 *	  All that can happen in a downgrade.
 *
 * A ZooKeeper of two znodes, the writer's and the reader's, another client that
 * requests the release in the writer's, and a ticket that is told to downgrade.
 * All sequences of the turns below are played, up to a certain depth; each must
 * end well once nothing disturbs any more.
 *
 * test/unit/test_ticket_downgrade.c
 *
 *-------------------------------------------------------------------------
 */
#include "play.h"

typedef enum Turn
{
	TURN_DONE,					/* the request is sent, done and answered */
	TURN_DONE_UNKNOWN,			/* ... done, but the answer is lost */
	TURN_UNKNOWN,				/* ... lost itself */
	TURN_REFUSED,				/* ... refused, if it may be */
	TURN_UNWANT_UNSENT,			/* withdrawn before the request is sent */
	TURN_UNWANT_SENT,			/* withdrawn, and then it is done */
	TURN_RESTART,				/* before the request is sent */
	TURN_DONE_RESTART,			/* done, but the worker ends */
	TURN_REVOKE,				/* another client requests the release */
	TURN_FOREIGN_HAND,			/* deletes the znode */
	TURN_EXPIRED				/* the session, with its znodes */
} Turn;

#define NTURNS	(TURN_EXPIRED + 1)
#define DEPTH	6

typedef struct Play
{
	ZklTicket	ticket;
	ZklRequest	due;
	char		writers[ZKL_ZNODE_SIZE];	/* names */
	char		readers[ZKL_ZNODE_SIZE];
	int32_t		version;		/* of the writer's data */
	bool		revoked;		/* ... which request the release */
	bool		heard;			/* was that reported? */
	bool		writer;			/* does its znode exist? */
	bool		reader;
	bool		robbed;			/* the znode was taken from it */
	bool		refused;
	bool		downgraded;		/* was it reported? */
	bool		lost;
	bool		gone;
} Play;

static void
take(Play *play, ZklTicketStep step)
{
	if (step.request != ZKL_REQUEST_NOTHING)
		play->due = step.request;
	if (play->ticket.state == ZKL_TICKET_NONE)
		play->due = ZKL_REQUEST_NOTHING;
	play->downgraded |= step.report == ZKL_REPORT_DOWNGRADED;
	play->heard |= step.report == ZKL_REPORT_REVOKED;
	play->lost |= step.report == ZKL_REPORT_LOST;
	play->gone |= step.report == ZKL_REPORT_GONE;
	assert_int_not_equal(step.report, ZKL_REPORT_FAILED);
	assert_true(play->robbed || !play->lost);
	assert_false(play->writer && play->reader);
	assert_true(play->writer || play->reader || play->ticket.unwanted || play->robbed);
}

/* The znode that the ticket takes for its own. */
static bool *
named_znode(Play *play)
{
	if (strcmp(play->ticket.name, play->readers) == 0)
		return &play->reader;
	assert_string_equal(play->ticket.name, play->writers);
	return &play->writer;
}

/* What ZooKeeper does with the request that is due, and its reply. */
static ZklOutcome
do_due(Play *play)
{
	bool	   *znode;
	bool		exists;

	if (play->due == ZKL_REQUEST_NOTHING || play->due == ZKL_REQUEST_LIST)
		return ZKL_OUTCOME_OK;
	znode = named_znode(play);
	exists = *znode;
	if (play->due == ZKL_REQUEST_DELETE)
		*znode = false;
	else if (play->due == ZKL_REQUEST_DOWNGRADE)
	{
		assert_ptr_equal(znode, &play->writer);
		if (exists && play->ticket.version != play->version)
			return ZKL_OUTCOME_CHANGED;
		assert_true(!exists || !play->revoked || play->heard);
		play->reader |= play->writer;
		play->writer = false;
	}
	return exists ? ZKL_OUTCOME_OK : ZKL_OUTCOME_ABSENT;
}

static void
answer(Play *play, ZklRequest request, ZklOutcome outcome)
{
	if (request == ZKL_REQUEST_INSPECT && outcome == ZKL_OUTCOME_OK)
		take(play, inspected(&play->ticket, true));
	else if (request == ZKL_REQUEST_WATCH_SELF && outcome == ZKL_OUTCOME_OK)
		take(play, watched_own(&play->ticket, play->version, false, play->revoked));
	else if (request != ZKL_REQUEST_LIST || outcome != ZKL_OUTCOME_OK)
		take(play, reply(&play->ticket, request, outcome));
	else if (play->writer || play->reader)
		take(play, listed(&play->ticket, NAMES(play->writer ? play->writers : play->readers)));
	else
		take(play, listed(&play->ticket, NO_NAMES));
}

static void
answer_due(Play *play, ZklOutcome outcome)
{
	ZklRequest	request = play->due;

	play->due = ZKL_REQUEST_NOTHING;
	if (request != ZKL_REQUEST_NOTHING)
		answer(play, request, outcome);
}

/*
 * If the writer's znode must not be deleted, ZooKeeper refuses before it looks.
 * It may also refuse to read.
 */
static void
refuse_due(Play *play)
{
	if (!play->writer || (play->due != ZKL_REQUEST_DOWNGRADE && play->due != ZKL_REQUEST_WATCH_SELF))
		return;
	play->refused = true;
	answer_due(play, ZKL_OUTCOME_REFUSED);
}

static void
unwant_sent(Play *play)
{
	ZklRequest	sent = play->due;
	ZklOutcome	outcome = do_due(play);

	play->due = ZKL_REQUEST_NOTHING;
	take(play, happens(&play->ticket, ZKL_EVENT_UNWANT));
	if (sent != ZKL_REQUEST_NOTHING)
		answer(play, sent, outcome);
}

static void
revoke(Play *play)
{
	if (!play->writer)
		return;
	play->version++;
	play->revoked = true;
}

static void
rob(Play *play)
{
	play->writer = play->reader = false;
	play->robbed = true;
}

static void
take_turn(Play *play, Turn turn)
{
	switch (turn)
	{
		case TURN_DONE:
			answer_due(play, do_due(play));
			break;
		case TURN_DONE_UNKNOWN:
			do_due(play);
			answer_due(play, ZKL_OUTCOME_UNKNOWN);
			break;
		case TURN_UNKNOWN:
			answer_due(play, ZKL_OUTCOME_UNKNOWN);
			break;
		case TURN_REFUSED:
			refuse_due(play);
			break;
		case TURN_UNWANT_UNSENT:
			take(play, play->due == ZKL_REQUEST_NOTHING ?
				 happens(&play->ticket, ZKL_EVENT_UNWANT) : unwant_unsent(&play->ticket));
			break;
		case TURN_UNWANT_SENT:
			unwant_sent(play);
			break;
		case TURN_DONE_RESTART:
			do_due(play);
			/* FALLTHROUGH */
		case TURN_RESTART:
			play->due = ZKL_REQUEST_NOTHING;
			take(play, happens(&play->ticket, ZKL_EVENT_RESTARTED));
			break;
		case TURN_REVOKE:
			revoke(play);
			break;
		case TURN_FOREIGN_HAND:
			rob(play);
			break;
		case TURN_EXPIRED:
			rob(play);
			take(play, happens(&play->ticket, ZKL_EVENT_EXPIRED));
			break;
	}
}

static int	nplays;
static int	nlost;

/* What a holder has in the end. */
static void
check_holder(const Play *play)
{
	bool		reads = play->ticket.mode == ZKL_MODE_READ;

	assert_int_equal(play->ticket.state, ZKL_TICKET_OWNED);
	assert_false(play->robbed);
	assert_true(reads || play->refused);
	assert_int_equal(reads, play->downgraded);
	assert_int_equal(reads, play->reader);
	assert_int_equal(reads, !play->writer);
}

/*
 * Let it end undisturbed, and look what is left.  That the znode is gone, the
 * last list or a watch tells.
 */
static void
end_play(Play play)
{
	nplays++;
	if (play.robbed && play.ticket.state == ZKL_TICKET_OWNED)
		take(&play, happens(&play.ticket, ZKL_EVENT_SELF_CHANGED));
	for (int i = 0; play.due != ZKL_REQUEST_NOTHING; i++)
	{
		assert_true(i < 10);
		take_turn(&play, TURN_DONE);
	}
	if (play.ticket.state != ZKL_TICKET_NONE)
	{
		check_holder(&play);
		return;
	}
	nlost += play.lost;
	assert_true(play.lost || play.gone);
	assert_true(play.lost || play.ticket.unwanted);
	assert_false(play.writer);
	assert_false(play.reader);
}

static void
play_on(const Play *play, int depth)
{
	end_play(*play);
	if (depth == 0 || play->ticket.state == ZKL_TICKET_NONE)
		return;
	for (int turn = 0; turn < NTURNS; turn++)
	{
		Play		next = *play;

		take_turn(&next, (Turn) turn);
		play_on(&next, depth - 1);
	}
}

TEST(whatever_happens_in_a_downgrade_nothing_is_left_or_lost)
{
	Play		play = {.writer = true};

	nplays = nlost = 0;
	play.ticket = ticket_as(ZKL_MODE_WRITE, ZKL_TICKET_OWNED);
	strcpy(play.writers, play.ticket.name);
	zkl_recipe_make_downgrade(play.writers, play.readers);
	take(&play, happens(&play.ticket, ZKL_EVENT_DOWNGRADE));
	play_on(&play, DEPTH);
	assert_true(nplays > 10000);
	assert_true(nlost > 1000);
}

int
main(void)
{
	return run_all_tests("ticket, downgraded");
}
