/*-------------------------------------------------------------------------
 *
 * membership.c
 *	  This server's record among those of all servers (serverrecord.h).
 *
 * The worker makes one request at a time: see WHOSE ensemble it is, LOOK at the
 * directory of all records, BEGIN it if it is missing, JOIN with a record, and
 * LIST the directory of this server's name, with a watch.  When recovery ends,
 * WRITE the record anew.  A lost connection loses its watches, so the next one
 * begins with LIST, or with WHOSE if the session is a new one.
 *
 * A primary also has a znode among those of all primaries with its database
 * system identifier: it JOINs, and LISTs.  Two such znodes mean two copies of
 * one database.
 *
 * src/worker/session/membership.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "protocol/fieldtext.h"
#include "protocol/serverrecord.h"
#include "protocol/sessiontext.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/request/ask.h"
#include "worker/request/sessionlog.h"
#include "worker/session/membership.h"
#include "worker/session/sessionfile.h"

/* ClickHouse Keeper, which is no ZooKeeper, has this znode. */
#define KEEPER			"/keeper"

/* The pauses after an unexpected reply, and after a refusal. */
#define AGAIN_AFTER		ZKL_MS(5000)
#define REFUSED_AGAIN	ZKL_MS(60000)

#define DIRECTORY_SIZE	(ZKL_ROOT_SIZE + sizeof(ZKL_SERVERRECORD_DIRECTORY))
#define RECORD_SIZE		(DIRECTORY_SIZE + ZKL_SERVERRECORD_NAME_SIZE + ZKL_SESSION_TEXT_NAME_SIZE + 2)

typedef enum Step
{
	STEP_NONE,					/* there is nothing to do */
	STEP_WHOSE,
	STEP_LOOK,
	STEP_BEGIN,
	STEP_JOIN,
	STEP_WRITE,
	STEP_LIST,
	NSTEPS
} Step;

/* What this server has in common with another server only if something is wrong. */
typedef enum Common
{
	COMMON_NAME,
	COMMON_SYSTEM,				/* the database system identifier, among
								 * primaries */
	NCOMMON
} Common;

/* A directory in which all servers with something in common have a znode. */
typedef struct Circle
{
	char		home[RECORD_SIZE];
	Step		step;			/* under way, or due at "at" */
	int64		at;
	int64		joined;			/* session that has created the znode; 0 if
								 * none */
	int64		shared_since;	/* since when another session has a znode in
								 * "home"; 0 if none has */
} Circle;

static struct
{
	char		directory[DIRECTORY_SIZE];	/* of all records */
	Circle		circles[NCOMMON];
	bool		older;			/* see zkl_membership_note_older() */
	bool		standby;		/* the record says that this is a standby */
	bool		new_standby;	/* what the next record will say */
	ZklAsker	asker;			/* has one ask at most */
	Common		asked;			/* what the present ask is about */
	int64		connected_at;	/* the connection to which the steps belong */
}			member;

static void go(Circle *circle, Step step, int64 delay);
static void note_connection(void);
static void note_promotion(void);
static void ask(Common common);
static void own_record(const Circle *circle, char record[RECORD_SIZE]);
static void make_text(char str[ZKL_SERVERRECORD_TEXT_SIZE]);
static void on_refused(Common common, Step step, ZklFailure failure);
static void on_accepted(void);
static void on_answer(ZklAsker *asker, int what, int64 number,
					  const ZklSessionEvent *event);
static void on_seen(const ZklSessionEvent *event);
static void on_looked(const ZklSessionEvent *event);
static void report_older(void);
static void on_joined(Common common, const ZklSessionEvent *event);
static void on_listed(Common common, const ZklSessionEvent *event);
static void join_primaries(void);
static void note_others(Common common, int nothers);
static void report_others(Common common, bool any);
static void note_birth(const ZklSessionEvent *event);

void
zkl_membership_start(const char *prefix)
{
	char		name[ZKL_SERVERRECORD_NAME_SIZE];

	member.asker.answered = on_answer;
	zkl_server_record_name(zkl_settings_node_name(), name);
	snprintf(member.directory, sizeof(member.directory),
			 "%s" ZKL_SERVERRECORD_DIRECTORY, prefix);
	snprintf(member.circles[COMMON_NAME].home, RECORD_SIZE, "%s/%s",
			 member.directory, name);
	snprintf(member.circles[COMMON_SYSTEM].home, RECORD_SIZE,
			 "%s" ZKL_SERVERRECORD_PRIMARIES "/" UINT64_FORMAT, prefix,
			 GetSystemIdentifier());
}

/* Take the next step after a pause. */
static void
go(Circle *circle, Step step, int64 delay)
{
	circle->step = step;
	circle->at = zkl_now() + delay;
}

void
zkl_membership_send(void)
{
	if (!zkl_session_is_usable())
		return;
	if (member.connected_at != zkl_session_info->connected_at)
		note_connection();
	note_promotion();
	for (int common = 0; common < NCOMMON; common++)
	{
		const Circle *circle = &member.circles[common];

		if (circle->step != STEP_NONE && member.asker.outstanding == 0 &&
			zkl_now() >= circle->at)
			ask(common);
	}
}

int64
zkl_membership_wake_at(void)
{
	int64		at = PG_INT64_MAX;

	for (int common = 0; common < NCOMMON; common++)
	{
		if (member.circles[common].step != STEP_NONE && member.asker.outstanding == 0)
			at = Min(at, member.circles[common].at);
	}
	return at;
}

/* Replies to requests of an earlier connection do not count any more. */
static void
note_connection(void)
{
	Circle	   *name = &member.circles[COMMON_NAME];

	member.connected_at = zkl_session_info->connected_at;
	zkl_ask_cancel(&member.asker);
	go(name, name->joined == zkl_session_info->id ? STEP_LIST : STEP_WHOSE, 0);
	/* The steps for the identifier begin when the name was listed. */
	go(&member.circles[COMMON_SYSTEM], STEP_NONE, 0);
}

void
zkl_membership_note_older(void)
{
	member.older = true;
}

/* If the birth of the data has changed, another warning says so. */
static void
report_older(void)
{
	if (!member.older)
		return;
	member.older = false;
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.ensembles, 1);
	ereport(WARNING,
			errmsg("ZooKeeper was probably set back to an earlier state of its data"),
			errdetail("No ZooKeeper server accepted a client that had seen their latest transactions, but the first one accepted a new client at once."),
			errhint("If an older backup was restored, what was written since then is lost: jobs may run again, and tokens may be given out again.  Compare the records of jobs with what has run."));
}

/* Called with each sign of life: was this server promoted? */
static void
note_promotion(void)
{
	Circle	   *name = &member.circles[COMMON_NAME];

	if (member.standby && name->joined == zkl_session_info->id &&
		name->step != STEP_WRITE && member.asker.outstanding == 0 &&
		!RecoveryInProgress())
		go(name, STEP_WRITE, 0);
}

static void
ask(Common common)
{
	const Circle *circle = &member.circles[common];
	ZklAsker   *asker = &member.asker;
	int			what = common * NSTEPS + circle->step;
	char		record[RECORD_SIZE];
	char		str[ZKL_SERVERRECORD_TEXT_SIZE] = "";

	member.asked = common;
	own_record(circle, record);
	switch (circle->step)
	{
		case STEP_NONE:
		case NSTEPS:
			break;
		case STEP_WHOSE:
			zkl_ask_stat(asker, what, 0, KEEPER);
			break;
		case STEP_LOOK:
			zkl_ask_stat(asker, what, 0, member.directory);
			break;
		case STEP_BEGIN:
			zkl_ask_create(asker, what, member.directory, "",
						   ZKL_CREATE_PERSISTENT);
			break;
		case STEP_JOIN:
			if (common == COMMON_NAME)
				make_text(str);
			zkl_ask_create(asker, what, record, str, ZKL_CREATE_EPHEMERAL);
			break;
		case STEP_WRITE:
			make_text(str);
			zkl_ask_write(asker, what, record, str, -1);
			break;
		case STEP_LIST:
			zkl_ask_children(asker, what, 0, circle->home, true);
			break;
	}
}

static void
own_record(const Circle *circle, char record[RECORD_SIZE])
{
	char		name[ZKL_SESSION_TEXT_NAME_SIZE];

	zkl_session_text_name(zkl_session_info->id, name);
	snprintf(record, RECORD_SIZE, "%s/%s", circle->home, name);
}

/* The text after PostgreSQL's version number is only about the package. */
static void
make_text(char str[ZKL_SERVERRECORD_TEXT_SIZE])
{
	const char *version = GetConfigOption("server_version", false, false);

	str[0] = '\0';

	zkl_field_text_put(str, ZKL_SERVERRECORD_TEXT_SIZE, "server",
					   zkl_settings_node_name());
	zkl_field_text_put(str, ZKL_SERVERRECORD_TEXT_SIZE, "host",
					   zkl_settings_host());
	zkl_field_text_put(str, ZKL_SERVERRECORD_TEXT_SIZE, "zklock",
					   ZKLOCK_VERSION);
	zkl_field_text_put(str, ZKL_SERVERRECORD_TEXT_SIZE, "postgresql",
					   pnstrdup(version, strcspn(version, " ")));
	member.new_standby = RecoveryInProgress();
	zkl_field_text_put(str, ZKL_SERVERRECORD_TEXT_SIZE, "system",
					   psprintf(UINT64_FORMAT, GetSystemIdentifier()));
	zkl_field_text_put(str, ZKL_SERVERRECORD_TEXT_SIZE, "standby",
					   member.new_standby ? "yes" : "no");
}

bool
zkl_membership_note_change(const char *path)
{
	for (int common = 0; common < NCOMMON; common++)
	{
		Circle	   *circle = &member.circles[common];

		if (strcmp(path, circle->home) != 0)
			continue;

		/*
		 * A reply that is under way is newer than the event, or another event
		 * will follow.
		 */
		if (member.asker.outstanding == 0 || member.asked != common)
			go(circle, STEP_LIST, 0);
		return true;
	}
	return false;
}

static void
on_answer(ZklAsker *asker, int what, int64 number,
		  const ZklSessionEvent *event)
{
	Common		common = what / NSTEPS;
	Step		step = what % NSTEPS;

	if (event->reply.outcome == ZKL_OUTCOME_UNKNOWN)
		go(&member.circles[common], step, AGAIN_AFTER);
	else if (event->reply.outcome == ZKL_OUTCOME_REFUSED)
		on_refused(common, step, event->reply.failure);
	else if (step == STEP_WHOSE)
		on_seen(event);
	else if (step == STEP_JOIN || step == STEP_WRITE)
		on_joined(common, event);
	else if (step == STEP_LIST)
		on_listed(common, event);
	else
		on_looked(event);
}

/*
 * ZooKeeper refuses what this server needs to take part at all, so it probably
 * refuses its locks as well.  zk_status shows the refusal until the same
 * request succeeds.  The request is repeated over the same connection, because
 * an administrator may repair the access control without a restart.  The
 * refusal is logged once.  A refusal of the znodes that primaries have in
 * common is not reported: locks do not need those.
 */
static void
on_refused(Common common, Step step, ZklFailure failure)
{
	const char *reason =
	failure == ZKL_FAILURE_PERMISSION ? "ZooKeeper denied permission for the record of this server" :
	failure == ZKL_FAILURE_ACL ? "ZooKeeper does not accept \"zklock.acl\" for the record of this server" :
	failure == ZKL_FAILURE_QUOTA ? "a quota in ZooKeeper leaves no room for the record of this server" :
	"ZooKeeper refused the record of this server";

	go(&member.circles[common], step, REFUSED_AGAIN);
	if (common == COMMON_SYSTEM)
		return;
	zkl_session_log_error(reason);
	if (pg_atomic_exchange_u32(&zkl_session_info->record_refused, 1) == 0)
		ereport(WARNING,
				errmsg("could not publish in ZooKeeper that this server takes part"),
				errdetail("%s, below \"%s\".", reason, member.directory),
				errhint("Requests for locks probably fail as well.  Check \"zklock.auth_file\", \"zklock.acl\", and the access control lists in ZooKeeper."));
}

static void
on_accepted(void)
{
	if (pg_atomic_exchange_u32(&zkl_session_info->record_refused, 0) != 0)
		ereport(LOG,
				errmsg("ZooKeeper accepts the record of this server again"));
}

void
zkl_membership_reload(void)
{
	if (pg_atomic_read_u32(&zkl_session_info->record_refused) != 0)
		member.circles[COMMON_NAME].at = zkl_now();
}

/* Warn once. */
static void
on_seen(const ZklSessionEvent *event)
{
	static bool logged = false;

	if (event->reply.outcome == ZKL_OUTCOME_OK && !logged)
	{
		ereport(WARNING,
				errmsg("\"zklock.hosts\" seems to name servers of ClickHouse Keeper"),
				errdetail("They have a znode \"%s\".", KEEPER),
				errhint("Use ZooKeeper: zklock relies on how ZooKeeper's leader ends sessions and counts elections."));
		logged = true;
	}
	go(&member.circles[COMMON_NAME], STEP_LOOK, 0);
}

/*
 * Handle the reply to LOOK or BEGIN.  CHANGED: another server has created the
 * directory first.
 */
static void
on_looked(const ZklSessionEvent *event)
{
	Circle	   *name = &member.circles[COMMON_NAME];

	switch (event->reply.outcome)
	{
		case ZKL_OUTCOME_OK:
			note_birth(event);
			go(name, STEP_JOIN, 0);
			break;
		case ZKL_OUTCOME_CHANGED:
			go(name, STEP_LOOK, 0);
			break;
		default:
			go(name, STEP_BEGIN, name->step == STEP_BEGIN ? AGAIN_AFTER : 0);
			break;
	}
}

/*
 * Handle the reply to JOIN or WRITE.  CHANGED: an earlier worker of this session
 * has created the record, perhaps before the end of recovery.  If the
 * directory or the record is missing, another client has deleted it.
 */
static void
on_joined(Common common, const ZklSessionEvent *event)
{
	Circle	   *circle = &member.circles[common];

	if (event->reply.outcome == ZKL_OUTCOME_ABSENT)
	{
		circle->joined = 0;
		go(circle, common == COMMON_NAME ? STEP_LOOK : STEP_JOIN, AGAIN_AFTER);
		return;
	}
	circle->joined = zkl_session_info->id;
	if (common == COMMON_NAME && event->reply.outcome == ZKL_OUTCOME_OK)
		member.standby = member.new_standby;
	go(circle, event->reply.outcome == ZKL_OUTCOME_CHANGED && common == COMMON_NAME ?
	   STEP_WRITE : STEP_LIST, 0);
}

/* If the record is missing, another client has deleted it; create it again. */
static void
on_listed(Common common, const ZklSessionEvent *event)
{
	Circle	   *circle = &member.circles[common];
	char		record[RECORD_SIZE];
	bool		found = false;

	own_record(circle, record);
	for (int i = 0; i < event->reply.nchildren; i++)
		found |= strcmp(event->reply.children[i], strrchr(record, '/') + 1) == 0;
	if (!found)
	{
		circle->joined = 0;
		go(circle, common == COMMON_NAME ? STEP_LOOK : STEP_JOIN, AGAIN_AFTER);
		return;
	}
	go(circle, STEP_NONE, 0);
	if (common == COMMON_NAME)
	{
		on_accepted();
		report_older();
		join_primaries();
	}
	note_others(common, event->reply.nchildren - 1);
}

/*
 * Join the primaries once for each connection.  The record shows by now that
 * recovery has ended.
 */
static void
join_primaries(void)
{
	Circle	   *system = &member.circles[COMMON_SYSTEM];
	static int64 begun_at = 0;

	if (member.standby || begun_at == member.connected_at)
		return;
	begun_at = member.connected_at;
	go(system, system->joined == zkl_session_info->id ? STEP_LIST : STEP_JOIN, 0);
}

/*
 * Another session may be this server's own from before a crash of the machine.
 * Or it belongs to a primary which has just failed over to this one.  Such a
 * session expires after a while.
 */
static void
note_others(Common common, int nothers)
{
	Circle	   *circle = &member.circles[common];
	pg_atomic_uint32 *others = common == COMMON_NAME ?
	&zkl_lock_table->namesakes : &zkl_lock_table->clones;
	int64		patience = 2 * ZKL_MS(zkl_session_info->timeout_ms);
	bool		known = pg_atomic_read_u32(others) > 0;

	if (nothers == 0)
		circle->shared_since = 0;
	else if (circle->shared_since == 0)
		circle->shared_since = zkl_now();
	if (nothers > 0 && zkl_now() < circle->shared_since + patience)
	{
		go(circle, STEP_LIST, circle->shared_since + patience - zkl_now());
		return;
	}
	pg_atomic_write_u32(others, nothers);
	if ((nothers > 0) != known)
		report_others(common, nothers > 0);
}

static void
report_others(Common common, bool any)
{
	if (common == COMMON_NAME && any)
		ereport(WARNING,
				errmsg("another server has the name \"%s\", too",
					   zkl_settings_node_name()),
				errhint("Set \"zklock.node_name\" on one of the servers.  The view zk_servers shows their hosts."));
	else if (common == COMMON_NAME)
		ereport(LOG,
				errmsg("no other server has the name \"%s\" any more",
					   zkl_settings_node_name()));
	else if (any)
		ereport(WARNING,
				errmsg("another primary has the database system identifier of this server, too"),
				errdetail("One of the two is a copy of the other, and both write."),
				errhint("The view zk_servers shows their hosts.  Stop the copy, or give it another ensemble or \"zklock.root\"."));
	else
		ereport(LOG,
				errmsg("no other primary has the database system identifier of this server any more"));
}

/*
 * Shared memory keeps the birth, and the file keeps it over a restart of the
 * server.
 */
static void
note_birth(const ZklSessionEvent *event)
{
	char		birth[ZKL_SERVERRECORD_BIRTH_SIZE];
	char		known[ZKL_SERVERRECORD_BIRTH_SIZE];

	zkl_server_record_birth(event->reply.czxid, event->ctime_ms, birth);
	/* Only this worker writes it, so no lock is needed. */
	strlcpy(known, zkl_lock_table->birth, sizeof(known));
	if (known[0] == '\0')
		zkl_session_file_read_birth(known);
	LWLockAcquire(zkl_lock_table_session_lock(), LW_EXCLUSIVE);
	strlcpy(zkl_lock_table->birth, birth, sizeof(zkl_lock_table->birth));
	LWLockRelease(zkl_lock_table_session_lock());
	if (strcmp(known, birth) == 0)
		return;
	member.older = false;

	/* Write the file first, so that the warning is not repeated. */
	zkl_session_file_write_birth(birth);
	if (known[0] == '\0')
		return;
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.ensembles, 1);
	ereport(WARNING,
			errmsg("ZooKeeper does not have the data that this server has used before"),
			errdetail("The directory \"%s\" was created at %s.", member.directory,
					  timestamptz_to_str(ZKL_MS(event->ctime_ms) - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)),
			errhint("Unless the ensemble was replaced on purpose, its data are lost: jobs may run again, and tokens begin again."));
}
