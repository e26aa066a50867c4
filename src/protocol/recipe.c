/*-------------------------------------------------------------------------
 *
 * recipe.c
 *	  Znode names and their order in the queue, in Apache Curator's layout.
 *
 * Keys are compared as strings, as Curator and kazoo compare them.  That
 * agrees with the order of the numbers as long as all have ten digits.  If one
 * does not (a counter that overflowed), it matters more to agree with the
 * other clients than to be right alone.
 *
 * src/protocol/recipe.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/recipe.h"

#include <stdio.h>
#include <string.h>

#define SEQUENCE_DIGITS		10

/* Version 8 in the first digit, then eleven bits of mark and one of "tries". */
#define UUID_MARK			"8b4c"
#define UUID_MARK_TRIES		"8b4d"

typedef struct Mark
{
	const char *text;
	size_t		length;
} Mark;

#define MARK(text)	{text, sizeof(text) - 1}

/* What a mode's znodes have before their number.  None is the end of another. */
static const Mark marks[] = {
	[ZKL_MODE_LOCK] = MARK("lock-"),
	[ZKL_MODE_WRITE] = MARK("__WRIT__"),
	[ZKL_MODE_READ] = MARK("__READ__"),
	[ZKL_MODE_LEASE] = MARK("lease-"),
	[ZKL_MODE_KAZOO_LOCK] = MARK("__lock__"),
	[ZKL_MODE_KAZOO_READ] = MARK("__rlock__"),
};

static const Mark latch_mark = MARK("latch-");

#define NMODES	((int) (sizeof(marks) / sizeof(marks[0])))

/* What another znode in the directory is to this one. */
typedef enum Relation
{
	RELATION_NONE,				/* not at all */
	RELATION_RIVAL,				/* one of the two has to wait for the other */
	RELATION_OTHER_KIND
} Relation;

/* The contenders in a list that come first, beside "me". */
typedef struct Firsts
{
	const char *child;			/* of all others; NULL: there are none */
	const char *child_key;
	const char *key;			/* the least of all keys, mine included ... */
	const char *other_key;		/* ... and of those that do not just read */
} Firsts;

/* The contenders in a list that "me" has to wait for. */
typedef struct Rivals
{
	int			number;
	const char *nearest;
	const char *nearest_key;
	bool		may_downgrade;	/* one of them writes */
} Rivals;

static void note_rival(Rivals *rivals, const ZklContender *rival,
					   const char *child);
static void judge_place(ZklVerdict *verdict, ZklMode mode,
						const Rivals *rivals, const char *first);
static void judge_behind(ZklVerdict *verdict, Relation relation,
						 ZklClient client, const char *child);
static void note_first(Firsts *firsts, const ZklContender *contender,
					   const char *child);
static const char *whom_to_ask(ZklMode mode, const char *me,
							   const Firsts *firsts,
							   const char *const *children, int nchildren);
static bool only_tries(const char *child);
static Relation relation_of(ZklMode mine, ZklMode other);
static ZklClient client_of(const char *child, ZklMode mode);
static bool is_marked(const char *child, const char *key, const Mark *mark);
static const char *find_key(const char *child, size_t width);
static int	count_digits(const char *text);
static const char *key_of(const char *child);

ZklKind
zkl_recipe_kind(ZklMode mode)
{
	switch (mode)
	{
		case ZKL_MODE_WRITE:
		case ZKL_MODE_READ:
		case ZKL_MODE_KAZOO_READ:
			return ZKL_KIND_READ_WRITE;
		case ZKL_MODE_LEASE:
			return ZKL_KIND_SEMAPHORE;
		case ZKL_MODE_LOCK:
		case ZKL_MODE_KAZOO_LOCK:
			break;
	}
	return ZKL_KIND_MUTEX;
}

/*
 * A ticket that writes owns the lock against all clients, so its server's
 * readers need no other.
 */
bool
zkl_recipe_serves(ZklMode ticket, ZklMode claim)
{
	return ticket == claim ||
		(ticket == ZKL_MODE_WRITE && claim == ZKL_MODE_READ);
}

/*
 * The mark takes the place of two random bytes, and the variant that of two
 * random bits, as RFC 9562 demands.  All others are random.
 */
void
zkl_recipe_make_uuid(const uint8_t random[16], bool only_tries,
					 char uuid[ZKL_UUID_SIZE])
{
	const char *mark = only_tries ? UUID_MARK_TRIES : UUID_MARK;
	unsigned	variant = 0x80 | (random[8] & 0x3f);

	snprintf(uuid, ZKL_UUID_SIZE,
			 "%02x%02x%02x%02x-%02x%02x-%s-%02x%02x-%02x%02x%02x%02x%02x%02x",
			 random[0], random[1], random[2], random[3],
			 random[4], random[5], mark, variant, random[9],
			 random[10], random[11], random[12],
			 random[13], random[14], random[15]);
}

bool
zkl_recipe_is_zklock(const char *child, bool *only_tries)
{
	bool		tries;

	/* "_c_xxxxxxxx-xxxx-mmmm-": the mark begins at character 17 */
	if (strncmp(child, "_c_", 3) != 0 || strlen(child) < 3 + 36 ||
		child[16] != '-' || child[21] != '-')
		return false;
	tries = memcmp(child + 17, UUID_MARK_TRIES, 4) == 0;
	if (!tries && memcmp(child + 17, UUID_MARK, 4) != 0)
		return false;
	*only_tries = tries;
	return true;
}

void
zkl_recipe_make_prefix(ZklMode mode, const char *uuid,
					   char prefix[ZKL_ZNODE_SIZE])
{
	snprintf(prefix, ZKL_ZNODE_SIZE, "_c_%.36s-%s", uuid, marks[mode].text);
}

/* The number stays, and with it the place in the queue. */
void
zkl_recipe_make_downgrade(const char *writer, char reader[ZKL_ZNODE_SIZE])
{
	const char *key = key_of(writer);
	const char *mark = key - marks[ZKL_MODE_WRITE].length;

	snprintf(reader, ZKL_ZNODE_SIZE, "%.*s%s%s", (int) (mark - writer), writer,
			 marks[ZKL_MODE_READ].text, key);
}

const char *
zkl_recipe_find(ZklMode mode, const char *uuid, const char *const *children,
				int nchildren)
{
	char		prefix[ZKL_ZNODE_SIZE];
	size_t		length;

	/* No create was sent yet. */
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

		for (int mode = 0; key != NULL && mode < NMODES; mode++)
		{
			if (!is_marked(child, key, &marks[mode]))
				continue;
			contender->key = key;
			contender->mode = mode;
			contender->client = client_of(child, mode);
			return true;
		}
	}

	/*
	 * An empty key is Curator's for a lock znode without a number, which goes
	 * before all others.
	 */
	contender->key = child + strlen(child);
	contender->mode = ZKL_MODE_LOCK;
	contender->client = client_of(child, ZKL_MODE_LOCK);
	return is_marked(child, contender->key, &marks[ZKL_MODE_LOCK]);
}

/*
 * Curator's names begin as zklock's do; only the UUID tells them apart.  So
 * "_c_" is tested last.
 */
static ZklClient
client_of(const char *child, ZklMode mode)
{
	bool		only_tries;

	if (mode == ZKL_MODE_KAZOO_LOCK || mode == ZKL_MODE_KAZOO_READ)
		return ZKL_CLIENT_KAZOO;
	if (zkl_recipe_is_zklock(child, &only_tries))
		return ZKL_CLIENT_ZKLOCK;
	return strncmp(child, "_c_", 3) == 0 ? ZKL_CLIENT_CURATOR :
		ZKL_CLIENT_UNKNOWN;
}

bool
zkl_recipe_sequence_is_sound(const char *child)
{
	const char *key = key_of(child);

	return key != NULL && zkl_recipe_number(key) >= 0;
}

int
zkl_recipe_number(const char *key)
{
	int64_t		number = 0;

	/* A counter that has overflowed prints a minus sign. */
	if (strlen(key) != SEQUENCE_DIGITS || key[0] == '-')
		return -1;
	for (int i = 0; i < SEQUENCE_DIGITS; i++)
		number = number * 10 + (key[i] - '0');
	return number < ZKL_SEQUENCE_LIMIT ? (int) number : -1;
}

/* ZooKeeper counts all children, whatever they are called. */
bool
zkl_recipe_is_first_ever(const char *child)
{
	const char *key = key_of(child);

	return key != NULL && strcmp(key, "0000000000") == 0;
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
		Relation	relation;

		if (strcmp(children[i], me) == 0)
		{
			verdict.found = true;
			continue;
		}

		if (!zkl_recipe_parse(children[i], &other))
		{
			/*
			 * A lock below this one may be called so, too.  The ticket finds
			 * out by looking into that directory.
			 */
			if (strcmp(children[i], ZKL_LEASES) == 0)
				verdict.maybe_semaphore = true;
			latch |= zkl_recipe_latch_key(children[i]) != NULL;
			continue;
		}

		note_first(&firsts, &other, children[i]);
		relation = relation_of(mode, other.mode);
		if (strcmp(other.key, my_key) > 0)
			judge_behind(&verdict, relation, other.client, children[i]);
		else if (relation == RELATION_OTHER_KIND)
			verdict.other_kind = true;
		else if (relation == RELATION_RIVAL)
			note_rival(&rivals, &other, children[i]);
	}
	if (verdict.found)
		judge_place(&verdict, mode, &rivals, firsts.child);
	if (verdict.found &&
		(verdict.other_kind || (!verdict.owned && only_tries(me))))
		verdict.ask = whom_to_ask(mode, me, &firsts, children, nchildren);
	verdict.ask_other_kind = verdict.ask != NULL &&
		zkl_recipe_parse(verdict.ask, &other) &&
		relation_of(mode, other.mode) == RELATION_OTHER_KIND;

	/* There is no one to ask: a latch waits for no lock, wherever it stands. */
	if (latch)
	{
		verdict.other_kind = true;
		verdict.next = false;
		verdict.ask = NULL;
	}
	return verdict;
}

/*
 * The ticket watches the nearest only: until that goes, none of the others
 * matters.
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

/* What follows from the rivals before this znode, which is in the list. */
static void
judge_place(ZklVerdict *verdict, ZklMode mode, const Rivals *rivals,
			const char *first)
{
	verdict->predecessor = rivals->nearest;
	verdict->owned = rivals->number == 0;
	if (!verdict->owned)
		verdict->front = first;

	/*
	 * In a downgrade, a reader's znode appears in the writer's place, and
	 * readers do not wait for that one.
	 */
	verdict->next = rivals->number == 1 && !verdict->other_kind &&
		(mode == ZKL_MODE_READ || !rivals->may_downgrade);
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
 * A client that takes the path for another kind of lock does not wait for this
 * znode to go, but for its answer.
 */
static void
judge_behind(ZklVerdict *verdict, Relation relation, ZklClient client,
			 const char *child)
{
	bool		asks = relation != RELATION_NONE &&
	client == ZKL_CLIENT_ZKLOCK &&
	(relation == RELATION_OTHER_KIND || only_tries(child));

	verdict->contended |= asks || relation == RELATION_RIVAL;
	verdict->asked |= asks;
}

/*
 * The first znode owns the lock.  If it is a reader's, all readers own the
 * lock before which there are only readers.
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
			relation_of(mode, other.mode) == RELATION_NONE)
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

/* A name of another client's says nothing about tries. */
static bool
only_tries(const char *child)
{
	bool		tries;

	return zkl_recipe_is_zklock(child, &tries) && tries;
}

/*
 * kazoo's Lock and WriteLock have the same mark, so that is a rival of every
 * mode, and tells no kind.  Leases are in a directory of their own.
 */
static Relation
relation_of(ZklMode mine, ZklMode other)
{
	switch (other)
	{
		case ZKL_MODE_LOCK:
			return mine == ZKL_MODE_LOCK ? RELATION_RIVAL : RELATION_OTHER_KIND;
		case ZKL_MODE_WRITE:
			return mine == ZKL_MODE_LOCK ? RELATION_OTHER_KIND : RELATION_RIVAL;
		case ZKL_MODE_READ:
			return mine == ZKL_MODE_LOCK ? RELATION_OTHER_KIND :
				mine == ZKL_MODE_WRITE ? RELATION_RIVAL : RELATION_NONE;
		case ZKL_MODE_KAZOO_LOCK:
			return RELATION_RIVAL;
		case ZKL_MODE_KAZOO_READ:
			return mine == ZKL_MODE_READ ? RELATION_NONE : RELATION_RIVAL;
		case ZKL_MODE_LEASE:
			break;
	}
	return RELATION_NONE;
}

/* A mark begins with a blank, and must end with one or with the text. */
bool
zkl_recipe_has_mark(const char *text, int length, const char *mark)
{
	int			mark_length = (int) strlen(mark);

	for (int i = 0; i + mark_length <= length; i++)
	{
		if (memcmp(text +i, mark, mark_length) == 0 &&
			(i + mark_length == length || text[i + mark_length] == ' '))
			return true;
	}
	return false;
}

/* Marks may follow. */
bool
zkl_recipe_is_about(const char *text, int length, const char *about)
{
	int			about_length = (int) strlen(about);

	return length >= about_length && memcmp(text, about, about_length) == 0 &&
		(length == about_length || text[about_length] == ' ');
}

/* Curator replaces the whole text by its request; zklock adds a mark. */
bool
zkl_recipe_is_revoked(const char *text, int length)
{
	return (length == sizeof(ZKL_REVOKE) - 1 &&
			memcmp(text, ZKL_REVOKE, length) == 0) ||
		zkl_recipe_has_mark(text, length, ZKL_REQUESTED);
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

/* Does this mark stand right before the key? */
static bool
is_marked(const char *child, const char *key, const Mark *mark)
{
	return (size_t) (key - child) >= mark->length &&
		memcmp(key - mark->length, mark->text, mark->length) == 0;
}

/*
 * The end of a name, if it is a number as the server prints it: "%010d" of a
 * signed 32-bit counter.  The width of ten includes the sign, so nine digits
 * follow it, or ten where the number needs them.  NULL: it is no number.
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
count_digits(const char *text)
{
	int			n = 0;

	while (text[n] >= '0' && text[n] <= '9')
		n++;
	return n;
}
