/*-------------------------------------------------------------------------
 *
 * znodetext.h
 *	  What the text of one of zklock's znodes says about a backend.
 *
 * Any client may have written a text that is read, so nothing in it is trusted.
 * The fields of the text are the columns of several SQL functions, in this order.
 *
 * Called only by backends.
 *
 * src/backend/znodetext.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ZNODETEXT_H
#define ZKL_ZNODETEXT_H

#include "backend/row.h"
#include "protocol/ticket.h"

/*
 * The fields of a znode's text about this backend, cut to ZKL_OWNER_TEXT_SIZE.
 * The text is kept until the role, the role's name or application_name
 * changes.  After a change, this may read catalogs, and so must run in a
 * transaction.
 */
extern const char *zkl_znode_text_of_backend(void);

/*
 * The text about a detached claim that this backend requests: the role and the
 * database are its own, and the process is the claims process.  This reads
 * catalogs.
 */
extern void zkl_znode_text_of_claim(int pid, char owner_text[ZKL_OWNER_TEXT_SIZE]);

/*
 * The text about a leadership, which has neither role nor database.  Raises
 * no error.
 */
extern void zkl_znode_text_of_leader(char owner_text[ZKL_OWNER_TEXT_SIZE]);

/* The value of "name=value", with %XX decoded; NULL if there is none. */
extern char *zkl_znode_text_field(const char *data, const char *name);

/*
 * Another client's text, in the encoding of the database, with its control
 * characters escaped.
 */
extern const char *zkl_znode_text_show(const char *text);

/*
 * Add the fields that zkl_znode_text_of_backend wrote, as five columns:
 * server, pid, database, role, application.  False: there are none.  A column
 * whose field is missing is null; so are all if there is no text.
 */
extern bool zkl_znode_text_add(ZklRow *row, const char *data);

#endif							/* ZKL_ZNODETEXT_H */
