/*-------------------------------------------------------------------------
 *
 * sessionlog.c
 *	  What the log and zk_status say about the ZooKeeper session.
 *
 * src/worker/request/sessionlog.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "protocol/fieldtext.h"
#include "settings.h"
#include "worker/request/entrystate.h"
#include "worker/request/sessionlog.h"
#include "zookeeper/session.h"

/* What was logged, and is not logged again while it lasts. */
static bool missing = false;	/* ZooKeeper cannot be reached */
static bool in_doubt = false;	/* claims are in doubt */
static bool differs = false;	/* the connected server's data differ from the
								 * other servers' */

static int64 away_since = 0;	/* since when no server could be reached; 0 if
								 * one can */

static void log_connected(void);
static void note_refusal(const char *error);

/* Logged once, until there is a connection again. */
bool
zkl_session_log_unreachable(void)
{
	const char *error = zkl_session_take_error();

	if (error != NULL)
		zkl_session_log_error(error);
	if (!zkl_session_tried_all())
		return error != NULL;

	/*
	 * If a server is mistrusted, log that rather than that ZooKeeper cannot
	 * be reached.
	 */
	if (zkl_session_mistrust() != NULL)
	{
		if (!zkl_session_log_is_refused())
			zkl_session_log_refused(zkl_session_mistrust());
		else if (error != NULL)
			note_refusal(zkl_session_mistrust());
		return error != NULL;
	}
	zkl_session_log_nowhere();
	if (missing)
		return error != NULL;
	missing = true;
	ereport(LOG,
			errmsg("could not connect to ZooKeeper, will keep trying"),
			zkl_session_info->last_error_at == 0 ? 0 :
			errdetail("The last error was: %s.", zkl_session_info->last_error));
	return error != NULL;
}

void
zkl_session_log_forget(void)
{
	missing = false;
	away_since = 0;
	(void) zkl_session_take_error();
	pg_atomic_write_u64(&zkl_session_info->refused_at, 0);
}

void
zkl_session_log_nowhere(void)
{
	if (away_since == 0)
		away_since = zkl_now();
}

bool
zkl_session_log_is_away(void)
{
	return away_since != 0 && zkl_now() >= away_since + ZKL_ELECTION;
}

/*
 * While ZooKeeper refuses this server's credentials, a connection is not
 * worth a message.
 */
void
zkl_session_log_connected(bool is_new)
{
	missing = false;
	away_since = 0;
	differs = false;
	if (is_new && !zkl_session_log_is_refused())
		log_connected();
}

void
zkl_session_log_accepted(void)
{
	pg_atomic_write_u64(&zkl_session_info->refused_at, 0);
	log_connected();
}

/*
 * The session may have expired.  That matters only to backends that hold
 * locks, so without holders nothing is logged.
 */
void
zkl_session_log_doubt(void)
{
	int64		safe_until = (int64) pg_atomic_read_u64(&zkl_session_info->safe_until);
	bool		idle = safe_until == ZKL_SAFE_UNTIL_IDLE;
	bool		safe = zkl_now() < safe_until;

	/* The session has expired, so nothing is in doubt any more. */
	if (zkl_session_info->id == 0)
		in_doubt = false;
	else if (in_doubt && idle)
	{
		in_doubt = false;
		ereport(LOG,
				errmsg("locks are no longer in doubt"),
				errdetail("None of them is held any more."));
	}
	else if (in_doubt && safe)
	{
		in_doubt = false;
		ereport(LOG,
				errmsg("locks are no longer in doubt"),
				errdetail("ZooKeeper has confirmed the session that holds them."));
	}
	else if (!in_doubt && !safe && !idle &&
			 pg_atomic_read_u64(&zkl_session_info->ephemeral_bytes) > 0 &&
			 zkl_lock_table_any_held())
	{
		in_doubt = true;
		/* Without a connection, the last error says why there is none. */
		if (zkl_session_is_connected())
			zkl_session_log_error("ZooKeeper has not recently confirmed the session");
		ereport(LOG,
				errmsg("locks are in doubt"),
				errdetail("ZooKeeper has not recently confirmed the session that holds them."),
				errhint("Transactions that hold them cannot commit until it does."));
	}
}

/*
 * The connected server should have all writes up to the refusal, but lacks
 * some.  The leader decides what is refused, so the leader's data count as
 * the ensemble's.
 */
void
zkl_session_log_difference(const char *znode)
{
	const char *server = zkl_session_server();
	char	   *shown = palloc(4 * strlen(znode) + 1);

	zkl_session_log_error(psprintf("ZooKeeper server \"%s\" differs from the leader of its ensemble",
								   server));
	if (differs)
		return;
	differs = true;
	zkl_field_text_show(znode, shown);
	ereport(LOG,
			errmsg("ZooKeeper server \"%s\" differs from the leader of its ensemble",
				   server),
			errdetail("A write to znode \"%s\" was refused because the znode has changed, but that server still shows it as it was.",
					  shown),
			errhint("Stop that ZooKeeper server, remove its data except for the file \"myid\", and start it.  It then copies the data from the leader."));
}

/* Note an error for zk_status. */
void
zkl_session_log_error(const char *error)
{
	ZklSessionInfo *info = zkl_session_info;

	LWLockAcquire(zkl_lock_table_session_lock(), LW_EXCLUSIVE);
	strlcpy(info->last_error, error, sizeof(info->last_error));
	info->last_error_at = zkl_now();
	LWLockRelease(zkl_lock_table_session_lock());
}

static void
log_connected(void)
{
	ereport(LOG,
			errmsg("connected to ZooKeeper server \"%s\"",
				   zkl_session_server()),
			errdetail("The session timeout is %d ms.",
					  zkl_session_timeout_ms()));
}

/* Logged once by each worker: usually, years are left. */
void
zkl_session_log_czxid(int64 czxid)
{
	static bool told = false;

	if (told || czxid <= ZKL_TICKET_CZXID_HIGH)
		return;
	told = true;
	ereport(WARNING,
			errmsg("the ZooKeeper ensemble has elected a leader %d times, and its tokens end after %d elections",
				   (int) (czxid >> 32), (int) (ZKL_TICKET_CZXID_MAX >> 32)),
			errdetail("After that, locks cannot be acquired."),
			errhint("Move all servers to a new ensemble at the same time, where tokens begin again."));
}

/* Logged once, until ZooKeeper accepts this server or the files are reloaded. */
void
zkl_session_log_refused(const char *error)
{
	zkl_session_log_error(error);
	note_refusal(error);
	if (zkl_session_log_is_refused())
		return;
	pg_atomic_write_u64(&zkl_session_info->refused_at, zkl_now());
	ereport(LOG,
			errmsg("could not authenticate with ZooKeeper: %s", error),
			strncmp(error, "TLS ", 4) == 0 ?
			errhint("Check \"zklock.ssl_ca_file\", \"zklock.ssl_cert_file\" and the certificate of the ZooKeeper server, then reload the configuration.") :
			errhint("Check \"zklock.auth_file\" and the other settings with this server's identity, then reload the configuration."));
	/* Backends that wait must learn the reason. */
	zkl_entry_state_wake_all();
}

/*
 * The next attempt may only find another ZooKeeper server away.  A backend
 * must still say why this server is refused.
 */
static void
note_refusal(const char *error)
{
	LWLockAcquire(zkl_lock_table_session_lock(), LW_EXCLUSIVE);
	strlcpy(zkl_session_info->refusal, error, sizeof(zkl_session_info->refusal));
	LWLockRelease(zkl_lock_table_session_lock());
}

bool
zkl_session_log_is_refused(void)
{
	return zkl_session_info_is_refused();
}
