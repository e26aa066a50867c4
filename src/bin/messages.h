/*-------------------------------------------------------------------------
 *
 * messages.h
 *	  What zklock-run says, and how it exits.
 *
 * src/bin/messages.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_MESSAGES_H
#define ZKL_MESSAGES_H

/*
 * Exit statuses besides the command's own.  They follow sysexits.h and env(1);
 * none of them is one that a shell makes of a signal.
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

/* The lock was lost, and how that was seen. */
extern void zkl_messages_lost(const char *path, const char *detail);

/*
 * Write a text as it is.  Between hold and let_out it is kept, because a write
 * to standard error waits if no process reads there.  While the command runs,
 * this program must not wait: it must end the command in time when the lock is
 * lost.
 */
extern void zkl_messages_add(const char *text);
extern void zkl_messages_hold(void);
extern void zkl_messages_let_out(void);

/* A string of its own.  Without memory, the program ends. */
extern char *zkl_messages_format(const char *format,...) __attribute__((format(printf, 1, 2)));

#endif							/* ZKL_MESSAGES_H */
