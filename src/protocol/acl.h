/*-------------------------------------------------------------------------
 *
 * acl.h
 *	  The access control list that zklock gives its znodes: zklock.acl.
 *
 * The text is "open", "creator", or a list as ZooKeeper's own client takes it:
 *
 *		scheme:id:permissions, scheme:id:permissions, ...
 *
 * Permissions are some of the letters c, d, r, w and a: create, delete, read,
 * write, admin.  "open" stands for world:anyone:cdrwa, "creator" for
 * auth::cdrwa, which ZooKeeper replaces by the identities of the session.
 *
 * Pure: no PostgreSQL, no ZooKeeper, no allocation.
 *
 * src/protocol/acl.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_ACL_H
#define ZKL_ACL_H

#define ZKL_ACL_ENTRIES		16
#define ZKL_ACL_SCHEME_SIZE	32
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
	char		scheme[ZKL_ACL_SCHEME_SIZE];
	char		id[ZKL_ACL_ID_SIZE];
} ZklAclEntry;

typedef struct ZklAcl
{
	int			nentries;		/* 1 at least */
	ZklAclEntry entry[ZKL_ACL_ENTRIES];
} ZklAcl;

/*
 * Read the text.  Returns NULL if it is valid, else a sentence that names
 * the rule that it breaks; the caller must then not use the list.
 */
extern const char *zkl_acl_parse(const char *text, ZklAcl *acl);

#endif							/* ZKL_ACL_H */
