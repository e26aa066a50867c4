/*-------------------------------------------------------------------------
 *
 * sqlrequest.h
 *	  How the SQL functions that acquire locks begin and end.
 *
 * Called only by backends, in a transaction.
 *
 * src/backend/sql/sqlrequest.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SQLREQUEST_H
#define ZKL_SQLREQUEST_H

#include "fmgr.h"

#include "backend/lock/localclaim.h"

/*
 * Each function that acquires calls this first.  Raises 55000 unless zklock
 * was preloaded, and 42501 if this session may not acquire at this level.
 */
extern ZklLockRequest zkl_sql_request_begin(FunctionCallInfo fcinfo, ZklMode mode,
											ZklScope scope);

/*
 * Each function that acquires ends with this.  If a statement outside of a
 * transaction block does nothing but acquire a transaction-level lock, the lock
 * protects nothing: note that, so that the commit warns.  Returns "acquired".
 *
 * A procedure raises 55P03 instead of returning false, and gets back the
 * snapshot that it may have given up for a wait.
 */
extern bool zkl_sql_request_end(FunctionCallInfo fcinfo,
								const ZklLockRequest *request, bool acquired);

#endif							/* ZKL_SQLREQUEST_H */
