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

#include "unit.h"

#include "protocol/recipe.h"

#define CURATORS	"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-"
#define CURATOR		CURATORS "lock-"
#define WRITER		CURATORS "__WRIT__"
#define READER		CURATORS "__READ__"
#define LEASE		CURATORS "lease-"
#define GO			"_c_f81d4fae7dec41d0a76500a0c91e6bf6-lock-"
#define KAZOO		"f81d4fae7dec41d0a76500a0c91e6bf6__lock__"
#define KAZOO_READ	"f81d4fae7dec41d0a76500a0c91e6bf6__rlock__"
#define OUR_UUID	"01234567-89ab-8b4c-8123-456789abcdef"
#define OURS		"_c_" OUR_UUID "-lock-"
#define OUR_WRITER	"_c_" OUR_UUID "-__WRIT__"
#define OUR_READER	"_c_" OUR_UUID "-__READ__"
#define OUR_LEASE	"_c_" OUR_UUID "-lease-"
#define PEER_LEASE	"_c_fedcba98-7654-8b4c-8123-456789abcdef-lease-"	/* zklock's, too */
#define OUR_TRY		"_c_01234567-89ab-8b4d-8123-456789abcdef-lock-"

/* judge("me", "child", "other child", ...); the others likewise */
#define judge_as(mode, me, ...) \
	zkl_recipe_judge(mode, me, (const char *const []) {__VA_ARGS__}, \
					 lengthof(((const char *const []) {__VA_ARGS__})))
#define judge(me, ...)			judge_as(ZKL_MODE_LOCK, me, __VA_ARGS__)
#define judge_write(me, ...)	judge_as(ZKL_MODE_WRITE, me, __VA_ARGS__)
#define judge_read(me, ...)		judge_as(ZKL_MODE_READ, me, __VA_ARGS__)
#define judge_lease(limit, me, ...) \
	judge_in_order(limit, me, (const char *const []) {__VA_ARGS__}, \
				   lengthof(((const char *const []) {__VA_ARGS__})))

static inline ZklVerdict
judge_in_order(int limit, const char *me, const char *const *children,
			   int nchildren)
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
