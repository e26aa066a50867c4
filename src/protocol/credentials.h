/*-------------------------------------------------------------------------
 *
 * credentials.h
 *	  The text of zklock.auth_file: what a ZooKeeper session says who it is.
 *
 * Each line is a scheme, blanks, and the credentials, which are the rest of
 * the line:
 *
 *		digest user:password
 *
 * Empty lines, and lines that begin with "#", are left out.  A text without
 * credentials is not valid: it may be a file that is about to be written.  The
 * credentials are secret: a fault names the number of the line, and nothing
 * that is in it.
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
 * Returns NULL if the text is valid, else a phrase about what is wrong with the
 * line that has the number *line; 0: with the whole.
 */
extern const char *zkl_credentials_fault(const char *text, size_t length,
										 int *line);

/*
 * The next credentials of a valid text.  *at begins with the text, and moves
 * on; "end" is the text's end.  False: there are no more.
 */
extern bool zkl_credentials_next(const char **at, const char *end,
								 ZklCredentials *credentials);

#endif							/* ZKL_CREDENTIALS_H */
