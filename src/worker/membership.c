/*-------------------------------------------------------------------------
 *
 * membership.c
 *	  This server's record among those of all servers (serverrecord.h).
 *
 * The worker makes one request at a time: see WHOSE ensemble it is, LOOK at the
 * directory of all records, BEGIN it if it is missing, JOIN with a record, and
 * LIST the directory of this server's name, with a watch.  A lost connection
 * loses its watches, so the next one begins with LIST, or with WHOSE if the
 * session is a new one.
 *
 * src/worker/membership.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/guc.h"
#include "utils/timestamp.h"

#include "protocol/fieldtext.h"
#include "protocol/serverrecord.h"
#include "protocol/sessiontext.h"
#include "settings.h"
#include "shared/locktable.h"
#include "worker/ask.h"
#include "worker/membership.h"
#include "worker/sessionfile.h"
#include "worker/sessionlog.h"

/* ClickHouse Keeper, which is no ZooKeeper, has this znode. */
#define KEEPER			"/keeper"

/* The pauses after a reply that should not occur, and after a refusal. */
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
	STEP_LIST
} Step;

static struct
{
	char		directory[DIRECTORY_SIZE];	/* of all records ... */
	char		home[RECORD_SIZE];	/* ... and of those of this name */
	Step		step;			/* under way, or due at "at" */
	int64		at;
	ZklAsker	asker;			/* has one ask at most */
	int64		connected_at;	/* the connection to which the steps belong */
	int64		joined;			/* session that has created the record; 0 if
								 * none */
	int64		shared_since;	/* since when another session has a record in
								 * "home"; 0 if none has */
}			member;

static void go(Step step, int64 delay);
static void note_connection(void);
static void ask(void);
static void own_record(char record[RECORD_SIZE]);
static void make_text(char str[ZKL_SERVERRECORD_TEXT_SIZE]);
static void on_refused(Step step, ZklFailure failure);
static void on_accepted(void);
static void on_answer(ZklAsker *asker, int what, int64 number,
					  const ZklSessionEvent *event);
static void on_seen(const ZklSessionEvent *event);
static void on_looked(const ZklSessionEvent *event);
static void on_joined(const ZklSessionEvent *event);
static void on_listed(const ZklSessionEvent *event);
static void note_others(int nothers);
static void note_birth(const ZklSessionEvent *event);

void
zkl_membership_start(const char *prefix)
{
	char		name[ZKL_SERVERRECORD_NAME_SIZE];

	member.asker.answered = on_answer;
	zkl_server_record_name(zkl_settings_node_name(), name);
	snprintf(member.directory, sizeof(member.directory),
			 "%s" ZKL_SERVERRECORD_DIRECTORY, prefix);
	snprintf(member.home, sizeof(member.home), "%s/%s", member.directory, name);
}

/* Take the next step after a pause. */
static void
go(Step step, int64 delay)
{
	member.step = step;
	member.at = zkl_now() + delay;
}

void
zkl_membership_send(void)
{
	if (!zkl_session_is_usable())
		return;
	if (member.connected_at != zkl_session_info->connected_at)
		note_connection();
	if (member.step != STEP_NONE && member.asker.outstanding == 0 &&
		zkl_now() >= member.at)
		ask();
}

int64
zkl_membership_wake_at(void)
{
	return member.step != STEP_NONE && member.asker.outstanding == 0 ?
		member.at : PG_INT64_MAX;
}

/* Replies to requests of an earlier connection do not count any more. */
static void
note_connection(void)
{
	member.connected_at = zkl_session_info->connected_at;
	zkl_ask_cancel(&member.asker);
	go(member.joined == zkl_session_info->id ? STEP_LIST : STEP_WHOSE, 0);
}

static void
ask(void)
{
	ZklAsker   *asker = &member.asker;
	char		record[RECORD_SIZE];
	char		str[ZKL_SERVERRECORD_TEXT_SIZE];

	switch (member.step)
	{
		case STEP_NONE:
			break;
		case STEP_WHOSE:
			zkl_ask_stat(asker, STEP_WHOSE, 0, KEEPER);
			break;
		case STEP_LOOK:
			zkl_ask_stat(asker, STEP_LOOK, 0, member.directory);
			break;
		case STEP_BEGIN:
			zkl_ask_create(asker, STEP_BEGIN, member.directory, "",
						   ZKL_CREATE_PERSISTENT);
			break;
		case STEP_JOIN:
			own_record(record);
			make_text(str);
			zkl_ask_create(asker, STEP_JOIN, record, str,
						   ZKL_CREATE_EPHEMERAL);
			break;
		case STEP_LIST:
			zkl_ask_children(asker, STEP_LIST, 0, member.home, true);
			break;
	}
}

static void
own_record(char record[RECORD_SIZE])
{
	char		name[ZKL_SESSION_TEXT_NAME_SIZE];

	zkl_session_text_name(zkl_session_info->id, name);
	snprintf(record, RECORD_SIZE, "%s/%s", member.home, name);
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
}

bool
zkl_membership_note_change(const char *path)
{
	if (strcmp(path, member.home) != 0)
		return false;

	/*
	 * A reply that is under way is newer than the event, or another event
	 * will follow.
	 */
	if (member.asker.outstanding == 0)
		go(STEP_LIST, 0);
	return true;
}

static void
on_answer(ZklAsker *asker, int what, int64 number,
		  const ZklSessionEvent *event)
{
	if (event->reply.outcome == ZKL_OUTCOME_UNKNOWN)
		go(what, AGAIN_AFTER);
	else if (event->reply.outcome == ZKL_OUTCOME_REFUSED)
		on_refused(what, event->reply.failure);
	else if (what == STEP_WHOSE)
		on_seen(event);
	else if (what == STEP_JOIN)
		on_joined(event);
	else if (what == STEP_LIST)
		on_listed(event);
	else
		on_looked(event);
}

/*
 * ZooKeeper refuses what this server needs to take part at all, so it probably
 * refuses its locks as well.  zk_status says so until the same request
 * succeeds.  It is sent again over the same connection, because an
 * administrator may repair the access control without a restart.  The log has
 * it once.
 */
static void
on_refused(Step step, ZklFailure failure)
{
	const char *reason =
	failure == ZKL_FAILURE_PERMISSION ? "ZooKeeper denied permission for the record of this server" :
	failure == ZKL_FAILURE_ACL ? "ZooKeeper does not accept \"zklock.acl\" for the record of this server" :
	failure == ZKL_FAILURE_QUOTA ? "a quota in ZooKeeper leaves no room for the record of this server" :
	"ZooKeeper refused the record of this server";

	zkl_session_log_error(reason);
	if (pg_atomic_exchange_u32(&zkl_session_info->record_refused, 1) == 0)
		ereport(WARNING,
				errmsg("could not publish in ZooKeeper that this server takes part"),
				errdetail("%s, below \"%s\".", reason, member.directory),
				errhint("Requests for locks probably fail as well.  Check \"zklock.auth_file\", \"zklock.acl\", and the access control lists in ZooKeeper."));
	go(step, REFUSED_AGAIN);
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
	if (pg_atomic_read_u32(&zkl_session_info->record_refused) != 0 &&
		member.step != STEP_NONE)
		member.at = zkl_now();
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
	go(STEP_LOOK, 0);
}

/*
 * Handle the reply to LOOK or BEGIN.  CHANGED: another server has created the
 * directory first.
 */
static void
on_looked(const ZklSessionEvent *event)
{
	switch (event->reply.outcome)
	{
		case ZKL_OUTCOME_OK:
			note_birth(event);
			go(STEP_JOIN, 0);
			break;
		case ZKL_OUTCOME_CHANGED:
			go(STEP_LOOK, 0);
			break;
		default:
			go(STEP_BEGIN, member.step == STEP_BEGIN ? AGAIN_AFTER : 0);
			break;
	}
}

/* CHANGED: an earlier worker of this session has created the record. */
static void
on_joined(const ZklSessionEvent *event)
{
	if (event->reply.outcome == ZKL_OUTCOME_ABSENT)
	{
		go(STEP_LOOK, AGAIN_AFTER);
		return;
	}
	member.joined = zkl_session_info->id;
	go(STEP_LIST, 0);
}

/* If the record is missing, another client has deleted it; create it again. */
static void
on_listed(const ZklSessionEvent *event)
{
	char		record[RECORD_SIZE];
	bool		found = false;

	own_record(record);
	for (int i = 0; i < event->reply.nchildren; i++)
		found |= strcmp(event->reply.children[i], strrchr(record, '/') + 1) == 0;
	if (!found)
	{
		member.joined = 0;
		go(STEP_LOOK, AGAIN_AFTER);
		return;
	}
	on_accepted();
	go(STEP_NONE, 0);
	note_others(event->reply.nchildren - 1);
}

/*
 * Another session may be this server's own from before a crash of the
 * machine.  That session expires after a while.
 */
static void
note_others(int nothers)
{
	int64		patience = 2 * ZKL_MS(zkl_session_info->timeout_ms);
	bool		known = pg_atomic_read_u32(&zkl_lock_table->namesakes) > 0;

	if (nothers == 0)
		member.shared_since = 0;
	else if (member.shared_since == 0)
		member.shared_since = zkl_now();
	if (nothers > 0 && zkl_now() < member.shared_since + patience)
	{
		go(STEP_LIST, member.shared_since + patience - zkl_now());
		return;
	}
	pg_atomic_write_u32(&zkl_lock_table->namesakes, nothers);
	if (nothers > 0 && !known)
		ereport(WARNING,
				errmsg("another server has the name \"%s\", too",
					   zkl_settings_node_name()),
				errhint("Set \"zklock.node_name\" on one of the servers.  The view zk_servers shows their hosts."));
	else if (nothers == 0 && known)
		ereport(LOG,
				errmsg("no other server has the name \"%s\" any more",
					   zkl_settings_node_name()));
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
