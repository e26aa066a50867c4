/*-------------------------------------------------------------------------
 *
 * test_texts.c
 *	  The fields in the text of a znode, and what the session file says.
 *
 * test/unit/test_texts.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/fieldtext.h"
#include "protocol/sessiontext.h"

#define PASSWORD	"00112233445566778899aabbccddeeff"

static void
assert_field(const char *text, const char *name, const char *expected)
{
	char		value[256];
	bool		found = zkl_field_text_get(text, name, value);

	if (expected == NULL)
		assert_false(found);
	else
	{
		assert_true(found);
		assert_string_equal(value, expected);
	}
}

static void
fields_are_found_by_name(void **state)
{
	const char *text = "server=a%20b pid=12 role= superuser=f";

	(void) state;
	assert_field(text, "server", "a b");
	assert_field(text, "pid", "12");
	assert_field(text, "role", "");
	assert_field(text, "user", NULL);
	assert_field(text, "super", NULL);
	assert_field("", "pid", NULL);
	assert_field("pid", "pid", NULL);
}

static void
bad_escapes_stay_as_they_are(void **state)
{
	(void) state;
	assert_field("a=%", "a", "%");
	assert_field("a=%4", "a", "%4");
	assert_field("a=%4g%G1", "a", "%4g%G1");
	assert_field("a=x%00y", "a", "x%00y");
	assert_field("a=%25%41", "a", "%A");
}

static void
assert_no_session(const char *text)
{
	int64_t		id;
	char		password[ZKL_SESSION_TEXT_PASSWORD];

	if (zkl_session_text_parse(text, &id, password))
		fail_msg("\"%s\" was accepted", text);
}

static void
a_session_is_read_as_it_was_written(void **state)
{
	const int64_t ids[] = {1, INT64_C(0x1000a2b3c4d50000), INT64_MAX, INT64_MIN, -1};
	char		password[ZKL_SESSION_TEXT_PASSWORD];
	char		text[ZKL_SESSION_TEXT_SIZE];

	(void) state;
	for (int i = 0; i < (int) (sizeof(ids) / sizeof(ids[0])); i++)
	{
		char		again[ZKL_SESSION_TEXT_PASSWORD];
		int64_t		id;

		memset(password, 0xf0 + i, sizeof(password));
		zkl_session_text_format(ids[i], password, text);
		assert_true(zkl_session_text_parse(text, &id, again));
		assert_true(id == ids[i]);
		assert_memory_equal(again, password, sizeof(password));
	}
}

static void
other_texts_name_no_session(void **state)
{
	(void) state;
	assert_no_session("");
	assert_no_session("1a");
	assert_no_session("1a ");
	assert_no_session("0 " PASSWORD "\n");
	assert_no_session("1A " PASSWORD "\n");
	assert_no_session("-1 " PASSWORD "\n");
	assert_no_session("1a  " PASSWORD "\n");
	assert_no_session("1a " PASSWORD);
	assert_no_session("1a " PASSWORD "0\n");
	assert_no_session("1a 0" PASSWORD "\n");
	assert_no_session("1a 0011\n");
	assert_no_session("12345678123456781 " PASSWORD "\n");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_found_by_name),
		cmocka_unit_test(bad_escapes_stay_as_they_are),
		cmocka_unit_test(a_session_is_read_as_it_was_written),
		cmocka_unit_test(other_texts_name_no_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
