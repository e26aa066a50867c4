/*-------------------------------------------------------------------------
 *
 * fuzz.c
 *	  libFuzzer's target: all that is parsed of what ZooKeeper, the session file
 *	  and the configuration say.
 *
 * The first byte chooses the parser, the rest is its text.  Beside what the
 * sanitizers find, each parser has a property that must hold.
 *
 * test/fuzz/fuzz.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deadlock/waitgraph.h"
#include "jobs/jobrecord.h"
#include "protocol/access.h"
#include "protocol/fieldtext.h"
#include "protocol/hosts.h"
#include "protocol/path.h"
#include "protocol/queueorder.h"
#include "protocol/recipe.h"
#include "protocol/sessiontext.h"

#define MAX_CHILDREN	48

#define HOLDS(property) \
	do { \
		if (!(property)) \
		{ \
			fprintf(stderr, "does not hold: %s\n", #property); \
			abort(); \
		} \
	} while (0)

/*
 * The lines of the text, as the names of znodes.  ZooKeeper has no two znodes
 * of one name, and no empty name.
 */
static int
split_names(char *text, const char *names[MAX_CHILDREN])
{
	int			n = 0;

	for (char *name = strtok(text, "\n"); name && n < MAX_CHILDREN; name = strtok(NULL, "\n"))
	{
		bool		is_new = true;

		for (int i = 0; i < n; i++)
			is_new &= strcmp(names[i], name) != 0;
		if (is_new)
			names[n++] = name;
	}
	return n;
}

static bool
is_one_of(const char *name, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (names[i] == name)
			return true;
	}
	return false;
}

/* One name: where it stands, and whose it is. */
static void
fuzz_name(char *name)
{
	ZklContender contender;
	bool		only_tries;

	(void) zkl_recipe_is_zklock(name, &only_tries);
	if (zkl_recipe_parse(name, &contender))
		HOLDS(contender.key >= name && contender.key <= name + strlen(name));
	if (zkl_recipe_number(name) >= 0)
		HOLDS(strlen(name) >= 10);
}

/* The children of a lock's directory: is each of them the holder? */
static void
fuzz_mutex(char *text)
{
	const char *names[MAX_CHILDREN];
	int			n = split_names(text, names);
	int			owners = 0;

	for (int i = 0; i < n; i++)
	{
		for (ZklMode mode = ZKL_MODE_LOCK; mode <= ZKL_MODE_READ; mode++)
		{
			ZklContender contender;
			ZklVerdict	verdict;

			/* A ticket's own name is one that zklock made. */
			if (!zkl_recipe_parse(names[i], &contender) ||
				contender.mode != mode)
				continue;
			verdict = zkl_recipe_judge(mode, names[i], names, n);
			HOLDS(verdict.found);
			HOLDS(verdict.owned == (verdict.predecessor == NULL));
			HOLDS(verdict.predecessor == NULL ||
				  is_one_of(verdict.predecessor, names, n));
			HOLDS(verdict.ask == NULL || is_one_of(verdict.ask, names, n));
			owners += verdict.owned && !verdict.other_kind &&
				mode != ZKL_MODE_READ;
		}
	}
	HOLDS(owners <= 1);
}

/* The children of a semaphore's directory "leases". */
static void
fuzz_leases(char *text)
{
	const char *names[MAX_CHILDREN];
	ZklLease	leases[MAX_CHILDREN];
	int			limit = 1 + (unsigned char) text[0] % 8;
	int			n = split_names(text, names);
	int			owners = 0;

	zkl_recipe_order_leases(names, n, leases);
	(void) zkl_recipe_any_lease(names, n);
	for (int i = 0; i < n; i++)
	{
		ZklVerdict	verdict;

		HOLDS(zkl_recipe_has_lease(names[i], leases, n));
		verdict = zkl_recipe_judge_lease(limit, names[i], leases, n);
		owners += verdict.found && verdict.owned;
	}
	HOLDS(owners <= limit);
}

/* The queue as users see it: the places stay the same, only in another order. */
static void
fuzz_queue(char *text)
{
	const char *names[MAX_CHILDREN];
	ZklPlace	places[MAX_CHILDREN];
	int			limit = (unsigned char) text[0] % 4;
	int			n = split_names(text, names);
	int			queued;
	int			sum = 0;

	memset(places, 0, sizeof(places));
	for (int i = 0; i < n; i++)
	{
		places[i].index = i;
		places[i].where = (ZklWhere) ((unsigned char) names[i][0] % ZKL_NWHERE);
		places[i].name = names[i];
		places[i].czxid = names[i][strlen(names[i]) - 1];
		places[i].owner = (unsigned char) names[i][0] % 3;
	}
	queued = zkl_queue_order(places, n, limit);
	HOLDS(queued >= 0 && queued <= n);
	for (int i = 0; i < n; i++)
	{
		sum += places[i].index;
		HOLDS(i < queued || !places[i].holds);
		HOLDS(zkl_queue_order_mode_name(&places[i]) != NULL);
	}
	HOLDS(sum == n * (n - 1) / 2);
}

/* Nothing that a terminal obeys is left, and what is shown is shown as it is. */
static void
fuzz_shown(const char *text)
{
	char	   *shown = malloc(4 * strlen(text) + 1);
	char	   *again;

	zkl_field_text_show(text, shown);
	HOLDS(strlen(shown) >= strlen(text));
	for (const char *at = shown; *at; at++)
		HOLDS((unsigned char) *at >= ' ' && *at != 0x7f);
	again = malloc(4 * strlen(shown) + 1);
	zkl_field_text_show(shown, again);
	HOLDS(strcmp(shown, again) == 0);
	free(shown);
	free(again);
}

/* The text of a znode. */
static void
fuzz_ticket_text(char *text)
{
	char	   *value = malloc(strlen(text) + 1);
	int			length = (int) strlen(text);

	if (zkl_field_text_get(text, "server", value))
		HOLDS(strlen(value) + strlen("server=") <= strlen(text));
	(void) zkl_field_text_get(text, "pid", value);
	free(value);
	fuzz_shown(text);
	HOLDS(!zkl_recipe_has_mark(text, length, ZKL_IN_USE) ||
		  strstr(text, ZKL_IN_USE) != NULL);
	(void) zkl_recipe_is_revoked(text, length);
	(void) zkl_recipe_names_owner(text, length, "server=a pid=1");
}

/* What is accepted is what zklock writes. */
static void
fuzz_job(char *text)
{
	ZklJobRecord record;
	char		again[ZKL_JOBRECORD_SIZE];
	char		path[ZKL_PATH_SIZE];
	char		name[ZKL_PATH_NAME_SIZE];

	if (zkl_job_record_parse(text, strlen(text), &record))
	{
		zkl_job_record_format(&record, again);
		HOLDS(strcmp(text, again) == 0);
	}
	if (zkl_path_of_name(text, path))
	{
		zkl_path_name(path, name);
		HOLDS(strcmp(text, name) == 0);
		HOLDS(zkl_path_fault(path) == NULL);
	}
}

static void
fuzz_hosts(char *text)
{
	char		name[ZKL_HOSTS_NAME_SIZE];
	char		port[ZKL_HOSTS_PORT_SIZE];
	char		prefix[ZKL_ROOT_SIZE];
	int			n = zkl_hosts_servers(text);

	for (int i = 0; i <= n; i++)
		(void) zkl_hosts_server(text, i, name, port);
	if (zkl_hosts_fault(text) != NULL)
		return;
	HOLDS(n > 0);
	for (int i = 0; i < n; i++)
	{
		HOLDS(zkl_hosts_server(text, i, name, port));
		HOLDS(name[0] != '\0' && atoi(port) > 0 && atoi(port) <= 65535);
	}
	zkl_hosts_prefix(text, "/zklock", prefix);
}

static void
fuzz_path(char *text)
{
	if (zkl_path_fault(text) == NULL)
		HOLDS(text[0] == '/' && strlen(text) < ZKL_PATH_SIZE);
	if (zkl_path_root_fault(text) == NULL)
		HOLDS(strlen(text) < ZKL_ROOT_SIZE / 2);
}

static void
fuzz_session_file(char *text)
{
	int64_t		id;
	char		password[ZKL_SESSION_TEXT_PASSWORD];
	char		again[ZKL_SESSION_TEXT_SIZE];
	int64_t		id_again;

	if (!zkl_session_text_parse(text, &id, password))
		return;
	HOLDS(id != 0);
	zkl_session_text_format(id, password, again);
	HOLDS(zkl_session_text_parse(again, &id_again, password) && id_again == id);
}

static void
fuzz_acl(char *text)
{
	ZklAcl		acl;

	if (zkl_access_parse_acl(text, &acl) != NULL)
		return;
	HOLDS(acl.nentries > 0 && acl.nentries <= ZKL_ACL_ENTRIES);
	for (int i = 0; i < acl.nentries; i++)
		HOLDS(acl.entry[i].permissions > 0 &&
			  acl.entry[i].permissions <= ZKL_ACL_ALL &&
			  acl.entry[i].scheme[0] != '\0');
}

/*
 * The records of waits that two servers publish, with a form feed between them;
 * and what the search for deadlocks makes of them, on each of the two.
 */
static void
fuzz_waits(char *text)
{
	static ZklWaitGraph graph;
	static ZklWaitEvidence evidence;
	static ZklWaitSet set[2];
	static ZklWaitSet again;
	static char written[ZKL_PATH_WAITS_SIZE];
	char	   *part[2] = {strtok(text, "\f"), strtok(NULL, "\f")};
	int			nwaits = 0;

	zkl_wait_graph_begin(&graph);
	for (int i = 0; i < 2 && part[i] != NULL; i++)
	{
		if (!zkl_wait_record_parse(part[i], strlen(part[i]), &set[i]))
			continue;
		nwaits += set[i].nrecords;
		zkl_wait_graph_add(&graph, i + 1, i == 0, &set[i]);

		/* A record that is written again says the same, if all of it has room. */
		HOLDS(zkl_wait_record_parse(written,
									zkl_wait_record_format(&set[i], written,
														   sizeof(written)),
									&again));
		HOLDS(again.nrecords == set[i].nrecords || again.truncated);
	}
	while (zkl_wait_graph_next(&graph) != NULL)
		;
	HOLDS(zkl_wait_graph_solve(&graph) <= nwaits);
	for (int i = 0; i < graph.nnodes; i++)
	{
		ZklGraphNode *node = &graph.nodes[i];
		int64_t		nonces[ZKL_WAITRECORD_CONFIRMS];

		(void) zkl_wait_graph_searches(&graph, node->set->instance,
									   node->record->claim, nonces);
		if (!zkl_wait_graph_is_victim(&graph, node->set->instance,
									  node->record->claim))
			continue;
		HOLDS(graph.nmembers > 0);
		zkl_wait_graph_note_evidence(&graph, &evidence);
		HOLDS(!zkl_wait_graph_exceeds(&graph, &evidence));
	}
}

/* A path, and in the next line a list that may allow it. */
static void
fuzz_path_list(char *text)
{
	char	   *list = strchr(text, '\n');
	const char *at;
	const char *element;
	size_t		length;
	bool		allowed = false;

	if (list == NULL)
		return;
	*list++ = '\0';
	if (zkl_path_fault(text) != NULL)
		return;
	at = list;
	while ((element = zkl_path_list_next(&at, &length)) != NULL)
	{
		HOLDS(element >= list && element + length <= list + strlen(list));
		if (length == 0)
			continue;
		allowed |= length == 1 && element[0] == '*';
		allowed |= strncmp(text, element, length) == 0 &&
			(text[length] == '\0' || element[length - 1] == '/');
	}
	HOLDS(allowed || !zkl_path_list_allows(list, text));
	if (zkl_path_list_fault(list) == NULL)
		HOLDS(allowed == zkl_path_list_allows(list, text));
}

/* The only parser whose text may contain nulls. */
static void
fuzz_credentials(const char *text, size_t size)
{
	const char *at = text;
	ZklCredentials credentials;
	int			line;
	bool		valid = zkl_access_credentials_fault(text, size, &line) == NULL;

	HOLDS(line >= 0);
	while (zkl_access_next_credentials(&at, text + size, &credentials))
	{
		HOLDS(credentials.scheme[0] != '\0' && credentials.length > 0);
		HOLDS(credentials.data >= text &&
			  credentials.data + credentials.length <= text + size);
	}
	HOLDS(!valid || at == text + size);
}

extern int	LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int
LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	static void (*const parsers[]) (char *text) = {
		fuzz_name, fuzz_mutex, fuzz_leases, fuzz_queue, fuzz_ticket_text,
		fuzz_job, fuzz_hosts, fuzz_path, fuzz_session_file, fuzz_acl,
		fuzz_waits, fuzz_path_list
	};
	const size_t nparsers = sizeof(parsers) / sizeof(parsers[0]);
	size_t		chosen;
	char	   *text;

	if (size == 0)
		return 0;
	/* Letters, so that a file of the corpus can be read. */
	chosen = (unsigned char) (data[0] - 'a') % (nparsers + 1);

	/* A copy of its own, so that a read behind its end is found. */
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	if (chosen == nparsers)
		fuzz_credentials(text, size - 1);
	else
	{
		text[size - 1] = '\0';
		parsers[chosen] (text);
	}
	free(text);
	return 0;
}
