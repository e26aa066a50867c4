/*
 * load.c: writes beside the fleet, so many a second or as many as ZooKeeper can.
 *
 * Each write is the create or the delete of a ticket.  They come from sessions of their own,
 * which live as long as the load.
 */
#include "session.h"

#include <string.h>

#define IN_FLIGHT 32			/* of each session */

static struct
{
	bool		is_busy;
	double		rate,
				seconds;
	int64_t		begin;			/* 0: not all of its sessions are connected */
	int64_t		sent,
				answered;
}			load;

static void on_created(int rc, const char *value, const void *data);
static void on_deleted(int rc, const void *data);

void
load_begin(double writes_per_second, double seconds)
{
	memset(&load, 0, sizeof(load));
	load.is_busy = true;
	load.rate = writes_per_second;
	load.seconds = seconds;
}

bool
load_is_busy(void)
{
	return load.is_busy;
}

/* Each create is followed by a delete, so it counts for two writes. */
void
load_send(Session *s, int64_t now)
{
	double		elapsed = (now - load.begin) / 1e6;

	while (load.begin != 0 && elapsed < load.seconds && s->in_flight < IN_FLIGHT &&
		   (load.rate == 0 || load.sent < load.rate * elapsed))
	{
		check(zoo_acreate(s->zk, DIRECTORY "/load-", "", 0, &ZOO_OPEN_ACL_UNSAFE,
						  ZOO_EPHEMERAL | ZOO_SEQUENCE, on_created, s), "create under load");
		s->in_flight++;
		load.sent += 2;
	}
}

static void
on_created(int rc, const char *value, const void *data)
{
	Session    *s = (Session *) data;

	if (is_unanswered(rc))
	{
		s->in_flight--;
		return;
	}
	check(rc, "create under load");
	check(zoo_adelete(s->zk, value, -1, on_deleted, s), "delete under load");
	load.answered++;
}

static void
on_deleted(int rc, const void *data)
{
	Session    *s = (Session *) data;

	s->in_flight--;
	if (is_unanswered(rc))
		return;
	check(rc, "delete under load");
	load.answered++;
}

int64_t
load_due_at(int64_t now)
{
	return load.is_busy ? now + MS(5) : NEVER;
}

bool
load_tend(Session *all, int64_t now, int64_t *writes, double *seconds)
{
	int			connected = 0,
				in_flight = 0;

	for (int i = 0; i < LOAD_SESSIONS; i++)
	{
		connected += all[i].connected;
		in_flight += all[i].in_flight;
	}
	if (load.begin == 0 && connected == LOAD_SESSIONS)
		load.begin = now;
	*seconds = (now - load.begin) / 1e6;
	*writes = load.answered;
	load.is_busy = load.begin == 0 || *seconds < load.seconds || in_flight > 0;
	return !load.is_busy;
}
