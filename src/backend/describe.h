/*-------------------------------------------------------------------------
 *
 * describe.h
 *	  What znodes say about this backend.
 *
 * Called only by backends.
 *
 * src/backend/describe.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_DESCRIBE_H
#define ZKL_DESCRIBE_H

#include "protocol/ticket.h"

/*
 * The fields of a znode's text, cut to ZKL_ABOUT_SIZE.  The text is remembered
 * until the role, its name or application_name changes.  Otherwise this may
 * read catalogs, and so must run in a transaction.
 */
extern const char *zkl_describe_backend(void);

/* The same of the leader process, which has neither role nor database. */
extern void zkl_describe_leader(char about[ZKL_ABOUT_SIZE]);

#endif							/* ZKL_DESCRIBE_H */
