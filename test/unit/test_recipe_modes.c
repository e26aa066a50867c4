/*-------------------------------------------------------------------------
 *
 * test_recipe_modes.c
 *	  Read-write locks, semaphores, and znodes of another kind.
 *
 * The generated queues at the end state the rule of read-write locks in
 * another way than recipe.c: they know which znode excludes which, and never look at
 * a name.
 *
 * test/unit/test_recipe_modes.c
 *
 *-------------------------------------------------------------------------
 */
#include "names.h"

#define NMODES	(ZKL_MODE_KAZOO_READ + 1)

/*
 * Names
 */

static void
a_name_tells_mode_client_and_key(void **state)
{
	static const struct
	{
		const char *child;
		ZklMode		mode;
		ZklClient	client;
		const char *key;
	}			cases[] = {
		{CURATOR "0000000001", ZKL_MODE_LOCK, ZKL_CLIENT_CURATOR, "0000000001"},
		{WRITER "0000000002", ZKL_MODE_WRITE, ZKL_CLIENT_CURATOR, "0000000002"},
		{READER "0000000003", ZKL_MODE_READ, ZKL_CLIENT_CURATOR, "0000000003"},
		{LEASE "0000000004", ZKL_MODE_LEASE, ZKL_CLIENT_CURATOR, "0000000004"},
		{GO "0000000005", ZKL_MODE_LOCK, ZKL_CLIENT_CURATOR, "0000000005"},
		{OURS "0000000001", ZKL_MODE_LOCK, ZKL_CLIENT_ZKLOCK, "0000000001"},
		{OUR_TRY "0000000001", ZKL_MODE_LOCK, ZKL_CLIENT_ZKLOCK, "0000000001"},
		{OUR_WRITER "0000000002", ZKL_MODE_WRITE, ZKL_CLIENT_ZKLOCK, "0000000002"},
		{OUR_READER "0000000003", ZKL_MODE_READ, ZKL_CLIENT_ZKLOCK, "0000000003"},
		{OUR_LEASE "0000000004", ZKL_MODE_LEASE, ZKL_CLIENT_ZKLOCK, "0000000004"},
		{KAZOO "0000000006", ZKL_MODE_KAZOO_LOCK, ZKL_CLIENT_KAZOO, "0000000006"},
		{KAZOO_READ "0000000007", ZKL_MODE_KAZOO_READ, ZKL_CLIENT_KAZOO, "0000000007"},
		{"lock-0000000008", ZKL_MODE_LOCK, ZKL_CLIENT_UNKNOWN, "0000000008"},
		{"x__WRIT__0000000008", ZKL_MODE_WRITE, ZKL_CLIENT_UNKNOWN, "0000000008"},
		{"__READ__-2147483648", ZKL_MODE_READ, ZKL_CLIENT_UNKNOWN, "-2147483648"},
		{"lease--999999999", ZKL_MODE_LEASE, ZKL_CLIENT_UNKNOWN, "-999999999"},
		{CURATOR, ZKL_MODE_LOCK, ZKL_CLIENT_CURATOR, ""},
		{"lock-", ZKL_MODE_LOCK, ZKL_CLIENT_UNKNOWN, ""},
		/* the mark next to the number counts */
		{"lock-__WRIT__0000000001", ZKL_MODE_WRITE, ZKL_CLIENT_UNKNOWN, "0000000001"},
		{"__WRIT__lock-0000000001", ZKL_MODE_LOCK, ZKL_CLIENT_UNKNOWN, "0000000001"},
		{"__WRIT____READ__0000000001", ZKL_MODE_READ, ZKL_CLIENT_UNKNOWN, "0000000001"},
		{"__READ__0000000009__WRIT__0000000001", ZKL_MODE_WRITE, ZKL_CLIENT_UNKNOWN, "0000000001"},
		{"x__lock____rlock__0000000001", ZKL_MODE_KAZOO_READ, ZKL_CLIENT_KAZOO, "0000000001"},
		{"x__rlock____lock__0000000001", ZKL_MODE_KAZOO_LOCK, ZKL_CLIENT_KAZOO, "0000000001"},
	};

	(void) state;
	for (int i = 0; i < lengthof(cases); i++)
	{
		const char *child = cases[i].child;
		ZklContender contender;

		if (!zkl_recipe_parse(child, &contender) ||
			contender.mode != cases[i].mode ||
			contender.client != cases[i].client)
			fail_msg("\"%s\" is read wrongly", child);
		assert_string_equal(contender.key, cases[i].key);
		assert_ptr_equal(contender.key,
						 child + strlen(child) - strlen(contender.key));
	}
}

static void
a_mode_has_a_kind(void **state)
{
	static const ZklKind kinds[NMODES] = {
		[ZKL_MODE_LOCK] = ZKL_KIND_MUTEX,
		[ZKL_MODE_WRITE] = ZKL_KIND_READ_WRITE,
		[ZKL_MODE_READ] = ZKL_KIND_READ_WRITE,
		[ZKL_MODE_LEASE] = ZKL_KIND_SEMAPHORE,
		[ZKL_MODE_KAZOO_LOCK] = ZKL_KIND_MUTEX,
		[ZKL_MODE_KAZOO_READ] = ZKL_KIND_READ_WRITE,
	};

	(void) state;
	for (int mode = 0; mode < NMODES; mode++)
		assert_int_equal(zkl_recipe_kind((ZklMode) mode), kinds[mode]);
}

static void
a_ticket_serves_its_mode_and_a_writers_readers_too(void **state)
{
	(void) state;
	for (int ticket = 0; ticket < NMODES; ticket++)
	{
		for (int claim = 0; claim < NMODES; claim++)
			assert_int_equal(zkl_recipe_serves((ZklMode) ticket,
											   (ZklMode) claim),
							 ticket == claim ||
							 (ticket == ZKL_MODE_WRITE &&
							  claim == ZKL_MODE_READ));
	}
}

static void
a_znode_is_found_under_its_mode_only(void **state)
{
	const char *const children[] = {
		OURS "0000000001", OUR_WRITER "0000000002", OUR_READER "0000000003",
		OUR_LEASE "0000000004",
	};
	const char *const others[] = {
		CURATOR "0000000001", WRITER "0000000002", "leases",
		"_c_" OUR_UUID "-latch-0000000001", "_c_01234567-89ab-8b4c-8123-456789abcdef",
	};

	(void) state;
	for (int mode = ZKL_MODE_LOCK; mode <= ZKL_MODE_LEASE; mode++)
	{
		assert_ptr_equal(zkl_recipe_find((ZklMode) mode, OUR_UUID, children,
										 lengthof(children)),
						 children[mode]);
		assert_null(zkl_recipe_find((ZklMode) mode, OUR_UUID, others,
									lengthof(others)));
		assert_null(zkl_recipe_find((ZklMode) mode, "", children,
									lengthof(children)));
		for (int i = 0; i < lengthof(children); i++)
		{
			const char *found = zkl_recipe_find((ZklMode) mode, OUR_UUID,
												&children[i], 1);

			assert_int_equal(found != NULL, i == mode);
		}
	}
}

static void
a_downgrade_only_changes_the_mark(void **state)
{
	static const struct
	{
		const char *writer;
		const char *reader;
	}			cases[] = {
		{OUR_WRITER "0000000005", OUR_READER "0000000005"},
		{WRITER "1999999999", READER "1999999999"},
		{WRITER "-2147483648", READER "-2147483648"},
		{"__WRIT__0000000005", "__READ__0000000005"},
		{"_c___WRIT__-__WRIT__0000000005", "_c___WRIT__-__READ__0000000005"},
		{"_c___READ__-__WRIT__0000000005", "_c___READ__-__READ__0000000005"},
		{"lock-__WRIT____WRIT__0000000005", "lock-__WRIT____READ__0000000005"},
		{"_c_%s%n-__WRIT__0000000005", "_c_%s%n-__READ__0000000005"},
		/* marks that overlap: the last is what counts */
		{"__WRIT__WRIT__0000000005", "__WRIT__READ__0000000005"},
	};

	(void) state;
	for (int i = 0; i < lengthof(cases); i++)
	{
		char		reader[ZKL_ZNODE_SIZE];

		zkl_recipe_make_downgrade(cases[i].writer, reader);
		assert_string_equal(reader, cases[i].reader);
	}
}

/* ... so it has the place of the writer's, and its maker's mark. */
static void
a_downgraded_name_has_the_writers_key(void **state)
{
	uint64_t	seed = 30;

	(void) state;
	for (int i = 0; i < 2000; i++)
	{
		uint8_t		random[16];
		bool		only_tries = random_below(&seed, 2) == 1;
		bool		said = !only_tries;
		char		uuid[ZKL_UUID_SIZE];
		char		prefix[ZKL_ZNODE_SIZE];
		char		writer[2 * ZKL_ZNODE_SIZE];
		char		reader[ZKL_ZNODE_SIZE];
		ZklContender contender;

		random_bytes(&seed, random, sizeof(random));
		zkl_recipe_make_uuid(random, only_tries, uuid);
		zkl_recipe_make_prefix(ZKL_MODE_WRITE, uuid, prefix);
		snprintf(writer, sizeof(writer), "%s%010d", prefix,
				 (int) random_below(&seed, ZKL_SEQUENCE_LIMIT));
		zkl_recipe_make_downgrade(writer, reader);

		assert_true(zkl_recipe_parse(reader, &contender));
		assert_int_equal(contender.mode, ZKL_MODE_READ);
		assert_int_equal(contender.client, ZKL_CLIENT_ZKLOCK);
		assert_string_equal(contender.key, writer + strlen(prefix));
		assert_true(zkl_recipe_is_zklock(reader, &said));
		assert_int_equal(said, only_tries);
		assert_true(zkl_recipe_sequence_is_sound(reader));
		assert_non_null(zkl_recipe_find(ZKL_MODE_READ, uuid,
										(const char *const []) {reader}, 1));
	}
}

/*
 * Which znode concerns which
 */

typedef enum Concern
{
	NONE,
	RIVAL,
	OTHER
} Concern;

static const char *const marks[NMODES] = {
	[ZKL_MODE_LOCK] = "lock-",
	[ZKL_MODE_WRITE] = "__WRIT__",
	[ZKL_MODE_READ] = "__READ__",
	[ZKL_MODE_LEASE] = "lease-",
	[ZKL_MODE_KAZOO_LOCK] = "__lock__",
	[ZKL_MODE_KAZOO_READ] = "__rlock__",
};

static const Concern concerns[][NMODES] = {
	/* LOCK, WRITE, READ, LEASE, kazoo's lock and read lock */
	[ZKL_MODE_LOCK] = {RIVAL, OTHER, OTHER, NONE, RIVAL, RIVAL},
	[ZKL_MODE_WRITE] = {OTHER, RIVAL, RIVAL, NONE, RIVAL, RIVAL},
	[ZKL_MODE_READ] = {OTHER, RIVAL, NONE, NONE, RIVAL, NONE},
};

static void
every_mode_meets_every_mode_before_and_behind(void **state)
{
	(void) state;
	for (int mine = 0; mine < lengthof(concerns); mine++)
	{
		for (int other = 0; other < NMODES; other++)
		{
			for (int number = 4; number <= 6; number++)
			{
				Concern		concern = concerns[mine][other];
				bool		before = number <= 5;	/* equal, too */
				char		me[ZKL_ZNODE_SIZE];
				char		them[ZKL_ZNODE_SIZE];
				ZklVerdict	verdict;

				snprintf(me, sizeof(me), "_c_me-%s0000000005", marks[mine]);
				snprintf(them, sizeof(them), "_c_them-%s%010d", marks[other],
						 number);
				verdict = judge_as((ZklMode) mine, me, them, me);
				assert_true(verdict.found);
				assert_false(verdict.maybe_semaphore);
				assert_int_equal(verdict.other_kind,
								 before && concern == OTHER);
				assert_int_equal(verdict.contended,
								 !before && concern == RIVAL);
				if (before && concern == RIVAL)
					assert_waits_for(verdict, them);
				else
					assert_owns(verdict);

				/* A writer's znode may give way to a reader's. */
				assert_int_equal(verdict.next, before && concern == RIVAL &&
								 (mine != ZKL_MODE_WRITE || other != ZKL_MODE_WRITE));
			}
		}
	}
}

static void
of_another_kind_nobody_is_next(void **state)
{
	(void) state;
	assert_false(judge(OURS "0000000009", OURS "0000000003",
					   OUR_WRITER "0000000002", OURS "0000000009").next);
}

static void
where_two_are_before_nobody_is_next(void **state)
{
	(void) state;
	assert_false(judge_read(OUR_READER "0000000009", OUR_WRITER "0000000003",
							OUR_WRITER "0000000004",
							OUR_READER "0000000009").next);
	assert_true(judge_read(OUR_READER "0000000009", OUR_READER "0000000003",
						   OUR_WRITER "0000000004",
						   OUR_READER "0000000009").next);
}

/* While a downgrade is under way, there are two of the same number. */
static void
a_reader_waits_for_the_writer_whose_place_it_takes(void **state)
{
	(void) state;
	assert_waits_for(judge_read(OUR_READER "0000000005",
								OUR_READER "0000000005",
								OUR_WRITER "0000000005"),
					 OUR_WRITER "0000000005");
	assert_waits_for(judge_read(OUR_READER "0000000005",
								OUR_WRITER "0000000005",
								WRITER "0000000004",
								OUR_READER "0000000005"),
					 OUR_WRITER "0000000005");
	assert_owns(judge_read(OUR_READER "0000000005",
						   OUR_READER "0000000005", WRITER "0000000006"));
	assert_true(judge_read(OUR_READER "0000000005",
						   OUR_READER "0000000005",
						   WRITER "0000000006").contended);
}

/* Others see one writer until it goes, and one reader from then on. */
static void
others_wait_for_either_znode_of_a_downgrade(void **state)
{
	(void) state;
	assert_waits_for(judge_read(OUR_READER "0000000007",
								WRITER "0000000005", READER "0000000005",
								OUR_READER "0000000007"),
					 WRITER "0000000005");
	assert_owns(judge_read(OUR_READER "0000000007",
						   READER "0000000005", OUR_READER "0000000007"));
	assert_waits_for(judge_write(OUR_WRITER "0000000007",
								 READER "0000000005",
								 OUR_WRITER "0000000007"),
					 READER "0000000005");
	assert_false(judge_write(OUR_WRITER "0000000007",
							 WRITER "0000000005", READER "0000000005",
							 OUR_WRITER "0000000007").owned);
}

static void
a_reader_watches_the_last_writer_before_it(void **state)
{
	ZklVerdict	verdict = judge_read(OUR_READER "0000000009",
									 WRITER "0000000012",
									 WRITER "0000000003",
									 READER "0000000008",
									 WRITER "0000000006",
									 OUR_READER "0000000009",
									 KAZOO_READ "0000000007",
									 WRITER "0000000001");

	(void) state;
	assert_waits_for(verdict, WRITER "0000000006");
	assert_true(verdict.contended);
	assert_waits_for(judge_read(OUR_READER "0000000009",
								WRITER "0000000006", KAZOO "0000000007",
								OUR_READER "0000000009"),
					 KAZOO "0000000007");
}

static void
a_writer_watches_whoever_is_next_before_it(void **state)
{
	(void) state;
	assert_waits_for(judge_write(OUR_WRITER "0000000009",
								 WRITER "0000000003", READER "0000000008",
								 KAZOO_READ "0000000007",
								 OUR_WRITER "0000000009"),
					 READER "0000000008");
}

/* kazoo #649: W1, R2, W3 where R2 and W3 watched each other */
static void
a_reader_between_two_writers_waits_for_the_first(void **state)
{
	(void) state;
	assert_waits_for(judge_read(OUR_READER "0000000002",
								WRITER "0000000001",
								OUR_READER "0000000002",
								WRITER "0000000003"),
					 WRITER "0000000001");
	assert_waits_for(judge_write(OUR_WRITER "0000000003",
								 WRITER "0000000001", READER "0000000002",
								 OUR_WRITER "0000000003"),
					 READER "0000000002");
}

/* The client that comes later is wrong about the path. */
static void
another_kind_counts_only_from_before(void **state)
{
	(void) state;
	assert_true(judge(OURS "0000000005", OURS "0000000005",
					  WRITER "0000000004").other_kind);
	assert_true(judge_write(OUR_WRITER "0000000005", CURATOR "0000000004",
							OUR_WRITER "0000000005").other_kind);
	assert_true(judge_read(OUR_READER "0000000005", CURATOR,
						   OUR_READER "0000000005").other_kind);
	assert_false(judge(OURS "0000000005", OURS "0000000005",
					   WRITER "0000000006", READER "0000000007").other_kind);
	assert_false(judge_write(OUR_WRITER "0000000005", CURATOR "0000000006",
							 OUR_WRITER "0000000005").other_kind);

	/* kazoo's lock may be meant either way */
	assert_false(judge(OURS "0000000005", OURS "0000000005",
					   KAZOO "0000000004", KAZOO_READ "0000000003").other_kind);
	assert_false(judge_read(OUR_READER "0000000005", KAZOO "0000000004",
							OUR_READER "0000000005").other_kind);
}

static void
a_directory_of_leases_may_be_a_semaphores(void **state)
{
	(void) state;
	assert_true(judge(OURS "0000000005", "leases",
					  OURS "0000000005").maybe_semaphore);
	assert_true(judge_write(OUR_WRITER "0000000005", OUR_WRITER "0000000005",
							"locks", "leases").maybe_semaphore);
	assert_true(judge_read(OUR_READER "0000000005", OUR_READER "0000000005",
						   "leases").maybe_semaphore);
	assert_false(judge(OURS "0000000005", "lease", "leases2", "locks",
					   "Leases", OURS "0000000005").maybe_semaphore);
}

/*
 * Leases
 */

static void
a_lease_is_owned_while_fewer_than_the_limit_go_before_it(void **state)
{
	(void) state;
	for (int n = 1; n <= 10; n++)
	{
		for (int limit = 0; limit <= 11; limit++)
		{
			char		names[10][ZKL_ZNODE_SIZE];
			const char *children[10];

			for (int i = 0; i < n; i++)
			{
				snprintf(names[i], sizeof(names[i]), PEER_LEASE "%010d", i);
				children[i] = names[i];
			}
			for (int i = 0; i < n; i++)
			{
				ZklVerdict	verdict = judge_in_order(limit, names[i], children,
													 n);

				assert_true(verdict.found);
				assert_int_equal(verdict.owned, n <= limit || i < limit);
				assert_int_equal(verdict.contended, n > limit);
				assert_null(verdict.predecessor);
				assert_false(verdict.other_kind);
				assert_false(verdict.maybe_semaphore);
			}
		}
	}
}

/*
 * Two servers that come together see one another, and one of them has it.  A
 * number that is no good is taken for a lower one, and so is that of another
 * client, which counts all.
 */
static void
a_peers_lease_with_a_higher_number_does_not_count(void **state)
{
	(void) state;
	assert_owns(judge_lease(1, OUR_LEASE "0000000004", OUR_LEASE "0000000004",
							PEER_LEASE "0000000005"));
	assert_false(judge_lease(1, OUR_LEASE "0000000005", OUR_LEASE "0000000005",
							 PEER_LEASE "0000000004").owned);
	assert_false(judge_lease(1, OUR_LEASE "0000000004", OUR_LEASE "0000000004",
							 LEASE "0000000005").owned);
	assert_false(judge_lease(1, OUR_LEASE "0000000004", OUR_LEASE "0000000004",
							 PEER_LEASE "-000000005").owned);
	assert_false(judge_lease(1, OUR_LEASE "0000000004", OUR_LEASE "0000000004",
							 PEER_LEASE "2000000000").owned);
	assert_false(judge_lease(1, OUR_LEASE "2000000001", OUR_LEASE "2000000001",
							 PEER_LEASE "2000000002").owned);
}

/* As Curator counts. */
static void
junk_among_the_leases_counts(void **state)
{
	(void) state;
	assert_owns(judge_lease(3, OUR_LEASE "0000000000", "junk", "leases",
							OUR_LEASE "0000000000"));
	assert_false(judge_lease(2, OUR_LEASE "0000000000", "junk", "leases",
							 OUR_LEASE "0000000000").owned);
	assert_false(judge_lease(2, OUR_LEASE "0000000000", CURATOR "0000000001",
							 WRITER "0000000002",
							 OUR_LEASE "0000000000").owned);
}

static void
the_order_of_leases_does_not_matter(void **state)
{
	(void) state;
	assert_owns(judge_lease(2, OUR_LEASE "0000000009", LEASE "0000000001",
							OUR_LEASE "0000000009"));
	assert_owns(judge_lease(2, OUR_LEASE "-2147483648", LEASE "0000000001",
							OUR_LEASE "-2147483648"));
}

static void
a_lease_that_is_not_there_is_not_owned(void **state)
{
	ZklVerdict	verdict = judge_lease(2, OUR_LEASE "0000000009",
									  LEASE "0000000009");

	(void) state;
	assert_false(verdict.found);
	assert_false(verdict.owned);
	verdict = judge_in_order(2, OUR_LEASE "0000000009", NULL, 0);
	assert_false(verdict.found);
	assert_false(verdict.owned);
}

/*
 * By one list in order, each lease is judged as by going through the list as it
 * came.
 */
static ZklVerdict
judge_one_by_one(int limit, const char *me, const char *const *children,
				 int nchildren)
{
	ZklVerdict	verdict = {0};
	ZklContender mine;
	ZklContender other;
	int			before = 0;
	bool		tries;

	assert_true(zkl_recipe_parse(me, &mine));
	for (int i = 0; i < nchildren; i++)
	{
		bool		behind = zkl_recipe_sequence_is_sound(me) &&
			zkl_recipe_parse(children[i], &other) &&
			other.mode == ZKL_MODE_LEASE &&
			other.client == ZKL_CLIENT_ZKLOCK &&
			zkl_recipe_sequence_is_sound(children[i]) &&
			strcmp(other.key, mine.key) > 0;

		if (strcmp(children[i], me) == 0)
			verdict.found = true;
		else
		{
			before += !behind;
			if (zkl_recipe_is_zklock(children[i], &tries))
				verdict.ask = children[i];
		}
	}
	verdict.contended = nchildren > limit;
	verdict.owned = verdict.found && (before < limit || !verdict.contended);
	if (!verdict.found || verdict.owned ||
		!zkl_recipe_is_zklock(me, &tries) || !tries)
		verdict.ask = NULL;
	return verdict;
}

static void
many_leases_are_judged_by_one_ordered_list(void **state)
{
	static const char *const forms[] = {
		"_c_%08x-89ab-8b4c-8123-456789abcdef-lease-%010d",
		"_c_%08x-89ab-8b4d-8123-456789abcdef-lease-%010d",
		"_c_%08x-7dec-41d0-a765-00a0c91e6bf6-lease-%010d",
		"_c_%08x-89ab-8b4c-8123-456789abcdef-lock-%010d",
		"_c_%08x-89ab-8b4c-8123-456789abcdef-lease-%09d",
		"%08x-lease-%010d",
		"junk%08x-%d",
	};
	uint64_t	seed = 7;

	(void) state;
	for (int round = 0; round < 20000; round++)
	{
		char		names[12][ZKL_ZNODE_SIZE];
		const char *children[12];
		int			n = (int) random_below(&seed, lengthof(names)) + 1;
		int			limit = (int) random_below(&seed, lengthof(names) + 1);
		ZklVerdict	expected;
		ZklVerdict	verdict;

		for (int i = 0; i < n; i++)
		{
			int			form = (int) random_below(&seed, 2) == 0 ? 0 :
				(int) random_below(&seed, lengthof(forms));
			int			number = (int) random_below(&seed, 8);

			if (random_below(&seed, 8) == 0)
				number += ZKL_SEQUENCE_LIMIT - 4;
			snprintf(names[i], sizeof(names[i]), forms[form],
					 (unsigned) random_below(&seed, UINT32_MAX),
					 number);
			children[i] = names[i];
		}
		snprintf(names[0], sizeof(names[0]), forms[random_below(&seed, 2)],
				 4711, (int) random_below(&seed, 8) +
				 (random_below(&seed, 8) == 0 ? ZKL_SEQUENCE_LIMIT - 4 : 0));

		/* Now and then it is not there. */
		expected = judge_one_by_one(limit, names[0], children + (round % 8 == 0),
									n - (round % 8 == 0));
		verdict = judge_in_order(limit, names[0], children + (round % 8 == 0),
								 n - (round % 8 == 0));
		assert_int_equal(verdict.found, expected.found);
		assert_int_equal(verdict.owned, expected.owned);
		assert_int_equal(verdict.contended, expected.contended);
		assert_int_equal(verdict.ask != NULL, expected.ask != NULL);
		if (verdict.ask != NULL)
			assert_string_not_equal(verdict.ask, names[0]);
	}
}

#define any_lease(...) \
	zkl_recipe_any_lease((const char *const []) {__VA_ARGS__}, \
						 lengthof(((const char *const []) {__VA_ARGS__})))

static void
a_lease_is_told_from_junk(void **state)
{
	(void) state;
	assert_true(any_lease(LEASE "0000000001"));
	assert_true(any_lease("junk", CURATOR "0000000001", "lease-0000000009"));
	assert_true(any_lease(OUR_LEASE "-2147483648", "junk"));
	assert_false(any_lease("junk"));
	assert_false(any_lease(CURATOR "0000000001", WRITER "0000000001",
						   KAZOO "0000000001", LEASE, LEASE "1", "leases"));
	assert_false(zkl_recipe_any_lease(NULL, 0));
}

#define TEXT(literal)	literal, (int) sizeof(literal) - 1
#define ABOUT	"server=a pid=7"

static void
a_text_has_marks_behind_the_backend(void **state)
{
	(void) state;
	assert_true(zkl_recipe_is_about(TEXT(ABOUT), ABOUT));
	assert_true(zkl_recipe_is_about(TEXT(ABOUT ZKL_IN_USE ZKL_REQUESTED), ABOUT));
	assert_false(zkl_recipe_is_about(TEXT(ABOUT "1"), ABOUT));
	assert_false(zkl_recipe_is_about(TEXT("server=a pid="), ABOUT));
	assert_false(zkl_recipe_is_about(TEXT(ZKL_REVOKE), ABOUT));
	assert_false(zkl_recipe_is_about("", 0, ABOUT));

	assert_true(zkl_recipe_has_mark(TEXT(ABOUT ZKL_IN_USE), ZKL_IN_USE));
	assert_true(zkl_recipe_has_mark(TEXT(ABOUT ZKL_IN_USE ZKL_REQUESTED), ZKL_IN_USE));
	assert_true(zkl_recipe_has_mark(TEXT(ABOUT ZKL_REQUESTED ZKL_IN_USE), ZKL_IN_USE));
	assert_false(zkl_recipe_has_mark(TEXT(ABOUT ZKL_IN_USE "x"), ZKL_IN_USE));
	assert_false(zkl_recipe_has_mark(TEXT(ABOUT), ZKL_IN_USE));
	assert_false(zkl_recipe_has_mark("", 0, ZKL_IN_USE));
}

static void
a_release_is_requested_by_a_mark_or_by_curators_word_alone(void **state)
{
	(void) state;
	assert_true(zkl_recipe_is_revoked(TEXT(ZKL_REVOKE)));
	assert_true(zkl_recipe_is_revoked(TEXT(ABOUT ZKL_REQUESTED)));
	assert_true(zkl_recipe_is_revoked(TEXT(ABOUT ZKL_IN_USE ZKL_REQUESTED)));
	assert_false(zkl_recipe_is_revoked(TEXT(ZKL_REVOKE " ")));
	assert_false(zkl_recipe_is_revoked(TEXT(ABOUT " " ZKL_REVOKE)));
	assert_false(zkl_recipe_is_revoked(TEXT(ABOUT ZKL_IN_USE)));
	assert_false(zkl_recipe_is_revoked("", 0));
}

/*
 * Generated queues of readers and writers
 *
 * The queue is an array in the order of numbers.  A downgrade under way puts a
 * reader next to its writer, with the same number.
 */

#define MAX_QUEUE	9			/* one more while a downgrade is under way */

typedef struct Waiter
{
	char		name[ZKL_ZNODE_SIZE];
	ZklMode		mode;
	int			number;
	bool		half;			/* of a downgrade that is under way */
} Waiter;

typedef struct WaitQueue
{
	int			n;
	Waiter		waiters[MAX_QUEUE + 1];
} WaitQueue;

static bool
is_reader(const Waiter *waiter)
{
	return waiter->mode == ZKL_MODE_READ ||
		waiter->mode == ZKL_MODE_KAZOO_READ;
}

static bool
excludes(const Waiter *a, const Waiter *b)
{
	return !is_reader(a) || !is_reader(b);
}

static bool
may_hold(const WaitQueue *queue, int i)
{
	for (int j = 0; j < i; j++)
	{
		if (excludes(&queue->waiters[i], &queue->waiters[j]))
			return false;
	}
	return true;
}

static void
name_waiter(Waiter *waiter, unsigned uuid)
{
	snprintf(waiter->name, sizeof(waiter->name),
			 waiter->mode >= ZKL_MODE_KAZOO_LOCK ? "%08x%s%010d" :
			 "_c_%08x-1234-8b4c-9abc-def012345678-%s%010d",
			 uuid, marks[waiter->mode], waiter->number);
}

static void
make_queue(uint64_t *seed, WaitQueue *queue)
{
	static const ZklMode modes[] = {
		ZKL_MODE_READ, ZKL_MODE_READ, ZKL_MODE_READ, ZKL_MODE_WRITE,
		ZKL_MODE_WRITE, ZKL_MODE_KAZOO_LOCK, ZKL_MODE_KAZOO_READ
	};
	int			number = 0;

	memset(queue, 0, sizeof(*queue));
	queue->n = 1 + (int) random_below(seed, MAX_QUEUE);
	for (int i = 0; i < queue->n; i++)
	{
		Waiter	   *waiter = &queue->waiters[i];

		number += 1 + (int) random_below(seed, 3);
		waiter->mode = modes[random_below(seed, lengthof(modes))];
		waiter->number = number;
		name_waiter(waiter, random_below(seed, UINT32_MAX));
	}
}

/* All names in a random order, with something among them that is no lock. */
static int
list_queue(uint64_t *seed, const WaitQueue *queue, const char **names)
{
	int			n = queue->n;

	for (int i = 0; i < n; i++)
		names[i] = queue->waiters[i].name;
	names[n++] = "junk-0000000000";
	for (int i = n - 1; i > 0; i--)
	{
		int			j = (int) random_below(seed, (uint32_t) i + 1);
		const char *name = names[i];

		names[i] = names[j];
		names[j] = name;
	}
	return n;
}

static int
index_of(const WaitQueue *queue, const char *name)
{
	for (int i = 0; i < queue->n; i++)
	{
		if (queue->waiters[i].name == name)
			return i;
	}
	return -1;
}

/* Returns which one is watched, or -1. */
static int
check_waiter(const WaitQueue *queue, int i, const char *const *names, int n)
{
	const Waiter *me = &queue->waiters[i];
	ZklVerdict	verdict = zkl_recipe_judge(me->mode, me->name, names, n);
	bool		contended = false;
	int			front;
	int			watched;

	for (int j = i + 1; j < queue->n; j++)
		contended |= excludes(me, &queue->waiters[j]);
	assert_true(verdict.found);
	assert_false(verdict.other_kind);
	assert_int_equal(verdict.contended, contended);
	assert_int_equal(verdict.owned, may_hold(queue, i));
	if (verdict.owned)
	{
		assert_false(verdict.next);
		return -1;
	}

	/* none is before the first */
	front = index_of(queue, verdict.front);
	assert_true(front >= 0 && queue->waiters[front].number == queue->waiters[0].number);

	/* before it, in its way, and none between them is */
	watched = index_of(queue, verdict.predecessor);
	assert_true(watched >= 0 && watched < i);
	assert_true(excludes(me, &queue->waiters[watched]));
	for (int j = watched + 1; j < i; j++)
		assert_true(!excludes(me, &queue->waiters[j]) ||
					queue->waiters[j].number ==
					queue->waiters[watched].number);
	return watched;
}

/* kazoo's are judged by kazoo, and a ticket in a downgrade owns already. */
static void
check_queue(uint64_t *seed, const WaitQueue *queue)
{
	const char *names[MAX_QUEUE + 2];
	int			n = list_queue(seed, queue, names);
	int			watched[MAX_QUEUE + 1];
	int			nwriters = 0;
	int			nreaders = 0;

	for (int i = 0; i < queue->n; i++)
	{
		const Waiter *waiter = &queue->waiters[i];

		watched[i] = -1;
		if (waiter->half)
			continue;
		if (waiter->mode < ZKL_MODE_KAZOO_LOCK)
			watched[i] = check_waiter(queue, i, names, n);
		if (may_hold(queue, i))
		{
			nwriters += !is_reader(waiter);
			nreaders += is_reader(waiter);
		}
	}
	assert_true(nwriters <= 1 && (nwriters == 0 || nreaders == 0));
	for (int i = 0; i < queue->n; i++)
	{
		if (watched[i] >= 0)
			assert_int_not_equal(watched[watched[i]], i);
	}
}

static void
leave(WaitQueue *queue, int i)
{
	memmove(&queue->waiters[i], &queue->waiters[i + 1],
			sizeof(Waiter) * (size_t) (queue->n - i - 1));
	queue->n--;
}

/* The first is a writer and owns: it becomes a reader, in two steps. */
static void
downgrade(uint64_t *seed, WaitQueue *queue)
{
	Waiter	   *writer = &queue->waiters[0];
	Waiter	   *reader = &queue->waiters[1];

	memmove(reader, writer, sizeof(Waiter) * (size_t) queue->n);
	queue->n++;
	reader->mode = ZKL_MODE_READ;
	zkl_recipe_make_downgrade(writer->name, reader->name);
	writer->half = reader->half = true;
	check_queue(seed, queue);
	reader->half = false;
	leave(queue, 0);
	check_queue(seed, queue);
}

static void
generated_queues_drain_in_any_order(void **state)
{
	uint64_t	seed = 31;

	(void) state;
	for (int round = 0; round < 10000; round++)
	{
		WaitQueue	queue;

		make_queue(&seed, &queue);
		check_queue(&seed, &queue);
		while (queue.n > 0)
		{
			int			i = (int) random_below(&seed, (uint32_t) queue.n);

			if (queue.waiters[0].mode == ZKL_MODE_WRITE &&
				random_below(&seed, 3) == 0)
				downgrade(&seed, &queue);

			/* mostly a holder leaves, sometimes a waiter gives up */
			if (!may_hold(&queue, i) && random_below(&seed, 4) > 0)
				continue;
			leave(&queue, i);
			check_queue(&seed, &queue);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_tells_mode_client_and_key),
		cmocka_unit_test(a_mode_has_a_kind),
		cmocka_unit_test(a_ticket_serves_its_mode_and_a_writers_readers_too),
		cmocka_unit_test(a_znode_is_found_under_its_mode_only),
		cmocka_unit_test(a_downgrade_only_changes_the_mark),
		cmocka_unit_test(a_downgraded_name_has_the_writers_key),
		cmocka_unit_test(every_mode_meets_every_mode_before_and_behind),
		cmocka_unit_test(of_another_kind_nobody_is_next),
		cmocka_unit_test(where_two_are_before_nobody_is_next),
		cmocka_unit_test(a_reader_waits_for_the_writer_whose_place_it_takes),
		cmocka_unit_test(others_wait_for_either_znode_of_a_downgrade),
		cmocka_unit_test(a_reader_watches_the_last_writer_before_it),
		cmocka_unit_test(a_writer_watches_whoever_is_next_before_it),
		cmocka_unit_test(a_reader_between_two_writers_waits_for_the_first),
		cmocka_unit_test(another_kind_counts_only_from_before),
		cmocka_unit_test(a_directory_of_leases_may_be_a_semaphores),
		cmocka_unit_test(a_lease_is_owned_while_fewer_than_the_limit_go_before_it),
		cmocka_unit_test(a_peers_lease_with_a_higher_number_does_not_count),
		cmocka_unit_test(junk_among_the_leases_counts),
		cmocka_unit_test(the_order_of_leases_does_not_matter),
		cmocka_unit_test(a_lease_that_is_not_there_is_not_owned),
		cmocka_unit_test(many_leases_are_judged_by_one_ordered_list),
		cmocka_unit_test(a_lease_is_told_from_junk),
		cmocka_unit_test(generated_queues_drain_in_any_order),
		cmocka_unit_test(a_text_has_marks_behind_the_backend),
		cmocka_unit_test(a_release_is_requested_by_a_mark_or_by_curators_word_alone),
	};

	return cmocka_run_group_tests_name("recipe, other modes", tests,
									   NULL, NULL);
}
