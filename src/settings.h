/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The settings, the name of this server, and the clock.
 *
 * Any process calls these functions.  After _PG_init, only
 * zkl_settings_report_invalid raises an error.
 *
 * src/settings.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SETTINGS_H
#define ZKL_SETTINGS_H

#include <time.h>

#include "datatype/timestamp.h"

#include "protocol/access.h"
#include "protocol/path.h"

/* The greatest number of paths in zklock.leader_of. */
#define ZKL_LEADERS_MAX		64

/* What happens to a PostgreSQL session whose lock is lost. */
typedef enum ZklOnLost
{
	ZKL_ON_LOST_CANCEL,
	ZKL_ON_LOST_TERMINATE,
	ZKL_ON_LOST_NOTICE
} ZklOnLost;

/* What happens to a PostgreSQL session that writes without the leadership. */
typedef enum ZklNotLeading
{
	ZKL_NOT_LEADING_ERROR,
	ZKL_NOT_LEADING_TERMINATE
}			ZklNotLeading;

/* All times are in milliseconds. */
extern char *zkl_hosts;
extern char *zkl_root;
extern char *zkl_node_name;
extern int	zkl_session_timeout;
extern int	zkl_connection_timeout;
extern int	zkl_max_locks;
extern int	zkl_max_locks_per_backend;
extern int	zkl_max_jobs;
extern int	zkl_stat_locks;
extern int	zkl_tenure;
extern int	zkl_linger;
extern int	zkl_commit_margin;
extern bool zkl_synchronous_release;
extern int	zkl_on_lost;		/* ZklOnLost */
extern bool zkl_deadlock_detection;
extern char *zkl_leader_of;
extern bool zkl_leader_on_standby;
extern char *zkl_commit_requires;
extern uint64 zkl_commit_requires_serial;	/* grows with each change of it */
extern int	zkl_not_leading;	/* ZklNotLeading */
extern char *zkl_commit_under;
extern uint64 zkl_commit_under_serial;	/* grows with each change of it */
extern char *zkl_allowed_paths; /* NULL if zklock was not preloaded */
extern bool zkl_allowed_paths_of_server;	/* not of a role, database,
											 * session or function */
extern bool zkl_session_level;
extern char *zkl_auth_file;
extern char *zkl_acl;
extern ZklAcl zkl_settings_acl; /* the list that zkl_acl names */
extern char *zkl_ssl_ca_file;	/* this and the next two are empty if not in
								 * use */
extern char *zkl_ssl_cert_file;
extern char *zkl_ssl_key_file;

/* TLS to ZooKeeper needs OpenSSL, and what only Linux does; see sessiontls.c. */
#if defined(USE_OPENSSL) && defined(__linux__)
#define ZKL_HAS_TLS
#endif

/*
 * For _PG_init: define all settings, and read their values from the
 * configuration files.
 */
extern void zkl_settings_define(void);

/*
 * The next path in a value of zklock.leader_of or zklock.commit_requires,
 * which is a list with commas; false at the end.  "at" begins as the list and
 * moves on.
 */
#define ZKL_SETTINGS_LEADER_SIZE	(ZKL_PATH_SIZE + 1)
extern bool zkl_settings_next_leader(const char **at,
									 char path[ZKL_SETTINGS_LEADER_SIZE]);

/* Why such a list is not valid, as a sentence; NULL: it is valid. */
extern const char *zkl_settings_leaders_fault(const char *list);

/* Is the path in such a list? */
extern bool zkl_settings_lists_leader(const char *list, const char *path);

/*
 * Report at this level, with 22023, that a stored value of the setting is not
 * valid: "fault" is why, as a sentence.
 */
extern void zkl_settings_report_invalid(int elevel, const char *name,
										const char *value, const char *fault);

/*
 * Read a value of zklock.commit_under that is not empty: a path, which this
 * writes, or a token, a blank and a path.  token: 0 if there is none.  Returns
 * NULL, or a sentence that says what is wrong; then the path is empty.
 */
extern const char *zkl_settings_read_under(const char *value, int64 *token,
										   char path[ZKL_PATH_SIZE]);

/*
 * node_name: the name by which other servers know this one, in UTF-8. host:
 * the name of its host, and its port, as the operating system has them.
 */
#define ZKL_NODE_NAME_SIZE	64	/* with the null */
extern const char *zkl_settings_node_name(void);
extern const char *zkl_settings_host(void);

/*
 * Microseconds on a clock that counts suspended time and cannot be set.  So a
 * server finds its session too old after its machine was suspended.
 */
static inline int64
zkl_now(void)
{
	struct timespec now;

#ifdef CLOCK_BOOTTIME
	clock_gettime(CLOCK_BOOTTIME, &now);
#else
	clock_gettime(CLOCK_MONOTONIC, &now);
#endif
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

#define ZKL_MS(ms)	((int64) (ms) * 1000)	/* milliseconds, in microseconds */
#define ZKL_FOREVER PG_INT64_MAX	/* a moment that never comes */

/* PostgreSQL's epoch, in microseconds since 1970, from which records count. */
#define ZKL_POSTGRES_EPOCH \
	((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

/*
 * No process looks more often than this at the same thing because of a timer.
 * Looks may come sooner at first, but soon become as rare.
 */
#define ZKL_LOOK_INTERVAL	ZKL_MS(100)

/* Milliseconds from now to this moment, as a timeout: rounded up, a minute at most. */
static inline long
zkl_ms_until(int64 moment)
{
	return Min(Max(0, (moment - zkl_now() + 999) / 1000), 60 * 1000);
}

#endif							/* ZKL_SETTINGS_H */
