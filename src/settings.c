/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings, and the name of this server.
 *
 * src/settings.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <unistd.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/guc.h"

#include "protocol/hosts.h"
#include "protocol/path.h"
#include "protocol/pathlist.h"
#include "settings.h"

#define LEAST_MAX_LOCKS		16

char	   *zkl_hosts = NULL;
char	   *zkl_root = NULL;
char	   *zkl_node_name = NULL;
int			zkl_session_timeout = 10000;
int			zkl_connection_timeout = 10000;
int			zkl_max_locks = -1;
int			zkl_max_locks_per_backend = 1000;
int			zkl_max_jobs = 1000;
int			zkl_stat_locks = 5000;
int			zkl_sessions = 1;
int			zkl_tenure = 100;
int			zkl_linger = 1000;
int			zkl_commit_margin = 100;
bool		zkl_synchronous_release = false;
int			zkl_on_lost = ZKL_ON_LOST_CANCEL;
bool		zkl_deadlock_detection = true;
char	   *zkl_leader_of = NULL;
bool		zkl_leader_on_standby = false;
char	   *zkl_allowed_paths = NULL;
bool		zkl_session_level = true;

static const struct config_enum_entry on_lost_options[] = {
	{"cancel", ZKL_ON_LOST_CANCEL, false},
	{"terminate", ZKL_ON_LOST_TERMINATE, false},
	{"notice", ZKL_ON_LOST_NOTICE, false},
	{NULL, 0, false}
};

static void define_place_settings(void);
static void define_time_settings(void);
static void define_other_settings(void);
static void define_leader_settings(void);
static void define_role_settings(void);
static bool check_allowed_paths(char **newval, void **extra, GucSource source);
static bool check_leader_of(char **newval, void **extra, GucSource source);
static void check_leader(const char *path, void *arg);
static bool check_hosts(char **newval, void **extra, GucSource source);
static bool check_root(char **newval, void **extra, GucSource source);
static bool check_max_locks(int *newval, void **extra, GucSource source);

/*
 * PostgreSQL replaces an invalid setting of an extension by the default, with
 * a WARNING.  But a server whose locks are in another place excludes no other
 * server.  So here that is an error.
 */
void
zkl_settings_define(void)
{
	static const char *const names[] = {
		"zklock.hosts", "zklock.root", "zklock.node_name",
		"zklock.session_timeout", "zklock.connection_timeout",
		"zklock.tenure", "zklock.linger", "zklock.commit_margin",
		"zklock.max_locks", "zklock.max_locks_per_backend",
		"zklock.max_jobs", "zklock.stat_locks", "zklock.sessions",
		"zklock.on_lost", "zklock.synchronous_release",
		"zklock.leader_of", "zklock.leader_on_standby",
		"zklock.deadlock_detection",
		"zklock.allowed_paths", "zklock.session_level",
		"zklock.auth_file", "zklock.acl",
		"zklock.ssl_ca_file", "zklock.ssl_cert_file", "zklock.ssl_key_file",
		"zklock.sasl_user", "zklock.sasl_password_file"
	};
	char	   *given[lengthof(names)] = {NULL};

	/*
	 * Until they are defined, the settings are placeholders, with the values
	 * that the configuration files give them.
	 */
	for (int i = 0; i < lengthof(names); i++)
	{
		const char *value = GetConfigOption(names[i], true, false);

		if (value != NULL)
			given[i] = pstrdup(value);
	}

	define_place_settings();
	define_time_settings();
	define_other_settings();
	define_leader_settings();
	define_role_settings();
	zkl_settings_define_security();
	MarkGUCPrefixReserved("zklock");

	/*
	 * Set the same values again.  Now PostgreSQL checks them, at level FATAL.
	 */
	for (int i = 0; i < lengthof(names); i++)
	{
		if (given[i] != NULL)
			(void) set_config_option(names[i], given[i], PGC_POSTMASTER,
									 PGC_S_FILE, GUC_ACTION_SET, true, FATAL,
									 false);
	}
}

/* The settings for the place of the locks, and for this server's name. */
static void
define_place_settings(void)
{
	DefineCustomStringVariable("zklock.hosts",
							   "The ZooKeeper servers, as host:port separated by commas.",
							   "A chroot may follow; zklock keeps everything below it.",
							   &zkl_hosts,
							   "127.0.0.1:2181",
							   PGC_SIGHUP, 0,
							   check_hosts, NULL, NULL);
	DefineCustomStringVariable("zklock.root",
							   "The directory in ZooKeeper that contains all locks.",
							   NULL,
							   &zkl_root,
							   "/zklock",
							   PGC_POSTMASTER, 0,
							   check_root, NULL, NULL);
	DefineCustomStringVariable("zklock.node_name",
							   "The name by which other servers see this one.",
							   "Empty means the host's name and the port.",
							   &zkl_node_name,
							   "",
							   PGC_POSTMASTER, 0,
							   NULL, NULL, NULL);
}

/*
 * Users may set what concerns only their own calls and commits.  The other
 * times hold for the whole server.
 */
static void
define_time_settings(void)
{
	DefineCustomIntVariable("zklock.session_timeout",
							"How long ZooKeeper keeps the locks of a server that has died.",
							"The ZooKeeper servers have limits of their own for it.",
							&zkl_session_timeout,
							10000, 1000, 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.connection_timeout",
							"How long ZooKeeper may be silent before a call that waits for it fails.",
							NULL,
							&zkl_connection_timeout,
							10000, 1, INT_MAX / 2,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.tenure",
							"How long a server hands on a lock among its own backends while other servers wait for it.",
							"With zero, the server gives the lock up as soon as it knows that others queue.",
							&zkl_tenure,
							100, 0, 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.linger",
							"How long a server keeps a released lock that comes back.",
							"With zero, the server gives up every lock when it is released.",
							&zkl_linger,
							1000, 0, 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.commit_margin",
							"How long a lock must still be certain when a transaction commits.",
							NULL,
							&zkl_commit_margin,
							100, 0, 60 * 60 * 1000,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
}

/*
 * The sizes of shared memory and the number of workers are fixed when the
 * server starts.
 */
static void
define_other_settings(void)
{
	DefineCustomIntVariable("zklock.max_locks",
							"Maximum number of locks and leases tracked by this server.",
							"-1 means 8192, or half of PostgreSQL's lock table if that is less.",
							&zkl_max_locks,
							-1, -1, 1000000,
							PGC_POSTMASTER, 0,
							check_max_locks, NULL, NULL);
	DefineCustomIntVariable("zklock.max_jobs",
							"How many jobs the cluster can have records of.",
							"Zero means that no new job can be run.",
							&zkl_max_jobs,
							1000, 0, 1000000,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.stat_locks",
							"Maximum number of paths that zk_stat_locks has rows for.",
							"The row that was used least recently is discarded first.",
							&zkl_stat_locks,
							5000, 100, 1000000,
							PGC_POSTMASTER, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.sessions",
							"Number of ZooKeeper sessions that hold the locks of this server.",
							"Each has a background worker of its own.",
							&zkl_sessions,
							1, 1, ZKL_SESSIONS_MAX,
							PGC_POSTMASTER, 0,
							NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.on_lost",
							 "What happens to a session whose lock is lost.",
							 "Its statement is cancelled, the session is terminated, or the session gets a notice.",
							 &zkl_on_lost,
							 ZKL_ON_LOST_CANCEL,
							 on_lost_options,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.deadlock_detection",
							 "Looks for deadlocks across servers.",
							 "A wait is looked at when it has lasted for \"deadlock_timeout\".",
							 &zkl_deadlock_detection,
							 true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.synchronous_release",
							 "Waits until ZooKeeper has confirmed the release of a lock.",
							 NULL,
							 &zkl_synchronous_release,
							 false,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
}

static void
define_leader_settings(void)
{
	DefineCustomStringVariable("zklock.leader_of",
							   "The leaderships for which this server stands, as paths separated by commas.",
							   NULL,
							   &zkl_leader_of,
							   "",
							   PGC_SIGHUP, 0,
							   check_leader_of, NULL, NULL);
	DefineCustomBoolVariable("zklock.leader_on_standby",
							 "Stands for leaderships also while the server is a standby.",
							 NULL,
							 &zkl_leader_on_standby,
							 false,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
}

/*
 * What a superuser sets for roles and databases.
 */
static void
define_role_settings(void)
{
	DefineCustomStringVariable("zklock.allowed_paths",
							   "The paths that a session may use, separated by commas.",
							   "A path that ends with a slash stands for all paths below it; \"*\" stands for all paths.",
							   &zkl_allowed_paths,
							   ZKL_PATHLIST_ALL,
							   PGC_SUSET, 0,
							   check_allowed_paths, NULL, NULL);
	DefineCustomIntVariable("zklock.max_locks_per_backend",
							"Maximum number of locks and leases that a backend can hold at a time.",
							NULL,
							&zkl_max_locks_per_backend,
							1000, 0, 1000000,
							PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.session_level",
							 "Allows a session to acquire session-level locks.",
							 NULL,
							 &zkl_session_level,
							 true,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
}

/*
 * If this refused a value that a session finds in the catalog when it begins,
 * PostgreSQL would go on with the default, which allows all paths.  Such a
 * value was stored before zklock was loaded, and so was not checked.  It is
 * kept: what is not valid in it allows nothing.
 */
static bool
check_allowed_paths(char **newval, void **extra, GucSource source)
{
	const char *fault = zkl_pathlist_fault(*newval);
	bool		is_stored = source >= PGC_S_GLOBAL && source <= PGC_S_DATABASE_USER;

	if (fault != NULL && is_stored)
		ereport(WARNING,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid value for parameter \"%s\": \"%s\"",
					   "zklock.allowed_paths", *newval),
				errdetail("%s", fault));
	else if (fault != NULL)
		GUC_check_errdetail("%s", fault);
	return fault == NULL || is_stored;
}

/*
 * An empty path between two commas is visited as well, so that the check can
 * refuse it.
 */
void
zkl_settings_visit_leaders(const char *list, ZklLeaderVisitor visitor,
						   void *arg)
{
	const char *at = list;
	const char *element;
	size_t		length;

	while ((element = zkl_pathlist_next(&at, &length)) != NULL)
	{
		char		path[ZKL_PATH_SIZE + 1];

		/* What is cut off here is too long with one byte more, too. */
		strlcpy(path, element, Min(length + 1, sizeof(path)));
		visitor(path, arg);
	}
}

/* What is wrong with the list, or NULL; and how many paths it has. */
typedef struct LeaderCheck
{
	const char *fault;
	int			npaths;
} LeaderCheck;

static bool
check_leader_of(char **newval, void **extra, GucSource source)
{
	LeaderCheck check = {NULL, 0};

	zkl_settings_visit_leaders(*newval, check_leader, &check);
	if (check.fault == NULL && check.npaths > ZKL_LEADERS_MAX)
		GUC_check_errdetail("There are more than %d paths.", ZKL_LEADERS_MAX);
	else if (check.fault != NULL)
		GUC_check_errdetail("%s", check.fault);
	else
		return true;
	return false;
}

static void
check_leader(const char *path, void *arg)
{
	LeaderCheck *check = arg;

	check->npaths++;
	if (check->fault == NULL)
		check->fault = path[0] == '\0' ? "A path is empty." : zkl_path_fault(path);
}

/*
 * The chroot is part of the path of every lock that is held, so it cannot
 * change while the server runs.
 */
static bool
check_hosts(char **newval, void **extra, GucSource source)
{
	const char *fault = zkl_hosts_fault(*newval);

	if (fault != NULL)
	{
		GUC_check_errdetail("%s", fault);
		return false;
	}

	/*
	 * While PostgreSQL loads the library, the value replaces only the
	 * default, which no lock relies on.  A parallel worker gets its leader's
	 * value, and by then RestoreGUCState() has freed the one it replaces.
	 */
	if (!process_shared_preload_libraries_in_progress &&
		!InitializingParallelWorker && zkl_hosts != NULL &&
		strcmp(zkl_hosts_chroot(zkl_hosts), zkl_hosts_chroot(*newval)) != 0)
	{
		GUC_check_errdetail("The chroot after the servers cannot be changed without a restart.");
		return false;
	}
	return true;
}

/*
 * An empty chroot is none, and so valid.  The root must be given, and be "/"
 * at the least.
 */
static bool
check_root(char **newval, void **extra, GucSource source)
{
	const char *fault = (*newval)[0] == '\0' ? "The path is empty." :
	zkl_path_root_fault(*newval);

	if (fault != NULL)
		GUC_check_errdetail("%s", fault);
	return fault == NULL;
}

/* PostgreSQL can check one range only, and -1 is apart from it. */
static bool
check_max_locks(int *newval, void **extra, GucSource source)
{
	if (*newval == -1 || *newval >= LEAST_MAX_LOCKS)
		return true;
	GUC_check_errdetail("It must be at least %d, or -1.", LEAST_MAX_LOCKS);
	return false;
}

const char *
zkl_settings_node_name(void)
{
	static char name[128];

	if (zkl_node_name[0] != '\0')
		return zkl_node_name;
	if (name[0] == '\0')
	{
		if (gethostname(name, sizeof(name) - 8) != 0)
			strcpy(name, "localhost");

		/* gethostname() need not put a null behind a name that it cuts. */
		name[sizeof(name) - 8] = '\0';
		snprintf(name + strlen(name), 8, ":%d", PostPortNumber);
	}
	return name;
}
