/*-------------------------------------------------------------------------
 *
 * rolewindow.c
 *	  How many requests may be on their way while several roles need
 *	  ZooKeeper.
 *
 * src/worker/request/rolewindow.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "protocol/window.h"
#include "settings.h"
#include "worker/request/rolewindow.h"

/*
 * For this long after a role had something to send, expect it to send again.
 */
#define SHARED_FOR		ZKL_MS(1000)

/*
 * A role whose create was refused is a spoiler for this long, because it may
 * repeat the create.
 */
#define SPOILER_FOR		ZKL_MS(10000)

static int	on_the_way[ZKL_ROLE_WINDOWS];
static int64 spoiler_until[ZKL_ROLE_WINDOWS];
static ZklWindow window;
static int	last_number;		/* the last role that had something to send */
static int64 last_at;			/* when it last had something; 0: never */
static int64 shared_until;

static int	number_of(Oid role);

void
zkl_role_window_start(void)
{
	zkl_window_start(&window);
}

static int
number_of(Oid role)
{
	return role % ZKL_ROLE_WINDOWS;
}

void
zkl_role_window_note(Oid role, int64 now)
{
	if (number_of(role) != last_number && last_at != 0 &&
		now < last_at + SHARED_FOR)
		shared_until = now + SHARED_FOR;
	last_number = number_of(role);
	last_at = now;
}

bool
zkl_role_window_is_shared(int64 now)
{
	return now < shared_until;
}

int
zkl_role_window_size(void)
{
	return window.size;
}

void
zkl_role_window_sent(Oid role)
{
	on_the_way[number_of(role)]++;
}

void
zkl_role_window_answered(Oid role, int64 took, int64 now)
{
	Assert(on_the_way[number_of(role)] > 0);
	on_the_way[number_of(role)]--;
	if (took >= 0)
		zkl_window_answered(&window, took, now);
}

void
zkl_role_window_note_spoiler(Oid role, int64 now)
{
	spoiler_until[number_of(role)] = now + SPOILER_FOR;
}

bool
zkl_role_window_is_spoiler(Oid role, int64 now)
{
	return now < spoiler_until[number_of(role)];
}

bool
zkl_role_window_is_full(Oid role, int64 now)
{
	return zkl_role_window_is_shared(now) && on_the_way[number_of(role)] >= window.size;
}
