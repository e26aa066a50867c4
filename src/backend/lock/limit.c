/*-------------------------------------------------------------------------
 *
 * limit.c
 *	  The number of leases that is stored for a semaphore in ZooKeeper.
 *
 * It is in a znode beside the directories of the semaphore's leases, as
 * Curator's SharedCount writes it.  Here a backend reads and writes it; the
 * worker reads it before each list that grants leases (tickets.c).
 *
 * src/backend/lock/limit.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "backend/display.h"
#include "backend/lock/limit.h"
#include "backend/lock/sqlargs.h"
#include "backend/report.h"
#include "backend/znodes.h"

PG_FUNCTION_INFO_V1(zklock_semaphore_limit);
PG_FUNCTION_INFO_V1(zklock_semaphore_set_limit);

/* There must be room for what is added to a semaphore's path. */
#define PATH_MAX_LENGTH	(ZKL_PATH_SIZE - 24)

/* So many bytes of a spoilt limit are shown. */
#define SHOWN_BYTES		16

static const ZklListingNode *find(const ZklListing *survey);
static int	read_limit(const char *path, const ZklListingNode *node);
static void report_spoilt(const char *path, const ZklListingNode *node);

/* Null if there is none. */
Datum
zklock_semaphore_limit(PG_FUNCTION_ARGS)
{
	const char *path;
	int			limit;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	limit = read_limit(path, find(zkl_znodes_survey(path, ZKL_ZNODES_NAMES,
													ZKL_FOREVER)));
	if (limit == ZKL_LIMIT_NONE)
		PG_RETURN_NULL();
	PG_RETURN_INT32(limit);
}

/* This also mends a limit that another client has spoilt. */
Datum
zklock_semaphore_set_limit(PG_FUNCTION_ARGS)
{
	const char *path;

	zkl_report_unless_loaded();
	path = zkl_sqlargs_path(fcinfo);
	zkl_limit_check_path(path);
	if (PG_ARGISNULL(1))
	{
		(void) zkl_znodes_delete(path, ZKL_LIMIT);
		PG_RETURN_VOID();
	}
	if (PG_GETARG_INT32(1) < 0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("limit of a semaphore must not be negative"));
	while (!zkl_znodes_write_limit(path, PG_GETARG_INT32(1)))
		CHECK_FOR_INTERRUPTS();
	PG_RETURN_VOID();
}

void
zkl_limit_check_path(const char *path)
{
	if (strlen(path) > PATH_MAX_LENGTH)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid lock path: \"%s\"", zkl_display_path(path)),
				errdetail("The path of a semaphore must not be longer than %d bytes.",
						  PATH_MAX_LENGTH));
}

/*
 * A request that names a number needs no stored limit, so data that are none do not
 * matter to it: the znode may be the directory of another lock.
 */
bool
zkl_limit_check(const ZklListing *survey, const ZklLockRequest *request)
{
	const ZklListingNode *node = find(survey);
	int			limit;

	limit = request->limit == 0 ? read_limit(request->path, node) :
		node != NULL && node->data != NULL ?
		zkl_recipe_read_limit(node->data, node->data_length) : ZKL_LIMIT_NONE;

	if (limit == ZKL_LIMIT_NONE && request->limit == 0)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("semaphore \"%s\" has no limit", zkl_display_path(request->path)),
				errhint("Store a limit with zk_semaphore_set_limit(), or pass the number of leases."));
	if (limit != ZKL_LIMIT_NONE && request->limit != 0 && limit != request->limit)
		ereport(ERROR,
				errcode(ERRCODE_ZKL_OTHER_KIND),
				errmsg("semaphore \"%s\" has a limit of %d leases, not %d",
					   zkl_display_path(request->path), limit, request->limit),
				errhint("Acquire leases without a number of leases, or change the limit with zk_semaphore_set_limit()."));
	return limit != ZKL_LIMIT_NONE;
}

/* The znode that holds the limit; NULL: there is none. */
static const ZklListingNode *
find(const ZklListing *survey)
{
	for (int i = 0; i < survey->nnodes; i++)
	{
		if (survey->nodes[i].where == ZKL_WHERE_LOCK &&
			strcmp(survey->nodes[i].name, ZKL_LIMIT) == 0)
			return &survey->nodes[i];
	}
	return NULL;
}

/* ZKL_LIMIT_NONE if there is none.  The directory of another lock is empty. */
static int
read_limit(const char *path, const ZklListingNode *node)
{
	int			limit;

	if (node == NULL)
		return ZKL_LIMIT_NONE;
	if (node->data == NULL)
		zkl_report_failure(path, ZKL_FAILURE_PERMISSION);
	limit = zkl_recipe_read_limit(node->data, node->data_length);
	if (limit == ZKL_LIMIT_NONE && node->data_length > 0)
		report_spoilt(path, node);
	return limit;
}

static void
report_spoilt(const char *path, const ZklListingNode *node)
{
	int			length = Min(node->data_length, SHOWN_BYTES);
	char	   *shown = palloc0(2 * SHOWN_BYTES + 1);

	hex_encode(node->data, length, shown);
	ereport(ERROR,
			errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("invalid limit of semaphore \"%s\"", zkl_display_path(path)),
			errdetail("Its znode holds \"\\x%s\"%s instead of a number of four bytes.",
					  shown, length < node->data_length ? "..." : ""),
			errhint("Store a limit with zk_semaphore_set_limit()."));
}
