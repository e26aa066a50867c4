/*-------------------------------------------------------------------------
 *
 * test_path_list.c
 *	  Which paths a list in a setting allows.
 *
 * test/unit/test_path_list.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/pathlist.h"

static void
assert_allows(const char *list, const char *path)
{
	if (!zkl_pathlist_allows(list, path))
		fail_msg("\"%s\" does not allow \"%s\"", list, path);
}

static void
assert_denies(const char *list, const char *path)
{
	if (zkl_pathlist_allows(list, path))
		fail_msg("\"%s\" allows \"%s\"", list, path);
}

static void
assert_fault(const char *list, const char *fault)
{
	const char *found = zkl_pathlist_fault(list);

	if (found == NULL)
		fail_msg("\"%s\" was accepted", list);
	assert_string_equal(found, fault);
}

static void
assert_valid(const char *list)
{
	const char *found = zkl_pathlist_fault(list);

	if (found != NULL)
		fail_msg("\"%s\" was refused: %s", list, found);
}

static void
a_star_allows_everything(void **state)
{
	(void) state;
	assert_allows("*", "/a");
	assert_allows("/jobs/, *", "/a");
	assert_allows("/", "/a");
	assert_valid("*");
	assert_valid("/");
}

static void
an_empty_list_allows_nothing(void **state)
{
	(void) state;
	assert_denies("", "/a");
	assert_denies(" ", "/a");
	assert_denies(",", "/a");
	assert_valid("");
	assert_fault(" ", "The path is empty.");
	assert_fault(",", "The path is empty.");
	assert_fault("/a,,/b", "The path is empty.");
}

static void
a_prefix_allows_what_is_below_it(void **state)
{
	(void) state;
	assert_valid("/jobs/");
	assert_allows("/jobs/", "/jobs/nightly");
	assert_allows("/jobs/", "/jobs/nightly/eu");
	assert_denies("/jobs/", "/jobs");
	assert_denies("/jobs/", "/jobs2");
	assert_denies("/jobs/", "/jobs2/a");
	assert_denies("/jobs/", "/other/jobs/a");
	assert_denies("/jobs/", "/Jobs/a");
}

static void
a_path_allows_itself(void **state)
{
	(void) state;
	assert_valid("/jobs");
	assert_allows("/jobs", "/jobs");
	assert_denies("/jobs", "/jobs/nightly");
	assert_denies("/jobs", "/jobs2");
	assert_denies("/jobs", "/job");
}

static void
elements_are_separated_by_commas_and_blanks(void **state)
{
	const char *list = " /jobs/ ,\t/exports/, /one two ,\n/last";

	(void) state;
	assert_valid(list);
	assert_allows(list, "/jobs/a");
	assert_allows(list, "/exports/a");
	assert_allows(list, "/one two");
	assert_allows(list, "/last");
	assert_denies(list, "/one");
	assert_denies(list, "/las");
	assert_denies(list, "/ jobs/a");
	assert_valid("/a, /b,");
}

/* An entry that is not valid allows nothing, not even the path that it looks like. */
static void
what_is_not_valid_allows_nothing(void **state)
{
	static char list[600];

	(void) state;
	assert_fault("jobs/", "A path must begin with a slash.");
	assert_denies("jobs/", "/jobs/a");
	assert_fault("/jobs/*", "A prefix must end with a slash, not with \"/*\".");
	assert_denies("/jobs/*", "/jobs/a");
	assert_fault("/jobs//", "A path must not end with a slash.");
	assert_denies("/jobs//", "/jobs/a");
	assert_fault("/a/../b/", "A path must not contain \".\" or \"..\" as a component.");
	assert_denies("/a/../b/", "/b/c");
	assert_fault("/.zklock/", "The path \"/.zklock\" is reserved.");
	assert_fault("**", "A path must begin with a slash.");
	assert_denies("**", "/a");
	assert_fault("/ok/, bad", "A path must begin with a slash.");
	assert_allows("/ok/, bad", "/ok/a");

	/* A prefix that is cut off would allow more than it says. */
	memset(list, 'x', sizeof(list) - 1);
	list[0] = '/';
	list[100] = '/';
	list[255] = '/';
	assert_fault(list, "A path is too long.");
	assert_denies(list, "/x");
	list[256] = '\0';
	assert_fault(list, "A path is too long.");
	list[255] = '\0';
	assert_valid(list);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_star_allows_everything),
		cmocka_unit_test(an_empty_list_allows_nothing),
		cmocka_unit_test(a_prefix_allows_what_is_below_it),
		cmocka_unit_test(a_path_allows_itself),
		cmocka_unit_test(elements_are_separated_by_commas_and_blanks),
		cmocka_unit_test(what_is_not_valid_allows_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
