/*-------------------------------------------------------------------------
 *
 * test_queue_order.c
 *	  Which clients queue for a lock, in which order, and which of them hold it:
 *	  plays the traces in queue_order.trace.
 *
 * test/unit/test_queue_order.c
 *
 *-------------------------------------------------------------------------
 */
#include "names.h"
#include "trace.h"

#include "protocol/queueorder.h"

#define MAX_PLACES	64

static ZklPlace places[MAX_PLACES];
static int	nplaces;

/* By the index of a place: its name, and the word of the trace. */
static char place_names[MAX_PLACES][ZKL_ZNODE_SIZE];
static char place_words[MAX_PLACES][ZKL_ZNODE_SIZE];

static const char *const where_names[ZKL_NWHERE] = {"lock", "leases", "locks"};

static void
trace_begin(void)
{
	memset(places, 0, sizeof(places));
	nplaces = 0;
}

static void
put(ZklWhere where, const char *name, const char *word, int64_t czxid, int64_t owner)
{
	assert_true(nplaces < MAX_PLACES);
	snprintf(place_names[nplaces], sizeof(place_names[0]), "%s", name);
	snprintf(place_words[nplaces], sizeof(place_words[0]), "%s", word);
	places[nplaces] = (ZklPlace) {
		.index = nplaces,.where = where,.name = place_names[nplaces],
		.czxid = czxid,.owner = owner
	};
	nplaces++;
}

/* "NAME", or "NAME@CZXID/SESSION". */
static void
put_word(ZklWhere where, const char *text)
{
	char		word[TRACE_SIZE];
	char		name[TRACE_SIZE];
	char	   *at;
	int			czxid = 1000 - nplaces;
	int			owner = 7;

	snprintf(word, sizeof(word), "%s", text);
	at = strchr(word, '@');
	if (at != NULL)
	{
		assert_int_equal(sscanf(at, "@%d/%d", &czxid, &owner), 2);
		*at = '\0';
	}
	name_of(word, name);
	put(where, name, word, czxid, owner);
}

/* Play a line, and tell the effect as a line does. */
static void
trace_play(const TraceLine *line, char *effect)
{
	int			where = trace_find(where_names, ZKL_NWHERE, line->event[0]);
	int			nqueued;

	if (where >= 0)
	{
		for (int i = 1; i < line->nevent; i++)
			put_word((ZklWhere) where, line->event[i]);
	}
	else if (strcmp(line->event[0], "queue") == 0)
	{
		nqueued = zkl_queue_order(places, nplaces, line->nevent > 1 ? atoi(line->event[1]) : 0);
		for (int i = 0; i < nqueued; i++)
			trace_add(effect, "%s%s", place_words[places[i].index], places[i].holds ? "+" : "");
	}
	else if (strcmp(line->event[0], "way") == 0)
	{
		where = trace_find(where_names, ZKL_NWHERE, line->event[1]);
		for (int i = 0; i < nplaces; i++)
		{
			if (zkl_queue_order_is_in_way(&places[i], (ZklWhere) where,
										  (ZklMode) trace_find(mode_names, NMODES, line->event[2]),
										  line->nevent > 3 ? line->event[3] : NULL))
				trace_add(effect, "%s", place_words[places[i].index]);
		}
	}
	else
		trace_add(effect, "unknown event");
}

/* "PLACE=CLIENT,KIND,MODE" */
static bool
trace_fact(const char *fact, char *now)
{
	const ZklPlace *place = &places[atoi(fact)];

	sprintf(now, "%d=%s,%s,%s", atoi(fact), zkl_queue_order_client_name(place->client),
			zkl_recipe_kind_name(place->kind), zkl_queue_order_mode_name(place));
	return strcmp(fact, now) == 0;
}

/*
 * Generated: one holder of a mutex at least and at most, whatever the order
 * of the children, and a holder has no rival before it.
 */
TEST(of_any_directory_the_first_holds_and_writers_are_alone)
{
	static const char *const marks[] = {
		"lock-", "__WRIT__", "__READ__", "__lock__", "__rlock__"
	};
	static char names[MAX_PLACES][ZKL_ZNODE_SIZE];
	uint64_t	seed = 20240229;

	for (int round = 0; round < 5000; round++)
	{
		int			count = 1 + random_below(&seed, 10);
		int			nkinds = 1 + random_below(&seed, lengthof(marks));
		int			holders = 0;
		int			exclusive = 0;
		int			others = 0;

		trace_begin();
		for (int i = 0; i < count; i++)
		{
			snprintf(names[i], sizeof(names[i]), "%s%010d",
					 marks[random_below(&seed, nkinds)], (int) (random_below(&seed, 1000) * 64) + i);
			put(ZKL_WHERE_LOCK, names[i], names[i], 0, 0);
		}
		assert_int_equal(zkl_queue_order(places, nplaces, 0), count);
		assert_true(places[0].holds);
		for (int i = 0; i < count; i++)
		{
			bool		mutex = places[i].mode == ZKL_MODE_LOCK;
			bool		writes = places[i].mode == ZKL_MODE_WRITE || places[i].mode == ZKL_MODE_KAZOO_LOCK;

			assert_true(i == 0 || strcmp(places[i - 1].key, places[i].key) < 0);
			if (!places[i].holds)
				continue;
			holders++;
			exclusive += writes;
			others += mutex;
		}
		assert_true(others <= 1);
		assert_true(exclusive == 0 || holders == exclusive + others);
		assert_true(exclusive <= 1);
	}
}

TEST(every_name_is_a_word)
{
	assert_string_equal(zkl_recipe_kind_name(ZKL_KIND_MUTEX), "mutex");
	assert_string_equal(zkl_recipe_kind_name(ZKL_KIND_READ_WRITE), "read-write");
	assert_string_equal(zkl_recipe_kind_name(ZKL_KIND_SEMAPHORE), "semaphore");
	assert_string_equal(zkl_queue_order_client_name(ZKL_CLIENT_ZKLOCK), "zklock");
	assert_string_equal(zkl_queue_order_client_name(ZKL_CLIENT_CURATOR), "curator");
	assert_string_equal(zkl_queue_order_client_name(ZKL_CLIENT_KAZOO), "kazoo");
	assert_string_equal(zkl_queue_order_client_name(ZKL_CLIENT_GO), "go-zookeeper");
	assert_string_equal(zkl_queue_order_client_name(ZKL_CLIENT_UNKNOWN), "unknown");
}

int
main(void)
{
	return trace_main("queue order", "test/unit/queue_order.trace");
}
