/*-------------------------------------------------------------------------
 *
 * rolequota.h
 *	  How much of a table in shared memory one role may have.
 *
 * src/shared/rolequota.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ROLEQUOTA_H
#define ZKL_ROLEQUOTA_H

/*
 * May a role that has "mine" places take one more of the free ones?  It may
 * have as many places as then remain free: half of all places if it is the
 * only role, a third if two roles take as many as they may.  So however many
 * sessions one role has, there is room for another role.
 *
 * "Role" is the one that logged in, as PostgreSQL notes it for the process.
 */
static inline bool
zkl_role_quota_allows(int mine, int nfree)
{
	return mine < nfree;
}

#endif							/* ZKL_ROLEQUOTA_H */
