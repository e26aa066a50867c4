/*-------------------------------------------------------------------------
 *
 * pooler.h
 *	  Poolers between zklock-run and the server.
 *
 * src/bin/pooler.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_POOLER_H
#define ZKL_POOLER_H

#include <stdbool.h>

#include <libpq-fe.h>

extern bool zkl_pooler_is_between(PGconn *conn);

/*
 * Does the pooler give the backend of conn to other clients while conn is open?  The other
 * connection must be of the same user and database, and is of no use afterwards.
 */
extern bool zkl_pooler_shares(PGconn *conn, PGconn *other);

#endif							/* ZKL_POOLER_H */
