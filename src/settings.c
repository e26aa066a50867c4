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
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/guc.h"

#include "protocol/hosts.h"
#include "protocol/path.h"
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
char	   *zkl_commit_requires = NULL;
uint64		zkl_commit_requires_serial = 0;
int			zkl_not_leading = ZKL_NOT_LEADING_ERROR;
char	   *zkl_allowed_paths = NULL;
bool		zkl_session_level = true;
char	   *zkl_auth_file = NULL;
char	   *zkl_acl = NULL;
ZklAcl		zkl_settings_acl;
char	   *zkl_ssl_ca_file = NULL;
char	   *zkl_ssl_cert_file = NULL;
char	   *zkl_ssl_key_file = NULL;
char	   *zkl_sasl_user = NULL;
char	   *zkl_sasl_password_file = NULL;

static const struct config_enum_entry on_lost_options[] = {
	{"cancel", ZKL_ON_LOST_CANCEL, false},
	{"terminate", ZKL_ON_LOST_TERMINATE, false},
	{"notice", ZKL_ON_LOST_NOTICE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry not_leading_options[] = {
	{"error", ZKL_NOT_LEADING_ERROR, false},
	{"terminate", ZKL_NOT_LEADING_TERMINATE, false},
	{NULL, 0, false}
};

static void define_place_settings(void);
static void define_time_settings(void);
static void define_other_settings(void);
static void define_leader_settings(void);
static void define_role_settings(void);
static void define_security_settings(void);
static bool check_allowed_paths(char **newval, void **extra, GucSource source);
static bool check_leader_of(char **newval, void **extra, GucSource source);
static const char *leaders_fault(const char *list);
static void check_leader(const char *path, void *arg);
static bool check_commit_requires(char **newval, void **extra, GucSource source);
static void assign_commit_requires(const char *newval, void *extra);
static bool check_hosts(char **newval, void **extra, GucSource source);
static bool check_node_name(char **newval, void **extra, GucSource source);
static bool check_root(char **newval, void **extra, GucSource source);
static bool check_max_locks(int *newval, void **extra, GucSource source);
static void define_acl(void);
static bool check_acl(char **newval, void **extra, GucSource source);
static void assign_acl(const char *newval, void *extra);
static void define_text(const char *name, const char *purpose,
						const char *detail, char **variable,
						GucStringCheckHook check);
static bool check_tls(char **newval, void **extra, GucSource source);
static bool check_sasl(char **newval, void **extra, GucSource source);

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
		"zklock.commit_requires", "zklock.not_leading",
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
	define_security_settings();
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
							   "The ZooKeeper servers, as host or host:port, separated by commas.",
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
							   check_node_name, NULL, NULL);
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
							"It should be longer than the time from the check of the locks to the end of the commit.",
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
	DefineCustomStringVariable("zklock.commit_requires",
							   "The leaderships without which no transaction that has written commits, as paths separated by commas.",
							   "It must be the same on all servers that may become the primary.",
							   &zkl_commit_requires,
							   "",
							   PGC_SUSET, 0,
							   check_commit_requires, assign_commit_requires, NULL);
	DefineCustomEnumVariable("zklock.not_leading",
							 "What happens to a session that writes while this server does not lead what \"zklock.commit_requires\" names.",
							 "Its statement fails, or the session is terminated.",
							 &zkl_not_leading,
							 ZKL_NOT_LEADING_ERROR,
							 not_leading_options,
							 PGC_USERSET, 0,
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
							   ZKL_PATH_LIST_ALL,
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
 * The names of files help those who look for secrets, so not every role may
 * see these settings.
 */
static void
define_security_settings(void)
{
	define_acl();
	define_text("zklock.auth_file",
				"The file with this server's credentials for ZooKeeper.",
				"Each line is a scheme, a blank, and the credentials.",
				&zkl_auth_file, NULL);
	define_text("zklock.ssl_ca_file",
				"The file with the authorities that sign the certificates of ZooKeeper servers.",
				"With it, all connections to ZooKeeper use TLS.",
				&zkl_ssl_ca_file, check_tls);
	define_text("zklock.ssl_cert_file",
				"The file with this server's certificate for ZooKeeper.",
				NULL,
				&zkl_ssl_cert_file, check_tls);
	define_text("zklock.ssl_key_file",
				"The file with the private key of \"zklock.ssl_cert_file\".",
				NULL,
				&zkl_ssl_key_file, check_tls);
	define_text("zklock.sasl_user",
				"The user as which this server authenticates with ZooKeeper by SASL.",
				"The mechanism is DIGEST-MD5.",
				&zkl_sasl_user, check_sasl);
	define_text("zklock.sasl_password_file",
				"The file with the password of \"zklock.sasl_user\".",
				NULL,
				&zkl_sasl_password_file, check_sasl);
}

static void
define_text(const char *name, const char *purpose, const char *detail,
			char **variable, GucStringCheckHook check)
{
	DefineCustomStringVariable(name, purpose, detail, variable, "",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check, NULL, NULL);
}

/* The hashes in an access control list help those who guess passwords. */
static void
define_acl(void)
{
	DefineCustomStringVariable("zklock.acl",
							   "The access control list of the znodes that this server creates.",
							   "\"open\", \"creator\", or a list of scheme:id:permissions.",
							   &zkl_acl,
							   "open",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_acl, assign_acl, NULL);
}

static bool
check_acl(char **newval, void **extra, GucSource source)
{
	ZklAcl		acl;
	const char *fault = zkl_access_parse_acl(*newval, &acl);

	if (fault != NULL)
		GUC_check_errdetail("%s", fault);
	return fault == NULL;
}

static void
assign_acl(const char *newval, void *extra)
{
	(void) zkl_access_parse_acl(newval, &zkl_settings_acl);
}

/*
 * A server that is told to use TLS must not go on without it.
 */
static bool
check_tls(char **newval, void **extra, GucSource source)
{
#ifndef ZKLOCK_TLS
	if ((*newval)[0] != '\0')
	{
		GUC_check_errdetail("zklock was built with a library of ZooKeeper's C client that has no TLS.");
		GUC_check_errhint("Build zklock with a library that has it, or use stunnel, as the documentation of zklock describes.");
		return false;
	}
#endif
	return true;
}

/* The same for SASL. */
static bool
check_sasl(char **newval, void **extra, GucSource source)
{
#ifndef ZKLOCK_SASL
	if ((*newval)[0] != '\0')
	{
		GUC_check_errdetail("zklock was built with a library of ZooKeeper's C client that has no SASL.");
		GUC_check_errhint("Build zklock with a library that has it, or use \"zklock.auth_file\".");
		return false;
	}
#endif
	return true;
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
	const char *fault = zkl_path_list_fault(*newval);
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

	while ((element = zkl_path_list_next(&at, &length)) != NULL)
	{
		char		path[ZKL_PATH_SIZE + 1];

		/* What is cut off here is too long with one byte more, too. */
		strlcpy(path, element, Min(length + 1, sizeof(path)));
		visitor(path, arg);
	}
}

typedef struct LeaderSearch
{
	const char *path;
	bool		found;
} LeaderSearch;

static void
compare_leader(const char *path, void *arg)
{
	LeaderSearch *search = arg;

	search->found |= strcmp(path, search->path) == 0;
}

bool
zkl_settings_lists_leader(const char *list, const char *path)
{
	LeaderSearch search = {path, false};

	zkl_settings_visit_leaders(list, compare_leader, &search);
	return search.found;
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
	const char *fault = leaders_fault(*newval);

	if (fault != NULL)
		GUC_check_errdetail("%s", fault);
	return fault == NULL;
}

static const char *
leaders_fault(const char *list)
{
	LeaderCheck check = {NULL, 0};

	zkl_settings_visit_leaders(list, check_leader, &check);
	if (check.fault == NULL && check.npaths > ZKL_LEADERS_MAX)
		return "There are more than " CppAsString2(ZKL_LEADERS_MAX) " paths.";
	return check.fault;
}

/*
 * A superuser may write without the leadership, but not in silence.
 *
 * If this refused a value that a session finds in the catalog when it begins,
 * PostgreSQL would go on with the value of the server, which may require less.  Such
 * a value was stored before zklock was loaded, and so was not checked.  It is kept:
 * no server leads what is no valid path, so it allows no writes.
 */
static bool
check_commit_requires(char **newval, void **extra, GucSource source)
{
	const char *fault = leaders_fault(*newval);
	bool		is_stored = source >= PGC_S_GLOBAL && source <= PGC_S_DATABASE_USER;

	if (fault != NULL && is_stored)
		ereport(WARNING,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid value for parameter \"%s\": \"%s\"",
					   "zklock.commit_requires", *newval),
				errdetail("%s", fault));
	else if (fault != NULL)
		GUC_check_errdetail("%s", fault);
	else if ((source == PGC_S_SESSION || source == PGC_S_CLIENT) &&
			 !InitializingParallelWorker && zkl_commit_requires != NULL &&
			 strcmp(*newval, zkl_commit_requires) != 0)
		ereport(LOG_SERVER_ONLY,
				errmsg("this session sets \"zklock.commit_requires\" from \"%s\" to \"%s\"",
					   zkl_commit_requires, *newval));
	return fault == NULL || is_stored;
}

static void
assign_commit_requires(const char *newval, void *extra)
{
	zkl_commit_requires_serial++;
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

/*
 * A longer name would cut off what znodes say about a backend.  Databases of any
 * encoding show it, and so do other servers.
 */
static bool
check_node_name(char **newval, void **extra, GucSource source)
{
	int			length = strlen(*newval);

	if (length >= ZKL_NODE_NAME_SIZE)
		GUC_check_errdetail("The name has %d bytes; the limit is %d.",
							length, ZKL_NODE_NAME_SIZE - 1);
	else if (pg_encoding_verifymbstr(PG_UTF8, *newval, length) != length)
		GUC_check_errdetail("The name is not valid UTF-8.");
	else
		return true;
	return false;
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
	return zkl_node_name[0] != '\0' ? zkl_node_name : zkl_settings_host();
}

const char *
zkl_settings_host(void)
{
	static char host[80];		/* Linux has 64 characters for its name */

	if (host[0] == '\0')
	{
		if (gethostname(host, sizeof(host) - 8) != 0)
			strcpy(host, "localhost");

		/* gethostname() need not put a null behind a name that it cuts. */
		host[sizeof(host) - 8] = '\0';
		snprintf(host + strlen(host), 8, ":%d", PostPortNumber);
	}
	return host;
}
