/*-------------------------------------------------------------------------
 *
 * commandrun.h
 *	  One command of a backend, while the worker carries it out.
 *
 * A command that runs is a RUN: a list of items.  Each item is one request,
 * and they are sent in their order.  Answers may append items.  An answer
 * names the attempt that it belongs to, so answers to an earlier attempt are
 * recognized.
 *
 * src/worker/commandrun.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_COMMANDRUN_H
#define ZKL_COMMANDRUN_H

#include "lib/stringinfo.h"

#include "shared/mailbox.h"
#include "shared/snapshot.h"
#include "zookeeper/session.h"

/* What an item requests. */
typedef enum ZklItemKind
{
	ZKL_ITEM_QUORUM,			/* a round of a quorum, before reads */
	ZKL_ITEM_DIRECTORY_DATA,
	ZKL_ITEM_CHILDREN,
	ZKL_ITEM_NODE_DATA,
	ZKL_ITEM_NODE_STAT,			/* if its data may not be read */
	ZKL_ITEM_OLD_DATA,			/* REVOKE: of the child */
	ZKL_ITEM_WRITE,
	ZKL_ITEM_DELETE
} ZklItemKind;

typedef struct ZklItem
{
	ZklItemKind kind;
	ZklWhere	where;			/* CHILDREN */
	int			node;			/* NODE_...: index in the survey */
} ZklItem;

/* Only the worker's process uses it, so no lock protects it. */
typedef struct ZklCommandRun
{
	bool		active;
	uint32		generation;		/* of the slot */
	Oid			role;			/* that asks */
	uint32		attempt;
	bool		again;			/* it may have been done already */
	ZklCommand	command;

	MemoryContext context;		/* of what follows; emptied at each attempt */
	ZklItem    *items;
	int			nitems;
	int			max_items;
	int			nsent;			/* of the items, in their order */
	int			nanswered;
	ZklSnapshot survey;
	int			max_nodes;
	Size		size;			/* of the survey, about */
	const char *text;			/* to write ... */
	int			version;		/* ... instead of data with this; -1: any */
	int64		czxid;			/* of the znode, once its data have been read */
	int			refused_version;	/* the write was refused for these, in an
									 * earlier attempt; -1: it was not */
	int64		refused_czxid;
	ZklCommandOutcome outcome;	/* the worst so far */
} ZklCommandRun;

/* What goes before the path of each lock.  Called once, at the worker's start. */
extern void zkl_command_run_set_prefix(const char *directory_prefix);

/*
 * Begin from the first item.  Answers to the attempt before are ignored from
 * now on, and what they told is forgotten.  note_refusal comes before that, if the
 * attempt has ended because data have changed.
 */
extern void zkl_command_run_begin(ZklCommandRun *run);
extern void zkl_command_run_note_refusal(ZklCommandRun *run);

/*
 * Send the request of the next item.  The caller has seen that there is one,
 * and that the session is usable.
 */
extern void zkl_command_run_send(ZklCommandRun *run);

/*
 * Take the answer to an item of the present attempt.  The caller has dealt
 * with lost answers and changed data.
 */
extern void zkl_command_run_note(ZklCommandRun *run,
								 const ZklSessionEvent *event);

/*
 * Pack the result for the backend, if the command has one and all went well.
 * Else "packed" is not touched.
 */
extern void zkl_command_run_pack(ZklCommandRun *run, StringInfo packed);

#endif							/* ZKL_COMMANDRUN_H */
