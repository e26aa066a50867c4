/*-------------------------------------------------------------------------
 *
 * test_comeback.c
 *	  Does it pay to keep the ticket of a path for the path's next lock?
 *
 * A trace is a text: "o5" the server owns the lock by a ticket with number 5,
 * "u" the ticket that was kept is used, "t" another client wants the lock, "d"
 * a downgrade.  "+" and "-" say whether it pays by then.
 *
 * test/unit/test_comeback.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "protocol/comeback.h"
#include "unit.h"

static void
play(const char *trace)
{
	ZklComeback comeback;
	bool		begun = false;

	for (const char *at = trace; *at; at++)
	{
		char		name[64];

		switch (*at)
		{
			case 'o':
				snprintf(name, sizeof(name), "_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-%010ld", strtol(at + 1, NULL, 10));
				if (begun)
					zkl_comeback_owned(&comeback, name);
				else
					zkl_comeback_start(&comeback, name);
				begun = true;
				break;
			case 'u':
				zkl_comeback_used(&comeback);
				break;
			case 't':
				zkl_comeback_taken(&comeback);
				break;
			case 'd':
				zkl_comeback_downgraded(&comeback);
				break;
			case '+':
			case '-':
				if (zkl_comeback_pays(&comeback) != (*at == '+'))
					fail_msg("%s: not so at %s", trace, at);
				break;
		}
	}
}

TEST(a_path_that_only_this_server_uses_pays)
{
	play("o0 + o1 + u + u + u + o2 +");
	play("o7 + o8 + o9 +");
}

TEST(a_path_that_others_use_as_much_does_not)
{
	play("o0 + t - o3 - o5 - o9 - o11 -");
	/* However long a path was this server's alone, four strangers are enough. */
	play("o0 u u u u u u u u u + t + t + t + t - t -");
	/* Two in a row are chance where three servers share a path. */
	play("o0 + t - o3 - o4 - o6 - o7 - o9 -");
}

TEST(it_pays_again_when_others_stay_away)
{
	play("o0 + t - o3 - o5 - o6 - o7 - o8 +");
	play("o0 t t t t t t - o1 - o2 - o3 - o4 +");
}

TEST(one_stranger_among_many_uses_does_no_harm)
{
	play("o0 u u u + t + o2 + o3 + u + u +");
}

TEST(a_downgrade_is_ones_own)
{
	play("o0 d o2 + t + t -");
	play("o0 o2 - o3 +");
}

/* Numbers begin anew with the directory, and end. */
TEST(what_tells_nothing_changes_nothing)
{
	ZklComeback comeback;

	play("o9 + o0 + o0 + t - o1 +");
	play("o1999999999 + o2000000000 + o2000000000 + d + t -");
	zkl_comeback_start(&comeback, "");
	zkl_comeback_downgraded(&comeback);
	zkl_comeback_owned(&comeback, "lock");
	assert_int_equal(comeback.number, -1);
	assert_true(zkl_comeback_pays(&comeback));
}

int
main(void)
{
	return run_all_tests("does it pay to linger");
}
