/*-------------------------------------------------------------------------
 *
 * test_recipe.c
 *	  Znode names and their order in a queue, in Apache Curator's layout.
 *
 * Plays the traces in recipe.trace, which has the single cases and describes
 * its words.  The tests in this file are those that go through many names.  The
 * generated queues state the rule in another way than recipe.c: they sort all
 * contenders and look at the neighbours, or they know which znode excludes
 * which, and never look at a name.
 *
 * test/unit/test_recipe.c
 *
 *-------------------------------------------------------------------------
 */
#include "names.h"
#include "trace.h"

#include <inttypes.h>

/*
 * The interpreter
 */

static void
trace_begin(void)
{
}

/* The word of the line for a name that a verdict points to. */
static const char *
word_of(const TraceLine *line, int first, const char *const *names, int nnames, const char *name)
{
	for (int i = 0; i < nnames; i++)
	{
		if (names[i] == name)
			return line->event[first + i];
	}
	return "unknown";
}

#define CLIENT_NAMES	((const char *const []) {"zklock", "curator", "kazoo", "go", "unknown"})

/* "parse NAME": the mode, the client and the key. */
static void
parse(const char *name, char *effect)
{
	ZklContender contender;

	if (!zkl_recipe_parse(name, &contender))
		return;
	assert_ptr_equal(contender.key, name + strlen(name) - strlen(contender.key));
	trace_add(effect, "%s", mode_names[contender.mode]);
	trace_add(effect, "%s", CLIENT_NAMES[contender.client]);
	trace_add(effect, "%s", contender.key);
}

/* "maker NAME": is it zklock's, and is it a try's? */
static void
tell_maker(const char *name, char *effect)
{
	bool		only_tries = false;

	if (zkl_recipe_is_zklock(name, &only_tries))
		trace_add(effect, "zklock");
	if (only_tries)
		trace_add(effect, "tries");
}

/* "number NAME": what its sequence number says. */
static void
tell_number(const char *name, char *effect)
{
	if (zkl_recipe_number(name) >= 0)
		trace_add(effect, "sound");
	if (zkl_recipe_number(name) == 0)
		trace_add(effect, "first");
	if (zkl_recipe_latch_key(name) != NULL)
		trace_add(effect, "latch=%s", zkl_recipe_latch_key(name));
}

/* "judge MODE ME : CHILD ...", and "judge lease/LIMIT ME : CHILD ...". */
static void
judge(const TraceLine *line, const char *me, const char *const *children, int nchildren, char *effect)
{
	int			mode = trace_find(mode_names, NMODES, line->event[1]);
	ZklVerdict	verdict = mode >= 0 ? zkl_recipe_judge((ZklMode) mode, me, children, nchildren) :
		judge_in_order(atoi(line->event[1] + strlen("lease/")), me, children, nchildren);

	trace_add(effect, !verdict.found ? "absent" : verdict.owned ? "owned" : "waits");
	assert_true(verdict.found || !verdict.owned);
	if (verdict.predecessor)
		trace_add(effect, "for=%s", word_of(line, 4, children, nchildren, verdict.predecessor));
	if (verdict.front && verdict.front != verdict.predecessor)
		trace_add(effect, "first=%s", word_of(line, 4, children, nchildren, verdict.front));
	if (verdict.ask)
		trace_add(effect, "ask=%s", word_of(line, 4, children, nchildren, verdict.ask));
	trace_add(effect, verdict.next ? "next" : "");
	trace_add(effect, verdict.contended ? "contended" : "");
	trace_add(effect, verdict.asked ? "asked" : "");
	trace_add(effect, verdict.other_kind ? "other-kind" : "");
	trace_add(effect, verdict.maybe_semaphore ? "maybe-semaphore" : "");
}

/* Play a line, and tell the effect as a line does. */
static void
trace_play(const TraceLine *line, char *effect)
{
	char		names[TRACE_WORDS][2 * ZKL_ZNODE_SIZE];
	const char *in_line[TRACE_WORDS] = {NULL};	/* none behind the last */
	const char *const *children = in_line;
	char		made[ZKL_ZNODE_SIZE];
	const char *what = line->event[0];
	int			first = 1;
	int			n;

	while (first < line->nevent && strcmp(line->event[first++], ":") != 0)
		;
	n = line->nevent - first;
	for (int i = 0; i < line->nevent; i++)
		name_of(i > 2 && strcmp(line->event[i], "me") == 0 ? line->event[2] : line->event[i], names[i]);
	for (int i = 0; i < n; i++)
		in_line[i] = names[first + i];
	if (n == 0)
		children = NULL;

	if (strcmp(what, "parse") == 0)
		parse(names[1], effect);
	else if (strcmp(what, "maker") == 0)
		tell_maker(names[1], effect);
	else if (strcmp(what, "number") == 0)
		tell_number(names[1], effect);
	else if (strcmp(what, "judge") == 0)
		judge(line, names[2], children, n, effect);
	else if (strcmp(what, "find") == 0)
	{
		const char *found = zkl_recipe_find((ZklMode) trace_find(mode_names, NMODES, line->event[1]),
											names[2], children, n);

		if (found)
			trace_add(effect, "%s", word_of(line, first, children, n, found));
	}
	else if (strcmp(what, "any-lease") == 0)
		trace_add(effect, zkl_recipe_any_lease(children, n) ? "yes" : "");
	else if (strcmp(what, "prefix") == 0)
	{
		zkl_recipe_make_prefix((ZklMode) trace_find(mode_names, NMODES, line->event[1]), names[2], made);
		trace_add(effect, strcmp(made, children[0]) == 0 ? "same" : made);
	}
	else if (strcmp(what, "downgrade") == 0)
	{
		zkl_recipe_make_downgrade(names[1], made);
		trace_add(effect, strcmp(made, children[0]) == 0 ? "same" : made);
	}
	else
		trace_add(effect, "unknown event");
}

static bool
trace_fact(const char *fact, char *now)
{
	(void) fact;
	strcpy(now, "there are no facts here");
	return false;
}

/*
 * Names
 */

TEST(a_uuid_has_version_8_and_the_variant_of_rfc_9562)
{
	uint8_t		random[16];
	char		uuid[ZKL_UUID_SIZE];

	memset(random, 0, sizeof(random));
	zkl_recipe_make_uuid(random, false, uuid);
	assert_string_equal(uuid, "00000000-0000-8b4c-8000-000000000000");
	memset(random, 0xff, sizeof(random));
	zkl_recipe_make_uuid(random, false, uuid);
	assert_string_equal(uuid, "ffffffff-ffff-8b4c-bfff-ffffffffffff");
}

TEST(one_bit_of_a_uuid_says_that_it_only_tries)
{
	const uint8_t random[16] = {0};
	char		uuid[ZKL_UUID_SIZE];

	zkl_recipe_make_uuid(random, true, uuid);
	assert_string_equal(uuid, "00000000-0000-8b4d-8000-000000000000");
}

/* Otherwise two znodes could be taken for one another. */
TEST(every_free_bit_of_a_uuid_is_random)
{
	uint8_t		random[16] = {0};
	char		zero[ZKL_UUID_SIZE];
	char		uuid[ZKL_UUID_SIZE];
	int			nfree = 0;

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

TEST(the_longest_name_has_room)
{
	assert_true(strlen(CURATORS "lock--2147483648") < ZKL_ZNODE_SIZE);
	assert_true(strlen(CURATORS "__WRIT__-2147483648") < ZKL_ZNODE_SIZE);
}

TEST(a_name_says_whether_its_maker_only_tries)
{
	uint64_t	seed = 1;

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
		assert_true(zkl_recipe_number(child) >= 0);
		assert_true(is_contender(child));
	}
}

TEST(a_mode_has_a_kind)
{
	static const ZklKind kinds[NMODES] = {
		[ZKL_MODE_LOCK] = ZKL_KIND_MUTEX,
		[ZKL_MODE_WRITE] = ZKL_KIND_READ_WRITE,
		[ZKL_MODE_READ] = ZKL_KIND_READ_WRITE,
		[ZKL_MODE_LEASE] = ZKL_KIND_SEMAPHORE,
		[ZKL_MODE_KAZOO_LOCK] = ZKL_KIND_MUTEX,
		[ZKL_MODE_KAZOO_READ] = ZKL_KIND_READ_WRITE,
	};

	for (int mode = 0; mode < NMODES; mode++)
		assert_int_equal(zkl_recipe_kind((ZklMode) mode), kinds[mode]);
}

TEST(a_ticket_serves_its_mode_and_a_writers_readers_too)
{
	for (int ticket = 0; ticket < NMODES; ticket++)
	{
		for (int claim = 0; claim < NMODES; claim++)
			assert_int_equal(zkl_recipe_serves((ZklMode) ticket,
											   (ZklMode) claim),
							 ticket == claim || (ticket == ZKL_MODE_WRITE && claim == ZKL_MODE_READ));
	}
}

/* ... so it has the place of the writer's, and its maker's mark. */
TEST(a_downgraded_name_has_the_writers_key)
{
	uint64_t	seed = 30;

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
		snprintf(writer, sizeof(writer), "%s%010d", prefix, (int) random_below(&seed, ZKL_SEQUENCE_LIMIT));
		zkl_recipe_make_downgrade(writer, reader);

		assert_true(zkl_recipe_parse(reader, &contender));
		assert_int_equal(contender.mode, ZKL_MODE_READ);
		assert_int_equal(contender.client, ZKL_CLIENT_ZKLOCK);
		assert_string_equal(contender.key, writer + strlen(prefix));
		assert_true(zkl_recipe_is_zklock(reader, &said));
		assert_int_equal(said, only_tries);
		assert_true(zkl_recipe_number(reader) >= 0);
		assert_non_null(zkl_recipe_find(ZKL_MODE_READ, uuid, (const char *const []) {reader}, 1));
	}
}

#define TEXT(literal)	literal, (int) sizeof(literal) - 1
#define ABOUT	"server=a pid=7"

TEST(a_text_has_marks_behind_the_backend)
{
	assert_true(zkl_recipe_names_owner(TEXT(ABOUT), ABOUT));
	assert_true(zkl_recipe_names_owner(TEXT(ABOUT ZKL_IN_USE ZKL_REQUESTED), ABOUT));
	assert_false(zkl_recipe_names_owner(TEXT(ABOUT "1"), ABOUT));
	assert_false(zkl_recipe_names_owner(TEXT("server=a pid="), ABOUT));
	assert_false(zkl_recipe_names_owner(TEXT(ZKL_REVOKE), ABOUT));
	assert_false(zkl_recipe_names_owner("", 0, ABOUT));

	assert_true(zkl_recipe_has_mark(TEXT(ABOUT ZKL_IN_USE), ZKL_IN_USE));
	assert_true(zkl_recipe_has_mark(TEXT(ABOUT ZKL_IN_USE ZKL_REQUESTED), ZKL_IN_USE));
	assert_true(zkl_recipe_has_mark(TEXT(ABOUT ZKL_REQUESTED ZKL_IN_USE), ZKL_IN_USE));
	assert_false(zkl_recipe_has_mark(TEXT(ABOUT ZKL_IN_USE "x"), ZKL_IN_USE));
	assert_false(zkl_recipe_has_mark(TEXT(ABOUT), ZKL_IN_USE));
	assert_false(zkl_recipe_has_mark("", 0, ZKL_IN_USE));
}

TEST(a_release_is_requested_by_a_mark_or_by_curators_word_alone)
{
	assert_true(zkl_recipe_is_revoked(TEXT(ZKL_REVOKE)));
	assert_true(zkl_recipe_is_revoked(TEXT(ABOUT ZKL_REQUESTED)));
	assert_true(zkl_recipe_is_revoked(TEXT(ABOUT ZKL_IN_USE ZKL_REQUESTED)));
	assert_false(zkl_recipe_is_revoked(TEXT(ZKL_REVOKE " ")));
	assert_false(zkl_recipe_is_revoked(TEXT(ABOUT " " ZKL_REVOKE)));
	assert_false(zkl_recipe_is_revoked(TEXT(ABOUT ZKL_IN_USE)));
	assert_false(zkl_recipe_is_revoked("", 0));
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

TEST(every_mode_meets_every_mode_before_and_behind)
{
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
				snprintf(them, sizeof(them), "_c_them-%s%010d", marks[other], number);
				verdict = judge_as((ZklMode) mine, me, them, me);
				assert_true(verdict.found);
				assert_false(verdict.maybe_semaphore);
				assert_int_equal(verdict.other_kind, before && concern == OTHER);
				assert_int_equal(verdict.contended, !before && concern == RIVAL);
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

/*
 * Leases
 */

TEST(a_lease_is_owned_while_fewer_than_the_limit_go_before_it)
{
	for (int n = 1; n <= 10; n++)
	{
		for (int limit = 0; limit <= 11; limit++)
		{
			char		names[10][ZKL_ZNODE_SIZE];
			const char *children[10];

			for (int i = 0; i < n; i++)
			{
				snprintf(names[i], sizeof(names[i]), PEERS "lease-%010d", i);
				children[i] = names[i];
			}
			for (int i = 0; i < n; i++)
			{
				ZklVerdict	verdict = judge_in_order(limit, names[i], children, n);

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
 * Each lease is judged by one ordered list; the verdict must be the same as
 * from the list in the order of its arrival.
 */
static ZklVerdict
judge_one_by_one(int limit, const char *me, const char *const *children, int nchildren)
{
	ZklVerdict	verdict = {0};
	ZklContender mine;
	ZklContender other;
	int			before = 0;
	bool		tries;

	assert_true(zkl_recipe_parse(me, &mine));
	for (int i = 0; i < nchildren; i++)
	{
		bool		behind = zkl_recipe_number(me) >= 0 &&
			zkl_recipe_parse(children[i], &other) &&
			other.mode == ZKL_MODE_LEASE &&
			other.client == ZKL_CLIENT_ZKLOCK &&
			zkl_recipe_number(children[i]) >= 0 && strcmp(other.key, mine.key) > 0;

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
	if (!verdict.found || verdict.owned || !zkl_recipe_is_zklock(me, &tries) || !tries)
		verdict.ask = NULL;
	return verdict;
}

TEST(many_leases_are_judged_by_one_ordered_list)
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
					 (unsigned) random_below(&seed, UINT32_MAX), number);
			children[i] = names[i];
		}
		snprintf(names[0], sizeof(names[0]), forms[random_below(&seed, 2)],
				 4711, (int) random_below(&seed, 8) +
				 (random_below(&seed, 8) == 0 ? ZKL_SEQUENCE_LIMIT - 4 : 0));

		/* Now and then it is not there. */
		expected = judge_one_by_one(limit, names[0], children + (round % 8 == 0), n - (round % 8 == 0));
		verdict = judge_in_order(limit, names[0], children + (round % 8 == 0), n - (round % 8 == 0));
		assert_int_equal(verdict.found, expected.found);
		assert_int_equal(verdict.owned, expected.owned);
		assert_int_equal(verdict.contended, expected.contended);
		assert_int_equal(verdict.ask != NULL, expected.ask != NULL);
		if (verdict.ask != NULL)
			assert_string_not_equal(verdict.ask, names[0]);
	}
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
			 forms[random_below(seed, lengthof(forms))], (unsigned) random_below(seed, UINT32_MAX), number);
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
			 forms[random_below(seed, lengthof(forms))], (unsigned) random_below(seed, 1000));
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
	ZklVerdict	verdict = zkl_recipe_judge(ZKL_MODE_LOCK, me->name, list->names, list->nchildren);

	if (!me->contends)
	{
		assert_false(is_contender(me->name));
		assert_false(verdict.owned);
		return;
	}
	assert_true(is_contender(me->name));
	assert_int_equal(zkl_recipe_number(me->name) >= 0, me->number < 2000000000);
	assert_int_equal(verdict.contended, behind != NULL);
	if (before == NULL)
		assert_owns(verdict);
	else
		assert_waits_for(verdict, before->name);
	assert_int_equal(verdict.next, before != NULL &&
					 neighbour(list, (int) (before - list->children), -1) == NULL);
}

TEST(in_generated_lists_all_wait_for_their_neighbour)
{
	uint64_t	seed = 20;

	for (int round = 0; round < 5000; round++)
	{
		List		list;

		make_list(&seed, &list);
		for (int i = 0; i < list.nchildren; i++)
			check_verdict(&list, i);
	}
}

/* No owner: no client works.  Two: both do.  A gap: a client waits for ever. */
TEST(generated_queues_have_one_owner_and_no_gap)
{
	uint64_t	seed = 21;

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
			verdict = zkl_recipe_judge(ZKL_MODE_LOCK, list.children[i].name, list.names, list.nchildren);
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
 * blanks.  It is used where numbers alone give no order: negative, equal,
 * missing.
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
		snprintf(text, sizeof(text), "%010" PRId64, numbers[random_below(seed, lengthof(numbers))]);
	snprintf(name, size, "_c_%08x-lock-%s", (unsigned) random_below(seed, UINT32_MAX), text);
	memset(key->text, ' ', sizeof(key->text));
	memcpy(key->text, text, strlen(text));
	key->name = name;
}

TEST(generated_odd_numbers_are_ordered_as_curator_orders_them)
{
	uint64_t	seed = 22;

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
			ZklVerdict	verdict = zkl_recipe_judge(ZKL_MODE_LOCK, keys[i].name, children, n);
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
				assert_string_equal(strstr(verdict.predecessor, "lock-"), strstr(nearest->name, "lock-"));
				assert_true(strcmp(verdict.predecessor, keys[i].name) != 0);
			}
		}
	}
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
	return waiter->mode == ZKL_MODE_READ || waiter->mode == ZKL_MODE_KAZOO_READ;
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
			 "_c_%08x-1234-8b4c-9abc-def012345678-%s%010d", uuid, marks[waiter->mode], waiter->number);
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

/* All names in a random order, with a name among them that is no lock's. */
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
					queue->waiters[j].number == queue->waiters[watched].number);
	return watched;
}

/* kazoo judges its own, and a ticket in a downgrade owns the lock already. */
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
	memmove(&queue->waiters[i], &queue->waiters[i + 1], sizeof(Waiter) * (size_t) (queue->n - i - 1));
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

TEST(generated_queues_drain_in_any_order)
{
	uint64_t	seed = 31;

	for (int round = 0; round < 10000; round++)
	{
		WaitQueue	queue;

		make_queue(&seed, &queue);
		check_queue(&seed, &queue);
		while (queue.n > 0)
		{
			int			i = (int) random_below(&seed, (uint32_t) queue.n);

			if (queue.waiters[0].mode == ZKL_MODE_WRITE && random_below(&seed, 3) == 0)
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
	return trace_main("recipe", "test/unit/recipe.trace");
}
