/*-------------------------------------------------------------------------
 *
 * sessionbatch.c
 *	  Several creates or deletes as one ZooKeeper transaction.
 *
 * ZooKeeper does all of a BATCH or nothing.  A batch becomes one event for each
 * of its operations: all OK, all UNKNOWN, or all UNDONE.
 *
 * The client does not return the czxids of what a transaction creates.  So a
 * batch of creates begins with a write to another znode, its STAMP: all of
 * a transaction has one zxid, so the stamp's mzxid is the creates' czxid.
 *
 * The transaction must not create a container: the client then takes the answer
 * for another one, and aborts or returns garbage.  So directories are
 * created by requests of their own, before the transaction.
 *
 * src/zookeeper/sessionbatch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "faultpoint.h"
#include "settings.h"
#include "zookeeper/sessionint.h"

typedef struct Operation
{
	ZklSessionTag tag;
	char		created[ZKL_SESSION_PATH_SIZE];
} Operation;

/*
 * The client writes to the results, to "created" and to the stamp's Stat until
 * it completes the batch, which it also does when the handle is closed.  Then
 * the batch is freed.
 */
typedef struct Batch
{
	ZklTraffic	traffic;		/* of each operation */
	bool		is_stamped;
	int64		sent_at;
	int64		provable;		/* by a write at sent_at */
	struct Stat stamp;
	zoo_op_result_t results[ZKL_SESSION_BATCH_SIZE + 1];
	int			noperations;
	Operation	operations[FLEXIBLE_ARRAY_MEMBER];
} Batch;

static Batch *begin_batch(const ZklSessionOperation *operations,
						  int noperations, bool is_stamped);
static void offer_directory(const char *path);
static void on_offered(int rc, const char *path, const void *data);
static void on_batch(int rc, const void *data);
static int	find_failure(const Batch *batch);
static void note_failure(const Batch *batch, int failed, int i,
						 ZklSessionEvent *event);
static void note_created(const Batch *batch, int i, ZklSessionEvent *event);
static ZklOutcome outcome_of(int rc);

void
zkl_session_batch(const ZklSessionOperation *operations, int noperations,
				  const char *stamp)
{
	Batch	   *batch = begin_batch(operations, noperations, stamp != NULL);
	zoo_op_t	ops[ZKL_SESSION_BATCH_SIZE + 1];
	zoo_op_t   *op = ops;
	int			rc;

	if (stamp != NULL)
		zoo_set_op_init(op++, stamp, "", 0, -1, &batch->stamp);
	for (int i = 0; i < noperations; i++, op++)
	{
		const ZklSessionOperation *operation = &operations[i];

		if (operation->parents != ZKL_PARENTS_NONE)
			offer_directory(operation->path);
		if (operation->data == NULL)
			zoo_delete_op_init(op, operation->path, -1);
		else
			zoo_create_op_init(op, operation->path, operation->data,
							   strlen(operation->data), zkl_session_acl(),
							   ZOO_EPHEMERAL_SEQUENTIAL,
							   batch->operations[i].created,
							   sizeof(batch->operations[i].created));
		zkl_session_count_sent(batch->traffic);
	}
	ZKL_FAULT_POINT("batch-begun");
	rc = zoo_amulti(zkl_session_state.handle, op - ops, ops, batch->results,
					on_batch, batch);
	/* The client took nothing, so no completion will come. */
	if (rc != ZOK)
		on_batch(rc, batch);
	ZKL_FAULT_POINT("batch-sent");
}

void
zkl_session_send_alone(const ZklSessionOperation *operation)
{
	if (operation->data == NULL)
		zkl_session_delete(operation->tag, operation->path);
	else
		zkl_session_create(operation->tag, operation->path, operation->data,
						   strlen(operation->data), ZKL_CREATE_TICKET,
						   operation->parents);
}

static Batch *
begin_batch(const ZklSessionOperation *operations, int noperations,
			bool is_stamped)
{
	Batch	   *batch = zkl_session_allocate(offsetof(Batch, operations) +
											 noperations * sizeof(Operation));

	Assert(noperations > 0 && noperations <= ZKL_SESSION_BATCH_SIZE);
	batch->traffic = operations[0].data != NULL ? ZKL_TRAFFIC_CREATE : ZKL_TRAFFIC_DELETE;
	batch->is_stamped = is_stamped;
	batch->sent_at = zkl_now();
	batch->provable = zkl_session_state.provable;
	batch->noperations = noperations;
	for (int i = 0; i < noperations; i++)
		batch->operations[i].tag = operations[i].tag;
	return batch;
}

/* Make the nearest directory above the path in case it is missing. */
static void
offer_directory(const char *path)
{
	char		directory[ZKL_SESSION_PATH_SIZE];

	strlcpy(directory, path, Min(sizeof(directory), strrchr(path, '/') - path + 1));
	if (zoo_acreate(zkl_session_state.handle, directory, "", 0,
					zkl_session_acl(), ZOO_CONTAINER, on_offered, NULL) == ZOK)
		zkl_session_count_sent(ZKL_TRAFFIC_CREATE);
}

/* If the directory is still missing, the batch says so. */
static void
on_offered(int rc, const char *path, const void *data)
{
	zkl_session_state.outstanding--;
}

/*
 * Only if ZooKeeper has answered do the results tell what made the batch fail.
 */
static void
on_batch(int rc, const void *data)
{
	Batch	   *batch = unconstify(void *, data);
	ZklOutcome	outcome = outcome_of(rc);
	int			failed = 0;

	ZKL_FAULT_POINT("batch-answered");
	zkl_session_state.outstanding -= batch->noperations;
	if (outcome != ZKL_OUTCOME_UNKNOWN)
		zkl_session_state.on_answered(zkl_now() - batch->sent_at);
	if (outcome != ZKL_OUTCOME_UNKNOWN && outcome != ZKL_OUTCOME_OK)
	{
		outcome = ZKL_OUTCOME_UNDONE;
		failed = find_failure(batch);
	}
	for (int i = 0; i < batch->noperations; i++)
	{
		/* The transaction was one write. */
		ZklSessionEvent *event = zkl_session_append_reply(&batch->operations[i].tag, outcome,
														  i == 0, batch->provable);

		if (outcome == ZKL_OUTCOME_UNDONE)
			note_failure(batch, failed, i, event);
		else if (outcome == ZKL_OUTCOME_OK && batch->is_stamped)
			note_created(batch, i, event);
	}
	free(batch);
}

/*
 * The operation that made the transaction fail.  Results before it are ZOK,
 * and results behind it say that the operation was not tried.  -1: the write
 * to the stamp failed; or ZooKeeper has refused the whole transaction, and
 * the client gives each operation the same code.
 */
static int
find_failure(const Batch *batch)
{
	int			n = batch->is_stamped + batch->noperations;

	if (batch->results[0].err != ZOK &&
		batch->results[0].err == batch->results[n - 1].err)
		return -1;
	for (int i = 0; i < n; i++)
	{
		if (batch->results[i].err != ZOK &&
			batch->results[i].err != ZRUNTIMEINCONSISTENCY)
			return i - batch->is_stamped;
	}
	return -1;
}

static void
note_failure(const Batch *batch, int failed, int i, ZklSessionEvent *event)
{
	if (failed == i)
		event->cause = outcome_of(batch->results[batch->is_stamped + i].err);
	if (failed >= 0)
		return;
	event->stamp = batch->is_stamped && batch->results[0].err == ZNONODE ?
		ZKL_OUTCOME_ABSENT : ZKL_OUTCOME_REFUSED;
	/* A server may have refused the transaction without a quorum. */
	event->writes = false;
}

static void
note_created(const Batch *batch, int i, ZklSessionEvent *event)
{
	const char *slash = strrchr(batch->operations[i].created, '/');

	/* Fail as the client itself does at an answer that it does not expect. */
	if (slash == NULL)
		abort();
	event->reply.name = zkl_session_copy(slash + 1);
	event->reply.czxid = batch->stamp.mzxid;
	/* The connection is the session's own, so the session owns the znodes. */
	event->reply.ours = true;
	event->ctime_ms = batch->stamp.mtime;
}

static ZklOutcome
outcome_of(int rc)
{
	ZklFailure	failure;

	return zkl_session_outcome_of(rc, &failure);
}
