/*-------------------------------------------------------------------------
 *
 * hooks.h
 *	  What zklock does around statements.
 *
 * src/backend/lock/hooks.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_HOOKS_H
#define ZKL_HOOKS_H

/* Install the hooks.  Called once, while libraries are preloaded. */
extern void zkl_hooks_init(void);

#endif							/* ZKL_HOOKS_H */
