/*-------------------------------------------------------------------------
 *
 * names.h
 *	  Names of znodes as all clients write them, and verdicts about them.
 *
 * test/unit/names.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_NAMES_H
#define ZKL_NAMES_H

#include <ctype.h>

#include "unit.h"

#include "protocol/recipe.h"

#define NMODES	(ZKL_MODE_KAZOO_READ + 1)

#define CURATORS	"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-"
#define HEX			"f81d4fae7dec41d0a76500a0c91e6bf6"
#define OUR_UUID	"01234567-89ab-8b4c-8123-456789abcdef"
#define TRY_UUID	"01234567-89ab-8b4d-8123-456789abcdef"
#define OURS		"_c_" OUR_UUID "-"
#define TRIES		"_c_" TRY_UUID "-"
#define PEERS		"_c_fedcba98-7654-8b4c-8123-456789abcdef-"	/* zklock's, too */

/* How traces call the modes. */
static const char *const mode_names[NMODES] = {
	"lock", "write", "read", "lease", "kazoo-lock", "kazoo-read"
};

/*
 * How traces call the znodes.  A number of at most two digits makes it ten, as
 * ZooKeeper does: lock-3.  What follows a slash is taken as it is: lock/x.
 */
static const char *const znode_names[][2] = {
	{"lock", CURATORS "lock-"},
	{"write", CURATORS "__WRIT__"},
	{"read", CURATORS "__READ__"},
	{"lease", CURATORS "lease-"},
	{"go-lock", "_c_" HEX "-lock-"},
	{"kazoo-lock", HEX "__lock__"},
	{"kazoo-read", HEX "__rlock__"},
	{"ticket-lock", OURS "lock-"},
	{"ticket-write", OURS "__WRIT__"},
	{"ticket-read", OURS "__READ__"},
	{"ticket-lease", OURS "lease-"},
	{"try-lock", TRIES "lock-"},
	{"try-write", TRIES "__WRIT__"},
	{"peer-lease", PEERS "lease-"}
};

/*
 * The name that a word of a trace stands for.  Other words stand for
 * themselves, with a blank for each "~"; "empty" is the empty name; our-uuid
 * and try-uuid are the UUIDs of zklock's znodes.
 */
static inline void
name_of(const char *word, char *name)
{
	char	   *p;

	strcpy(name, strcmp(word, "empty") == 0 ? "" : strcmp(word, "our-uuid") == 0 ? OUR_UUID :
		   strcmp(word, "try-uuid") == 0 ? TRY_UUID : word);
	while ((p = strchr(name, '~')) != NULL)
		*p = ' ';
	for (int i = 0; i < lengthof(znode_names); i++)
	{
		size_t		length = strlen(znode_names[i][0]);
		const char *number = word + length + 1;

		if (strncmp(word, znode_names[i][0], length) != 0)
			continue;
		if (word[length] == '/')
			sprintf(name, "%s%s", znode_names[i][1], number);
		else if (word[length] == '-' && isdigit((unsigned char) number[0]) && strlen(number) <= 2)
			sprintf(name, "%s%0*d%s", znode_names[i][1], 10 - (int) strlen(number), 0, number);
	}
}

#define judge_as(mode, me, ...) \
	zkl_recipe_judge(mode, me, (const char *const []) {__VA_ARGS__}, \
					 lengthof(((const char *const []) {__VA_ARGS__})))

static inline ZklVerdict
judge_in_order(int limit, const char *me, const char *const *children, int nchildren)
{
	ZklLease	leases[64];

	assert_true(nchildren <= lengthof(leases));
	zkl_recipe_order_leases(children, nchildren, leases);
	return zkl_recipe_judge_lease(limit, me, leases, nchildren);
}

static inline bool
is_contender(const char *child)
{
	ZklContender contender;

	return zkl_recipe_parse(child, &contender);
}

static inline void
assert_owns(ZklVerdict verdict)
{
	assert_true(verdict.found);
	assert_true(verdict.owned);
	assert_null(verdict.predecessor);
}

static inline void
assert_waits_for(ZklVerdict verdict, const char *predecessor)
{
	assert_true(verdict.found);
	assert_false(verdict.owned);
	assert_non_null(verdict.predecessor);
	assert_string_equal(verdict.predecessor, predecessor);
}

#endif							/* ZKL_NAMES_H */
