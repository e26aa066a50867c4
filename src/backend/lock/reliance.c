/*-------------------------------------------------------------------------
 *
 * reliance.c
 *	  The leaderships on which this transaction relies.
 *
 * A server that was deposed may lead again by now.  Since another server has
 * led meanwhile, a transaction that relied on the first leadership must not
 * commit.  The token distinguishes the two leaderships.
 *
 * src/backend/lock/reliance.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/lock/reliance.h"
#include "backend/report.h"
#include "settings.h"
#include "shared/leadership.h"
#include "shared/passes.h"

static struct
{
	char		path[ZKL_PATH_SIZE];
	int64		token;
}			relied[ZKL_LEADERS_MAX];
static int	nrelied = 0;

/* The passes that this transaction needs because it uses detached claims. */
static uint64 used = 0;

static int64 check(int i, int64 margin);
static void report_ended(const char *path);

bool
zkl_reliance_note(const char *path, int64 token)
{
	for (int i = 0; i < nrelied; i++)
	{
		if (strcmp(relied[i].path, path) != 0)
			continue;

		/* The commit would fail, because the server has led anew since. */
		if (relied[i].token != token)
			report_ended(path);
		return false;
	}
	if (nrelied == ZKL_LEADERS_MAX)
		ereport(ERROR,
				errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				errmsg("a transaction cannot rely on more than %d leaderships",
					   ZKL_LEADERS_MAX));
	strlcpy(relied[nrelied].path, path, ZKL_PATH_SIZE);
	relied[nrelied].token = token;
	nrelied++;
	return true;
}

bool
zkl_reliance_any(void)
{
	return nrelied > 0;
}

bool
zkl_reliance_token(const char *path, int64 *token)
{
	for (int i = 0; i < nrelied; i++)
	{
		if (strcmp(relied[i].path, path) == 0)
		{
			check(i, 0);
			*token = relied[i].token;
			return true;
		}
	}
	return false;
}

void
zkl_reliance_note_use(const char *path)
{
	used |= zkl_passes_bit(path);
}

uint64
zkl_reliance_bits(void)
{
	uint64		bits = used;

	for (int i = 0; i < nrelied; i++)
		bits |= zkl_passes_bit(relied[i].path);
	return bits;
}

int64
zkl_reliance_check(int64 margin)
{
	int64		until = PG_INT64_MAX;

	for (int i = 0; i < nrelied; i++)
		until = Min(until, check(i, margin));
	return until;
}

/* Returns the moment up to which the leadership is certain. */
static int64
check(int i, int64 margin)
{
	int64		token = 0;
	int64		until = 0;
	ZklClaimStatus standing = zkl_leadership_standing(relied[i].path, margin,
													  &token, &until);

	if (token != relied[i].token)
		report_ended(relied[i].path);
	if (standing == ZKL_STATUS_DOUBT)
		zkl_report_doubt(relied[i].path);
	return until;
}

/*
 * A leadership that was resigned does not end while this transaction has its pass,
 * as long as the server could count on it.
 */
const char *
zkl_reliance_find_uncertain(void)
{
	for (int i = 0; i < nrelied; i++)
	{
		if (!zkl_leadership_is_held(relied[i].path, relied[i].token))
			return relied[i].path;
	}
	return NULL;
}

static void
report_ended(const char *path)
{
	ereport(ERROR,
			errcode(ERRCODE_ZKL_LOCK_LOST),
			errmsg("this server's leadership of \"%s\" has ended",
				   zkl_display_path(path)),
			errdetail("The transaction relied on it."),
			errhint("Retry the transaction on the server that leads."));
}

void
zkl_reliance_forget(void)
{
	nrelied = 0;
	used = 0;
}
