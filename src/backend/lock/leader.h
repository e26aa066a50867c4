/*-------------------------------------------------------------------------
 *
 * leader.h
 *	  The leader process, which stands for the leaderships of this server.
 *
 * src/backend/lock/leader.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_LEADER_H
#define ZKL_LEADER_H

/* What the worker starts, by its name. */
extern PGDLLEXPORT void zkl_leader_main(Datum main_arg);

#endif							/* ZKL_LEADER_H */
