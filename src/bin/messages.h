/*-------------------------------------------------------------------------
 *
 * messages.h
 *	  The messages of zklock-run, and its exit statuses.
 *
 * src/bin/messages.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_MESSAGES_H
#define ZKL_MESSAGES_H

/*
 * Exit statuses of the program itself.  They follow sysexits.h and env(1),
 * and differ from those that a shell reports for a signal.
 */
#define STATUS_USAGE		64
#define STATUS_UNAVAILABLE	69
#define STATUS_OS_ERROR		71
#define STATUS_NOT_ACQUIRED 75
#define STATUS_LOST			79
#define STATUS_CANNOT_EXEC	126
#define STATUS_NO_COMMAND	127

extern const char *const zkl_messages_progname;

/* An error of the program itself, with its name before it. */
extern void zkl_messages_error(const char *format,...) __attribute__((format(printf, 1, 2)));

/* A warning, which does not change the exit status. */
extern void zkl_messages_warning(const char *format,...) __attribute__((format(printf, 1, 2)));

/* Report that the lock was lost, and how the program noticed. */
extern void zkl_messages_lost(const char *path, const char *detail);

/* A hint about the error that was reported last. */
extern void zkl_messages_hint(const char *hint);

/*
 * Write a text as it is.  Between hold and let_out, texts are kept back,
 * because a write to standard error blocks if no process reads it.  While the
 * command runs, this program must not block: it must end the command in time
 * when the lock is lost.
 */
extern void zkl_messages_add(const char *text);
extern void zkl_messages_hold(void);
extern void zkl_messages_let_out(void);

/* Format a string, in memory that the caller may free.  Exits if there is none. */
extern char *zkl_messages_format(const char *format,...) __attribute__((format(printf, 1, 2)));

#endif							/* ZKL_MESSAGES_H */
