/*-------------------------------------------------------------------------
 *
 * test_wait_record.c
 *	  The records of waits: their text, and texts that are none.
 *
 * test/unit/test_wait_record.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include <stdlib.h>

#include "deadlock/waitrecord.h"

static const char example[] = "zklock-waits=1 instance=77 truncated=0 server=db%201\n"
"wait claim=12 pid=4711 leases=1 limit=1 czxid=4294967297 since=1795348800000000"
" search=0 mode=write znode=_c_1-__WRIT__0000000003 path=/jobs/night%20ly"
" server=db%201 pid=4711 database=d role=r application=\n"
"hold claim=10 pid=4711 leases=1 stuck=5 mode=lock path=/a%25b\n"
"hold claim=11 pid=4712 leases=2 stuck=-6 mode=lease path=/%C3%A4\n"
"hold claim=16 pid=4714 leases=1 stuck=7 use=1 mode=lock path=/c\n"
"wait claim=13 pid=4713 leases=2 limit=3 czxid=4294967298 since=0"
" search=9 confirms=7 confirms=8 mode=lease znode=x path=/s server=db%201\n"
"hold claim=14 pid=4713 leases=1 stuck=0 mode=lock path=/s/locks\n"
"wait claim=15 pid=1 leases=1 limit=1 czxid=1 since=0 search=0 mode=read"
" znode=x path=/r \n";

/* A text that can be changed, and ends where its memory ends. */
static char *
copy_of(const char *text, size_t length)
{
	char	   *copy = malloc(length + 1);

	assert_non_null(copy);
	memcpy(copy, text, length);
	copy[length] = 'x';			/* the parser has to write the null */
	return copy;
}

/* A text that is accepted is what would be written. */
static bool
is_set(const char *text, size_t length)
{
	static ZklWaitSet set;
	static char written[ZKL_PATH_WAITS_SIZE];
	char	   *copy = copy_of(text, length);
	bool		parsed = zkl_wait_record_parse(copy, length, &set);

	if (parsed)
	{
		assert_int_equal(zkl_wait_record_format(&set, written, sizeof(written)), length);
		assert_memory_equal(written, text, length);
	}
	free(copy);
	return parsed;
}

TEST(a_text_is_read)
{
	static ZklWaitSet set;
	char	   *text = copy_of(example, strlen(example));
	const ZklWaitRecord *record = &set.records[0];

	assert_true(zkl_wait_record_parse(text, strlen(example), &set));
	assert_int_equal(set.instance, 77);
	assert_string_equal(set.server, "db 1");
	assert_false(set.truncated);
	assert_int_equal(set.nrecords, 3);
	assert_int_equal(set.nholds, 4);

	assert_int_equal(record->claim, 12);
	assert_int_equal(record->pid, 4711);
	assert_int_equal(record->mode, ZKL_MODE_WRITE);
	assert_int_equal(record->leases, 1);
	assert_int_equal(record->limit, 1);
	assert_int_equal(record->czxid, 4294967297);
	assert_int_equal(record->since, 1795348800000000);
	assert_int_equal(record->search, 0);
	assert_int_equal(record->nconfirms, 0);
	assert_string_equal(record->znode, "_c_1-__WRIT__0000000003");
	assert_string_equal(record->path, "/jobs/night ly");
	assert_string_equal(record->owner_text, "server=db%201 pid=4711 database=d role=r application=");
	assert_int_equal(record->first_hold, 0);
	assert_int_equal(record->nholds, 3);
	assert_string_equal(set.holds[0].path, "/a%b");
	assert_false(set.holds[0].is_use);
	assert_int_equal(set.holds[1].claim, 11);
	assert_int_equal(set.holds[1].pid, 4712);
	assert_int_equal(set.holds[1].leases, 2);
	assert_int_equal(set.holds[1].stuck, -6);
	assert_int_equal(set.holds[1].mode, ZKL_MODE_LEASE);
	assert_string_equal(set.holds[1].path, "/\xc3\xa4");
	assert_true(set.holds[2].is_use);
	assert_int_equal(set.holds[2].stuck, 7);
	assert_string_equal(set.holds[2].path, "/c");

	record = &set.records[1];
	assert_int_equal(record->leases, 2);
	assert_int_equal(record->limit, 3);
	assert_int_equal(record->search, 9);
	assert_int_equal(record->nconfirms, 2);
	assert_int_equal(record->confirms[1], 8);
	assert_int_equal(record->first_hold, 3);
	assert_int_equal(record->nholds, 1);
	assert_int_equal(set.records[2].nholds, 0);
	assert_string_equal(set.records[2].owner_text, "");
	free(text);
}

/* Records with names of all bytes, and as long as they may be. */
static void
make_set(ZklWaitSet *set, uint64_t *seed, char names[][ZKL_PATH_SIZE])
{
	int			nnames = 0;

	memset(set, 0, sizeof(*set));
	set->instance = 1 + random_below(seed, 1000);
	set->server = names[nnames];
	for (int i = 0; i < 40; i++)
	{
		int			length = 2 + (int) random_below(seed, random_below(seed, 2) ? 8 : ZKL_PATH_SIZE - 2);
		char	   *name = names[i];

		/* A path of a lock, and the name of anything else. */
		for (int j = 0; j < length; j++)
		{
			do
				name[j] = (char) (i % 2 ? 0x20 + random_below(seed, 0x5f) : 1 + random_below(seed, 255));
			while (i % 2 && name[j] == '/');
		}
		name[0] = i % 2 ? '/' : 'x';
		name[length] = '\0';
		if (i % 2 && zkl_path_fault(name) != NULL)
			strcpy(name, "/a");
	}

	set->truncated = random_below(seed, 2) == 0;
	set->nrecords = (int) random_below(seed, 10);
	for (int i = 0; i < set->nrecords; i++)
	{
		ZklWaitRecord *record = &set->records[i];
		static const char owner_text[] = "server=a pid=1";

		record->claim = 1 + i + (int64_t) random_below(seed, 2) * INT32_MAX;
		record->pid = 1 + (int) random_below(seed, INT32_MAX);
		record->mode = (ZklMode) random_below(seed, 4);
		record->limit = record->mode == ZKL_MODE_LEASE ? 1 + (int) random_below(seed, 9) : 1;
		record->leases = 1 + (int) random_below(seed, record->limit);
		record->czxid = INT64_MAX - random_below(seed, 9);
		record->since = random_below(seed, 9);
		record->search = random_below(seed, 2);
		record->nconfirms = (int) random_below(seed, ZKL_WAITRECORD_CONFIRMS + 1);
		for (int j = 0; j < record->nconfirms; j++)
			record->confirms[j] = 1 + random_below(seed, UINT32_MAX);
		record->znode = "_c_x-lock-0000000001";
		record->path = names[1 + 2 * random_below(seed, 19)];
		record->owner_text = owner_text + random_below(seed, (uint32_t) strlen(owner_text));
		record->first_hold = set->nholds;
		record->nholds = (int) random_below(seed, 20);
		set->nholds += record->nholds;
	}
	for (int i = 0; i < set->nholds; i++)
	{
		ZklWaitHold *hold = &set->holds[i];

		hold->claim = 1 + random_below(seed, 9);
		hold->pid = 1 + (int) random_below(seed, 9);
		hold->mode = (ZklMode) random_below(seed, 4);
		hold->leases = hold->mode == ZKL_MODE_LEASE ? 1 + (int) random_below(seed, 9) : 1;
		hold->path = names[1 + 2 * random_below(seed, 19)];
		hold->stuck = (int64_t) random_below(seed, 9) - 4;
	}
}

static void
assert_same_record(const ZklWaitSet *a, const ZklWaitSet *b, int i)
{
	const ZklWaitRecord *one = &a->records[i];
	const ZklWaitRecord *other = &b->records[i];

	assert_int_equal(one->claim, other->claim);
	assert_int_equal(one->czxid, other->czxid);
	assert_string_equal(one->znode, other->znode);
	assert_int_equal(one->pid, other->pid);
	assert_string_equal(one->path, other->path);
	assert_int_equal(one->mode, other->mode);
	assert_int_equal(one->leases, other->leases);
	assert_int_equal(one->limit, other->limit);
	assert_int_equal(one->since, other->since);
	assert_string_equal(one->owner_text, other->owner_text);
	assert_int_equal(one->search, other->search);
	assert_int_equal(one->nconfirms, other->nconfirms);
	assert_memory_equal(one->confirms, other->confirms, one->nconfirms * sizeof(int64_t));
	assert_int_equal(one->nholds, other->nholds);
	assert_int_equal(one->first_hold, other->first_hold);
	for (int j = 0; j < one->nholds; j++)
	{
		const ZklWaitHold *hold = &a->holds[one->first_hold + j];
		const ZklWaitHold *same = &b->holds[one->first_hold + j];

		assert_int_equal(hold->claim, same->claim);
		assert_int_equal(hold->pid, same->pid);
		assert_int_equal(hold->mode, same->mode);
		assert_int_equal(hold->leases, same->leases);
		assert_string_equal(hold->path, same->path);
		assert_int_equal(hold->stuck, same->stuck);
	}
}

/* As much as fits; only the last record may lack holds. */
TEST(sets_survive_as_text)
{
	static ZklWaitSet set;
	static ZklWaitSet parsed;
	static char names[40][ZKL_PATH_SIZE];
	static char text[ZKL_PATH_WAITS_SIZE];
	uint64_t	seed = 1;
	int			ncut = 0;
	int			nshort = 0;

	for (int round = 0; round < 3000; round++)
	{
		size_t		size = random_below(&seed, 2) ? sizeof(text) : 1024 + random_below(&seed, 9000);
		size_t		length;
		bool		is_short = false;

		make_set(&set, &seed, names);
		length = zkl_wait_record_format(&set, text, size);
		assert_true(length < size);
		assert_int_equal(strlen(text), length);
		assert_true(zkl_wait_record_parse(text, length, &parsed));
		assert_int_equal(parsed.instance, set.instance);
		assert_string_equal(parsed.server, set.server);
		assert_true(parsed.nrecords <= set.nrecords);
		if (parsed.nrecords > 0)
		{
			int			last = parsed.nrecords - 1;
			int			nholds = parsed.records[last].nholds;

			is_short = nholds < set.records[last].nholds;
			assert_true(!is_short || nholds > 0);
			if (is_short)
				set.records[last].nholds = nholds;
		}
		assert_int_equal(parsed.truncated, set.truncated || is_short || parsed.nrecords < set.nrecords);
		ncut += parsed.nrecords < set.nrecords;
		nshort += is_short;
		for (int i = 0; i < parsed.nrecords; i++)
			assert_same_record(&set, &parsed, i);
	}
	assert_true(ncut > 100);
	assert_true(nshort > 100);
}

TEST(other_texts_are_no_sets)
{
	static const char *const changes[][2] = {
		{"waits=1", "waits=2"},
		{"waits=1", "waits=01"},
		{"instance=77", "instance=0"},
		{"instance=77", "instance=-1"},
		{"instance=77", "instance=9223372036854775808"},
		{"truncated=0", "truncated=2"},
		{"server=db%201\n", "server=\n"},
		{"server=db%201\n", "server=db 1\n"},
		{"server=db%201\n", "server=db%2\n"},
		{"server=db%201\n", "server=db%41\n"},
		{"server=db%201\n", "server=db%0a\n"},
		{"server=db%201\n", "server=db%00\n"},
		{"server=db%201\n", "server=db%\n"},
		{"server=db%201\n", "server=db"},
		{"wait claim=12", "wait claim=0"},
		{"wait claim=12", "wait  claim=12"},
		{"wait claim=12", "await claim=12"},
		{"wait claim=12", "hold claim=12"},
		{"wait claim=13", "wait claim=12"},
		{"pid=4711", "pid=0"},
		{"pid=4711", "pid=2147483648"},
		{"leases=1", "leases=0"},
		{"leases=1", "leases=2"},
		{"leases=2 limit=3", "leases=4 limit=3"},
		{"limit=1", "limit=2"},
		{"limit=3", "limit=03"},
		{"czxid=4294967297", "czxid=0"},
		{"since=1", "since=-1"},
		{"search=0", "search=-1"},
		{"search=0", "seek=0"},
		{"confirms=7", "confirms=0"},
		{"confirms=7", "confirms=1 confirms=2 confirms=3 confirms=4"},
		{"mode=write", "mode=writer"},
		{"mode=write", "mode=kazoo"},
		{"mode=write", "mode="},
		{"mode=lease znode=x", "mode=read znode=x"},
		{"znode=_c_1", "znode=/_c_1"},
		{"znode=_c_1-__WRIT__0000000003", "znode="},
		{"path=/jobs", "path=jobs"},
		{"path=/jobs", "path=/"},
		{"path=/jobs", "path=//jobs"},
		{"path=/jobs/night%20ly", "path=/jobs/.."},
		{"path=/jobs/night%20ly", "path=/.zklock/jobs"},
		{"path=/jobs/night%20ly", "path=/.zklock/locks"},
		{"path=/jobs/night%20ly", "path=/jobs/"},
		{"path=/jobs/night%20ly", "path=/locks/"},
		{"path=/jobs/night%20ly", "path=/jobs%07"},
		{"path=/jobs/night%20ly", "path=/jobs%2Fnight"},
		{"path=/s/locks", "path=/s/locks "},
		{"path=/s/locks", "path=//locks"},
		{" database=d", "\tdatabase=d"},
		{" database=d", " database=d\n"},
		{"application=\n", "application=\r\n"},
		{"hold claim=10", "hold claim=-10"},
		{"hold claim=10", "hold claim=1x"},
		{"hold claim=10", "holds claim=10"},
		{"stuck=5", "stuck="},
		{"stuck=5", "stuck=-0"},
		{"leases=1 stuck=5", "leases=2 stuck=5"},
		{"lease path=/%C3%A4", "lease path=/%c3%A4"},
		{" path=/a%25b", " path=/a%b"},
		{"path=/r \n", "path=/r\n"},
		{"path=/r \n", "path=/r "},
		{"path=/r \n", "path=/r \n\n"},
	};
	char		text[2 * sizeof(example)];

	assert_true(is_set(example, strlen(example)));
	assert_true(is_set("zklock-waits=1 instance=1 truncated=1 server=a\n", 47));
	assert_false(is_set("", 0));
	assert_false(is_set("127.0.0.1", 9));
	for (int i = 0; i < lengthof(changes); i++)
	{
		const char *at = strstr(example, changes[i][0]);

		if (at == NULL)
			fail_msg("\"%s\" is not in the example", changes[i][0]);
		snprintf(text, sizeof(text), "%.*s%s%s", (int) (at - example), example,
				 changes[i][1], at + strlen(changes[i][0]));
		if (is_set(text, strlen(text)))
			fail_msg("\"%s\" was accepted", changes[i][1]);
	}
}

/* A text that was cut is a set only at the end of a line. */
TEST(a_text_that_was_cut_is_no_set)
{
	for (size_t length = 0; length < strlen(example); length++)
		assert_int_equal(is_set(example, length), length > 0 && example[length - 1] == '\n');
}

TEST(names_have_bounds)
{
	char		text[8 * ZKL_PATH_SIZE];
	char		name[4 * ZKL_PATH_SIZE];

	for (int length = 240; length < 270; length++)
	{
		name[0] = '/';
		memset(name + 1, 'p', sizeof(name) - 1);
		snprintf(text, sizeof(text), "zklock-waits=1 instance=1 truncated=0 server=%.*s\n", length, name);
		assert_int_equal(is_set(text, strlen(text)), length < ZKL_OWNER_TEXT_SIZE);
		snprintf(text, sizeof(text), "zklock-waits=1 instance=1 truncated=0 server=a\n"
				 "wait claim=1 pid=1 leases=1 limit=1 czxid=1 since=0 search=0 mode=lock"
				 " znode=%.*s path=/a \n", length - 200, name + 1);
		assert_int_equal(is_set(text, strlen(text)), length - 200 < ZKL_ZNODE_SIZE);
		snprintf(text, sizeof(text), "zklock-waits=1 instance=1 truncated=0 server=a\n"
				 "wait claim=1 pid=1 leases=1 limit=1 czxid=1 since=0 search=0 mode=lock"
				 " znode=x path=%.*s \n", length, name);
		assert_int_equal(is_set(text, strlen(text)), length < ZKL_PATH_SIZE);
		snprintf(text, sizeof(text), "zklock-waits=1 instance=1 truncated=0 server=a\n"
				 "wait claim=1 pid=1 leases=1 limit=1 czxid=1 since=0 search=0 mode=lock"
				 " znode=x path=/a %.*s\n", length, name);
		assert_int_equal(is_set(text, strlen(text)), length < ZKL_OWNER_TEXT_SIZE);
	}
}

TEST(a_set_has_bounds)
{
	static char text[2 * ZKL_PATH_WAITS_SIZE];
	static const char head[] = "zklock-waits=1 instance=1 truncated=0 server=a\n";
	char	   *at;

	for (int n = ZKL_WAITRECORD_WAITS - 1; n <= ZKL_WAITRECORD_WAITS + 1; n++)
	{
		at = text + sprintf(text, head);
		for (int i = 1; i <= n; i++)
			at += sprintf(at, "wait claim=%d pid=1 leases=1 limit=1 czxid=1 since=0"
						  " search=0 mode=lock znode=x path=/a \n", i);
		assert_int_equal(is_set(text, (size_t) (at - text)), n <= ZKL_WAITRECORD_WAITS);
	}
	for (int n = ZKL_WAITRECORD_HOLDS - 1; n <= ZKL_WAITRECORD_HOLDS + 1; n++)
	{
		at = text + sprintf(text, head);
		at += sprintf(at, "wait claim=1 pid=1 leases=1 limit=1 czxid=1 since=0"
					  " search=0 mode=lock znode=x path=/a \n");
		for (int i = 1; i <= n; i++)
			at += sprintf(at, "hold claim=%d pid=1 leases=1 stuck=0 mode=read path=/a\n", i);
		assert_int_equal(is_set(text, (size_t) (at - text)), n <= ZKL_WAITRECORD_HOLDS);
	}

	/* a null, and too long */
	memcpy(text, example, sizeof(example));
	text[20] = '\0';
	assert_false(is_set(text, strlen(example)));
	at = text + sprintf(text, head);
	while (at < text + ZKL_PATH_WAITS_SIZE)
		at += sprintf(at, "hold claim=1 pid=1 leases=1 stuck=0 mode=read path=/a\n");
	assert_false(is_set(text, (size_t) (at - text)));
}

int
main(void)
{
	return run_all_tests("wait record");
}
