/*-------------------------------------------------------------------------
 *
 * leader.c
 *	  The leaderships of this server, for the claims process.
 *
 * src/backend/lock/leader.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/lwlock.h"
#include "storage/procsignal.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "backend/lock/history.h"
#include "backend/lock/leader.h"
#include "backend/report.h"
#include "backend/znodetext.h"
#include "compat.h"
#include "faultpoint.h"
#include "settings.h"
#include "shared/grant.h"
#include "shared/leadership.h"
#include "shared/passes.h"

/*
 * How often to look at changes that wake no process.  LOOK: the session is
 * safe again, or a pause was changed.  RECOVERY: recovery has ended, for
 * which a failover waits.  REFUSED: the record of a path whose last leader
 * had a newer history was changed.
 */
#define LOOK_INTERVAL		ZKL_MS(1000)
#define RECOVERY_INTERVAL	ZKL_MS(100)
#define REFUSED_INTERVAL	ZKL_MS(5000)

typedef struct Leadership
{
	dlist_node	link;
	char		path[ZKL_PATH_SIZE];
	bool		wanted;			/* the setting names it */
	ZklClaim   *claim;			/* NULL: not standing */
	bool		held;			/* the claim */
	bool		leads;
	ZklHistoryLook look;
	bool		looked;			/* there was an answer */
	bool		may_commit;		/* the record has this server's history */
	bool		ending;			/* the claim ends when no commit relies on it,
								 * or at relied_until */
	int64		relied_until;	/* when an ending claim ends at the latest */
	int64		poll;			/* while ending: how long to wait before the
								 * next look; see passes.h */
	int64		look_at;		/* when to look again */
	int64		stand_at;		/* after a failure: do not stand before this
								 * moment */
	char		told[ZKL_WHY_SIZE]; /* the error that was logged last, or
									 * empty */
} Leadership;

/* In any order; only this process uses them. */
static dlist_head leaderships = DLIST_STATIC_INIT(leaderships);
static char owner_text[ZKL_OWNER_TEXT_SIZE];

static void want(const char *path);
static bool look_at_recovery(void);
static bool stands_in_recovery(const Leadership *leadership);
static void tend_safely(Leadership *leadership, bool may_stand, int64 now);
static int64 tend(Leadership *leadership, bool may_stand, int64 now);
static bool must_end(Leadership *leadership, bool may_stand);
static void begin(Leadership *leadership);
static void try_to_lead(Leadership *leadership);
static bool is_required(const Leadership *leadership);
static bool needs_history(const Leadership *leadership);
static int64 look_at_history(Leadership *leadership, int64 now);
static void refuse(Leadership *leadership, int64 now, const char *why);
static void lead(Leadership *leadership);
static void begin_end(Leadership *leadership);
static int64 next_poll(Leadership *leadership);
static bool end(Leadership *leadership);
static bool has_recorded_end(Leadership *leadership);
static void after_error(Leadership *leadership);

void
zkl_leader_start(void)
{
	zkl_lock_table_use_reserve();
	zkl_znode_text_of_leader(owner_text);
	zkl_leader_read_setting();
}

/*
 * The setting
 */

/* A leadership that the setting does not name any more stays until its claim has ended. */
void
zkl_leader_read_setting(void)
{
	const char *at = zkl_leader_of;
	char		path[ZKL_SETTINGS_LEADER_SIZE];
	dlist_iter	iter;

	dlist_foreach(iter, &leaderships)
	{
		Leadership *leadership = dlist_container(Leadership, link, iter.cur);

		leadership->look_at = 0;
		if (leadership->wanted &&
			!zkl_settings_lists_leader(zkl_leader_of, leadership->path))
		{
			leadership->wanted = false;
			zkl_leadership_end_pause(leadership->path);
		}
	}
	/* A value that was not checked may have too many paths. */
	for (int n = 0; n < ZKL_LEADERS_MAX && zkl_settings_next_leader(&at, path); n++)
		want(path);
}

static void
want(const char *path)
{
	Leadership *leadership;
	dlist_iter	iter;

	dlist_foreach(iter, &leaderships)
	{
		leadership = dlist_container(Leadership, link, iter.cur);
		if (strcmp(leadership->path, path) == 0)
		{
			leadership->wanted = true;
			return;
		}
	}
	leadership = MemoryContextAllocZero(TopMemoryContext, sizeof(Leadership));
	strlcpy(leadership->path, path, ZKL_PATH_SIZE);
	leadership->wanted = true;
	dlist_push_tail(&leaderships, &leadership->link);
}

/*
 * Leaderships
 */

int64
zkl_leader_tend(const ZklClaim *due)
{
	bool		in_recovery = look_at_recovery();
	int64		now = zkl_now();
	int64		until = ZKL_FOREVER;
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &leaderships)
	{
		Leadership *leadership = dlist_container(Leadership, link, iter.cur);

		/* The reply to a look sets only the latch. */
		if (leadership->look_at <= now || leadership->look.slot != 0 ||
			(due != NULL && leadership->claim == due))
			tend_safely(leadership, leadership->wanted &&
						(!in_recovery || stands_in_recovery(leadership)), now);
		if (!leadership->wanted && leadership->claim == NULL)
		{
			dlist_delete(&leadership->link);
			pfree(leadership);
			continue;
		}
		until = Min(until, leadership->look_at);
		if (in_recovery)
			until = Min(until, now + RECOVERY_INTERVAL);
	}
	return until;
}

/* When recovery ends, every leadership has something to do. */
static bool
look_at_recovery(void)
{
	static bool was_in_recovery = false;
	bool		in_recovery = RecoveryInProgress();
	dlist_iter	iter;

	if (was_in_recovery && !in_recovery)
	{
		dlist_foreach(iter, &leaderships)
			dlist_container(Leadership, link, iter.cur)->look_at = 0;
	}
	was_in_recovery = in_recovery;
	return in_recovery;
}

/* A standby has nothing to commit, and would only delay the primary. */
static bool
stands_in_recovery(const Leadership *leadership)
{
	return zkl_leader_on_standby && !is_required(leadership);
}

static void
tend_safely(Leadership *leadership, bool may_stand, int64 now)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		leadership->look_at = tend(leadership, may_stand, now);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		after_error(leadership);
	}
	PG_END_TRY();
}

/*
 * Do what is due for one leadership: end its claim, begin it, or try to lead.
 * Returns when to look again; a wake-up may come before that.
 */
static int64
tend(Leadership *leadership, bool may_stand, int64 now)
{
	int64		paused_until;

	if (leadership->claim != NULL &&
		(leadership->ending || must_end(leadership, may_stand)) && !end(leadership))
		return now + next_poll(leadership);

	/* Nothing to do before recovery ends, or the setting changes. */
	if (!may_stand)
		return ZKL_FOREVER;

	/*
	 * Read the pause after the look at the claim: a resignation marks the
	 * claim and sets the pause, both with the partition locked, and end()
	 * waits for that lock.  A pause may also be set while the claim begins.
	 */
	paused_until = zkl_leadership_paused_until(leadership->path);
	if (now < paused_until)
	{
		if (leadership->claim != NULL && !end(leadership))
			return now + next_poll(leadership);
		return Min(paused_until, now + LOOK_INTERVAL);
	}
	if (leadership->claim == NULL && now < leadership->stand_at)
		return leadership->stand_at;
	if (leadership->claim == NULL)
		begin(leadership);
	if (!leadership->held)
		try_to_lead(leadership);
	if (!leadership->held)
		return now + LOOK_INTERVAL;
	if (!leadership->leads && !is_required(leadership))
		lead(leadership);
	if (needs_history(leadership) ||
		(leadership->may_commit && now >= leadership->look.due))
		return look_at_history(leadership, now);
	return leadership->may_commit ? leadership->look.due : ZKL_FOREVER;
}

/*
 * Must the claim end, because the leadership was resigned or lost, or because
 * this server must not stand?  Only a claim that is held has a status.
 */
static bool
must_end(Leadership *leadership, bool may_stand)
{
	return !may_stand ||
		leadership->claim->resigned ||
		(leadership->held &&
		 zkl_claim_status(leadership->claim, 0) == ZKL_STATUS_LOST);
}

/*
 * Begin a claim.  If there is no room for it, or the path is in use as
 * another kind of lock, the process tries again later.
 */
static void
begin(Leadership *leadership)
{
	int			limit = 0;
	ZklClaimant claimant = zkl_claim_claimant(owner_text, 0);
	ZklBeginning beginning;

	claimant.detached = ZKL_DETACHED_LEADERSHIP;
	beginning = zkl_claim_begin(leadership->path, ZKL_MODE_LOCK, &limit, 0, &claimant,
								&leadership->claim);
	if (beginning == ZKL_BEGIN_FULL)
		zkl_report_full();
	if (beginning == ZKL_BEGIN_OTHER_KIND)
		zkl_report_other_kind(leadership->path);
	zkl_leadership_begin(leadership->claim);
}

/*
 * Request the lock, without a wait: the claim becomes due when the server
 * owns the ticket.
 */
static void
try_to_lead(Leadership *leadership)
{
	switch (zkl_grant_request(leadership->claim, false, true))
	{
		case ZKL_ANSWER_HELD:
			ZKL_FAULT_POINT("leader-granted");
			leadership->held = true;
			break;
		case ZKL_ANSWER_FAILED:
			zkl_report_failure(leadership->path, leadership->claim->failure);
			break;
		default:
			break;
	}
}

static bool
is_required(const Leadership *leadership)
{
	return zkl_settings_lists_leader(zkl_commit_requires, leadership->path);
}

/*
 * Look at the history of each leadership when it begins, so that the guard has
 * the answer when the setting begins to require the leadership.  A history
 * that was refused may be good by then.  A standby has no own history yet.
 */
static bool
needs_history(const Leadership *leadership)
{
	return !leadership->may_commit && !RecoveryInProgress() &&
		(!leadership->looked || is_required(leadership));
}

/*
 * While the first look waits for ZooKeeper, a server whose commits require the
 * leadership does not lead yet.  If the lock is lost, the look ends with the
 * claim.
 */
static int64
look_at_history(Leadership *leadership, int64 now)
{
	char		why[ZKL_WHY_SIZE] = "";

	switch (zkl_history_look(&leadership->look, leadership->path, true, why))
	{
		case ZKL_HISTORY_PENDING:
			/* The answer sets the latch; a free slot of the mailbox does not. */
			return now + RECOVERY_INTERVAL;
		case ZKL_HISTORY_MAY_LEAD:
			leadership->looked = leadership->may_commit = true;
			lead(leadership);
			break;
		case ZKL_HISTORY_REFUSED:
			leadership->looked = true;
			leadership->may_commit = false;
			if (is_required(leadership))
				refuse(leadership, now, why);
			else
				lead(leadership);
			break;
	}
	return now;
}

static void
refuse(Leadership *leadership, int64 now, const char *why)
{
	char		told[ZKL_WHY_SIZE];

	if (!zkl_leadership_is_refused(leadership->path, told) || strcmp(told, why) != 0)
		ereport(LOG,
				errmsg("this server must not lead \"%s\"", leadership->path),
				errdetail_internal("%s", zkl_znode_text_show(why)),
				errhint("If this server shall lead nevertheless, call zk_leader_forget(%s).",
						quote_literal_cstr(leadership->path)));
	begin_end(leadership);
	zkl_leadership_refuse(leadership->path, now + REFUSED_INTERVAL, why);
}

/* This server leads.  Called again when commits may rely on the leadership. */
static void
lead(Leadership *leadership)
{
	zkl_leadership_allow(leadership->claim, leadership->may_commit);
	if (!leadership->leads)
		ereport(LOG,
				errmsg("this server now leads \"%s\"", leadership->path));
	leadership->leads = true;
	leadership->told[0] = '\0';
}

/*
 * Begin the end of a leadership that has a claim.  From here on, the guard
 * refuses commits that rely on it.  Commits that have passed the guard come
 * before its end.
 */
static void
begin_end(Leadership *leadership)
{
	leadership->relied_until = zkl_leadership_stop(leadership->claim);
	leadership->poll = ZKL_PASSES_POLL;
	leadership->ending = true;
}

/*
 * The wait for the next look doubles each time: most commits are quick, but
 * some hang.
 */
static int64
next_poll(Leadership *leadership)
{
	int64		poll = leadership->poll;

	leadership->poll = Min(2 * poll, ZKL_LOOK_INTERVAL);
	return poll;
}

/*
 * End the claim.  False if commits still rely on it, or if the record in
 * ZooKeeper does not say yet that the leadership has ended; then the caller
 * calls again.  Only when this returns true may another server lead.  The end
 * takes as long as a commit and two requests, but at most until the moment up
 * to which those commits rely on the leadership.
 */
static bool
end(Leadership *leadership)
{
	if (!leadership->ending)
	{
		ZKL_FAULT_POINT("leader-ending");
		begin_end(leadership);
	}
	if (zkl_now() < leadership->relied_until &&
		(zkl_passes_any(leadership->path) || !has_recorded_end(leadership)))
		return false;
	zkl_history_end(&leadership->look);
	zkl_claim_end(leadership->claim);
	leadership->claim = NULL;
	if (leadership->leads)
		ereport(LOG,
				errmsg("this server no longer leads \"%s\"", leadership->path));
	leadership->held = leadership->leads = leadership->ending = false;
	leadership->looked = leadership->may_commit = false;
	return true;
}

/*
 * Call this when no transaction that requires the leadership can commit any
 * more.  If the setting does not require the leadership now, do not record its
 * end: transactions may rely on it all the same.
 */
static bool
has_recorded_end(Leadership *leadership)
{
	char		why[ZKL_WHY_SIZE] = "";

	return !leadership->may_commit || !is_required(leadership) ||
		zkl_history_look(&leadership->look, leadership->path, false,
						 why) != ZKL_HISTORY_PENDING;
}

/* First stop all leaderships, so that they wait for commits at the same time. */
void
zkl_leader_end(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &leaderships)
	{
		Leadership *leadership = dlist_container(Leadership, link, iter.cur);

		if (leadership->claim != NULL && !leadership->ending)
			begin_end(leadership);
	}
	dlist_foreach(iter, &leaderships)
	{
		Leadership *leadership = dlist_container(Leadership, link, iter.cur);

		while (leadership->claim != NULL && !end(leadership))
		{
			/* DROP DATABASE waits for each process. */
			if (ProcSignalBarrierPending)
				ProcessProcSignalBarrier();
			pg_usleep(next_poll(leadership));
		}
	}
}

/*
 * An error was raised in a step.  Clean up as PostgreSQL's own processes do
 * that go on after an error, and as far as a leadership may need it.  If only
 * the look at the history has failed, and the server leads, then the history
 * counts as refused.  Otherwise the leadership ends, and this server stands
 * again later.  The log has an error once, until the server leads.
 */
static void
after_error(Leadership *leadership)
{
	ErrorData  *error = CopyErrorData();
	bool		leads_on = leadership->leads && !leadership->ending &&
	!leadership->looked && !is_required(leadership);

	FlushErrorState();
	LWLockReleaseAll();
	pgstat_report_wait_end();
	AtEOXact_Files(false);
	if (strcmp(leadership->told, error->message) != 0)
		ereport(LOG,
				errcode(error->sqlerrcode),
				leads_on ?
				errmsg("commits cannot require the leadership of \"%s\"", leadership->path) :
				errmsg("this server cannot stand for the leadership of \"%s\"",
					   leadership->path),
				errdetail_internal("%s", error->detail ? error->detail : error->message),
				error->hint ? errhint("%s", error->hint) : 0);
	zkl_history_end(&leadership->look);
	leadership->looked = leads_on;
	leadership->look_at = zkl_now() + ZKL_LOOK_INTERVAL;
	if (leads_on)
		return;
	strlcpy(leadership->told, error->message, sizeof(leadership->told));
	if (leadership->claim != NULL && !leadership->ending)
		begin_end(leadership);
	leadership->stand_at = leadership->look_at + LOOK_INTERVAL;
}
