/*-------------------------------------------------------------------------
 *
 * orphans.c
 *	  Deletes the znodes that lost creates have made late.
 *
 * src/worker/request/orphans.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/shmem.h"

#include "settings.h"
#include "shared/locktable.h"
#include "worker/request/ask.h"
#include "worker/request/orphans.h"

/*
 * When a connection has worked for this long, no create can come late any
 * more.  ZooKeeper's leader drops a server that it has not heard for syncLimit
 * ticks (ten seconds by default), with all that this server had to send.
 */
#define LATE_AT_MOST	ZKL_MS(5 * 60 * 1000)

#define MAX_ROWS		256

/*
 * The rows are in shared memory, because they must outlive the worker.  Only
 * the worker reads and writes them, so they need no lock.
 */
typedef struct Row
{
	int64		noted_at;		/* 0: the row is free */
	char		directory[ZKL_DIR_SIZE];
	char		uuid[ZKL_UUID_SIZE];	/* in the name of the znode */
} Row;

/* The asks of a row, which has one at most. */
enum
{
	LIST,
	DELETE
};

static Row *rows = NULL;
static ZklAsker askers[MAX_ROWS];	/* the askers of the rows with the same
									 * indexes */
static int	nrows = 0;			/* rows that are not free */
static int64 connected_at;

static int	row_to_fill(void);
static void on_answer(ZklAsker *asker, int what, int64 number,
					  const ZklSessionEvent *answer);
static void look_for(int row);
static void on_list(int row, const ZklTicketEvent *reply);
static void on_delete(int row, const ZklTicketEvent *reply);
static void set_free(int row);

Size
zkl_orphans_size(void)
{
	return mul_size(MAX_ROWS, sizeof(Row));
}

void
zkl_orphans_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	rows = memory;
}

void
zkl_orphans_start(void)
{
	for (int i = 0; i < MAX_ROWS; i++)
	{
		askers[i].answered = on_answer;
		nrows += rows[i].noted_at != 0;
	}
}

void
zkl_orphans_note(const char *directory, const char *uuid)
{
	int			row = row_to_fill();

	Assert(strlen(uuid) == ZKL_UUID_SIZE - 1);
	if (rows[row].noted_at != 0)
		ereport(LOG,
				errmsg("the requests of too many lost connections are remembered"),
				errdetail("A znode that ZooKeeper creates late in \"%s\" will not be deleted before the ZooKeeper session ends.",
						  rows[row].directory));
	set_free(row);
	strlcpy(rows[row].directory, directory, sizeof(rows[row].directory));
	strlcpy(rows[row].uuid, uuid, sizeof(rows[row].uuid));
	rows[row].noted_at = zkl_now();
	nrows++;
}

bool
zkl_orphans_may_come(void)
{
	return nrows > 0;
}

/* Choose a free row, or else the oldest. */
static int
row_to_fill(void)
{
	int			oldest = 0;

	for (int i = 0; i < MAX_ROWS; i++)
	{
		if (rows[i].noted_at < rows[oldest].noted_at)
			oldest = i;
	}
	return oldest;
}

void
zkl_orphans_reconnected(void)
{
	connected_at = zkl_now();
	for (int i = 0; i < MAX_ROWS; i++)
	{
		zkl_ask_cancel(&askers[i]);
		if (rows[i].noted_at != 0)
			look_for(i);
	}
}

/* The ask is sent after the barrier of the present connection, or of the next one. */
static void
look_for(int row)
{
	zkl_ask_children(&askers[row], LIST, 0, rows[row].directory, false);
}

/*
 * The znodes have gone with the session, and ZooKeeper creates none for it
 * any more.
 */
void
zkl_orphans_expired(void)
{
	for (int i = 0; i < MAX_ROWS; i++)
		set_free(i);
}

void
zkl_orphans_proved(int64 now)
{
	if (nrows == 0 || now < connected_at + LATE_AT_MOST)
		return;
	for (int i = 0; i < MAX_ROWS; i++)
	{
		if (now > rows[i].noted_at + LATE_AT_MOST)
			set_free(i);
	}
}

static void
on_answer(ZklAsker *asker, int what, int64 number,
		  const ZklSessionEvent *answer)
{
	int			row = asker - askers;

	if (answer->reply.outcome == ZKL_OUTCOME_UNKNOWN)
		look_for(row);
	else if (what == LIST)
		on_list(row, &answer->reply);
	else
		on_delete(row, &answer->reply);
}

/*
 * A list that is too long for the connection would end the next connection,
 * too.
 */
static void
on_list(int row, const ZklTicketEvent *reply)
{
	if (reply->failure == ZKL_FAILURE_TOO_LONG)
	{
		ereport(LOG,
				errmsg("could not look for a znode in \"%s\" that ZooKeeper may have created late: the directory is too large",
					   rows[row].directory),
				errdetail("If there is one, it stays until the ZooKeeper session ends."));
		set_free(row);
		return;
	}
	for (int i = 0; i < reply->nchildren; i++)
	{
		if (strstr(reply->children[i], rows[row].uuid) == NULL)
			continue;
		zkl_ask_delete(&askers[row], DELETE,
					   psprintf("%s/%s", rows[row].directory, reply->children[i]));
		return;
	}
}

/* A create is done at most once, so the row is no longer needed. */
static void
on_delete(int row, const ZklTicketEvent *reply)
{
	if (reply->outcome == ZKL_OUTCOME_REFUSED)
		ereport(LOG,
				errmsg("could not delete a znode in \"%s\" that ZooKeeper has created late: it stays until the ZooKeeper session ends",
					   rows[row].directory));
	else if (reply->outcome == ZKL_OUTCOME_OK)
		ereport(LOG,
				errmsg("deleted a znode in \"%s\" that ZooKeeper has created late",
					   rows[row].directory),
				errdetail("The request came by a connection that was lost before."));
	set_free(row);
}

static void
set_free(int row)
{
	nrows -= rows[row].noted_at != 0;
	rows[row].noted_at = 0;
	zkl_ask_cancel(&askers[row]);
}
