/*-------------------------------------------------------------------------
 *
 * batches.c
 *	  Creates, and deletes, of tickets that go out as one transaction.
 *
 * If one operation fails, ZooKeeper does none of them.  Then each of the
 * tickets sends its request again, alone.  So that failures are rare,
 * sendqueue.c adds only what will probably succeed.
 *
 * A batch of creates writes to a znode of the session, the STAMP: see
 * sessionbatch.c.  The worker makes the stamp when one is needed first.  Until
 * then, what would be a batch goes out as single requests.
 *
 * src/worker/request/batches.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "protocol/sessiontext.h"
#include "protocol/window.h"
#include "settings.h"
#include "shared/serverstat.h"
#include "worker/request/ask.h"
#include "worker/request/batches.h"

/*
 * Batches of each kind.  ZooKeeper processes the second one while it answers
 * the first.
 */
#define ON_THE_WAY		2

/* ZooKeeper refuses what is larger than its jute.maxbuffer, by default a megabyte. */
#define BATCH_BYTES		65536
#define OPERATION_BYTES	128		/* of an operation, besides its texts */

#define STAMPS			"/" ZKL_PATH_RESERVED "/batches"

typedef struct Batch
{
	int			on_the_way;		/* batches, or the single requests in their
								 * place */
	int			noperations;
	int			nrequests;		/* including directories and lists */
	int			bytes;
	ZklEntry   *entries[ZKL_SESSION_BATCH_SIZE];
	ZklSessionOperation operations[ZKL_SESSION_BATCH_SIZE];
} Batch;

static Batch creates;
static Batch deletes;

static struct
{
	char		directory[ZKL_ROOT_SIZE + sizeof(STAMPS)];
	ZklAsker	asker;			/* has one ask at most */
	int64		asked_for;		/* the session for which a stamp was last
								 * requested */
	int64		made_for;		/* the session for which there is a stamp */
	int64		refused_for;	/* the session that has no batches; 0: none */
}			stamp;

static Batch *batch_of(ZklRequest request);
static int	bytes_of(const ZklSessionOperation *operation);
static void send_batch(Batch *batch);
static void send_lists(const Batch *batch);
static const char *stamp_path(void);
static void make_stamp(void);
static void on_made(ZklAsker *asker, int what, int64 number,
					const ZklSessionEvent *answer);
static void give_up(void);

void
zkl_batches_start(const char *prefix)
{
	stamp.asker.answered = on_made;
	snprintf(stamp.directory, sizeof(stamp.directory), "%s" STAMPS, prefix);
}

bool
zkl_batches_are_allowed(void)
{
	return stamp.refused_for == 0 ||
		stamp.refused_for != zkl_session_info->id;
}

static Batch *
batch_of(ZklRequest request)
{
	return request == ZKL_REQUEST_DELETE ? &deletes : &creates;
}

bool
zkl_batches_are_open(ZklRequest request)
{
	return batch_of(request)->on_the_way < ON_THE_WAY;
}

/* The bytes that an operation adds to the request, or a little more. */
static int
bytes_of(const ZklSessionOperation *operation)
{
	int			bytes = OPERATION_BYTES + strlen(operation->path);

	if (operation->data != NULL)
		bytes += strlen(operation->data) + strlen(zkl_acl);
	return bytes;
}

void
zkl_batches_add(ZklEntry *entry, ZklSessionOperation operation)
{
	Batch	   *batch = batch_of(operation.tag.request);
	int			bytes = bytes_of(&operation);

	if (batch->noperations > 0 && batch->bytes + bytes > BATCH_BYTES)
		send_batch(batch);
	batch->entries[batch->noperations] = entry;
	batch->operations[batch->noperations] = operation;
	batch->noperations++;
	batch->bytes += bytes;
	batch->nrequests += 1 + (operation.parents != ZKL_PARENTS_NONE) +
		(operation.tag.request == ZKL_REQUEST_CREATE);
	if (batch->noperations == ZKL_SESSION_BATCH_SIZE)
		send_batch(batch);
}

int
zkl_batches_added(void)
{
	return creates.nrequests + deletes.nrequests;
}

/* Deletes go first: other clients wait for those znodes to go. */
void
zkl_batches_send(void)
{
	send_batch(&deletes);
	send_batch(&creates);
}

static void
send_batch(Batch *batch)
{
	int			n = batch->noperations;
	const char *path = batch == &creates && n > 1 ? stamp_path() : NULL;

	if (n == 0)
		return;
	batch->operations[n - 1].tag.ends_batch = true;
	batch->on_the_way++;
	if (n > 1 && (batch == &deletes || path != NULL))
	{
		/*
		 * For the window of the roles, a batch is timed like one create.  A
		 * large one takes long even if ZooKeeper is not busy.
		 */
		for (int i = n > ZKL_WINDOW_MAX ? 0 : 1; i < n; i++)
			batch->entries[i]->sending.create_at = 0;
		zkl_session_batch(batch->operations, n, path);
		pg_atomic_fetch_add_u64(&zkl_server_stat->batches, 1);
	}
	else
	{
		for (int i = 0; i < n; i++)
			zkl_session_send_alone(&batch->operations[i]);
	}
	send_lists(batch);
	batch->noperations = batch->nrequests = batch->bytes = 0;
}

/*
 * The lists go behind the creates, in the same packet.  If the batch fails,
 * the ticket sends its create again when its list is answered.
 */
static void
send_lists(const Batch *batch)
{
	for (int i = 0; i < batch->noperations; i++)
	{
		const char *path = batch->operations[i].path;
		ZklSessionTag tag = batch->operations[i].tag;

		if (tag.request != ZKL_REQUEST_CREATE)
			continue;
		tag.request = ZKL_REQUEST_LIST;
		tag.ends_batch = false;
		zkl_session_children(tag, pnstrdup(path, strrchr(path, '/') - path), true);
	}
}

/*
 * Answers
 */

void
zkl_batches_answered(const ZklSessionEvent *event)
{
	Batch	   *batch = batch_of(event->reply.request);

	Assert(event->ends_batch && batch->on_the_way > 0);
	batch->on_the_way--;
	if (event->reply.outcome == ZKL_OUTCOME_UNDONE)
		pg_atomic_fetch_add_u64(&zkl_server_stat->batches_undone, 1);

	/* Another client has deleted the stamp, or ZooKeeper refuses the write. */
	if (event->stamp == ZKL_OUTCOME_ABSENT)
		stamp.made_for = 0;
	else if (event->stamp == ZKL_OUTCOME_REFUSED)
		give_up();
}

/*
 * The stamp
 */

/*
 * The path of the stamp, in the memory of the worker's turn; NULL: there is
 * none yet.
 */
static const char *
stamp_path(void)
{
	char		name[ZKL_SESSION_TEXT_NAME_SIZE];

	/*
	 * Operations that were added before batches were refused still come here.
	 */
	if (!zkl_batches_are_allowed())
		return NULL;
	if (stamp.made_for == 0 || stamp.made_for != zkl_session_info->id)
	{
		make_stamp();
		return NULL;
	}
	zkl_session_text_name(stamp.made_for, name);
	return psprintf("%s/%s", stamp.directory, name);
}

static void
make_stamp(void)
{
	char		name[ZKL_SESSION_TEXT_NAME_SIZE];

	if (stamp.asker.outstanding > 0)
		return;
	stamp.asked_for = zkl_session_info->id;
	zkl_session_text_name(stamp.asked_for, name);
	zkl_ask_create(&stamp.asker, 0, psprintf("%s/%s", stamp.directory, name), "",
				   ZKL_CREATE_EPHEMERAL);
}

/*
 * CHANGED: an earlier worker of this session has made the stamp.  After any
 * outcome but REFUSED, the next batch tries again.
 */
static void
on_made(ZklAsker *asker, int what, int64 number,
		const ZklSessionEvent *answer)
{
	if (answer->reply.outcome == ZKL_OUTCOME_OK ||
		answer->reply.outcome == ZKL_OUTCOME_CHANGED)
		stamp.made_for = stamp.asked_for;
	else if (answer->reply.outcome == ZKL_OUTCOME_REFUSED &&
			 stamp.asked_for == zkl_session_info->id)
		give_up();
}

static void
give_up(void)
{
	if (zkl_batches_are_allowed())
		ereport(LOG,
				errmsg("ZooKeeper creates and deletes the znodes of locks one by one"),
				errdetail("ZooKeeper refused a znode in \"%s\", or a transaction that writes to it.",
						  stamp.directory));
	stamp.refused_for = zkl_session_info->id;
}
