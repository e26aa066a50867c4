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

#include "compat.h"
#include "protocol/hosts.h"
#include "protocol/path.h"
#include "settings.h"

#define LEAST_MAX_LOCKS		16

#define NOT_UTF8				"The value is not valid UTF-8."

char	   *zkl_hosts = NULL;
char	   *zkl_root = NULL;
char	   *zkl_node_name = NULL;
int			zkl_session_timeout = 10000;
int			zkl_connection_timeout = 10000;
int			zkl_max_locks = -1;
int			zkl_max_locks_per_backend = 1000;
int			zkl_max_jobs = 1000;
int			zkl_stat_locks = 5000;
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
char	   *zkl_commit_under = NULL;
uint64		zkl_commit_under_serial = 0;
char	   *zkl_allowed_paths = NULL;
bool		zkl_allowed_paths_of_server = true;
bool		zkl_session_level = true;
char	   *zkl_auth_file = NULL;
char	   *zkl_acl = NULL;
ZklAcl		zkl_settings_acl;
char	   *zkl_ssl_ca_file = NULL;
char	   *zkl_ssl_cert_file = NULL;
char	   *zkl_ssl_key_file = NULL;

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
static void define_int(const char *name, GucContext context, int flags,
					   const char *purpose, const char *detail,
					   int *variable, int min, int max, GucIntCheckHook check);
static void define_bool(const char *name, GucContext context,
						const char *purpose, const char *detail, bool *variable);
static void define_enum(const char *name, GucContext context,
						const char *purpose, const char *detail, int *variable,
						const struct config_enum_entry *options);
static void define_text(const char *name, GucContext context, int flags,
						const char *purpose, const char *detail,
						char **variable, const char *value,
						GucStringCheckHook check, GucStringAssignHook assign);
static char *value_in_files(const char *name);
static void check_again(const char *name, const char *value);
static bool is_utf8(const char *value);
static bool is_valid(const char *fault);
static bool is_valid_or_stored(const char *name, const char *value, const char *fault,
							   GucSource source);
static bool check_allowed_paths(char **newval, void **extra, GucSource source);
static void assign_allowed_paths(const char *newval, void *extra);
static bool check_leader_of(char **newval, void **extra, GucSource source);
static bool check_commit_requires(char **newval, void **extra, GucSource source);
static void assign_commit_requires(const char *newval, void *extra);
static bool check_commit_under(char **newval, void **extra, GucSource source);
static void assign_commit_under(const char *newval, void *extra);
static bool check_hosts(char **newval, void **extra, GucSource source);
static bool check_node_name(char **newval, void **extra, GucSource source);
static bool check_root(char **newval, void **extra, GucSource source);
static bool check_max_locks(int *newval, void **extra, GucSource source);
static bool check_acl(char **newval, void **extra, GucSource source);
static void assign_acl(const char *newval, void *extra);
static bool check_tls(char **newval, void **extra, GucSource source);

void
zkl_settings_define(void)
{
	define_place_settings();
	define_time_settings();
	define_other_settings();
	define_leader_settings();
	define_role_settings();
	define_security_settings();
	MarkGUCPrefixReserved("zklock");
}

/* The settings for the place of the locks, and for this server's name. */
static void
define_place_settings(void)
{
	define_text("zklock.hosts", PGC_SIGHUP, 0,
				"The ZooKeeper servers, as host or host:port, separated by commas.",
				"A chroot may follow; zklock keeps everything below it.",
				&zkl_hosts, "127.0.0.1:2181", check_hosts, NULL);
	define_text("zklock.root", PGC_POSTMASTER, 0,
				"The directory in ZooKeeper that contains all locks.",
				NULL,
				&zkl_root, "/zklock", check_root, NULL);
	define_text("zklock.node_name", PGC_POSTMASTER, 0,
				"The name by which other servers see this one.",
				"Empty means the host's name and the port.",
				&zkl_node_name, "", check_node_name, NULL);
}

/*
 * Users may set what concerns only their own calls and commits.  The other
 * times hold for the whole server.
 */
static void
define_time_settings(void)
{
	define_int("zklock.session_timeout", PGC_SIGHUP, GUC_UNIT_MS,
			   "How long ZooKeeper keeps the locks of a server that has died.",
			   "The ZooKeeper servers have limits of their own for it.",
			   &zkl_session_timeout, 1000, 60 * 60 * 1000, NULL);
	define_int("zklock.connection_timeout", PGC_USERSET, GUC_UNIT_MS,
			   "How long ZooKeeper may be silent before a call that waits for it fails.",
			   NULL,
			   &zkl_connection_timeout, 1, INT_MAX / 2, NULL);
	define_int("zklock.tenure", PGC_SIGHUP, GUC_UNIT_MS,
			   "How long a server hands on a lock among its own backends while other servers wait for it.",
			   "With zero, the server gives the lock up as soon as it knows that others queue.",
			   &zkl_tenure, 0, 60 * 60 * 1000, NULL);
	define_int("zklock.linger", PGC_SIGHUP, GUC_UNIT_MS,
			   "How long a server keeps a released lock that comes back.",
			   "With zero, the server gives up every lock when it is released.",
			   &zkl_linger, 0, 60 * 60 * 1000, NULL);
	define_int("zklock.commit_margin", PGC_USERSET, GUC_UNIT_MS,
			   "How long a lock must still be certain when a transaction commits.",
			   "It should be longer than the time from the check of the locks to the end of the commit.",
			   &zkl_commit_margin, 0, 60 * 60 * 1000, NULL);
}

/* The sizes of shared memory are fixed when the server starts. */
static void
define_other_settings(void)
{
	define_int("zklock.max_locks", PGC_POSTMASTER, 0,
			   "Maximum number of locks and leases tracked by this server.",
			   "-1 means 8192, or half of PostgreSQL's lock table if that is less.",
			   &zkl_max_locks, -1, 1000000, check_max_locks);
	define_int("zklock.max_jobs", PGC_SIGHUP, 0,
			   "How many jobs the cluster can have records of.",
			   "Zero means that no new job can be run.",
			   &zkl_max_jobs, 0, 1000000, NULL);
	define_int("zklock.stat_locks", PGC_POSTMASTER, 0,
			   "Maximum number of paths that zk_stat_locks has rows for.",
			   "The row that was used least recently is discarded first.",
			   &zkl_stat_locks, 100, 1000000, NULL);
	define_enum("zklock.on_lost", PGC_USERSET,
				"What happens to a session whose lock is lost.",
				"Its statement is cancelled, the session is terminated, or the session gets a warning.",
				&zkl_on_lost, on_lost_options);
	define_bool("zklock.deadlock_detection", PGC_SIGHUP,
				"Looks for deadlocks across servers.",
				"A wait is looked at when it has lasted for \"deadlock_timeout\".",
				&zkl_deadlock_detection);
	define_bool("zklock.synchronous_release", PGC_USERSET,
				"Waits until ZooKeeper has confirmed the release of a lock.",
				NULL,
				&zkl_synchronous_release);
}

static void
define_leader_settings(void)
{
	define_text("zklock.leader_of", PGC_SIGHUP, 0,
				"The leaderships for which this server stands, as paths separated by commas.",
				NULL,
				&zkl_leader_of, "", check_leader_of, NULL);
	define_bool("zklock.leader_on_standby", PGC_SIGHUP,
				"Stands for leaderships also while the server is a standby.",
				NULL,
				&zkl_leader_on_standby);
	define_text("zklock.commit_requires", PGC_SUSET, 0,
				"The leaderships without which no transaction that has written commits, as paths separated by commas.",
				"It must be the same on all servers that may become the primary.",
				&zkl_commit_requires, "", check_commit_requires, assign_commit_requires);
	define_enum("zklock.not_leading", PGC_USERSET,
				"What happens to a session that writes while this server does not lead what \"zklock.commit_requires\" names.",
				"Its statement fails, or the session is terminated.",
				&zkl_not_leading, not_leading_options);
	define_text("zklock.commit_under", PGC_USERSET, 0,
				"The lock under which the transactions of this session commit, as a path, or as a token and a path.",
				"A transaction that has written commits only while another session of this server, or this one, holds the lock.",
				&zkl_commit_under, "", check_commit_under, assign_commit_under);
}

/* What a superuser sets for roles and databases. */
static void
define_role_settings(void)
{
	define_text("zklock.allowed_paths", PGC_SUSET, 0,
				"The paths that a session may use, separated by commas.",
				"A path that ends with a slash stands for all paths below it; \"*\" stands for all paths.",
				&zkl_allowed_paths, ZKL_PATH_LIST_ALL, check_allowed_paths, assign_allowed_paths);
	define_int("zklock.max_locks_per_backend", PGC_SUSET, 0,
			   "Maximum number of locks and leases that a backend can hold at a time.",
			   NULL,
			   &zkl_max_locks_per_backend, 0, 1000000, NULL);
	define_bool("zklock.session_level", PGC_SUSET,
				"Allows a session to acquire session-level locks.",
				NULL,
				&zkl_session_level);
}

/*
 * The names of the files tell where secrets are, and the hashes in an access
 * control list help to guess passwords.  So not every role may see these
 * settings.
 */
static void
define_security_settings(void)
{
	define_text("zklock.acl", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
				"The access control list of the znodes that this server creates.",
				"\"open\", \"creator\", or a list of scheme:id:permissions.",
				&zkl_acl, "open", check_acl, assign_acl);
	define_text("zklock.auth_file", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
				"The file with this server's credentials for ZooKeeper.",
				"Each line is a scheme, a blank, and the credentials.",
				&zkl_auth_file, "", NULL, NULL);
	define_text("zklock.ssl_ca_file", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
				"The file with the authorities that sign the certificates of ZooKeeper servers.",
				"With it, all connections to ZooKeeper use TLS.",
				&zkl_ssl_ca_file, "", check_tls, NULL);
	define_text("zklock.ssl_cert_file", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
				"The file with this server's certificate for ZooKeeper.",
				NULL,
				&zkl_ssl_cert_file, "", check_tls, NULL);
	define_text("zklock.ssl_key_file", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
				"The file with the private key of \"zklock.ssl_cert_file\".",
				NULL,
				&zkl_ssl_key_file, "", check_tls, NULL);
}

/*
 * PostgreSQL replaces an invalid setting of an extension by the default, with
 * a WARNING.  But a server whose locks are in another place excludes no other
 * server.  So here an invalid value is an error: each setting, once it is
 * defined, gets its configured value once more, and PostgreSQL checks that at
 * level FATAL.
 *
 * The default of a setting that is no text is the initial value of its
 * variable.
 */
static void
define_int(const char *name, GucContext context, int flags,
		   const char *purpose, const char *detail,
		   int *variable, int min, int max, GucIntCheckHook check)
{
	char	   *given = value_in_files(name);

	DefineCustomIntVariable(name, purpose, detail, variable, *variable, min, max,
							context, flags, check, NULL, NULL);
	check_again(name, given);
}

static void
define_bool(const char *name, GucContext context,
			const char *purpose, const char *detail, bool *variable)
{
	char	   *given = value_in_files(name);

	DefineCustomBoolVariable(name, purpose, detail, variable, *variable,
							 context, 0, NULL, NULL, NULL);
	check_again(name, given);
}

static void
define_enum(const char *name, GucContext context,
			const char *purpose, const char *detail, int *variable,
			const struct config_enum_entry *options)
{
	char	   *given = value_in_files(name);

	DefineCustomEnumVariable(name, purpose, detail, variable, *variable, options,
							 context, 0, NULL, NULL, NULL);
	check_again(name, given);
}

static void
define_text(const char *name, GucContext context, int flags,
			const char *purpose, const char *detail,
			char **variable, const char *value,
			GucStringCheckHook check, GucStringAssignHook assign)
{
	char	   *given = value_in_files(name);

	DefineCustomStringVariable(name, purpose, detail, variable, value,
							   context, flags, check, assign, NULL);
	check_again(name, given);
}

/*
 * Before a setting is defined, PostgreSQL has a placeholder with this value;
 * NULL if there is none.
 */
static char *
value_in_files(const char *name)
{
	const char *value = GetConfigOption(name, true, false);

	return value != NULL ? pstrdup(value) : NULL;
}

static void
check_again(const char *name, const char *value)
{
	if (value != NULL)
		(void) set_config_option(name, value, PGC_POSTMASTER, PGC_S_FILE,
								 GUC_ACTION_SET, true, FATAL, false);
}

/*
 * Checks
 */

/* Paths are UTF-8, whatever the encoding of the database is in which a value is set. */
static bool
is_utf8(const char *value)
{
	int			length = strlen(value);

	return pg_encoding_verifymbstr(PG_UTF8, value, length) == length;
}

static bool
is_valid(const char *fault)
{
	if (fault != NULL)
		GUC_check_errdetail("%s", fault);
	return fault == NULL;
}

/*
 * For a setting whose default allows more.  A value in the catalog was not
 * checked if it was stored before zklock was loaded.  If the check refused
 * that value when a session begins, PostgreSQL would go on with the value of
 * the server.  So the value is kept: what is not valid in it allows nothing.
 */
static bool
is_valid_or_stored(const char *name, const char *value, const char *fault,
				   GucSource source)
{
	if (fault == NULL || source < PGC_S_GLOBAL || source > PGC_S_DATABASE_USER)
		return is_valid(fault);
	if (!InitializingParallelWorker)	/* the leader has reported it */
		zkl_settings_report_invalid(WARNING, name, value, fault);
	return true;
}

void
zkl_settings_report_invalid(int elevel, const char *name, const char *value,
							const char *fault)
{
	ereport(elevel,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("invalid value for parameter \"%s\": \"%s\"", name, value),
			errdetail_internal("%s", _(fault)));
}

static bool
check_acl(char **newval, void **extra, GucSource source)
{
	ZklAcl		acl;

	return is_valid(zkl_access_parse_acl(*newval, &acl));
}

static void
assign_acl(const char *newval, void *extra)
{
	(void) zkl_access_parse_acl(newval, &zkl_settings_acl);
}

/* A server whose setting says TLS must not go on without TLS. */
static bool
check_tls(char **newval, void **extra, GucSource source)
{
#ifndef ZKL_HAS_TLS
	if ((*newval)[0] != '\0')
	{
		GUC_check_errdetail("TLS needs Linux, and a PostgreSQL that was built with OpenSSL.");
		return false;
	}
#endif
	return true;
}

/*
 * Only this hook learns where a value comes from.  PostgreSQL keeps "extra"
 * with the value, also while a function or a savepoint has another one.
 */
static bool
check_allowed_paths(char **newval, void **extra, GucSource source)
{
	bool	   *of_server;

	if (!is_valid_or_stored("zklock.allowed_paths", *newval,
							zkl_path_list_fault(*newval), source))
		return false;
	of_server = zkl_guc_malloc(sizeof(bool));
	if (of_server == NULL)
		return false;
	*of_server = source < PGC_S_GLOBAL;
	*extra = of_server;
	return true;
}

static void
assign_allowed_paths(const char *newval, void *extra)
{
	zkl_allowed_paths_of_server = *(bool *) extra;
}

/*
 * An empty path between two commas is returned as well, so that the check can
 * refuse it.
 */
bool
zkl_settings_next_leader(const char **at, char path[ZKL_SETTINGS_LEADER_SIZE])
{
	size_t		length;
	const char *element = zkl_path_list_next(at, &length);

	/*
	 * The copy has room for one byte more than a valid path, so a path that
	 * is cut off is still too long.
	 */
	if (element != NULL)
		strlcpy(path, element, Min(length + 1, ZKL_SETTINGS_LEADER_SIZE));
	return element != NULL;
}

bool
zkl_settings_lists_leader(const char *list, const char *path)
{
	char		listed[ZKL_SETTINGS_LEADER_SIZE];

	while (zkl_settings_next_leader(&list, listed))
	{
		if (strcmp(listed, path) == 0)
			return true;
	}
	return false;
}

static bool
check_leader_of(char **newval, void **extra, GucSource source)
{
	return is_valid(zkl_settings_leaders_fault(*newval));
}

const char *
zkl_settings_leaders_fault(const char *list)
{
	char		path[ZKL_SETTINGS_LEADER_SIZE];
	int			npaths = 0;

	if (!is_utf8(list))
		return NOT_UTF8;
	while (zkl_settings_next_leader(&list, path))
	{
		const char *fault = path[0] == '\0' ? "A path is empty." : zkl_path_fault(path);

		if (fault != NULL)
			return fault;
		npaths++;
	}
	return npaths <= ZKL_LEADERS_MAX ? NULL :
		"There are more than " CppAsString2(ZKL_LEADERS_MAX) " paths.";
}

/*
 * A superuser may empty the setting for a session, but the log says so.  If a
 * stored value is not valid, reliance.c allows no writes.
 */
static bool
check_commit_requires(char **newval, void **extra, GucSource source)
{
	const char *fault = zkl_settings_leaders_fault(*newval);

	if (fault == NULL &&
		(source == PGC_S_SESSION || source == PGC_S_CLIENT) &&
		!InitializingParallelWorker && zkl_commit_requires != NULL &&
		strcmp(*newval, zkl_commit_requires) != 0)
		ereport(LOG_SERVER_ONLY,
				errmsg("this session sets \"zklock.commit_requires\" from \"%s\" to \"%s\"",
					   zkl_commit_requires, *newval));
	return is_valid_or_stored("zklock.commit_requires", *newval, fault, source);
}

static void
assign_commit_requires(const char *newval, void *extra)
{
	zkl_commit_requires_serial++;
}

/* A token is a positive number. */
const char *
zkl_settings_read_under(const char *value, int64 *token, char path[ZKL_PATH_SIZE])
{
	const char *fault;
	char	   *at = unconstify(char *, value);

	*token = 0;
	path[0] = '\0';
	if (*value != '/')
	{
		errno = 0;
		*token = strspn(value, "0123456789") > 0 ? strtoll(value, &at, 10) : 0;
		if (*token <= 0 || errno != 0 || *at++ != ' ')
			return "It must be a path, or a token, a blank and a path.";
	}
	fault = is_utf8(at) ? zkl_path_fault(at) : NOT_UTF8;
	if (fault == NULL)
		strlcpy(path, at, ZKL_PATH_SIZE);
	return fault;
}

/*
 * A stored value that is not valid lets no transaction commit that has
 * written.  Whether the path is in use as a semaphore may change, so the first
 * statement that writes looks.
 */
static bool
check_commit_under(char **newval, void **extra, GucSource source)
{
	const char *fault = NULL;
	char		path[ZKL_PATH_SIZE];
	int64		token;

	if ((*newval)[0] == '\0')
		return true;
	fault = zkl_settings_read_under(*newval, &token, path);
	return is_valid_or_stored("zklock.commit_under", *newval, fault, source);
}

static void
assign_commit_under(const char *newval, void *extra)
{
	zkl_commit_under_serial++;
}

/*
 * The chroot is part of the path of every lock that is held, so it cannot
 * change while the server runs.
 */
static bool
check_hosts(char **newval, void **extra, GucSource source)
{
	if (!is_valid(zkl_hosts_fault(*newval)))
		return false;

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

/* Unlike the chroot, the root may not be empty: it is at least "/". */
static bool
check_root(char **newval, void **extra, GucSource source)
{
	return is_valid((*newval)[0] == '\0' ? "The path is empty." :
					zkl_path_root_fault(*newval));
}

/*
 * A longer name would cut off what znodes say about a backend.  Databases of
 * any encoding show it, and so do other servers.
 */
static bool
check_node_name(char **newval, void **extra, GucSource source)
{
	int			length = strlen(*newval);

	if (length >= ZKL_NODE_NAME_SIZE)
		GUC_check_errdetail("The name has %d bytes; the limit is %d.",
							length, ZKL_NODE_NAME_SIZE - 1);
	else if (!is_utf8(*newval))
		GUC_check_errdetail("The name is not valid UTF-8.");
	else
		return true;
	return false;
}

/* PostgreSQL checks one range only, and -1 is outside of the valid range. */
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
