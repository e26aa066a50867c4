/*-------------------------------------------------------------------------
 *
 * strays.c
 *	  Deletes the znodes that lost creates have made late.
 *
 * src/worker/strays.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "settings.h"
#include "shared/locktable.h"
#include "shared/straytable.h"
#include "worker/strays.h"

/* So many requests may be under way. */
#define MAX_UNDER_WAY	8

/*
 * A connection that has worked for so long shows that nothing comes late any
 * more.  ZooKeeper's leader drops a server that it has not heard for syncLimit
 * ticks, which is ten seconds as ZooKeeper comes, and with the server all that
 * it had to say.
 */
#define LATE_AT_MOST	ZKL_MS(5 * 60 * 1000)

typedef enum State
{
	QUIET,
	DUE,
	LISTING,
	DELETING
} State;

/* What the worker does about the row with the same number. */
typedef struct Look
{
	State		state;
	uint32		attempt;		/* tags the request */
} Look;

static ZklStray *rows;
static Look looks[ZKL_STRAYS_MAX];
static int	nrows = 0;			/* that are not free */
static int64 connected_at;

static int	row_to_fill(void);
static void list(int row);
static void on_list(int row, const ZklTicketEvent *reply);
static void on_delete(int row, const ZklTicketEvent *reply);
static void set_free(int row);

void
zkl_strays_start(void)
{
	rows = zkl_stray_table_rows(zkl_session_info_number());
	memset(looks, 0, sizeof(looks));
	for (int i = 0; i < ZKL_STRAYS_MAX; i++)
		nrows += rows[i].noted_at != 0;
}

void
zkl_strays_note(const char *directory, const char *uuid)
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
zkl_strays_may_come(void)
{
	return nrows > 0;
}

/* A free one, or else the oldest. */
static int
row_to_fill(void)
{
	int			oldest = 0;

	for (int i = 0; i < ZKL_STRAYS_MAX; i++)
	{
		if (rows[i].noted_at < rows[oldest].noted_at)
			oldest = i;
	}
	return oldest;
}

void
zkl_strays_reconnected(void)
{
	connected_at = zkl_now();
	for (int i = 0; i < ZKL_STRAYS_MAX; i++)
	{
		if (rows[i].noted_at != 0)
			looks[i].state = DUE;
	}
}

/* No answer will come; another connection will. */
void
zkl_strays_restarted(void)
{
	for (int i = 0; i < ZKL_STRAYS_MAX; i++)
	{
		looks[i].state = QUIET;
		looks[i].attempt++;
	}
}

/* The znodes have gone with the session, and ZooKeeper makes none for it. */
void
zkl_strays_expired(void)
{
	for (int i = 0; i < ZKL_STRAYS_MAX; i++)
		set_free(i);
}

void
zkl_strays_proved(int64 now)
{
	if (nrows == 0 || now < connected_at + LATE_AT_MOST)
		return;
	for (int i = 0; i < ZKL_STRAYS_MAX; i++)
	{
		if (now > rows[i].noted_at + LATE_AT_MOST)
			set_free(i);
	}
}

void
zkl_strays_send(void)
{
	int			under_way = 0;

	if (nrows == 0 || !zkl_session_is_usable())
		return;
	for (int i = 0; i < ZKL_STRAYS_MAX; i++)
		under_way += looks[i].state == LISTING || looks[i].state == DELETING;
	for (int i = 0; i < ZKL_STRAYS_MAX && under_way < MAX_UNDER_WAY; i++)
	{
		if (looks[i].state != DUE)
			continue;
		list(i);
		under_way++;
	}
}

static void
list(int row)
{
	ZklSessionAsk ask = {&looks[row], ++looks[row].attempt, row};

	looks[row].state = LISTING;
	pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests, 1);
	zkl_session_ask_children(ask, rows[row].directory);
}

bool
zkl_strays_handle(const ZklSessionEvent *event)
{
	Look	   *look = event->tag;

	if (look < looks || look >= looks + ZKL_STRAYS_MAX)
		return false;
	/* A row that was filled anew has another attempt. */
	if (event->attempt != look->attempt)
		return true;
	if (event->reply.outcome == ZKL_OUTCOME_UNKNOWN)
		look->state = DUE;
	else if (look->state == LISTING)
		on_list(event->item, &event->reply);
	else if (look->state == DELETING)
		on_delete(event->item, &event->reply);
	return true;
}

static void
on_list(int row, const ZklTicketEvent *reply)
{
	ZklSessionAsk ask = {&looks[row], looks[row].attempt, row};
	const ZklStray *stray = &rows[row];

	/* The connection may have ended since the answer came. */
	if (!zkl_session_is_usable())
	{
		looks[row].state = DUE;
		return;
	}
	for (int i = 0; i < reply->nchildren; i++)
	{
		if (strstr(reply->children[i], stray->uuid) == NULL)
			continue;
		looks[row].state = DELETING;
		pg_atomic_fetch_add_u64(&zkl_lock_table->counters.requests, 1);
		zkl_session_ask_delete(ask, psprintf("%s/%s", stray->directory,
											 reply->children[i]));
		return;
	}
	looks[row].state = QUIET;
}

/* A create is done once at most, so the row has done its duty. */
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

/* An answer that is still to come is then of no row. */
static void
set_free(int row)
{
	nrows -= rows[row].noted_at != 0;
	rows[row].noted_at = 0;
	looks[row].state = QUIET;
	looks[row].attempt++;
}
