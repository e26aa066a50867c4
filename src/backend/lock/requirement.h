/*-------------------------------------------------------------------------
 *
 * requirement.h
 *	  The leaderships that every commit requires: zklock.commit_requires.
 *
 * Called only by backends.
 *
 * src/backend/lock/requirement.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_REQUIREMENT_H
#define ZKL_REQUIREMENT_H

#include "settings.h"

/* Does this process need any leadership for what it writes?  Mostly one load. */
extern bool zkl_requirement_applies_here(void);

static inline bool
zkl_requirement_applies(void)
{
	return zkl_commit_requires[0] != '\0' && zkl_requirement_applies_here();
}

/* The bits of the paths, for a pass (passes.h). */
extern uint64 zkl_requirement_bits(void);

/*
 * Raise 25006 unless this server leads all required paths, and certainly will for
 * "margin" more microseconds; 55000 if it does not stand for one of them.  With
 * zklock.not_leading = terminate, the error ends the session.  Returns the moment up
 * to which all are certain.  Call only where the requirement applies.
 */
extern int64 zkl_requirement_check(int64 margin);
extern bool zkl_requirement_is_met(int64 margin);	/* raises no error */

/*
 * A required path that this server does not lead any more with the token that the
 * last check found, or that is in doubt; NULL: there is none.  This raises no error.
 */
extern const char *zkl_requirement_find_uncertain(void);

#endif							/* ZKL_REQUIREMENT_H */
