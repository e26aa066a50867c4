/*-------------------------------------------------------------------------
 *
 * permission.c
 *	  What this session may use and see.
 *
 * Locks are shared by all databases of a server, and exist on standbys.  So
 * permissions are settings of PostgreSQL and not rows of a table: the
 * settings of roles and databases are in shared catalogs.
 *
 * The errors name the path and the setting, and reveal nothing about other
 * sessions.
 *
 * src/backend/lock/permission.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "backend/display.h"
#include "backend/lock/permission.h"
#include "compat.h"
#include "protocol/path.h"
#include "settings.h"

bool
zkl_permission_allows(const char *path)
{
	/* With the default, a call costs no more than this test. */
	return zkl_permission_allows_all() ||
		zkl_path_list_allows(zkl_allowed_paths, path);
}

bool
zkl_permission_allows_all(void)
{
	/* If zklock was not preloaded, there are no locks and no settings. */
	return zkl_allowed_paths == NULL ||
		strcmp(zkl_allowed_paths, ZKL_PATH_LIST_ALL) == 0;
}

/*
 * A list in the configuration file says what sessions may acquire.  It does
 * not hide from an administrator what they do.
 */
bool
zkl_permission_shows_all(void)
{
	return zkl_permission_allows_all() ||
		(zkl_allowed_paths_of_server &&
		 has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS));
}

bool
zkl_permission_shows(const char *path)
{
	return zkl_permission_allows(path) || zkl_permission_shows_all();
}

void
zkl_permission_check_shown(const char *path)
{
	if (!zkl_permission_shows_all())
		zkl_permission_check_path(path);
}

/*
 * superuser() decides only about taking a lock away.  If it decided about
 * acquiring one, a SECURITY DEFINER function of a superuser would open each
 * path to its callers.
 */
void
zkl_permission_check_taken(const char *path)
{
	if (!zkl_allowed_paths_of_server || !superuser())
		zkl_permission_check_path(path);
}

void
zkl_permission_check_path(const char *path)
{
	if (!zkl_permission_allows(path))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for lock \"%s\"",
					   zkl_display_path(path)),
				errdetail("\"zklock.allowed_paths\" does not allow this path."));
}

/*
 * The directory of a lock below a leadership is in the leadership's directory.
 * A role that makes very many such locks would keep all servers from listing
 * the leadership's directory.
 */
void
zkl_permission_check_claim(const char *path)
{
	const char *at = zkl_commit_requires;
	char		leader[ZKL_SETTINGS_LEADER_SIZE];

	while (zkl_settings_next_leader(&at, leader))
	{
		size_t		length = strlen(leader);

		if (length > 0 && strncmp(path, leader, length) == 0 &&
			(path[length] == '\0' || path[length] == '/'))
			ereport(ERROR,
					errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("permission denied for lock \"%s\"",
						   zkl_display_path(path)),
					path[length] == '\0' ?
					errdetail("\"zklock.commit_requires\" names this path: only servers acquire it.") :
					errdetail("It is below \"%s\", which \"zklock.commit_requires\" names.",
							  zkl_display_path(leader)));
	}
}

void
zkl_permission_check_resource(const char *resource)
{
	if (!zkl_permission_allows(resource))
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied for resource \"%s\"",
					   zkl_display_path(resource)),
				errdetail("\"zklock.allowed_paths\" does not allow it."));
}

void
zkl_permission_check_level(ZklScope scope)
{
	if (scope == ZKL_SCOPE_SESSION && !zkl_session_level)
		ereport(ERROR,
				errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				errmsg("permission denied to acquire a session-level lock"),
				errdetail("\"zklock.session_level\" is off."),
				errhint("Use a function whose name begins with \"zk_xact_\"."));
}

void
zkl_permission_check_older(Oid called, const char *older, int nargs,
						   const Oid *types)
{
	Oid			function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
										   CStringGetDatum(older),
										   PointerGetDatum(buildoidvector(types, nargs)),
										   ObjectIdGetDatum(get_func_namespace(called)));

	if (!OidIsValid(function) ||
		zkl_function_aclcheck(function, GetUserId()) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, older);
}

bool
zkl_permission_may_see(Oid role)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		(OidIsValid(role) && has_privs_of_role(GetUserId(), role));
}
