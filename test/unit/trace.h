/*-------------------------------------------------------------------------
 *
 * trace.h
 *	  Tests as text: one event, and what must come of it, in each line.
 *
 * A trace file has cases.  The title of a case begins in the first column, and
 * its lines are indented:
 *
 *	a title
 *	    event argument ...  -> effect ...  ; fact ...
 *
 * The event must have exactly the effect that its line says; without an arrow,
 * it must have none.  The facts are checked after it.  "3x event" repeats a
 * line.  If a case has lines "each a b c", the case runs once with each of
 * these words in the place of "$".  "like a title" plays the lines of that
 * case, which is before this one.  A "#" begins a comment.
 *
 * Each case is a test of cmocka.  A failure names the file, the line, and the
 * text of the line.
 *
 * test/unit/trace.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_TRACE_H
#define ZKL_TRACE_H

#include <ctype.h>
#include <stdlib.h>

#include "unit.h"

#define TRACE_LINES	2000
#define TRACE_WORDS	80
#define TRACE_SIZE	1000		/* of an effect or a fact as text */

typedef struct TraceLine
{
	int			number;
	int			times;
	char		text[TRACE_SIZE];
	int			nevent;
	const char *event[TRACE_WORDS];
	char		effect[TRACE_SIZE];
	int			nfacts;
	const char *facts[TRACE_WORDS];
} TraceLine;

/* What each test that includes this header brings: the interpreter of its lines. */
static void trace_begin(void);
static void trace_play(const TraceLine *line, char *effect);
static bool trace_fact(const char *fact, char *now);

/* The words that "*" stands for in "each". */
static const char *const *trace_all;
static int	trace_nall;

static const char *trace_file;
static int	trace_nlines;
static char trace_lines[TRACE_LINES][256];
static char trace_words[TRACE_SIZE];

static inline int
trace_find(const char *const *names, int nnames, const char *word)
{
	for (int i = 0; i < nnames; i++)
	{
		if (names[i] != NULL && strcmp(names[i], word) == 0)
			return i;
	}
	return -1;
}

/* Add a word to an effect, if it is not empty. */
static inline void
trace_add(char *effect, const char *format,...)
{
	va_list		arguments;
	size_t		length = strlen(effect);

	if (length > 0)
		effect[length++] = ' ';
	va_start(arguments, format);
	if (vsnprintf(effect + length, TRACE_SIZE - length, format, arguments) == 0 && length > 0)
		effect[length - 1] = '\0';
	va_end(arguments);
}

/* Split a line into words, with "value" for each "$". */
static int
trace_split(const char *text, const char *value, const char **words)
{
	char	   *end = trace_words;
	int			n = 0;

	for (; *text != '\0' && *text != '#'; text++)
	{
		if (isspace((unsigned char) *text))
			continue;
		assert_true(n < TRACE_WORDS && end < trace_words + sizeof(trace_words) - 300);
		words[n++] = end;
		for (; *text != '\0' && !isspace((unsigned char) *text); text++)
		{
			if (*text == '$')
				end += sprintf(end, "%s", value);
			else
				*end++ = *text;
		}
		*end++ = '\0';
		text--;
	}
	return n;
}

static void
trace_parse(int number, const char *value, TraceLine *line)
{
	const char *words[TRACE_WORDS];
	int			n = trace_split(trace_lines[number - 1], value, words);
	int			i = 0;
	char	   *x;

	memset(line, 0, sizeof(*line));
	line->number = number;
	line->times = 1;
	snprintf(line->text, sizeof(line->text), "%s%s%s", trace_lines[number - 1],
			 value[0] != '\0' ? ", with " : "", value);
	if (n > 0 && isdigit((unsigned char) words[0][0]) && (x = strchr(words[0], 'x')) && x[1] == '\0')
		line->times = atoi(words[i++]);
	for (; i < n && strcmp(words[i], "->") != 0 && strcmp(words[i], ";") != 0; i++)
		line->event[line->nevent++] = words[i];
	if (i < n && strcmp(words[i], "->") == 0)
	{
		for (i++; i < n && strcmp(words[i], ";") != 0; i++)
			sprintf(line->effect + strlen(line->effect), "%s%s",
					line->effect[0] == '\0' ? "" : " ", words[i]);
		if (line->effect[0] == '\0')
			fail_msg("%s:%d: no effect behind the arrow", trace_file, number);
	}
	for (i++; i < n; i++)
		line->facts[line->nfacts++] = words[i];
}

static void
trace_check(const TraceLine *line)
{
	char		now[TRACE_SIZE];

	for (int i = 0; i < line->times; i++)
	{
		now[0] = '\0';
		trace_play(line, now);
		if (strcmp(now, line->effect) != 0)
			fail_msg("%s:%d: %s\n\thas the effect \"%s\"", trace_file, line->number, line->text, now);
	}
	for (int i = 0; i < line->nfacts; i++)
	{
		now[0] = '\0';
		if (!trace_fact(line->facts[i], now))
			fail_msg("%s:%d: %s\n\t%s is not true, but %s", trace_file, line->number, line->text,
					 line->facts[i], now);
	}
}

static bool
trace_is_of_case(int number)
{
	return number <= trace_nlines && strchr("# \t", trace_lines[number - 1][0]) != NULL;
}

/* Once through the lines of a case.  Returns how many were played. */
static int
trace_play_case(int title, const char *value)
{
	static const char like[] = "    like ";
	TraceLine	line;
	int			nplayed = 0;

	for (int number = title + 1; trace_is_of_case(number); number++)
	{
		if (strncmp(trace_lines[number - 1], like, strlen(like)) == 0)
		{
			int			other = 1;

			while (other < title && strcmp(trace_lines[other - 1], trace_lines[number - 1] + strlen(like)) != 0)
				other++;
			if (other == title)
				fail_msg("%s:%d: no case before has this title", trace_file, number);
			nplayed += trace_play_case(other, value);
			continue;
		}
		trace_parse(number, value, &line);
		if (line.nevent == 0 || strcmp(line.event[0], "each") == 0)
			continue;
		trace_check(&line);
		nplayed++;
	}
	return nplayed;
}

static void
trace_run_with(int title, const char *value)
{
	trace_begin();
	if (trace_play_case(title, value) == 0)
		fail_msg("%s:%d: a case without lines", trace_file, title);
}

/* Add the values of a line.  "each * -a" is each of trace_all but "a". */
static int
trace_values(const TraceLine *each, char values[TRACE_WORDS][256], int n)
{
	if (strcmp(each->event[1], "*") != 0)
	{
		for (int i = 1; i < each->nevent && n < TRACE_WORDS; i++)
			snprintf(values[n++], sizeof(values[0]), "%s", each->event[i]);
		return n;
	}
	for (int i = 0; i < trace_nall; i++)
	{
		bool		left_out = false;

		for (int j = 2; j < each->nevent; j++)
			left_out |= strcmp(each->event[j] + 1, trace_all[i]) == 0;
		if (!left_out)
			snprintf(values[n++], sizeof(values[0]), "%s", trace_all[i]);
	}
	assert_int_equal(n, trace_nall - (each->nevent - 2));
	return n;
}

static void
trace_run(void **state)
{
	int			title = *(int *) *state;
	char		values[TRACE_WORDS][256];
	TraceLine	line;
	int			n = 0;

	for (int number = title + 1; trace_is_of_case(number); number++)
	{
		trace_parse(number, "", &line);
		if (line.nevent > 1 && strcmp(line.event[0], "each") == 0)
			n = trace_values(&line, values, n);
	}
	if (n == 0)
		trace_run_with(title, "");
	for (int i = 0; i < n; i++)
		trace_run_with(title, values[i]);
}

static void
trace_read(const char *file)
{
	FILE	   *stream = fopen(file, "r");

	trace_file = file;
	trace_nlines = 0;
	if (stream == NULL)
	{
		perror(file);
		exit(1);
	}
	while (trace_nlines < TRACE_LINES && fgets(trace_lines[trace_nlines], sizeof(trace_lines[0]), stream))
	{
		char	   *end = strchr(trace_lines[trace_nlines++], '\n');

		if (end == NULL)
		{
			fprintf(stderr, "%s:%d: the line is too long\n", file, trace_nlines);
			exit(1);
		}
		*end = '\0';
	}
	fclose(stream);
}

/* Run the cases of a file as tests, and the tests that are written in C. */
static inline int
trace_main(const char *group, const char *file)
{
	static int	titles[lengthof(tests)];

	trace_read(file);
	for (int number = 1; number <= trace_nlines; number++)
	{
		const char *text = trace_lines[number - 1];

		if (text[0] == '\0' || strchr("# \t", text[0]) != NULL)
			continue;
		titles[ntests] = number;
		add_test((struct CMUnitTest) {
			.name = text,.test_func = trace_run,.initial_state = &titles[ntests]
		});
	}
	return run_all_tests(group);
}

#endif							/* ZKL_TRACE_H */
