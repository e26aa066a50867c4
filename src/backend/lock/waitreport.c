/*-------------------------------------------------------------------------
 *
 * waitreport.c
 *	  What messages say about the client that blocks a claim.
 *
 * src/backend/lock/waitreport.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/display.h"
#include "backend/lock/waitreport.h"
#include "backend/znodes.h"
#include "backend/znodetext.h"
#include "shared/claim.h"

static void add_context(void *arg);
static char *process_in(const char *owner_text);

void
zkl_wait_report_push_context(ErrorContextCallback *context, ZklClaim *claim)
{
	context->callback = add_context;
	context->arg = claim;
	context->previous = error_context_stack;
	error_context_stack = context;
}

/*
 * A claim on leases does not wait for one certain client, so its line has
 * only the path.
 */
static void
add_context(void *arg)
{
	const ZklClaim *claim = arg;
	const char *path = zkl_display_path(claim->entry->path);
	ZklObstacle obstacle = zkl_claim_status_obstacle(claim);
	const char *process = process_in(obstacle.owner_text);

	if (claim->mode == ZKL_MODE_LEASE)
		errcontext("while waiting for leases of semaphore \"%s\"", path);
	else if (process == NULL)
		errcontext("while waiting for lock \"%s\"", path);
	else if (obstacle.holds)
		errcontext("while waiting for lock \"%s\", which %s holds",
				   path, process);
	else
		errcontext("while waiting for lock \"%s\" behind %s",
				   path, process);
}

/* Any client may have written the text.  NULL if it names no process. */
static char *
process_in(const char *owner_text)
{
	const char *server = zkl_znode_text_field(owner_text, "server");
	const char *pid = zkl_znode_text_field(owner_text, "pid");

	if (server == NULL || pid == NULL || atoi(pid) <= 0)
		return NULL;
	return psprintf(_("process %d on server \"%s\""), atoi(pid),
					zkl_znode_text_show(server));
}

const char *
zkl_wait_report_obstacle(const ZklClaim *claim, int64 until)
{
	ZklObstacle obstacle = zkl_claim_status_obstacle(claim);
	char	   *process = process_in(obstacle.owner_text);

	/*
	 * The ticket waits for another ticket that waits.  The client for which
	 * all of them wait may have gone since the ticket's last list; then name
	 * the client just before the claim.
	 */
	if (!obstacle.holds && obstacle.front[0] != '\0' && until > 0)
	{
		const char *owner_text = zkl_znodes_read(claim->entry->path, obstacle.front,
												 until);
		char	   *holder = owner_text ? process_in(owner_text) : NULL;

		obstacle.holds = owner_text != NULL;
		if (owner_text != NULL)
			process = holder;
	}

	if (process != NULL)
	{
		process[0] = pg_toupper((unsigned char) process[0]);
		return obstacle.holds ? psprintf(_("%s holds the lock."), process) :
			psprintf(_("%s is before it in the queue."), process);
	}
	if (obstacle.holds && obstacle.front[0] != '\0')
		return psprintf(_("Znode \"%s\" holds the lock."),
						zkl_znode_text_show(obstacle.front));
	return NULL;
}
