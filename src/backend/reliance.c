/*-------------------------------------------------------------------------
 *
 * reliance.c
 *	  The leaderships on which this transaction relies.
 *
 * A server that was deposed may lead again by now.  Another server has led
 * meanwhile, so the transaction that began before must not commit.  The token
 * tells the two leaderships apart.
 *
 * src/backend/reliance.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/reliance.h"
#include "backend/report.h"
#include "settings.h"
#include "shared/leadership.h"

static struct
{
	char		path[ZKL_PATH_SIZE];
	int64		token;
}			relied[ZKL_LEADERS_MAX];
static int	nrelied = 0;

static void check(int i, int64 margin);
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
zkl_reliance_check(int64 margin)
{
	for (int i = 0; i < nrelied; i++)
		check(i, margin);
}

static void
check(int i, int64 margin)
{
	int64		token = 0;
	ZklClaimStatus standing = zkl_leadership_standing(relied[i].path, margin,
													  &token);

	if (token != relied[i].token)
		report_ended(relied[i].path);
	if (standing == ZKL_STATUS_DOUBT)
		zkl_report_doubt(relied[i].path);
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
}
