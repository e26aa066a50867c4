/*
 * A lock in Redis, as its documentation has it: SET with NX and PX, and a script that
 * deletes the key only if it still has our value.
 *
 *	redis_client SOCKET
 *
 * Reads requests, a line each; every client is a thread with a connection of its own:
 *
 *	mutex CLIENTS SECONDS PATH PATHS COUNTER FORM	acquire and release in a loop
 *
 * FORM says how a client waits for a lock that is held.  "-": it tries again after up to
 * a millisecond.  That is fastest with few clients, but many keep Redis busy with tries
 * that fail.  "wait": it waits with BLPOP for an element that the release puts into a
 * list, as the library python-redis-lock does.
 */
#include <hiredis/hiredis.h>
#include <pthread.h>

#include "bench_client.h"

#define RELEASE "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

/* An element that no client takes is replaced by the next release. */
#define RELEASE_AND_WAKE "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end" \
	" redis.call('del', KEYS[2])" \
	" redis.call('lpush', KEYS[2], 1)" \
	" redis.call('pexpire', KEYS[2], 30000)" \
	" return redis.call('del', KEYS[1])"

struct client
{
	pthread_t	thread;
	int			number;
	redisContext *redis;
};

static const char *socket_path;
static char base[256];
static char release_sha[64];
static char release_and_wake_sha[64];
static int	paths;
static bool waits_with_blpop;
static int64_t stop_at;
static int64_t counts[MAX_CLIENTS];
static volatile int64_t *counter;

static redisContext *
connect_to_redis(void)
{
	redisContext *redis = redisConnectUnix(socket_path);

	if (redis == NULL || redis->err)
		die("cannot connect to Redis");
	return redis;
}

static bool
try_acquire(redisContext *redis, const char *key, const char *value)
{
	redisReply *reply = redisCommand(redis, "SET %s %s NX PX 30000", key, value);
	bool		is_ours;

	if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
		die("SET failed");
	is_ours = reply->type == REDIS_REPLY_STATUS;
	freeReplyObject(reply);
	return is_ours;
}

static void
release(redisContext *redis, const char *key, const char *value)
{
	redisReply *reply = waits_with_blpop ?
		redisCommand(redis, "EVALSHA %s 2 %s %s:free %s", release_and_wake_sha, key, key, value) :
		redisCommand(redis, "EVALSHA %s 1 %s %s", release_sha, key, value);

	if (reply == NULL || reply->type != REDIS_REPLY_INTEGER || reply->integer != 1)
		die("the lock was not ours any more");
	freeReplyObject(reply);
}

/* After that, try again: another client may have been faster. */
static void
wait_for(redisContext *redis, const char *key, uint64_t *random)
{
	redisReply *reply;

	if (!waits_with_blpop)
	{
		usleep(next_random(random) % 1000);
		return;
	}
	reply = redisCommand(redis, "BLPOP %s:free 1", key);
	if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
		die("BLPOP failed");
	freeReplyObject(reply);
}

static void *
work(void *argument)
{
	struct client *c = argument;
	uint64_t	random = now_ns() + c->number;
	char		key[320],
				value[64];

	for (int64_t round = 0; now_ns() < stop_at; round++)
	{
		choose_path(key, sizeof(key), base, paths, c->number, round, &random);
		snprintf(value, sizeof(value), "%d-%d-%" PRId64, (int) getpid(), c->number, round);
		while (!try_acquire(c->redis, key, value))
			wait_for(c->redis, key, &random);
		if (counter != NULL)
			*counter = *counter + 1;
		release(c->redis, key, value);
		counts[c->number]++;
	}
	return NULL;
}

static void
load_script(const char *script, char *sha, size_t size)
{
	redisContext *redis = connect_to_redis();
	redisReply *reply = redisCommand(redis, "SCRIPT LOAD %s", script);

	if (reply == NULL || reply->type != REDIS_REPLY_STRING)
		die("SCRIPT LOAD failed");
	snprintf(sha, size, "%s", reply->str);
	freeReplyObject(reply);
	redisFree(redis);
}

static void
run_mutex(int clients, double seconds)
{
	static struct client all[MAX_CLIENTS];
	int64_t		begin;

	memset(counts, 0, sizeof(counts));
	for (int i = 0; i < clients; i++)
	{
		all[i].number = i;
		all[i].redis = connect_to_redis();
	}
	begin = now_ns();
	stop_at = begin + seconds * 1e9;
	for (int i = 0; i < clients; i++)
		if (pthread_create(&all[i].thread, NULL, work, &all[i]) != 0)
			die("cannot create a thread");
	for (int i = 0; i < clients; i++)
	{
		pthread_join(all[i].thread, NULL);
		redisFree(all[i].redis);
	}
	answer_counts(now_ns() - begin, counts, clients);
}

int
main(int argc, char **argv)
{
	char		line[1024],
				file[256],
				form[16];
	int			n;
	double		seconds;

	socket_path = argc > 1 ? argv[1] : "";
	load_script(RELEASE, release_sha, sizeof(release_sha));
	load_script(RELEASE_AND_WAKE, release_and_wake_sha, sizeof(release_and_wake_sha));
	while (fgets(line, sizeof(line), stdin) != NULL)
	{
		if (sscanf(line, "mutex %d %lf %255s %d %255s %15s", &n, &seconds, base, &paths, file, form) != 6 ||
			n > MAX_CLIENTS)
			die("no such request");
		waits_with_blpop = strcmp(form, "wait") == 0;
		counter = map_counter(file);
		run_mutex(n, seconds);
	}
	return 0;
}
