/*-------------------------------------------------------------------------
 *
 * credentials.h
 *	  The text of zklock.auth_file: the credentials that identify a ZooKeeper
 *	  session.
 *
 * Each line is a scheme, blanks, and the credentials, which are the rest of
 * the line:
 *
 *		digest user:password
 *
 * Empty lines, and lines that begin with "#", are left out.  A text without
 * credentials is not valid: the user may be about to write the file.  The
 * credentials are secret, so an error message gives the number of the line
 * but nothing of its text.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation.
 *
 * src/protocol/credentials.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_CREDENTIALS_H
#define ZKL_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>

#define ZKL_CREDENTIALS_SCHEME_SIZE	32

typedef struct ZklCredentials
{
	char		scheme[ZKL_CREDENTIALS_SCHEME_SIZE];
	const char *data;			/* in the text; not terminated */
	size_t		length;
} ZklCredentials;

/*
 * Returns NULL if the text is valid, else a phrase that says what is wrong.
 * *line is the number of the faulty line, or 0 if the fault is in the whole
 * text.
 */
extern const char *zkl_credentials_fault(const char *text, size_t length,
										 int *line);

/*
 * Get the next credentials of a valid text.  *at begins as the start of the
 * text, and advances; "end" is the text's end.  Returns false when there are
 * no more.
 */
extern bool zkl_credentials_next(const char **at, const char *end,
								 ZklCredentials *credentials);

#endif							/* ZKL_CREDENTIALS_H */
