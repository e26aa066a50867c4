/*-------------------------------------------------------------------------
 *
 * access.h
 *	  ZooKeeper's access control: the list that zklock gives its znodes, and
 *	  the credentials that identify a session.
 *
 * The text of zklock.acl is "open", "creator", or a list as ZooKeeper's own
 * client takes it:
 *
 *		scheme:id:permissions, scheme:id:permissions, ...
 *
 * Permissions are some of the letters c, d, r, w and a: create, delete, read,
 * write, admin.  "open" stands for world:anyone:cdrwa, "creator" for
 * auth::cdrwa, which ZooKeeper replaces by the identities of the session.
 *
 * Each line of the file zklock.auth_file is a scheme, blanks, and the
 * credentials, which are the rest of the line:
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
 * src/protocol/access.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ACCESS_H
#define ZKL_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#define ZKL_ACCESS_SCHEME_SIZE	32

#define ZKL_ACL_ENTRIES		16
#define ZKL_ACL_ID_SIZE		256

/* ZooKeeper's numbers. */
#define ZKL_ACL_READ		1
#define ZKL_ACL_WRITE		2
#define ZKL_ACL_CREATE		4
#define ZKL_ACL_DELETE		8
#define ZKL_ACL_ADMIN		16
#define ZKL_ACL_ALL			31

typedef struct ZklAclEntry
{
	int			permissions;
	char		scheme[ZKL_ACCESS_SCHEME_SIZE];
	char		id[ZKL_ACL_ID_SIZE];
} ZklAclEntry;

typedef struct ZklAcl
{
	int			nentries;		/* 1 at least */
	ZklAclEntry entry[ZKL_ACL_ENTRIES];
} ZklAcl;

/*
 * Read the text of zklock.acl.
 *
 * Returns NULL if it is valid, else a sentence that names
 * the rule that it breaks; the caller must then not use the list.
 */
extern const char *zkl_access_parse_acl(const char *str, ZklAcl *acl);

typedef struct ZklCredentials
{
	char		scheme[ZKL_ACCESS_SCHEME_SIZE];
	const char *data;			/* in the text; not terminated */
	size_t		length;
} ZklCredentials;

/*
 * Check the text of the file.
 *
 * Returns NULL if the text is valid, else a phrase that says what is wrong.
 * *line is the number of the faulty line, or 0 if the fault is in the whole
 * text.
 */
extern const char *zkl_access_credentials_fault(const char *str, size_t length,
												int *line);

/*
 * Get the next credentials of a valid text.  *at begins as the start of the
 * text, and advances; "end" is the text's end.  Returns false when there are
 * no more.
 */
extern bool zkl_access_next_credentials(const char **at, const char *end,
										ZklCredentials *credentials);

#endif							/* ZKL_ACCESS_H */
