/*-------------------------------------------------------------------------
 *
 * test_path.c
 *	  What may be the path of a lock, and which paths a list in a setting allows.
 *
 * test/unit/test_path.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/path.h"

#define TOO_LONG	"The path is longer than 255 bytes."
#define CHARACTER	"The path contains a character that ZooKeeper does not allow."
#define COMPONENT	"A path must not contain \".\" or \"..\" as a component."
#define TOO_DEEP	"A path must not have more than 16 components."
#define CONTENDER	"A component of the path looks like the znode of a lock."

static void
assert_fault(const char *path, const char *fault)
{
	const char *found = zkl_path_fault(path);

	if (found == NULL)
		fail_msg("\"%s\" was accepted", path);
	assert_string_equal(found, fault);
}

static void
assert_accepted(const char *path)
{
	const char *found = zkl_path_fault(path);

	if (found != NULL)
		fail_msg("\"%s\" was refused: %s", path, found);
}

/* A path of "length" bytes, in components of at most 50. */
static const char *
path_of_length(int length)
{
	static char path[1024];

	for (int i = 0; i < length; i++)
		path[i] = (i % 50 == 0 && i < length - 1) ? '/' : 'x';
	path[length] = '\0';
	return path;
}

TEST(ordinary_paths_are_accepted)
{
	assert_accepted("/a");
	assert_accepted("/jobs/nightly");
	assert_accepted("/jobs/with blanks, and \"quotes\"");
	assert_accepted("/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p");
	assert_accepted("/UPPER/1234567890/-_.!~*'()&%$#@+=;:?<>[]{}|\\^`");
}

TEST(an_empty_path_is_refused)
{
	assert_fault("", "The path is empty.");
}

TEST(the_root_is_no_lock)
{
	assert_fault("/", "The path names no lock below the root.");
}

TEST(a_path_begins_with_a_slash)
{
	assert_fault("jobs", "A path must begin with a slash.");
	assert_fault(" /jobs", "A path must begin with a slash.");
	assert_fault("./jobs", "A path must begin with a slash.");
}

TEST(a_path_does_not_end_with_a_slash)
{
	assert_fault("/jobs/", "A path must not end with a slash.");
	assert_fault("//", "A path must not end with a slash.");
}

TEST(empty_components_are_refused)
{
	assert_fault("//jobs", "A path must not contain an empty component.");
	assert_fault("/jobs//x", "A path must not contain an empty component.");
}

TEST(dots_are_refused_as_components_only)
{
	assert_fault("/.", COMPONENT);
	assert_fault("/..", COMPONENT);
	assert_fault("/a/./b", COMPONENT);
	assert_fault("/a/../b", COMPONENT);
	assert_fault("/a/..", COMPONENT);
	assert_accepted("/.a");
	assert_accepted("/..a");
	assert_accepted("/a.");
	assert_accepted("/a..");
	assert_accepted("/...");
	assert_accepted("/a.b/c..d");
}

/* Also below a root of zklock's own: that is simpler to explain, and no loss. */
TEST(zookeepers_own_directory_is_reserved)
{
	static const char *const reserved = "The path \"/zookeeper\" is reserved.";

	assert_fault("/zookeeper", reserved);
	assert_fault("/zookeeper/quota", reserved);
	assert_accepted("/zookeepers");
	assert_accepted("/zookeepe");
	assert_accepted("/Zookeeper");
	assert_accepted("/a/zookeeper");
}

TEST(zklocks_own_directory_is_reserved)
{
	static const char *const reserved = "The path \"/.zklock\" is reserved.";

	assert_fault("/.zklock", reserved);
	assert_fault("/.zklock/jobs", reserved);
	assert_fault("/.zklock/", reserved);
	assert_accepted("/.zklocks");
	assert_accepted("/.zkloc");
	assert_accepted("/a/.zklock");
}

TEST(a_path_may_have_255_bytes_and_no_more)
{
	assert_int_equal(ZKL_PATH_SIZE, 256);
	assert_accepted(path_of_length(2));
	assert_accepted(path_of_length(254));
	assert_accepted(path_of_length(255));
	assert_fault(path_of_length(256), TOO_LONG);
	assert_fault(path_of_length(257), TOO_LONG);
	assert_fault(path_of_length(1000), TOO_LONG);
}

/* zklock.root may have as many of its own. */
TEST(a_path_may_have_16_components_and_no_more)
{
	char		path[ZKL_PATH_SIZE] = "";

	assert_int_equal(ZKL_PATH_COMPONENTS, 16);
	for (int n = 1; n <= 120; n++)
	{
		strcat(path, "/x");
		if (n <= 16)
			assert_accepted(path);
		else
			assert_fault(path, TOO_DEEP);
		if (n <= 16)
			assert_null(zkl_path_root_fault(path));
		else if (strlen(path) < ZKL_ROOT_SIZE / 2)
			assert_string_equal(zkl_path_root_fault(path), TOO_DEEP);
	}
}

/* One component may fill it all. */
TEST(a_component_may_be_as_long_as_the_path)
{
	char		path[ZKL_PATH_SIZE + 1];

	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[255] = '\0';
	assert_accepted(path);
	path[255] = 'x';
	path[256] = '\0';
	assert_fault(path, TOO_LONG);
}

/* The limit is one of bytes: shared memory has no room for more. */
TEST(length_is_counted_in_bytes)
{
	char		path[600] = "/";

	for (int i = 0; i < 127; i++)
		strcat(path, "\xc3\xa4");
	assert_int_equal(strlen(path), 255);
	assert_accepted(path);
	strcat(path, "\xc3\xa4");
	assert_fault(path, TOO_LONG);
}

TEST(a_component_like_a_lock_znode_is_refused)
{
	static const char *const paths[] = {
		"/jobs/_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-lock-0000000001",
		"/jobs/f81d4fae7dec41d0a76500a0c91e6bf6__lock__0000000001",
		"/jobs/f81d4fae7dec41d0a76500a0c91e6bf6__rlock__0000000001",
		"/jobs/lock-0000000001",
		"/jobs/lock--000000001",
		"/jobs/lock-",
		"/clock-",
		"/lock-/below",
		"/jobs/__lock__0000000001/below",
		"/_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-__WRIT__0000000001",
		"/_c_f81d4fae-7dec-41d0-a765-00a0c91e6bf6-__READ__0000000001/below",
		"/jobs/__READ__-2147483648",
		"/jobs/leases/x-lease-0000000001",
	};

	for (int i = 0; i < lengthof(paths); i++)
		assert_fault(paths[i], CONTENDER);
}

TEST(a_component_with_lock_in_it_is_accepted)
{
	static const char *const paths[] = {
		"/lock",
		"/locks",
		"/leases",
		"/block-1",
		"/lock-000000001",
		"/lock-00000000011",
		"/lock-nightly",
		"/__lock__",
		"/__rlock__1",
		"/lock_0000000001",
		"/__WRIT__",
		"/__READ__1",
		"/lease-",
		"/lease-2026",
		"/release-000000001",
	};

	for (int i = 0; i < lengthof(paths); i++)
		assert_accepted(paths[i]);
}

TEST(control_characters_are_refused)
{
	char		path[] = "/a?b";

	for (int c = 1; c < 0x80; c++)
	{
		path[2] = (char) c;
		if (c == '/')
			continue;
		if (c < 0x20 || c == 0x7f)
			assert_fault(path, CHARACTER);
		else
			assert_accepted(path);
	}
}

/*
 * Both sides of every border of the characters that ZooKeeper refuses, as
 * PathUtils.validatePath() of ZooKeeper 3.8 told them.
 */
TEST(characters_are_those_of_zookeeper)
{
	static const struct
	{
		const char *character;
		bool		allowed;
	}			cases[] = {
		{"\xc2\x80", false},	/* U+0080 */
		{"\xc2\x9f", false},	/* U+009F */
		{"\xc2\xa0", true},		/* U+00A0 */
		{"\xc3\x80", true},		/* U+00C0 */
		{"\xdf\xbf", true},		/* U+07FF */
		{"\xe0\xa0\x80", true}, /* U+0800 */
		{"\xe2\x82\xac", true}, /* U+20AC */
		{"\xe4\xb8\xad", true}, /* U+4E2D */
		{"\xed\x9f\xbf", true}, /* U+D7FF */
		{"\xed\xa0\x80", false},	/* U+D800, not valid UTF-8 at all */
		{"\xee\x80\x80", false},	/* U+E000 */
		{"\xef\x80\x80", false},	/* U+F000 */
		{"\xef\xa3\xbf", false},	/* U+F8FF */
		{"\xef\xa4\x80", true}, /* U+F900 */
		{"\xef\xbe\x80", true}, /* U+FF80 */
		{"\xef\xbf\xaf", true}, /* U+FFEF */
		{"\xef\xbf\xb0", false},	/* U+FFF0 */
		{"\xef\xbf\xbd", false},	/* U+FFFD */
		{"\xef\xbf\xbf", false},	/* U+FFFF */
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		char		path[32];

		/* at the end, at the beginning and in the middle */
		for (int form = 0; form < 3; form++)
		{
			snprintf(path, sizeof(path), form == 0 ? "/%s" :
					 form == 1 ? "/%sx" : "/x/x%sx", cases[i].character);
			if (cases[i].allowed)
				assert_accepted(path);
			else
				assert_fault(path, CHARACTER);
		}
	}
}

/* In Java's strings these are pairs of surrogates. */
TEST(characters_beyond_the_basic_plane_are_refused)
{
	assert_fault("/\xf0\x90\x80\x80", CHARACTER);	/* U+10000 */
	assert_fault("/jobs/\xf0\x9f\x98\x80", CHARACTER);	/* U+1F600 */
	assert_fault("/x\xf4\x8f\xbf\xbfx", CHARACTER); /* U+10FFFF */
}

/* The bytes of two neighbours are not taken for one character. */
TEST(bytes_of_different_characters_are_not_mixed_up)
{
	assert_accepted("/\xe4\xb8\xad\xe6\x96\x87/\xc3\xa9\xc3\xa8");
	assert_accepted("/\xc2\xbf\xc2\xa0\xef\xbc\xa1\xef\xa4\x80");
	assert_accepted("/\xed\x9f\xbf\xc3\xad\xef\xbf\xaf");
}

TEST(a_root_may_be_missing)
{
	assert_null(zkl_path_root_fault(""));
	assert_null(zkl_path_root_fault("/"));
}

TEST(a_root_keeps_the_other_rules)
{
	assert_null(zkl_path_root_fault("/zklock"));
	assert_null(zkl_path_root_fault("/zklock/production"));
	assert_string_equal(zkl_path_root_fault("zklock"), "A path must begin with a slash.");
	assert_string_equal(zkl_path_root_fault("/zklock/"), "A path must not end with a slash.");
	assert_string_equal(zkl_path_root_fault("/a//b"), "A path must not contain an empty component.");
	assert_string_equal(zkl_path_root_fault("/a/.."), COMPONENT);
	assert_string_equal(zkl_path_root_fault("/zookeeper/zklock"), "The path \"/zookeeper\" is reserved.");
	assert_string_equal(zkl_path_root_fault("/a\tb"), CHARACTER);
	assert_string_equal(zkl_path_root_fault("/lock-0000000001"), CONTENDER);
}

/* Chroot and root together fit into ZKL_ROOT_SIZE, so each has half of it. */
TEST(a_root_may_have_63_bytes_and_no_more)
{
	assert_int_equal(ZKL_ROOT_SIZE, 128);
	assert_null(zkl_path_root_fault(path_of_length(62)));
	assert_null(zkl_path_root_fault(path_of_length(63)));
	assert_string_equal(zkl_path_root_fault(path_of_length(64)), "The path is longer than 63 bytes.");
	assert_string_equal(zkl_path_root_fault(path_of_length(128)), "The path is longer than 63 bytes.");
}

static void
assert_allows(const char *list, const char *path)
{
	if (!zkl_path_list_allows(list, path))
		fail_msg("\"%s\" does not allow \"%s\"", list, path);
}

static void
assert_denies(const char *list, const char *path)
{
	if (zkl_path_list_allows(list, path))
		fail_msg("\"%s\" allows \"%s\"", list, path);
}

static void
assert_list_fault(const char *list, const char *fault)
{
	const char *found = zkl_path_list_fault(list);

	if (found == NULL)
		fail_msg("\"%s\" was accepted", list);
	assert_string_equal(found, fault);
}

static void
assert_list_valid(const char *list)
{
	const char *found = zkl_path_list_fault(list);

	if (found != NULL)
		fail_msg("\"%s\" was refused: %s", list, found);
}

TEST(a_star_allows_everything)
{
	assert_allows("*", "/a");
	assert_allows("/jobs/, *", "/a");
	assert_allows("/", "/a");
	assert_list_valid("*");
	assert_list_valid("/");
}

TEST(an_empty_list_allows_nothing)
{
	assert_denies("", "/a");
	assert_denies(" ", "/a");
	assert_denies(",", "/a");
	assert_list_valid("");
	assert_list_fault(" ", "The path is empty.");
	assert_list_fault(",", "The path is empty.");
	assert_list_fault("/a,,/b", "The path is empty.");
}

TEST(a_prefix_allows_what_is_below_it)
{
	assert_list_valid("/jobs/");
	assert_allows("/jobs/", "/jobs/nightly");
	assert_allows("/jobs/", "/jobs/nightly/eu");
	assert_denies("/jobs/", "/jobs");
	assert_denies("/jobs/", "/jobs2");
	assert_denies("/jobs/", "/jobs2/a");
	assert_denies("/jobs/", "/other/jobs/a");
	assert_denies("/jobs/", "/Jobs/a");
}

TEST(a_path_allows_itself)
{
	assert_list_valid("/jobs");
	assert_allows("/jobs", "/jobs");
	assert_denies("/jobs", "/jobs/nightly");
	assert_denies("/jobs", "/jobs2");
	assert_denies("/jobs", "/job");
}

TEST(elements_are_separated_by_commas_and_blanks)
{
	const char *list = " /jobs/ ,\t/exports/, /one two ,\n/last";

	assert_list_valid(list);
	assert_allows(list, "/jobs/a");
	assert_allows(list, "/exports/a");
	assert_allows(list, "/one two");
	assert_allows(list, "/last");
	assert_denies(list, "/one");
	assert_denies(list, "/las");
	assert_denies(list, "/ jobs/a");
	assert_list_valid("/a, /b,");
}

/* An entry that is not valid allows nothing, not even the path that it looks like. */
TEST(what_is_not_valid_allows_nothing)
{
	static char list[600];

	assert_list_fault("jobs/", "A path must begin with a slash.");
	assert_denies("jobs/", "/jobs/a");
	assert_list_fault("/jobs/*", "A prefix must end with a slash, not with \"/*\".");
	assert_denies("/jobs/*", "/jobs/a");
	assert_list_fault("/jobs//", "A path must not end with a slash.");
	assert_denies("/jobs//", "/jobs/a");
	assert_list_fault("/a/../b/", "A path must not contain \".\" or \"..\" as a component.");
	assert_denies("/a/../b/", "/b/c");
	assert_list_fault("/.zklock/", "The path \"/.zklock\" is reserved.");
	assert_list_fault("**", "A path must begin with a slash.");
	assert_denies("**", "/a");
	assert_list_fault("/ok/, bad", "A path must begin with a slash.");
	assert_allows("/ok/, bad", "/ok/a");

	/* A prefix that is cut off would allow more than it says. */
	memset(list, 'x', sizeof(list) - 1);
	list[0] = '/';
	list[100] = '/';
	list[255] = '/';
	assert_list_fault(list, "A path is longer than 255 bytes.");
	assert_denies(list, "/x");
	list[256] = '\0';
	assert_list_fault(list, "A path is longer than 255 bytes.");
	list[255] = '\0';
	assert_list_valid(list);
}

static void
assert_name(const char *path, const char *expected)
{
	char		name[ZKL_PATH_NAME_SIZE];
	char		back[ZKL_PATH_SIZE];

	zkl_path_name(path, name);
	assert_string_equal(name, expected);
	assert_true(zkl_path_of_name(name, back));
	assert_string_equal(back, path);
}

TEST(a_name_is_one_component)
{
	assert_name("/jobs", "jobs");
	assert_name("/jobs/nightly", "jobs%2Fnightly");
	assert_name("/100%", "100%25");
	assert_name("/a%2Fb/c", "a%252Fb%2Fc");
	assert_name("/with blanks/\xc3\xa4", "with blanks%2F\xc3\xa4");
}

TEST(the_longest_path_has_a_name)
{
	char		path[ZKL_PATH_SIZE];
	char		name[ZKL_PATH_NAME_SIZE];
	char		back[ZKL_PATH_SIZE];

	memset(path, '%', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	zkl_path_name(path, name);
	assert_int_equal(strlen(name), 3 * (sizeof(path) - 2));
	assert_true(zkl_path_of_name(name, back));
	assert_string_equal(back, path);
}

TEST(other_names_are_no_paths)
{
	static const char *const names[] = {
		"", ".", "..", "a%", "a%2", "a%2f", "a%41", "%2Fa", "a%2F", "a%2F%2Fb",
		"zookeeper", ".zklock%2Fjobs", "a/", "a/b",
		"_c_00000000-0000-0000-0000-000000000000-lock-0000000001"
	};
	char		path[ZKL_PATH_SIZE];
	char		name[2 * ZKL_PATH_SIZE];

	for (int i = 0; i < lengthof(names); i++)
	{
		if (zkl_path_of_name(names[i], path))
			fail_msg("\"%s\" was taken for \"%s\"", names[i], path);
	}
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_false(zkl_path_of_name(name, path));
}

int
main(void)
{
	return run_all_tests("path");
}
