/*-------------------------------------------------------------------------
 *
 * waitfuncs.c
 *	  The function about the waits that servers have published.
 *
 * src/deadlock/waitfuncs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "backend/lock/permission.h"
#include "backend/row.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"
#include "deadlock/waitrecord.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(zklock_waits);

static void put_waits(ReturnSetInfo *rsinfo, const ZklWaitSet *set);
static void put_wait(ReturnSetInfo *rsinfo, const ZklWaitSet *set,
					 const ZklWaitRecord *record);
static void add_details(ZklRow *row, const ZklWaitSet *set,
						const ZklWaitRecord *record);

/* Leave out znodes that have no records of zklock. */
Datum
zklock_waits(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = zkl_row_begin_set(fcinfo);
	ZklListing *survey = zkl_znodes_list(ZKL_COMMAND_WAITS, ZKL_PATH_WAITS, ZKL_FOREVER, ZKL_PATIENCE_LOOK);
	ZklWaitSet *set = palloc(sizeof(ZklWaitSet));

	for (int i = 0; i < survey->nnodes; i++)
	{
		const ZklListingNode *node = &survey->nodes[i];
		char	   *text;

		if (node->data == NULL)
			continue;

		/* The parser changes the text, and needs a null behind it. */
		text = pnstrdup(node->data, node->data_length);

		if (strlen(text) == node->data_length &&
			zkl_wait_record_parse(text, node->data_length, set))
			put_waits(rsinfo, set);
	}
	return (Datum) 0;
}

static void
put_waits(ReturnSetInfo *rsinfo, const ZklWaitSet *set)
{
	for (int i = 0; i < set->nrecords; i++)
	{
		if (zkl_permission_shows(set->records[i].path))
			put_wait(rsinfo, set, &set->records[i]);
	}
}

/*
 * As in pg_stat_activity, any role sees that a backend waits.  Only roles
 * that may see statistics see what the backend holds meanwhile, and since
 * when it waits.
 */
static void
put_wait(ReturnSetInfo *rsinfo, const ZklWaitSet *set,
		 const ZklWaitRecord *record)
{
	ZklRow		row = {0};

	zkl_row_add_text(&row, zkl_znode_text_show(record->path));
	zkl_row_add_text(&row, zkl_recipe_mode_name(record->mode));
	zkl_row_add_if(&row, record->mode == ZKL_MODE_LEASE, Int32GetDatum(record->leases));
	(void) zkl_znode_text_add(&row, record->owner_text);
	if (zkl_permission_may_see(InvalidOid))
		add_details(&row, set, record);
	else
		zkl_row_add_nulls(&row, 3);
	zkl_row_put(rsinfo, &row);
}

/*
 * Add the start of the wait, the paths that it holds up, and the processes
 * that hold them.
 */
static void
add_details(ZklRow *row, const ZklWaitSet *set, const ZklWaitRecord *record)
{
	Datum	   *paths = palloc(sizeof(Datum) * (record->nholds + 1));
	Datum	   *pids = palloc(sizeof(Datum) * (record->nholds + 1));
	int			nholds = 0;

	for (int i = 0; i < record->nholds; i++)
	{
		const ZklWaitHold *hold = &set->holds[record->first_hold + i];

		if (!zkl_permission_shows(hold->path))
			continue;
		paths[nholds] = CStringGetTextDatum(zkl_znode_text_show(hold->path));
		pids[nholds++] = Int32GetDatum(hold->pid);
	}
	zkl_row_add_time_if(row, record->since >= 0, record->since);
	zkl_row_add(row, PointerGetDatum(construct_array(paths, nholds, TEXTOID, -1,
													 false, TYPALIGN_INT)));
	zkl_row_add(row, PointerGetDatum(construct_array(pids, nholds, INT4OID, 4,
													 true, TYPALIGN_INT)));
}
