/*-------------------------------------------------------------------------
 *
 * zklock-run.c
 *	  Runs a command under a lock, a lease of a semaphore, or a tick of a job:
 *	  the command line, and the steps of a run.
 *
 * src/bin/zklock-run.c
 *
 *-------------------------------------------------------------------------
 */
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bin/command.h"
#include "bin/messages.h"
#include "bin/options.h"
#include "bin/server.h"
#include "bin/signals.h"

/* zkl_server_acquire() passes the parameters. */
#define LOCK_PARAMETERS	"($1, $2::interval)"

enum
{
	OPTION_SEMAPHORE = 256,
	OPTION_ONCE,
	OPTION_RETRY,
	OPTION_SPACING
};

static const struct option long_options[] = {
	{"conflict-exit-code", required_argument, NULL, 'E'},
	{"dbname", required_argument, NULL, 'd'},
	{"exclusive", no_argument, NULL, 'x'},
	{"guard", no_argument, NULL, 'g'},
	{"help", no_argument, NULL, 'h'},
	{"kill-after", required_argument, NULL, 'k'},
	{"no-password", no_argument, NULL, 'w'},
	{"once", required_argument, NULL, OPTION_ONCE},
	{"retry", no_argument, NULL, OPTION_RETRY},
	{"semaphore", required_argument, NULL, OPTION_SEMAPHORE},
	{"shared", no_argument, NULL, 's'},
	{"spacing", required_argument, NULL, OPTION_SPACING},
	{"timeout", required_argument, NULL, 't'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0}
};

static void
usage(void)
{
	puts("zklock-run runs a command under a lock of the whole cluster.\n"
		 "\n"
		 "Usage:\n"
		 "  zklock-run [OPTION]... PATH COMMAND [ARGUMENT]...\n"
		 "\n"
		 "The lock is a mutex, unless one of these options is given:\n"
		 "  -s, --shared             a read-write lock, for reading\n"
		 "  -x, --exclusive          a read-write lock, for writing\n"
		 "      --semaphore=N        a lease of a semaphore that has N, or \"stored\" for the\n"
		 "                           limit that ZooKeeper has\n"
		 "      --once=TICK          a tick of a job: a point in time, or \"now\" for the\n"
		 "                           nearest minute\n"
		 "\n"
		 "Options:\n"
		 "  -d, --dbname=CONNINFO    database name, connection string or URI\n"
		 "  -E, --conflict-exit-code=STATUS\n"
		 "                           exit status if the lock was not acquired (default 75)\n"
		 "  -g, --guard              the command's transactions commit only while the lock is\n"
		 "                           held: by PGOPTIONS, for connections to this server\n"
		 "  -k, --kill-after=SECONDS at most this time lies between SIGTERM and SIGKILL\n"
		 "                           when the lock is lost (default 5)\n"
		 "      --retry              with --once: also a tick whose run has failed\n"
		 "      --spacing=INTERVAL   with --once: no tick this near to the last one used\n"
		 "  -t, --timeout=INTERVAL   how long to wait for the lock; 0: do not wait, as\n"
		 "                           with --once by default\n"
		 "  -w, --no-password        never prompt for a password\n"
		 "  -V, --version            show the version, then exit\n"
		 "  -h, --help               show this help, then exit\n"
		 "\n"
		 "The exit status is the command's, 75 if the lock or the tick was not acquired,\n"
		 "or 79 if the lock was lost. See zklock-run(1) for the others.");
}

static double
parse_number(const char *value, const char *option, double max, bool whole)
{
	char	   *end;
	double		number = strtod(value, &end);

	if (whole)
		end = (char *) value + strspn(value, "0123456789");
	if (end == value || *end != '\0' || !(number >= 0 && number <= max))
	{
		zkl_messages_error("invalid value \"%s\" for option %s", value, option);
		exit(STATUS_USAGE);
	}
	return number;
}

static void
choose_kind(ZklOptions *options, const char *kind, const char *parameters, const char *argument)
{
	if (options->kind != NULL)
	{
		zkl_messages_error("only one of --shared, --exclusive, --semaphore and --once can be given");
		exit(STATUS_USAGE);
	}
	options->kind = kind;
	options->parameters = parameters;
	options->argument = argument;
}

/* The caller has already reported what is wrong. */
static void
advise_and_exit(void)
{
	fprintf(stderr, "Try \"%s --help\" for more information.\n", zkl_messages_progname);
	exit(STATUS_USAGE);
}

static void
choose_once(ZklOptions *options, const char *tick)
{
	choose_kind(options, "run_once", "($1, $3::timestamptz, coalesce($2::interval, '0'), $4, $5)", tick);
	options->once = true;
}

/* A number after a blank has always been N, so N cannot be optional. */
static void
choose_semaphore(ZklOptions *options, const char *n)
{
	if (strcmp(n, "stored") == 0)
		choose_kind(options, "semaphore", "($1, timeout => $2::interval)", NULL);
	else
		choose_kind(options, "semaphore", "($1, $3::integer, $2::interval)", n);
}

static void
take_option(ZklOptions *options, int c)
{
	switch (c)
	{
		case 'd':
			options->conninfo = optarg;
			break;
		case 'E':
			options->not_acquired = (int) parse_number(optarg, "--conflict-exit-code", 255, true);
			break;
		case 'g':
			options->guard = true;
			break;
		case 'h':
			usage();
			exit(0);
		case 'k':
			options->kill_after = parse_number(optarg, "--kill-after", 1e6, false);
			break;
		case OPTION_ONCE:
			choose_once(options, optarg);
			break;
		case OPTION_RETRY:
			options->retry = "true";
			break;
		case 's':
			choose_kind(options, "read_lock", LOCK_PARAMETERS, NULL);
			break;
		case OPTION_SEMAPHORE:
			choose_semaphore(options, optarg);
			break;
		case OPTION_SPACING:
			options->spacing = optarg;
			break;
		case 't':
			options->timeout = optarg;
			break;
		case 'V':
			puts("zklock-run (zklock) " ZKLOCK_VERSION);
			exit(0);
		case 'w':
			options->no_password = true;
			break;
		case 'x':
			choose_kind(options, "write_lock", LOCK_PARAMETERS, NULL);
			break;
		default:
			advise_and_exit();	/* getopt_long() has reported the mistake */
	}
}

/* Exits if the command line is wrong or requests help. */
static void
parse_options(int argc, char **argv, ZklOptions *options)
{
	int			c;

	memset(options, 0, sizeof(*options));
	options->kill_after = 5;
	options->not_acquired = STATUS_NOT_ACQUIRED;

	/*
	 * The plus sign stops the parsing at the command, so that it keeps its
	 * own options.
	 */
	while ((c = getopt_long(argc, argv, "+d:E:ghk:st:Vwx", long_options, NULL)) != -1)
		take_option(options, c);
	if (!options->once && (options->retry != NULL || options->spacing != NULL))
	{
		zkl_messages_error("%s can be given only with --once", options->retry != NULL ? "--retry" : "--spacing");
		exit(STATUS_USAGE);
	}
	if (options->guard && options->kind != NULL && strcmp(options->kind, "semaphore") == 0)
	{
		zkl_messages_error("--guard cannot be given with --semaphore, because no transaction commits under a lease");
		exit(STATUS_USAGE);
	}
	if (argc - optind < 2)
	{
		zkl_messages_error(argc == optind ? "no path was given" : "no command was given");
		advise_and_exit();
	}
	if (options->retry == NULL)
		options->retry = "false";
	if (options->kind == NULL)
		choose_kind(options, "lock", LOCK_PARAMETERS, NULL);
	options->path = argv[optind];
	options->command = argv + optind + 1;
}

/*
 * If a standard stream is closed, the connection to the server must not get
 * its number, and messages with it.
 */
static void
open_standard_streams(void)
{
	int			opened;

	do
		opened = open("/dev/null", O_RDWR);
	while (opened >= 0 && opened <= STDERR_FILENO);
	if (opened > STDERR_FILENO)
		close(opened);
}

int
main(int argc, char **argv)
{
	ZklOptions	options;
	bool		lost = false;
	int			status;

	open_standard_streams();
	parse_options(argc, argv, &options);
	zkl_command_find(&options);
	zkl_server_connect(&options);
	zkl_signals_catch();

	/*
	 * If the command would have to end at once, do not start it: this program
	 * may have stood still since the last reply.
	 */
	do
	{
		if (!zkl_server_acquire(&options))
			return options.not_acquired;
	}
	while (zkl_command_reason_to_end(&options) != NULL);
	zkl_command_start(&options);
	status = zkl_command_watch(&options, &lost);

	/*
	 * The lock may have been lost since the last reply.  Only a confirmation
	 * after the command's end shows that the lock was held during the whole
	 * run.
	 */
	if (!lost && !zkl_server_confirm(&options, 0))
	{
		lost = true;
		zkl_messages_lost(options.path, "The server did not confirm it when the command had ended.");
	}
	if (!lost && options.guard)
		zkl_server_warn_unless_used(&options);
	if (!lost && !zkl_server_release(&options, !options.once || status == 0) && options.once && status == 0)
	{
		lost = true;
		zkl_messages_lost(options.path, "The server did not confirm that the run is done.");
	}
	zkl_server_close();
	return lost ? STATUS_LOST : status;
}
