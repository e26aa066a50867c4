/*-------------------------------------------------------------------------
 *
 * test_recipe.c
 *	  Znode names and their order in a queue, in Apache Curator's layout.
 *
 * Of mutexes; test_recipe_modes.c has the other kinds of lock.
 *
 * The generated tests at the end state the rule in another way than
 * recipe.c: they sort all contenders and look at the neighbours.
 *
 * test/unit/test_recipe.c
 *
 *-------------------------------------------------------------------------
 */
#include "names.h"

#include <inttypes.h>
#include <stdlib.h>

/*
 * Names
 */

static void
a_uuid_has_version_8_and_the_variant_of_rfc_9562(void **state)
{
	uint8_t		random[16];
	char		uuid[ZKL_UUID_SIZE];

	(void) state;
	memset(random, 0, sizeof(random));
	zkl_recipe_make_uuid(random, false, uuid);
	assert_string_equal(uuid, "00000000-0000-8b4c-8000-000000000000");
	memset(random, 0xff, sizeof(random));
	zkl_recipe_make_uuid(random, false, uuid);
	assert_string_equal(uuid, "ffffffff-ffff-8b4c-bfff-ffffffffffff");
}

static void
one_bit_of_a_uuid_says_that_it_only_tries(void **state)
{
	const uint8_t random[16] = {0};
	char		uuid[ZKL_UUID_SIZE];

	(void) state;
	zkl_recipe_make_uuid(random, true, uuid);
	assert_string_equal(uuid, "00000000-0000-8b4d-8000-000000000000");
}

/* Else two znodes could be taken for one another. */
static void
every_free_bit_of_a_uuid_is_random(void **state)
{
	uint8_t		random[16] = {0};
	char		zero[ZKL_UUID_SIZE];
	char		uuid[ZKL_UUID_SIZE];
	int			nfree = 0;

	(void) state;
	zkl_recipe_make_uuid(random, false, zero);
	for (int bit = 0; bit < 128; bit++)
	{
		random[bit / 8] = (uint8_t) (1 << bit % 8);
		zkl_recipe_make_uuid(random, false, uuid);
		nfree += strcmp(uuid, zero) != 0;
		random[bit / 8] = 0;
	}

	/* 128 without 16 of version and mark and 2 of variant */
	assert_int_equal(nfree, 110);
}

static void
a_prefix_is_what_curator_would_write(void **state)
{
	static const struct
	{
		ZklMode		mode;
		const char *prefix;
	}			cases[] = {
		{ZKL_MODE_LOCK, CURATOR},
		{ZKL_MODE_WRITE, WRITER},
		{ZKL_MODE_READ, READER},
		{ZKL_MODE_LEASE, LEASE},
	};
	char		prefix[ZKL_ZNODE_SIZE];

	(void) state;
	for (int i = 0; i < lengthof(cases); i++)
	{
		zkl_recipe_make_prefix(cases[i].mode,
							   "f81d4fae-7dec-41d0-a765-00a0c91e6bf6",
							   prefix);
		assert_string_equal(prefix, cases[i].prefix);
	}
}

static void
the_longest_name_has_room(void **state)
{
	(void) state;
	assert_true(strlen(CURATOR "-2147483648") < ZKL_ZNODE_SIZE);
	assert_true(strlen(WRITER "-2147483648") < ZKL_ZNODE_SIZE);
}

static void
a_name_says_whether_its_maker_only_tries(void **state)
{
	uint64_t	seed = 1;

	(void) state;
	for (int i = 0; i < 2000; i++)
	{
		uint8_t		random[16];
		bool		only_tries = random_below(&seed, 2) == 1;
		bool		said = !only_tries;
		char		uuid[ZKL_UUID_SIZE];
		char		prefix[ZKL_ZNODE_SIZE];
		char		child[2 * ZKL_ZNODE_SIZE];

		random_bytes(&seed, random, sizeof(random));
		zkl_recipe_make_uuid(random, only_tries, uuid);
		zkl_recipe_make_prefix(ZKL_MODE_LOCK, uuid, prefix);
		snprintf(child, sizeof(child), "%s%010d", prefix, i);

		assert_true(zkl_recipe_is_zklock(child, &said));
		assert_int_equal(said, only_tries);
		assert_true(zkl_recipe_sequence_is_sound(child));
		assert_true(is_contender(child));
	}
}

static void
znodes_of_others_are_not_taken_for_zklocks(void **state)
{
	static const char *const children[] = {
		CURATOR "0000000001",
		GO "0000000001",
		KAZOO "0000000001",
		KAZOO_READ "0000000001",
		"_c_01234567-89ab-4b4c-8123-456789abcdef-lock-0000000001",
		"_c_01234567-89ab-8b4e-8123-456789abcdef-lock-0000000001",
		"_c_01234567-89ab-8b5c-8123-456789abcdef-lock-0000000001",
		"_c_01234567-89ab-8B4C-8123-456789abcdef-lock-0000000001",
		"_c_01234567-89ab08b4c-8123-456789abcdef-lock-0000000001",
		"_c_01234567-89ab-8b4c08123-456789abcdef-lock-0000000001",
		"_x_01234567-89ab-8b4c-8123-456789abcdef-lock-0000000001",
		"01234567-89ab-8b4c-8123-456789abcdef-lock-0000000001",
		"_c_01234567-89ab-8b4c-8123",
		"_c_",
		"_c_-lock-0000000001",
		"leases",
		"0",
		"",
	};
	bool		only_tries;

	(void) state;
	for (int i = 0; i < lengthof(children); i++)
	{
		if (zkl_recipe_is_zklock(children[i], &only_tries))
			fail_msg("\"%s\" was taken for zklock's", children[i]);
	}
}

/* Their 32 hex digits can be anything at the place of our mark. */
static void
a_go_zookeeper_name_with_our_mark_in_it_is_not_zklocks(void **state)
{
	bool		only_tries;

	(void) state;
	assert_false(zkl_recipe_is_zklock("_c_f81d4fae7dec418b4da500a0c91e6bf6"
									  "-lock-0000000001", &only_tries));
}

/*
 * Finding a znode again
 */

static void
a_znode_is_found_by_its_uuid(void **state)
{
	const char *const children[] = {
		KAZOO "0000000002",
		CURATOR "0000000003",
		OURS "0000000004",
		OUR_TRY "0000000001",
		"leases",
	};

	(void) state;
	assert_ptr_equal(zkl_recipe_find(ZKL_MODE_LOCK, OUR_UUID,
									 children, lengthof(children)),
					 children[2]);
	assert_ptr_equal(zkl_recipe_find(ZKL_MODE_LOCK,
									 "01234567-89ab-8b4d-8123-456789abcdef",
									 children, lengthof(children)),
					 children[3]);
}

static void
a_znode_that_is_not_there_is_not_found(void **state)
{
	const char *const children[] = {
		CURATOR "0000000003",
		"01234567-89ab-8b4c-8123-456789abcdef-lock-0000000001",
		"_c_01234567-89ab-8b4c-8123-456789abcde-lock-0000000001",
		"_c_01234567-89ab-8b4c-8123-456789abcdef",
		"_c_01234567-89ab-8b4c-8123-456789abcdef-__WRIT__0000000001",
		"x" OURS "0000000001",
	};

	(void) state;
	assert_null(zkl_recipe_find(ZKL_MODE_LOCK, OUR_UUID,
								children, lengthof(children)));
	assert_null(zkl_recipe_find(ZKL_MODE_LOCK, OUR_UUID,
								NULL, 0));
}

/* A ticket has no UUID before its first create is sent. */
static void
without_a_uuid_nothing_is_found(void **state)
{
	const char *const children[] = {
		"_c_-lock-0000000001",
		"_c_-lock-",
		"_c_",
		"",
		CURATOR "0000000003",
	};

	(void) state;
	assert_null(zkl_recipe_find(ZKL_MODE_LOCK, "", children,
								lengthof(children)));
	assert_null(zkl_recipe_find(ZKL_MODE_LOCK, "", NULL, 0));
}

/*
 * Which znode is a contender
 */

static void
znodes_of_all_lock_recipes_are_contenders(void **state)
{
	static const char *const children[] = {
		CURATOR "0000000001",
		CURATOR "2147483647",
		CURATOR "-2147483648",
		GO "0000000001",
		KAZOO "0000000001",
		KAZOO "-2147483648",
		KAZOO_READ "0000000001",
		OURS "0000000001",
		OUR_TRY "0000000001",
		WRITER "0000000001",
		READER "0000000001",
		READER "-2147483648",
		LEASE "0000000001",
		"__WRIT__0000000001",
		"__READ__0000000001",
		"lease-0000000001",
		"lock-0000000001",
		"x-lock-0000000001",
		"__lock__0000000001",
		"my-lock-lock-0000000001",
		"block-0000000001",
	};

	(void) state;
	for (int i = 0; i < lengthof(children); i++)
	{
		if (!is_contender(children[i]))
			fail_msg("\"%s\" is no contender", children[i]);
	}
}

/* Curator gives them the empty key, which goes before all others. */
static void
a_lock_znode_without_a_number_is_a_contender(void **state)
{
	(void) state;
	assert_true(is_contender("lock-"));
	assert_true(is_contender("_c_x-lock-"));
	assert_true(is_contender(CURATOR));
}

/* kazoo ignores its own without a number. */
static void
a_kazoo_znode_without_a_number_is_no_contender(void **state)
{
	(void) state;
	assert_false(is_contender("__lock__"));
	assert_false(is_contender(KAZOO_READ));
}

static void
junk_is_no_contender(void **state)
{
	static const char *const children[] = {
		"", "0", "0000000001", "-0000000001", "-x", "!", "abc", "1.5", "zz",
		"leases", "locks", "lock", "_lock_0000000001", "lock_0000000001",
		"lease_holder", "-", "lock-abc", "lock--", "lock-x0000000001",
		"lock-0000000001x", "lock- 000000001", "lock-+000000001",
		"lock-0x00000001", "LOCK-0000000001", "lock-0000000001 ",
		CURATOR "1", CURATOR "000000001", CURATOR "00000000001",
		CURATOR "-1", CURATOR "-00000001", CURATOR "-00000000001",
		CURATOR "--000000001", CURATOR "000000-001",
		KAZOO "1", KAZOO "00000000001", KAZOO "x", KAZOO_READ "-1",
		"f81d4fae7dec41d0a76500a0c91e6bf6",
		WRITER, READER, LEASE, "__WRIT__", "__READ__", "lease-",
		WRITER "1", READER "00000000001", LEASE "x", WRITER "-1",
		"__WRIT_0000000001", "_WRIT__0000000001", "__writ__0000000001",
		"__READ__0000000001x", "lease0000000001", "leases-0000000001",
		"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-latch-0000000001",
		"lock-0000000001-lock-x", "lock-0000000001lock-1",
	};

	(void) state;
	for (int i = 0; i < lengthof(children); i++)
	{
		if (is_contender(children[i]))
			fail_msg("\"%s\" is a contender", children[i]);
	}
}

/* As Curator does: the mark may also be in what a client put before it. */
static void
the_last_mark_counts(void **state)
{
	(void) state;
	assert_owns(judge("lock-0000000009-lock-0000000001",
					  "lock-0000000009-lock-0000000001",
					  CURATOR "0000000002"));
	assert_waits_for(judge(CURATOR "0000000002",
						   CURATOR "0000000002",
						   "lock-0000000009__lock__0000000001"),
					 "lock-0000000009__lock__0000000001");
}

/*
 * Sequence numbers
 */

static void
sequence_numbers_are_sound_up_to_the_limit(void **state)
{
	static const struct
	{
		const char *child;
		bool		sound;
	}			cases[] = {
		{CURATOR "0000000000", true},
		{CURATOR "0000000001", true},
		{CURATOR "0999999999", true},
		{CURATOR "1000000000", true},
		{CURATOR "1999999999", true},
		{CURATOR "2000000000", false},
		{CURATOR "2000000001", false},
		{CURATOR "2147483646", false},
		{CURATOR "2147483647", false},
		{CURATOR "2147483648", false},
		{CURATOR "9999999999", false},
		{CURATOR "-2147483648", false},
		{CURATOR "-2147483647", false},
		{CURATOR "-1000000000", false},
		{CURATOR "-999999999", false},
		{CURATOR "-000000001", false},
		{KAZOO "1999999999", true},
		{KAZOO "2000000000", false},
		{KAZOO_READ "1999999999", true},
		{KAZOO_READ "2000000000", false},
		{CURATOR, false},
		{CURATOR "1", false},
		{CURATOR "00000000001", false},
		{"0000000001", false},
		{"abc", false},
		{"", false},
	};

	(void) state;
	assert_int_equal(ZKL_SEQUENCE_LIMIT, 2000000000);
	for (int i = 0; i < lengthof(cases); i++)
	{
		if (zkl_recipe_sequence_is_sound(cases[i].child) != cases[i].sound)
			fail_msg("\"%s\": should be %s", cases[i].child,
					 cases[i].sound ? "sound" : "unsound");
	}
}

/*
 * Which znode goes first
 */

static void
the_first_znode_ever_has_number_zero(void **state)
{
	(void) state;
	assert_true(zkl_recipe_is_first_ever(OURS "0000000000"));
	assert_false(zkl_recipe_is_first_ever(OURS "0000000001"));
	assert_false(zkl_recipe_is_first_ever(OURS "-2147483648"));
	assert_false(zkl_recipe_is_first_ever(OURS));
	assert_false(zkl_recipe_is_first_ever("0000000000"));
}

static void
alone_in_the_directory_one_owns_the_lock(void **state)
{
	ZklVerdict	verdict = judge(OURS "0000000000", OURS "0000000000");

	(void) state;
	assert_owns(verdict);
	assert_false(verdict.contended);
}

static void
the_lowest_number_owns_the_lock(void **state)
{
	ZklVerdict	verdict = judge(OURS "0000000005",
								CURATOR "0000000007",
								OURS "0000000005",
								KAZOO "0000000006");

	(void) state;
	assert_owns(verdict);
	assert_true(verdict.contended);
}

static void
the_nearest_predecessor_is_watched_and_not_the_owner(void **state)
{
	ZklVerdict	verdict = judge(OURS "0000000009",
								CURATOR "0000000002",
								CURATOR "0000000008",
								OURS "0000000009",
								CURATOR "0000000005");

	(void) state;
	assert_waits_for(verdict, CURATOR "0000000008");
	assert_string_equal(verdict.front, CURATOR "0000000002");
	assert_false(verdict.contended);
}

static void
the_middle_of_the_queue_is_contended_too(void **state)
{
	ZklVerdict	verdict = judge(OURS "0000000009",
								CURATOR "0000000010",
								CURATOR "0000000008",
								OURS "0000000009");

	(void) state;
	assert_waits_for(verdict, CURATOR "0000000008");
	assert_true(verdict.contended);
}

static void
uuids_do_not_order(void **state)
{
	(void) state;
	assert_owns(judge("_c_ffffffff-89ab-8b4c-8123-456789abcdef-lock-0000000001",
					  "_c_00000000-89ab-8b4c-8123-456789abcdef-lock-0000000002",
					  "_c_ffffffff-89ab-8b4c-8123-456789abcdef-lock-0000000001"));
}

static void
every_kind_of_client_is_waited_for(void **state)
{
	static const char *const predecessors[] = {
		CURATOR "0000000004", GO "0000000004", KAZOO "0000000004",
		KAZOO_READ "0000000004", OUR_TRY "0000000004", "lock-0000000004",
	};

	(void) state;
	for (int i = 0; i < lengthof(predecessors); i++)
		assert_waits_for(judge(OURS "0000000005",
							   CURATOR "0000000003",
							   OURS "0000000005",
							   predecessors[i],
							   KAZOO "0000000006"),
						 predecessors[i]);
}

static void
every_kind_of_client_behind_makes_the_lock_contended(void **state)
{
	static const char *const successors[] = {
		CURATOR "0000000006", GO "0000000006", KAZOO "0000000006",
		KAZOO_READ "0000000006", OUR_TRY "0000000006", "lock-0000000006",
	};

	(void) state;
	for (int i = 0; i < lengthof(successors); i++)
	{
		ZklVerdict	verdict = judge(OURS "0000000005", successors[i],
									OURS "0000000005");

		assert_owns(verdict);
		assert_true(verdict.contended);
	}
}

/*
 * Some of these block Curator's own mutex; no client owns the
 * lock by them, so it is safe not to wait.
 */
static void
junk_neither_goes_before_nor_queues_behind(void **state)
{
	ZklVerdict	verdict = judge(OURS "0000000005",
								"0", "0000000001", "-x", "!", "abc", "leases",
								"locks", "zz", "1.5",
								OURS "0000000005",
								"_c_x-__WRIT__1", "__READ__x",
								LEASE "0000000001", LEASE "0000000009",
								CURATOR "1", CURATOR "00000000009", "");

	(void) state;
	assert_owns(verdict);
	assert_false(verdict.contended);
}

/* It looks only at its own kind, so it leads whatever else is there. */
static void
a_leader_latch_is_another_kind_wherever_it_stands(void **state)
{
	static const char *const latches[] = {
		"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-latch-0000000004",
		"_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-latch-0000000006",
	};

	(void) state;
	for (int i = 0; i < lengthof(latches); i++)
	{
		ZklVerdict	verdict = judge(OURS "0000000005", OURS "0000000003",
									latches[i], OURS "0000000005");

		assert_true(verdict.found);
		assert_true(verdict.other_kind);
		assert_null(verdict.ask);
		assert_false(verdict.next);
	}
	assert_string_equal(zkl_recipe_latch_key(latches[0]), "0000000004");
	assert_string_equal(zkl_recipe_latch_key("latch--2147483648"), "-2147483648");
	assert_null(zkl_recipe_latch_key(OURS "0000000005"));
	assert_null(zkl_recipe_latch_key("latch-x"));
	assert_false(judge(OURS "0000000005", OURS "0000000005",
					   "latch-x").other_kind);
}

static void
a_lock_znode_without_a_number_goes_first(void **state)
{
	(void) state;
	assert_waits_for(judge(OURS "0000000000", OURS "0000000000", "lock-"),
					 "lock-");
	assert_waits_for(judge(OURS "0000000000", "_c_x-lock-",
						   OURS "0000000000"),
					 "_c_x-lock-");

	/* ... and is no nearer than any znode with a number */
	assert_waits_for(judge(OURS "0000000005", "lock-", CURATOR "0000000004",
						   OURS "0000000005"),
					 CURATOR "0000000004");
}

/* ZooKeeper never gives a number twice; a client that forges one makes us wait. */
static void
an_equal_number_goes_before(void **state)
{
	ZklVerdict	verdict = judge(OURS "0000000005",
								OURS "0000000005", CURATOR "0000000005");

	(void) state;
	assert_waits_for(verdict, CURATOR "0000000005");
	assert_false(verdict.contended);
	assert_waits_for(judge(OURS "0000000005",
						   CURATOR "0000000004",
						   KAZOO "0000000005",
						   OURS "0000000005"),
					 KAZOO "0000000005");
}

/* The same number in the same string is the znode itself. */
static void
a_list_that_repeats_the_own_name_changes_nothing(void **state)
{
	(void) state;
	assert_owns(judge(OURS "0000000005", OURS "0000000005",
					  OURS "0000000005"));
}

static void
who_is_not_in_the_list_owns_nothing(void **state)
{
	ZklVerdict	verdict = judge(OURS "0000000005", CURATOR "0000000006");

	(void) state;
	assert_false(verdict.found);
	assert_false(verdict.owned);
	verdict = judge(OURS "0000000005", CURATOR "0000000004");
	assert_false(verdict.found);
	assert_false(verdict.owned);
}

static void
in_an_empty_list_nobody_owns_anything(void **state)
{
	ZklVerdict	verdict = zkl_recipe_judge(ZKL_MODE_LOCK, OURS "0000000005",
										   NULL, 0);

	(void) state;
	assert_false(verdict.found);
	assert_false(verdict.owned);
	assert_false(verdict.contended);
	assert_null(verdict.predecessor);
}

static void
who_is_no_contender_owns_nothing(void **state)
{
	(void) state;
	assert_false(judge("abc", "abc").owned);
	assert_false(judge("0000000001", "0000000001").owned);
	assert_false(judge(OURS "1", OURS "1").owned);
	assert_false(judge("", "").owned);
}

/*
 * Behind 2147483647 the numbers are negative, and a string comparison puts
 * them first.  All clients do so; sequence_is_sound keeps us out of it.
 */
static void
negative_numbers_are_compared_as_the_others_do(void **state)
{
	(void) state;
	assert_waits_for(judge(OURS "2147483647",
						   OURS "2147483647", CURATOR "-2147483648"),
					 CURATOR "-2147483648");
	assert_waits_for(judge(OURS "-2147483648",
						   OURS "-2147483648", CURATOR "-2147483647"),
					 CURATOR "-2147483647");
	assert_waits_for(judge(OURS "0000000000",
						   OURS "0000000000", KAZOO "-000000001"),
					 KAZOO "-000000001");
	assert_owns(judge(OURS "-000000001",
					  OURS "-000000001", CURATOR "-999999999",
					  CURATOR "-1000000000", CURATOR "0000000000"));
}

/*
 * Generated lists
 */

#define MAX_CHILDREN	40

typedef struct Child
{
	char		name[80];
	bool		contends;
	int64_t		number;			/* where it contends */
} Child;

typedef struct List
{
	int			nchildren;
	Child		children[MAX_CHILDREN];
	const char *names[MAX_CHILDREN];
} List;

static void
make_contender(uint64_t *seed, Child *child, int64_t number)
{
	static const char *const forms[] = {
		"_c_%08x-1234-4678-9abc-def012345678-lock-%010" PRId64,
		"_c_%08x-1234-8b4c-9abc-def012345678-lock-%010" PRId64,
		"_c_%08x-1234-8b4d-9abc-def012345678-lock-%010" PRId64,
		"_c_%08x12344678abcddef012345678-lock-%010" PRId64,
		"%08x12344678abcddef012345678__lock__%010" PRId64,
		"%08x12344678abcddef012345678__rlock__%010" PRId64,
	};

	child->contends = true;
	child->number = number;
	snprintf(child->name, sizeof(child->name),
			 forms[random_below(seed, lengthof(forms))],
			 (unsigned) random_below(seed, UINT32_MAX), number);
}

static void
make_junk(uint64_t *seed, Child *child)
{
	static const char *const forms[] = {
		"%u", "%010u", "-%u", "!%u", "junk%u", "leases%u", "lock-%u-junk",
		"_c_x-lock-x%u", "_c_x-__WRIT__%u", "_c_x-__READ__x%u",
		"_c_x-lease-%011u", "__lock__%012u", "lock-%012u", "__rlock__x%u",
	};

	child->contends = false;
	snprintf(child->name, sizeof(child->name),
			 forms[random_below(seed, lengthof(forms))],
			 (unsigned) random_below(seed, 1000));
}

static void
shuffle(uint64_t *seed, List *list)
{
	for (int i = 0; i < list->nchildren; i++)
	{
		int			j = (int) random_below(seed, (uint32_t) i + 1);

		list->names[i] = list->names[j];
		list->names[j] = list->children[i].name;
	}
}

/* Contenders whose numbers grow by random steps, and junk among them. */
static void
make_list(uint64_t *seed, List *list)
{
	int64_t		number = random_below(seed, 2) ? 0 : 1999999000;

	list->nchildren = (int) random_below(seed, MAX_CHILDREN) + 1;
	for (int i = 0; i < list->nchildren; i++)
	{
		if (random_below(seed, 3) == 0)
			make_junk(seed, &list->children[i]);
		else
		{
			make_contender(seed, &list->children[i], number);
			number += 1 + random_below(seed, random_below(seed, 2) ? 2 : 100000);
		}
	}
	shuffle(seed, list);
}

/* The rule once more: children are made in the order of their numbers. */
static const Child *
neighbour(const List *list, int of, int direction)
{
	for (int i = of + direction; i >= 0 && i < list->nchildren; i += direction)
	{
		if (list->children[i].contends)
			return &list->children[i];
	}
	return NULL;
}

static void
check_verdict(const List *list, int of)
{
	const Child *me = &list->children[of];
	const Child *before = neighbour(list, of, -1);
	const Child *behind = neighbour(list, of, 1);
	ZklVerdict	verdict = zkl_recipe_judge(ZKL_MODE_LOCK, me->name,
										   list->names, list->nchildren);

	if (!me->contends)
	{
		assert_false(is_contender(me->name));
		assert_false(verdict.owned);
		return;
	}
	assert_true(is_contender(me->name));
	assert_int_equal(zkl_recipe_sequence_is_sound(me->name),
					 me->number < 2000000000);
	assert_int_equal(verdict.contended, behind != NULL);
	if (before == NULL)
		assert_owns(verdict);
	else
		assert_waits_for(verdict, before->name);
	assert_int_equal(verdict.next, before != NULL &&
					 neighbour(list, (int) (before - list->children), -1) == NULL);
}

static void
in_generated_lists_all_wait_for_their_neighbour(void **state)
{
	uint64_t	seed = 20;

	(void) state;
	for (int round = 0; round < 5000; round++)
	{
		List		list;

		make_list(&seed, &list);
		for (int i = 0; i < list.nchildren; i++)
			check_verdict(&list, i);
	}
}

/* No owner: no client works.  Two: both do.  A gap: a client waits for ever. */
static void
generated_queues_have_one_owner_and_no_gap(void **state)
{
	uint64_t	seed = 21;

	(void) state;
	for (int round = 0; round < 2000; round++)
	{
		List		list;
		int			ncontenders = 0;
		int			nowners = 0;
		bool		is_waited_for[MAX_CHILDREN] = {false};

		make_list(&seed, &list);
		for (int i = 0; i < list.nchildren; i++)
		{
			ZklVerdict	verdict;

			if (!list.children[i].contends)
				continue;
			ncontenders++;
			verdict = zkl_recipe_judge(ZKL_MODE_LOCK,
									   list.children[i].name, list.names,
									   list.nchildren);
			nowners += verdict.owned;
			for (int j = 0; j < list.nchildren && !verdict.owned; j++)
			{
				if (verdict.predecessor != list.children[j].name)
					continue;
				assert_false(is_waited_for[j]);
				is_waited_for[j] = true;
			}
		}
		assert_int_equal(nowners, ncontenders > 0);
	}
}

/*
 * The order of Curator's sort for any key: compare as if a key went on in
 * blanks.  Used where numbers alone do not order: negative, equal, missing.
 */
typedef struct Key
{
	char		text[12];
	const char *name;
} Key;

static int
compare_keys(const void *a, const void *b)
{
	return memcmp(((const Key *) a)->text, ((const Key *) b)->text, 12);
}

static void
make_odd_key(uint64_t *seed, Key *key, char *name, size_t size)
{
	static const int64_t numbers[] = {
		0, 1, 1999999999, 2000000000, 2147483646, 2147483647,
		-2147483647 - 1, -2147483647, -1000000000, -999999999, -2, -1
	};
	char		text[13] = "";

	if (random_below(seed, 10) > 0)
		snprintf(text, sizeof(text), "%010" PRId64,
				 numbers[random_below(seed, lengthof(numbers))]);
	snprintf(name, size, "_c_%08x-lock-%s",
			 (unsigned) random_below(seed, UINT32_MAX), text);
	memset(key->text, ' ', sizeof(key->text));
	memcpy(key->text, text, strlen(text));
	key->name = name;
}

static void
generated_odd_numbers_are_ordered_as_curator_orders_them(void **state)
{
	uint64_t	seed = 22;

	(void) state;
	for (int round = 0; round < 5000; round++)
	{
		char		names[8][40];
		const char *children[8];
		Key			keys[8];
		int			n = 1 + (int) random_below(&seed, 8);

		for (int i = 0; i < n; i++)
		{
			make_odd_key(&seed, &keys[i], names[i], sizeof(names[i]));
			children[i] = names[i];
		}
		qsort(keys, (size_t) n, sizeof(Key), compare_keys);

		for (int i = 0; i < n; i++)
		{
			ZklVerdict	verdict = zkl_recipe_judge(ZKL_MODE_LOCK,
												   keys[i].name, children, n);
			int			last = i;
			bool		alone_first;

			/* to the end of those that are equal: they all go before me */
			while (last + 1 < n && compare_keys(&keys[i], &keys[last + 1]) == 0)
				last++;
			alone_first = last == 0;
			assert_true(verdict.found);
			assert_int_equal(verdict.owned, alone_first);
			assert_int_equal(verdict.contended, last < n - 1);
			if (!alone_first)
			{
				const Key  *nearest = &keys[last == i ? i - 1 : last];

				assert_non_null(verdict.predecessor);
				assert_string_equal(strstr(verdict.predecessor, "lock-"),
									strstr(nearest->name, "lock-"));
				assert_true(strcmp(verdict.predecessor, keys[i].name) != 0);
			}
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_uuid_has_version_8_and_the_variant_of_rfc_9562),
		cmocka_unit_test(one_bit_of_a_uuid_says_that_it_only_tries),
		cmocka_unit_test(every_free_bit_of_a_uuid_is_random),
		cmocka_unit_test(a_prefix_is_what_curator_would_write),
		cmocka_unit_test(the_longest_name_has_room),
		cmocka_unit_test(a_name_says_whether_its_maker_only_tries),
		cmocka_unit_test(znodes_of_others_are_not_taken_for_zklocks),
		cmocka_unit_test(a_go_zookeeper_name_with_our_mark_in_it_is_not_zklocks),
		cmocka_unit_test(a_znode_is_found_by_its_uuid),
		cmocka_unit_test(a_znode_that_is_not_there_is_not_found),
		cmocka_unit_test(without_a_uuid_nothing_is_found),
		cmocka_unit_test(znodes_of_all_lock_recipes_are_contenders),
		cmocka_unit_test(a_lock_znode_without_a_number_is_a_contender),
		cmocka_unit_test(a_kazoo_znode_without_a_number_is_no_contender),
		cmocka_unit_test(junk_is_no_contender),
		cmocka_unit_test(the_last_mark_counts),
		cmocka_unit_test(sequence_numbers_are_sound_up_to_the_limit),
		cmocka_unit_test(the_first_znode_ever_has_number_zero),
		cmocka_unit_test(alone_in_the_directory_one_owns_the_lock),
		cmocka_unit_test(the_lowest_number_owns_the_lock),
		cmocka_unit_test(the_nearest_predecessor_is_watched_and_not_the_owner),
		cmocka_unit_test(the_middle_of_the_queue_is_contended_too),
		cmocka_unit_test(uuids_do_not_order),
		cmocka_unit_test(every_kind_of_client_is_waited_for),
		cmocka_unit_test(every_kind_of_client_behind_makes_the_lock_contended),
		cmocka_unit_test(junk_neither_goes_before_nor_queues_behind),
		cmocka_unit_test(a_leader_latch_is_another_kind_wherever_it_stands),
		cmocka_unit_test(a_lock_znode_without_a_number_goes_first),
		cmocka_unit_test(an_equal_number_goes_before),
		cmocka_unit_test(a_list_that_repeats_the_own_name_changes_nothing),
		cmocka_unit_test(who_is_not_in_the_list_owns_nothing),
		cmocka_unit_test(in_an_empty_list_nobody_owns_anything),
		cmocka_unit_test(who_is_no_contender_owns_nothing),
		cmocka_unit_test(negative_numbers_are_compared_as_the_others_do),
		cmocka_unit_test(in_generated_lists_all_wait_for_their_neighbour),
		cmocka_unit_test(generated_queues_have_one_owner_and_no_gap),
		cmocka_unit_test(generated_odd_numbers_are_ordered_as_curator_orders_them),
	};

	return cmocka_run_group_tests_name("recipe", tests, NULL, NULL);
}
