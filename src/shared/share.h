/*-------------------------------------------------------------------------
 *
 * share.h
 *	  How much of a table in shared memory one role may have.
 *
 * src/shared/share.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SHARE_H
#define ZKL_SHARE_H

/*
 * May a role that has "mine" places take one more, of those that are free?  It
 * may have as many as it leaves free to others: half of all if it is the only
 * one, and a third if there are two such roles.  So however many sessions one
 * role has, there is room for another role.
 *
 * "Role" is the one that logged in, as PostgreSQL notes it for the process.
 */
static inline bool
zkl_share_allows(int mine, int nfree)
{
	return mine < nfree;
}

#endif							/* ZKL_SHARE_H */
