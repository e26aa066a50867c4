/*-------------------------------------------------------------------------
 *
 * znodetext.h
 *	  What the text of one of zklock's znodes says about a backend.
 *
 * Any client may have written the text, so nothing in it is trusted.
 *
 * Called only by backends.
 *
 * src/backend/znodetext.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ZNODETEXT_H
#define ZKL_ZNODETEXT_H

/* The value of "name=value", with its %XX undone; NULL: there is none. */
extern char *zkl_znode_text_field(const char *data, const char *name);

/* Another server's text, in the encoding of the database. */
extern const char *zkl_znode_text_show(const char *text);

/*
 * The fields that zkl_describe_backend wrote, as five columns: server, pid,
 * database, role, application.  False: there are none.  The columns whose
 * fields are missing stay as they are.
 */
extern bool zkl_znode_text_put(Datum *values, bool *nulls, const char *data);

#endif							/* ZKL_ZNODETEXT_H */
