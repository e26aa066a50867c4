/*-------------------------------------------------------------------------
 *
 * sessiontext.h
 *	  What the session file says of a session: its id and its password; and the
 *	  name of a session.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation.
 *
 * src/protocol/sessiontext.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_SESSIONTEXT_H
#define ZKL_SESSIONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#define ZKL_SESSION_TEXT_PASSWORD	16	/* bytes */
#define ZKL_SESSION_TEXT_SIZE		64	/* with the newline and the null */
#define ZKL_SESSION_TEXT_NAME_SIZE	17	/* with the null */

/* Write the ID and the password as hexadecimal numbers. */
extern void zkl_session_text_format(int64_t id,
									const char password[ZKL_SESSION_TEXT_PASSWORD],
									char str[ZKL_SESSION_TEXT_SIZE]);

/*
 * Read the ID and the password.  Returns false if the text names no session,
 * for instance because it was cut off.
 */
extern bool zkl_session_text_parse(const char *str, int64_t *id,
								   char password[ZKL_SESSION_TEXT_PASSWORD]);

/* The name of a session's znode in the directories of zklock itself. */
extern void zkl_session_text_name(int64_t session,
								  char name[ZKL_SESSION_TEXT_NAME_SIZE]);

#endif							/* ZKL_SESSIONTEXT_H */
