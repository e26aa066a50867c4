/*-------------------------------------------------------------------------
 *
 * recipe.c
 *	  Znode names and their order in the queue, in Apache Curator's layout.
 *
 * Keys are compared as strings, as Curator and kazoo compare them.  That
 * agrees with the order of the numbers as long as all have ten digits.  If a
 * number has not, because the counter overflowed, it matters more to agree
 * with the other clients than to compare numbers correctly.
 *
 * src/protocol/recipe.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEQUENCE_DIGITS		10

/* Version 8 in the first digit, then eleven bits of mark and one of "tries". */
#define UUID_MARK			"8b4c"
#define UUID_MARK_TRIES		"8b4d"
#define UUID_MARK_AT		14

typedef struct Mark
{
	const char *str;
	size_t		length;
} Mark;

#define MARK(str)	{str, sizeof(str) - 1}

/*
 * For each mode: the mark before a znode's number; the kind of lock; and the
 * name.  No mark is the end of another one.
 */
typedef struct Mode
{
	Mark		mark;
	ZklKind		kind;
	const char *name;
} Mode;

static const Mode modes[ZKL_MODES] = {
	[ZKL_MODE_LOCK] = {MARK("lock-"), ZKL_KIND_MUTEX, "lock"},
	[ZKL_MODE_WRITE] = {MARK("__WRIT__"), ZKL_KIND_READ_WRITE, "write"},
	[ZKL_MODE_READ] = {MARK("__READ__"), ZKL_KIND_READ_WRITE, "read"},
	[ZKL_MODE_LEASE] = {MARK("lease-"), ZKL_KIND_SEMAPHORE, "lease"},
	[ZKL_MODE_KAZOO_LOCK] = {MARK("__lock__"), ZKL_KIND_MUTEX, "lock"},
	[ZKL_MODE_KAZOO_READ] = {MARK("__rlock__"), ZKL_KIND_READ_WRITE, "read"},
};

static const Mark latch_mark = MARK("latch-");

/*
 * The one rule of who waits for whom: how a znode of the first mode relates to
 * a znode of the second mode before it.  kazoo's Lock and WriteLock have the
 * same mark.  So a znode with this mark is a rival of every mode, tells no
 * kind, and waits for every znode.  kazoo's ReadLock waits for all but
 * readers.  Leases are in a directory of their own.
 *
 * The columns are LOCK, WRITE, READ, LEASE, KAZOO_LOCK, KAZOO_READ.
 */
#define NONE	ZKL_RELATION_NONE
#define RIVAL	ZKL_RELATION_RIVAL
#define OTHER	ZKL_RELATION_OTHER_KIND

static const ZklRelation relations[ZKL_MODES][ZKL_MODES] = {
	[ZKL_MODE_LOCK] = {RIVAL, OTHER, OTHER, NONE, RIVAL, RIVAL},
	[ZKL_MODE_WRITE] = {OTHER, RIVAL, RIVAL, NONE, RIVAL, RIVAL},
	[ZKL_MODE_READ] = {OTHER, RIVAL, NONE, NONE, RIVAL, NONE},
	[ZKL_MODE_LEASE] = {OTHER, OTHER, OTHER, NONE, OTHER, OTHER},
	[ZKL_MODE_KAZOO_LOCK] = {RIVAL, RIVAL, RIVAL, NONE, RIVAL, RIVAL},
	[ZKL_MODE_KAZOO_READ] = {RIVAL, RIVAL, NONE, NONE, RIVAL, NONE}
};

/* The first contenders in a list, without "me". */
typedef struct Firsts
{
	const char *child;			/* of all others; NULL if there are none */
	const char *child_key;
	const char *key;			/* the least of all keys, mine included */
	const char *other_key;		/* the least key that is not a reader's */
} Firsts;

/* The contenders in a list that "me" has to wait for. */
typedef struct Rivals
{
	int			number;
	const char *nearest;
	const char *nearest_key;
	bool		may_downgrade;	/* one of them is a writer */
} Rivals;

static void note_rival(Rivals *rivals, const ZklContender *rival,
					   const char *child);
static void judge_place(ZklVerdict *verdict, ZklMode mode,
						const Rivals *rivals, const char *first);
static void judge_ask(ZklVerdict *verdict, ZklMode mode, const char *ask);
static void judge_behind(ZklVerdict *verdict, ZklRelation relation,
						 ZklClient client, const char *child);
static void note_first(Firsts *firsts, const ZklContender *contender,
					   const char *child);
static const char *whom_to_ask(ZklMode mode, const char *me,
							   const Firsts *firsts,
							   const char *const *children, int nchildren);
static bool only_tries(const char *child);
static ZklClient client_of(const char *child, ZklMode mode);
static bool is_marked(const char *child, const char *key, const Mark *mark);
static const char *find_key(const char *child, size_t width);
static int	count_digits(const char *str);
static const char *key_of(const char *child);
static int	number_of(const char *key);
static int	lease_rank(const char *child);
static int	compare_leases(const void *one, const void *other);
static int	count_ranks_up_to(int rank, const ZklLease *leases, int nleases);

ZklKind
zkl_recipe_kind(ZklMode mode)
{
	return modes[mode].kind;
}

const char *
zkl_recipe_kind_name(ZklKind kind)
{
	static const char *const names[] = {
		[ZKL_KIND_MUTEX] = "mutex",
		[ZKL_KIND_READ_WRITE] = "read-write",
		[ZKL_KIND_SEMAPHORE] = "semaphore"
	};

	return names[kind];
}

const char *
zkl_recipe_mode_name(ZklMode mode)
{
	return modes[mode].name;
}

/*
 * A ticket that writes owns the lock against all clients, so its server's
 * readers need no other ticket.
 */
bool
zkl_recipe_serves(ZklMode ticket, ZklMode claim)
{
	return ticket == claim ||
		(ticket == ZKL_MODE_WRITE && claim == ZKL_MODE_READ);
}

/*
 * The mark replaces two random bytes, and the variant two random bits, as RFC
 * 9562 demands.  All other bits are random.
 */
void
zkl_recipe_make_uuid(const uint8_t random[16], bool only_tries,
					 char uuid[ZKL_UUID_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	char	   *at = uuid;

	for (int i = 0; i < 16; i++)
	{
		int			byte = i == 8 ? 0x80 | (random[i] & 0x3f) : random[i];

		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[byte >> 4];
		*at++ = digits[byte & 0xf];
	}
	*at = '\0';
	memcpy(uuid + UUID_MARK_AT, only_tries ? UUID_MARK_TRIES : UUID_MARK, 4);
}

bool
zkl_recipe_is_zklock(const char *child, bool *only_tries)
{
	bool		tries;

	/* "_c_xxxxxxxx-xxxx-mmmm-" */
	if (strncmp(child, "_c_", 3) != 0 || strlen(child) < 3 + 36 ||
		child[16] != '-' || child[21] != '-')
		return false;
	tries = memcmp(child + 3 + UUID_MARK_AT, UUID_MARK_TRIES, 4) == 0;
	if (!tries && memcmp(child + 3 + UUID_MARK_AT, UUID_MARK, 4) != 0)
		return false;
	*only_tries = tries;
	return true;
}

void
zkl_recipe_make_prefix(ZklMode mode, const char *uuid,
					   char prefix[ZKL_ZNODE_SIZE])
{
	snprintf(prefix, ZKL_ZNODE_SIZE, "_c_%.36s-%s", uuid, modes[mode].mark.str);
}

/* The znode keeps its number, and with it its place in the queue. */
void
zkl_recipe_make_downgrade(const char *writer, char reader[ZKL_ZNODE_SIZE])
{
	const char *key = key_of(writer);
	const char *mark = key - modes[ZKL_MODE_WRITE].mark.length;

	snprintf(reader, ZKL_ZNODE_SIZE, "%.*s%s%s", (int) (mark - writer), writer,
			 modes[ZKL_MODE_READ].mark.str, key);
}

const char *
zkl_recipe_find(ZklMode mode, const char *uuid, const char *const *children,
				int nchildren)
{
	char		prefix[ZKL_ZNODE_SIZE];
	size_t		length;

	/* Without a UUID, no create was sent. */
	if (uuid[0] == '\0')
		return NULL;
	zkl_recipe_make_prefix(mode, uuid, prefix);
	length = strlen(prefix);
	for (int i = 0; i < nchildren; i++)
	{
		if (strncmp(children[i], prefix, length) == 0)
			return children[i];
	}
	return NULL;
}

/*
 * A name ends with a mark and a key, and any text may come before: a UUID, or
 * what another client puts there.  A list may have thousands of names, so this
 * looks at their ends only.
 */
bool
zkl_recipe_parse(const char *child, ZklContender *contender)
{
	for (size_t width = SEQUENCE_DIGITS; width <= SEQUENCE_DIGITS + 1; width++)
	{
		const char *key = find_key(child, width);

		for (int mode = 0; key != NULL && mode < ZKL_MODES; mode++)
		{
			if (!is_marked(child, key, &modes[mode].mark))
				continue;
			contender->key = key;
			contender->mode = mode;
			contender->client = client_of(child, mode);
			return true;
		}
	}

	/*
	 * Curator gives a lock znode without a number an empty key, which sorts
	 * before all others.
	 */
	contender->key = child + strlen(child);
	contender->mode = ZKL_MODE_LOCK;
	contender->client = client_of(child, ZKL_MODE_LOCK);
	return is_marked(child, contender->key, &modes[ZKL_MODE_LOCK].mark);
}

/*
 * All names that begin with "_c_" are alike, but for the UUID: zklock's UUID
 * has a mark, and go-zookeeper's has no dashes.  The rest is Curator's.
 */
static ZklClient
client_of(const char *child, ZklMode mode)
{
	bool		only_tries;

	if (mode == ZKL_MODE_KAZOO_LOCK || mode == ZKL_MODE_KAZOO_READ)
		return ZKL_CLIENT_KAZOO;
	if (zkl_recipe_is_zklock(child, &only_tries))
		return ZKL_CLIENT_ZKLOCK;
	if (strncmp(child, "_c_", 3) != 0)
		return ZKL_CLIENT_UNKNOWN;
	return strspn(child + 3, "0123456789abcdef") == 32 && child[3 + 32] == '-' ?
		ZKL_CLIENT_GO : ZKL_CLIENT_CURATOR;
}

int
zkl_recipe_number(const char *child)
{
	const char *key = key_of(child);

	return key != NULL ? number_of(key) : -1;
}

static int
number_of(const char *key)
{
	int64_t		number = 0;

	/* A counter that has overflowed prints a minus sign. */
	if (strlen(key) != SEQUENCE_DIGITS || key[0] == '-')
		return -1;
	for (int i = 0; i < SEQUENCE_DIGITS; i++)
		number = number * 10 + (key[i] - '0');
	return number < ZKL_SEQUENCE_LIMIT ? (int) number : -1;
}

ZklVerdict
zkl_recipe_judge(ZklMode mode, const char *me, const char *const *children,
				 int nchildren)
{
	ZklVerdict	verdict = {0};
	const char *my_key = key_of(me);
	Rivals		rivals = {0};
	bool		latch = false;
	Firsts		firsts = {NULL, NULL, my_key, my_key};
	ZklContender other;

	if (my_key == NULL)
		return verdict;

	for (int i = 0; i < nchildren; i++)
	{
		ZklRelation relation;

		if (strcmp(children[i], me) == 0)
		{
			verdict.found = true;
			continue;
		}

		if (!zkl_recipe_parse(children[i], &other))
		{
			/*
			 * A lock below this one may also have this name.  The ticket
			 * finds out by listing that directory.
			 */
			if (strcmp(children[i], ZKL_LEASES) == 0)
				verdict.maybe_semaphore = true;
			latch |= zkl_recipe_latch_key(children[i]) != NULL;
			continue;
		}

		note_first(&firsts, &other, children[i]);
		relation = relations[mode][other.mode];
		if (strcmp(other.key, my_key) > 0)
			judge_behind(&verdict, relation, other.client, children[i]);
		else if (relation == ZKL_RELATION_OTHER_KIND)
			verdict.other_kind = true;
		else if (relation == ZKL_RELATION_RIVAL)
			note_rival(&rivals, &other, children[i]);
	}
	if (verdict.found)
	{
		judge_place(&verdict, mode, &rivals, firsts.child);
		if (verdict.other_kind || (!verdict.owned && only_tries(me)))
			judge_ask(&verdict, mode, whom_to_ask(mode, me, &firsts, children, nchildren));
	}

	/*
	 * No znode can be queried here: a LeaderLatch's znode waits for no lock,
	 * wherever it is in the order.
	 */
	if (latch)
	{
		verdict.other_kind = true;
		verdict.next = false;
		verdict.ask = NULL;
	}
	return verdict;
}

/*
 * The ticket watches only the nearest rival: while that exists, it does not
 * matter whether the others do.
 */
static void
note_rival(Rivals *rivals, const ZklContender *rival, const char *child)
{
	rivals->number++;
	rivals->may_downgrade |= rival->mode == ZKL_MODE_WRITE;
	if (rivals->nearest == NULL || strcmp(rival->key, rivals->nearest_key) > 0)
	{
		rivals->nearest = child;
		rivals->nearest_key = rival->key;
	}
}

/* What its rivals mean for a znode that is in the list. */
static void
judge_place(ZklVerdict *verdict, ZklMode mode, const Rivals *rivals,
			const char *first)
{
	verdict->predecessor = rivals->nearest;
	verdict->owned = rivals->number == 0;
	if (!verdict->owned)
		verdict->front = first;

	/*
	 * In a downgrade, a reader's znode takes the writer's place.  A reader
	 * must not wait for the new znode, so the predecessor's watch is not
	 * enough.
	 */
	verdict->next = rivals->number == 1 && !verdict->other_kind &&
		(mode == ZKL_MODE_READ || !rivals->may_downgrade);
}

/* "me" queries this znode; NULL: none. */
static void
judge_ask(ZklVerdict *verdict, ZklMode mode, const char *ask)
{
	ZklContender asked;

	verdict->ask = ask;
	verdict->ask_other_kind = ask != NULL && zkl_recipe_parse(ask, &asked) &&
		relations[mode][asked.mode] == ZKL_RELATION_OTHER_KIND;
}

/* No znode goes before the first contender, so it owns the lock. */
static void
note_first(Firsts *firsts, const ZklContender *contender, const char *child)
{
	if (contender->mode == ZKL_MODE_LEASE)
		return;
	if (firsts->child == NULL || strcmp(contender->key, firsts->child_key) < 0)
	{
		firsts->child = child;
		firsts->child_key = contender->key;
	}
	if (strcmp(contender->key, firsts->key) < 0)
		firsts->key = contender->key;
	if (contender->mode != ZKL_MODE_READ &&
		contender->mode != ZKL_MODE_KAZOO_READ &&
		strcmp(contender->key, firsts->other_key) < 0)
		firsts->other_key = contender->key;
}

const char *
zkl_recipe_latch_key(const char *child)
{
	for (size_t width = SEQUENCE_DIGITS; width <= SEQUENCE_DIGITS + 1; width++)
	{
		const char *key = find_key(child, width);

		if (key != NULL && is_marked(child, key, &latch_mark))
			return key;
	}
	return NULL;
}

/*
 * A client that wants the path as another kind of lock does not wait until
 * this znode is gone.  It waits for this znode's text to say that the lock is
 * in use.
 */
static void
judge_behind(ZklVerdict *verdict, ZklRelation relation, ZklClient client,
			 const char *child)
{
	bool		asks = relation != ZKL_RELATION_NONE &&
	client == ZKL_CLIENT_ZKLOCK &&
	(relation == ZKL_RELATION_OTHER_KIND || only_tries(child));

	verdict->contended |= asks || relation == ZKL_RELATION_RIVAL;
	verdict->asked |= asks;
}

/*
 * The first znode owns the lock.  If that is a reader's, each reader with only
 * readers before it owns the lock, too.
 */
static const char *
whom_to_ask(ZklMode mode, const char *me, const Firsts *firsts,
			const char *const *children, int nchildren)
{
	const char *my_key = key_of(me);
	const char *ask_key = NULL;
	const char *ask = NULL;
	ZklContender other;

	for (int i = 0; i < nchildren; i++)
	{
		if (strcmp(children[i], me) == 0 ||
			!zkl_recipe_parse(children[i], &other) ||
			strcmp(other.key, my_key) > 0 ||
			relations[mode][other.mode] == ZKL_RELATION_NONE)
			continue;
		if (other.client != ZKL_CLIENT_ZKLOCK ||
			(strcmp(other.key, firsts->key) > 0 &&
			 strcmp(other.key, firsts->other_key) >= 0 &&
			 !only_tries(children[i])))
			return NULL;
		if (ask == NULL || strcmp(other.key, ask_key) < 0)
		{
			ask_key = other.key;
			ask = children[i];
		}
	}
	return ask;
}

/* The name of another client's znode does not tell whether it only tries. */
static bool
only_tries(const char *child)
{
	bool		tries;

	return zkl_recipe_is_zklock(child, &tries) && tries;
}

ZklRelation
zkl_recipe_relation(ZklMode mine, ZklMode other)
{
	return relations[mine][other];
}

/* A mark begins with a blank, and must end with one or with the text. */
bool
zkl_recipe_has_mark(const char *str, int length, const char *mark)
{
	int			mark_length = (int) strlen(mark);

	for (int i = 0; i + mark_length <= length; i++)
	{
		if (memcmp(str + i, mark, mark_length) == 0 &&
			(i + mark_length == length || str[i + mark_length] == ' '))
			return true;
	}
	return false;
}

/* Marks may follow the description. */
bool
zkl_recipe_names_owner(const char *str, int length, const char *owner_text)
{
	int			owner_length = (int) strlen(owner_text);

	return length >= owner_length && memcmp(str, owner_text, owner_length) == 0 &&
		(length == owner_length || str[owner_length] == ' ');
}

/*
 * Curator replaces the whole text with its request; zklock adds a mark to the
 * text.
 */
bool
zkl_recipe_is_revoked(const char *str, int length)
{
	return (length == sizeof(ZKL_REVOKE) - 1 &&
			memcmp(str, ZKL_REVOKE, length) == 0) ||
		zkl_recipe_has_mark(str, length, ZKL_REQUESTED);
}

bool
zkl_recipe_any_lease(const char *const *children, int nchildren)
{
	ZklContender contender;

	for (int i = 0; i < nchildren; i++)
	{
		if (zkl_recipe_parse(children[i], &contender) &&
			contender.mode == ZKL_MODE_LEASE)
			return true;
	}
	return false;
}

static const char *
key_of(const char *child)
{
	ZklContender contender;

	return zkl_recipe_parse(child, &contender) ? contender.key : NULL;
}

/* Is this mark right before the key? */
static bool
is_marked(const char *child, const char *key, const Mark *mark)
{
	return (size_t) (key - child) >= mark->length &&
		memcmp(key - mark->length, mark->str, mark->length) == 0;
}

/*
 * The number at the end of a name, as the server prints it: "%010d" of a
 * signed 32-bit counter.  The width of ten includes the sign, so nine digits
 * follow a sign, or ten if the number needs them.  NULL if there is no such
 * number.
 */
static const char *
find_key(const char *child, size_t width)
{
	size_t		length = strlen(child);
	const char *key;
	bool		is_negative;

	if (length < width)
		return NULL;
	key = child + length - width;
	is_negative = key[0] == '-';
	if (!is_negative && width != SEQUENCE_DIGITS)
		return NULL;
	return count_digits(key + is_negative) == (int) width - is_negative ?
		key : NULL;
}

static int
count_digits(const char *str)
{
	int			n = 0;

	while (str[n] >= '0' && str[n] <= '9')
		n++;
	return n;
}

/*
 * The leases of a semaphore, and which of them are granted
 */

/*
 * The order of leases.  First come the leases of other clients than zklock,
 * which every lease counts.  Then come zklock's leases whose number is in no
 * safe order, and then zklock's other leases by number.
 */
#define RANK_FOREIGN	(-2)
#define RANK_NO_NUMBER	(-1)	/* number_of() returns this */

void
zkl_recipe_order_leases(const char *const *children, int nchildren,
						ZklLease *leases)
{
	for (int i = 0; i < nchildren; i++)
	{
		leases[i].name = children[i];
		leases[i].rank = lease_rank(children[i]);
	}
	if (nchildren > 0)
		qsort(leases, (size_t) nchildren, sizeof(ZklLease), compare_leases);
}

/* Other clients may give their leases any names, so parse only zklock's. */
static int
lease_rank(const char *child)
{
	ZklContender contender;
	bool		tries;

	if (!zkl_recipe_is_zklock(child, &tries))
		return RANK_FOREIGN;
	if (!zkl_recipe_parse(child, &contender) ||
		contender.mode != ZKL_MODE_LEASE)
		return RANK_NO_NUMBER;
	return number_of(contender.key);
}

/*
 * Names decide between equal ranks, so that a binary search finds exactly one
 * lease.
 */
static int
compare_leases(const void *one, const void *other)
{
	const ZklLease *a = one;
	const ZklLease *b = other;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return strcmp(a->name, b->name);
}

bool
zkl_recipe_has_lease(const char *me, const ZklLease *leases, int nleases)
{
	ZklLease	wanted = {me, lease_rank(me)};

	return nleases > 0 &&
		bsearch(&wanted, leases, (size_t) nleases, sizeof(ZklLease),
				compare_leases) != NULL;
}

/*
 * Every child of the directory counts as a lease, as it does for Curator.
 * zklock's leases with higher numbers do not count, but zklock's leases whose
 * number is in no safe order do.
 */
ZklVerdict
zkl_recipe_judge_lease(int limit, const char *me, const ZklLease *leases,
					   int nleases)
{
	ZklVerdict	verdict = {0};
	int			rank = lease_rank(me);
	int			before = nleases - 1;	/* without "me" */
	bool		only_tries = false;

	verdict.found = zkl_recipe_has_lease(me, leases, nleases);
	verdict.contended = nleases > limit;
	if (!verdict.found)
		return verdict;

	/*
	 * If its own number is in safe order, the lease need not count zklock's
	 * leases with higher numbers.  The binary search counts "me" as well.
	 */
	if (rank >= 0)
		before = count_ranks_up_to(rank, leases, nleases) - 1;
	verdict.owned = before < limit || !verdict.contended;

	/*
	 * Any other lease of zklock may linger, so it can be queried.  zklock's
	 * leases are at the end of the order.
	 */
	if (!verdict.owned && zkl_recipe_is_zklock(me, &only_tries) && only_tries)
	{
		/* At least one of the last two leases is not this one. */
		for (int i = nleases - 1; i >= 0 && i >= nleases - 2; i--)
		{
			if (leases[i].rank != RANK_FOREIGN &&
				strcmp(leases[i].name, me) != 0)
				verdict.ask = leases[i].name;
		}
	}
	return verdict;
}

int
zkl_recipe_read_limit(const char *data, int length)
{
	uint32_t	limit = 0;

	if (length != ZKL_LIMIT_SIZE)
		return ZKL_LIMIT_NONE;
	for (int i = 0; i < ZKL_LIMIT_SIZE; i++)
		limit = limit << 8 | (uint8_t) data[i];
	return limit <= INT32_MAX ? (int) limit : ZKL_LIMIT_NONE;
}

void
zkl_recipe_write_limit(int limit, char data[ZKL_LIMIT_SIZE])
{
	for (int i = ZKL_LIMIT_SIZE - 1; i >= 0; i--, limit >>= 8)
		data[i] = (char) (limit & 0xff);
}

/* The leases are sorted, so a binary search finds where these ranks end. */
static int
count_ranks_up_to(int rank, const ZklLease *leases, int nleases)
{
	int			low = 0;
	int			high = nleases;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (leases[middle].rank <= rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
