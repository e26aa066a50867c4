/*-------------------------------------------------------------------------
 *
 * messages.c
 *	  The messages of zklock-run.
 *
 * src/bin/messages.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bin/messages.h"

const char *const zkl_messages_progname = "zklock-run";

static bool holding;			/* the command, or a process that it has left
								 * behind, is running */
static char unsaid[4096];		/* messages that are kept back meanwhile */

static void say(const char *kind, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

static void
say(const char *kind, const char *format, va_list args)
{
	fprintf(stderr, "%s: %s: ", zkl_messages_progname, kind);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

void
zkl_messages_error(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	say("error", format, args);
	va_end(args);
}

void
zkl_messages_warning(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	say("warning", format, args);
	va_end(args);
}

void
zkl_messages_lost(const char *path, const char *detail)
{
	zkl_messages_error("lock \"%s\" was lost", path);
	fprintf(stderr, "%s: detail: %s\n", zkl_messages_progname, detail);
}

void
zkl_messages_hint(const char *hint)
{
	fprintf(stderr, "%s: hint: %s\n", zkl_messages_progname, hint);
}

void
zkl_messages_add(const char *text)
{
	if (!holding)
		fputs(text, stderr);
	else
		strncat(unsaid, text, sizeof(unsaid) - strlen(unsaid) - 1);
}

void
zkl_messages_hold(void)
{
	holding = true;
}

void
zkl_messages_let_out(void)
{
	holding = false;
	fputs(unsaid, stderr);
	unsaid[0] = '\0';
}

char *
zkl_messages_format(const char *format,...)
{
	va_list		args;
	char	   *string;
	int			length;

	va_start(args, format);
	length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	string = malloc(length + 1);
	if (string == NULL)
	{
		zkl_messages_error("out of memory");
		exit(STATUS_OS_ERROR);
	}
	va_start(args, format);
	vsnprintf(string, length + 1, format, args);
	va_end(args);
	return string;
}
