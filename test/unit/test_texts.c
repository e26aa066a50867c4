/*-------------------------------------------------------------------------
 *
 * test_texts.c
 *	  The fields in the text of a znode, names and births of servers' records, and
 *	  what the session file says.
 *
 * test/unit/test_texts.c
 *
 *-------------------------------------------------------------------------
 */
#include "unit.h"

#include "protocol/fieldtext.h"
#include "protocol/serverrecord.h"
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

TEST(fields_are_found_by_name)
{
	const char *text = "server=a%20b pid=12 role= superuser=f";

	assert_field(text, "server", "a b");
	assert_field(text, "pid", "12");
	assert_field(text, "role", "");
	assert_field(text, "user", NULL);
	assert_field(text, "super", NULL);
	assert_field("", "pid", NULL);
	assert_field("pid", "pid", NULL);
}

TEST(bad_escapes_stay_as_they_are)
{
	assert_field("a=%", "a", "%");
	assert_field("a=%4", "a", "%4");
	assert_field("a=%4g%G1", "a", "%4g%G1");
	assert_field("a=x%00y", "a", "x%00y");
	assert_field("a=%25%41", "a", "%A");
}

/* The text after "a=1", cut to 16 bytes. */
static void
assert_put(const char *value, const char *expected)
{
	char		text[17] = "";

	zkl_field_text_put(text, sizeof(text), "a", "1");
	zkl_field_text_put(text, sizeof(text), "name", value);
	assert_string_equal(text, expected);
}

TEST(fields_are_cut_at_a_character)
{
	char		text[10] = "a=12345";

	assert_put("", "a=1 name=");
	assert_put("1234567", "a=1 name=1234567");
	assert_put("12345678", "a=1 name=1234567");
	assert_put("12 45%78", "a=1 name=12%2045");
	assert_put("12345 7", "a=1 name=12345");
	assert_put("123456\303\244", "a=1 name=123456");
	assert_put("12345\303\244", "a=1 name=12345\303\244");
	assert_put("12345\342\202\254", "a=1 name=12345");
	assert_put("1234\360\237\230\200", "a=1 name=1234");
	/* No UTF-8: the bytes are what they are. */
	assert_put("123456\344", "a=1 name=123456\344");
	assert_put("12345\303x", "a=1 name=12345\303x");

	/* Not even a character of the value would fit. */
	zkl_field_text_put(text, sizeof(text), "b", "1");
	assert_string_equal(text, "a=12345");
}

TEST(a_server_may_have_any_name)
{
	char		znode[ZKL_SERVERRECORD_NAME_SIZE];
	char		name[85];

	zkl_server_record_name("db1.example:5432", znode);
	assert_string_equal(znode, "db1.example:5432");
	zkl_server_record_name("..", znode);
	assert_string_equal(znode, "%2E.");
	zkl_server_record_name("a/b%\303\244 \177", znode);
	assert_string_equal(znode, "a%2Fb%25%C3%A4%20%7F");

	/* The longest that has room. */
	memset(name, '/', sizeof(name));
	name[84] = '\0';
	zkl_server_record_name(name, znode);
	assert_int_equal(strlen(znode), 252);
}

TEST(birth_is_transaction_and_time)
{
	char		birth[ZKL_SERVERRECORD_BIRTH_SIZE];

	zkl_server_record_birth(0x100000002, 0x19ab, birth);
	assert_string_equal(birth, "100000002-19ab");
	zkl_server_record_birth(-1, -1, birth);
	assert_string_equal(birth, "ffffffffffffffff-ffffffffffffffff");
}

static void
assert_shown(const char *text, const char *expected)
{
	char		shown[256];

	zkl_field_text_show(text, shown);
	assert_string_equal(shown, expected);
}

TEST(what_can_be_shown_stays_as_it_is)
{
	assert_shown("", "");
	assert_shown(" a~\\", " a~\\");
	assert_shown("\xc2\xa0\xc3\xa4\xe0\xa0\x80\xed\x9f\xbf\xef\xbf\xbf", "\xc2\xa0\xc3\xa4\xe0\xa0\x80\xed\x9f\xbf\xef\xbf\xbf");
	assert_shown("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
}

TEST(control_characters_are_escaped)
{
	assert_shown("\x01\n\x1b[0m\x1f\x7f", "\\x01\\x0a\\x1b[0m\\x1f\\x7f");
	assert_shown("a\xc2\x80\xc2\x9f", "a\\xc2\\x80\\xc2\\x9f");
}

TEST(what_is_no_character_is_escaped)
{
	assert_shown("\x80\xbf", "\\x80\\xbf");
	assert_shown("\xc0\xaf\xc1\xbf", "\\xc0\\xaf\\xc1\\xbf");
	assert_shown("\xe0\x9f\xbf", "\\xe0\\x9f\\xbf");
	assert_shown("\xed\xa0\x80", "\\xed\\xa0\\x80");
	assert_shown("\xf0\x8f\xbf\xbf", "\\xf0\\x8f\\xbf\\xbf");
	assert_shown("\xf4\x90\x80\x80\xf5\xff", "\\xf4\\x90\\x80\\x80\\xf5\\xff");
	/* cut within a character, and followed by another one */
	assert_shown("\xc3", "\\xc3");
	assert_shown("\xe2\x82", "\\xe2\\x82");
	assert_shown("\xf0\x9f\x98 a", "\\xf0\\x9f\\x98 a");
}

static void
assert_no_session(const char *text)
{
	int64_t		id;
	char		password[ZKL_SESSION_TEXT_PASSWORD];

	if (zkl_session_text_parse(text, &id, password))
		fail_msg("\"%s\" was accepted", text);
}

TEST(a_session_is_read_as_it_was_written)
{
	const int64_t ids[] = {1, INT64_C(0x1000a2b3c4d50000), INT64_MAX, INT64_MIN, -1};
	char		password[ZKL_SESSION_TEXT_PASSWORD];
	char		text[ZKL_SESSION_TEXT_SIZE];

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

TEST(other_texts_name_no_session)
{
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

TEST(a_session_names_its_znode)
{
	char		name[ZKL_SESSION_TEXT_NAME_SIZE];

	zkl_session_text_name(0x1000001234560001, name);
	assert_string_equal(name, "1000001234560001");
	zkl_session_text_name(-1, name);
	assert_string_equal(name, "ffffffffffffffff");
	zkl_session_text_name(1, name);
	assert_string_equal(name, "0000000000000001");
}

int
main(void)
{
	return run_all_tests("texts");
}
