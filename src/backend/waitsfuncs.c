/*-------------------------------------------------------------------------
 *
 * waitsfuncs.c
 *	  The function behind the view zk_waits.
 *
 * src/backend/waitsfuncs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backend/permission.h"
#include "backend/report.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"
#include "protocol/waitrecord.h"

PG_FUNCTION_INFO_V1(zklock_waits);

enum
{
	COLUMN_PATH,
	COLUMN_MODE,
	COLUMN_LEASES,
	COLUMN_BACKEND,				/* and the four after it */
	COLUMN_SINCE = COLUMN_BACKEND + 5,
	COLUMN_HOLDS,
	COLUMN_HELD_BY,
	NCOLUMNS
};

static void put_set(ReturnSetInfo *rsinfo, const ZklWaitSet *set);
static void put_record(ReturnSetInfo *rsinfo, const ZklWaitSet *set,
					   const ZklWaitRecord *record);
static void put_details(Datum *values, bool *nulls, const ZklWaitSet *set,
						const ZklWaitRecord *record);

/* A znode without records of zklock is left out. */
Datum
zklock_waits(PG_FUNCTION_ARGS)
{
	ZklSnapshot *survey;
	ZklWaitSet *set = palloc(sizeof(ZklWaitSet));

	zkl_report_unless_loaded();
	survey = zkl_znodes_waits();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < survey->nnodes; i++)
	{
		const ZklSnapshotNode *node = &survey->nodes[i];
		char	   *text;

		if (node->data == NULL)
			continue;

		/* The parser changes the text, and needs the null behind it. */
		text = pnstrdup(node->data, node->data_length);

		if (strlen(text) == node->data_length &&
			zkl_wait_record_parse(text, node->data_length, set))
			put_set((ReturnSetInfo *) fcinfo->resultinfo, set);
	}
	return (Datum) 0;
}

static void
put_set(ReturnSetInfo *rsinfo, const ZklWaitSet *set)
{
	for (int i = 0; i < set->nrecords; i++)
	{
		if (zkl_permission_allows(set->records[i].path))
			put_record(rsinfo, set, &set->records[i]);
	}
}

/*
 * As in pg_stat_activity, any role sees that a backend waits.  What it holds
 * meanwhile, and since when it waits, is for those that may see statistics.
 */
static void
put_record(ReturnSetInfo *rsinfo, const ZklWaitSet *set,
		   const ZklWaitRecord *record)
{
	Datum		values[NCOLUMNS] = {0};
	bool		nulls[NCOLUMNS];

	memset(nulls, true, sizeof(nulls));
	values[COLUMN_PATH] = CStringGetTextDatum(zkl_znode_text_show(record->path));
	values[COLUMN_MODE] = CStringGetTextDatum(zkl_wait_record_mode_name(record->mode));
	values[COLUMN_LEASES] = Int32GetDatum(record->leases);
	nulls[COLUMN_PATH] = nulls[COLUMN_MODE] = false;
	nulls[COLUMN_LEASES] = record->mode != ZKL_MODE_LEASE;
	(void) zkl_znode_text_put(values + COLUMN_BACKEND, nulls + COLUMN_BACKEND,
							  record->about);
	if (zkl_permission_may_see(InvalidOid))
		put_details(values, nulls, set, record);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
put_details(Datum *values, bool *nulls, const ZklWaitSet *set,
			const ZklWaitRecord *record)
{
	Datum	   *paths = palloc(sizeof(Datum) * (record->nholds + 1));
	Datum	   *pids = palloc(sizeof(Datum) * (record->nholds + 1));
	int			nholds = 0;
	TimestampTz since = record->since - ZKL_JOB_EPOCH;

	for (int i = 0; i < record->nholds; i++)
	{
		const ZklWaitHold *hold = &set->holds[record->first_hold + i];

		if (!zkl_permission_allows(hold->path))
			continue;
		paths[nholds] = CStringGetTextDatum(zkl_znode_text_show(hold->path));
		pids[nholds++] = Int32GetDatum(hold->pid);
	}
	values[COLUMN_HOLDS] = PointerGetDatum(construct_array(paths, nholds,
														   TEXTOID, -1, false,
														   TYPALIGN_INT));
	values[COLUMN_HELD_BY] = PointerGetDatum(construct_array(pids, nholds,
															 INT4OID, 4, true,
															 TYPALIGN_INT));
	nulls[COLUMN_HOLDS] = nulls[COLUMN_HELD_BY] = false;
	values[COLUMN_SINCE] = TimestampTzGetDatum(since);
	nulls[COLUMN_SINCE] = record->since < 0 || !IS_VALID_TIMESTAMP(since);
}
