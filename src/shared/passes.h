/*-------------------------------------------------------------------------
 *
 * passes.h
 *	  The leaderships and detached claims that must not end yet, because
 *	  transactions commit.
 *
 * A transaction that relies on a leadership has a PASS for it from just before
 * its commit guard to its end.  A process that gives a leadership up lets no
 * further transaction through the guard first.  Then it waits until no backend
 * has a pass for it.  Only then may another server lead.  So no commit comes
 * after the next leader has begun.
 *
 *		the committing backend			the process that gives the leadership up
 *		begin its pass					mark the leadership as resigned
 *		(barrier)						(barrier)
 *		look at the leadership			look for passes
 *
 * Whatever the order, either the backend finds the leadership resigned, and
 * the guard refuses the commit; or the process finds the pass, and waits.
 *
 * A pass also keeps the claim by which a transaction uses a detached one: its
 * lease time may end then, and the worker waits for the pass.
 *
 * A pass names a path by a bit of its hash, so a process may wait for the pass
 * of another path for nothing.  No function raises an error.
 *
 * src/shared/passes.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_PASSES_H
#define ZKL_PASSES_H

#include "storage/lwlock.h"

/* The part of shared memory, for the table in zklock.c. */
extern Size zkl_passes_size(void);
extern void zkl_passes_attach(void *memory, LWLockPadded *locks, bool is_new);

/* The bit of a path. */
extern uint64 zkl_passes_bit(const char *path);

/*
 * From now on this backend has passes for the paths with these bits, and for
 * no others.  begin ends with a barrier.
 */
extern void zkl_passes_begin(uint64 bits);
extern void zkl_passes_end(void);

/*
 * Has any backend a pass for the path?  If so, look again after
 * ZKL_PASSES_POLL microseconds, then after twice as many, up to
 * ZKL_LOOK_INTERVAL: nothing wakes the process that waits, and most commits
 * are quick.
 */
#define ZKL_PASSES_POLL		1000
extern bool zkl_passes_any(const char *path);

/*
 * Has this process a pass for the path?  The caller holds the partition of
 * the path's lock, and a guard looks at its claim only after its pass has
 * begun, with the partition locked.
 */
extern bool zkl_passes_has(int proc_number, const char *path);

#endif							/* ZKL_PASSES_H */
