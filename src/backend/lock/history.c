/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Only a server with the newest history of the database may lead.
 *
 * The claims process looks at the record when it has the lock, before commits that
 * require the leadership may rely on it.  Why no older history leads then:
 *
 *	- The lock has one holder.  The read comes after a round of a quorum, so it shows
 *	  what any leader before has written.
 *	- If the record has another history, the server replaces it, on condition of the
 *	  version.  A claims process that stood still between the read and the write
 *	  finds another version if another server has led meanwhile.
 *	- If the record has this server's own history, no other history has led since
 *	  that was written, and the record stays as it is.  Its position in WAL is that at
 *	  which this history began to lead, however often it led since.  So a standby may
 *	  lead next that follows from anywhere behind that.
 *
 * Two standbys may be promoted from the same position to timelines with the same
 * number.  The file that PostgreSQL writes about a timeline does not tell them apart,
 * and the record of its beginning in WAL is soon recycled.  So each server makes a
 * random token for its timeline, and keeps it in a file where base backups leave
 * files out.  A copy of the data directory that was not promoted has no token, and
 * does not lead, either.
 *
 * What this cannot see: of two timelines with the same number and beginning, one
 * has led, and the other one, which has not, is promoted once more.
 *
 * src/backend/lock/history.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/timeline.h"
#include "access/xlog.h"
#include "storage/fd.h"

#include "backend/lock/history.h"
#include "backend/znodes.h"
#include "faultpoint.h"
#include "protocol/jobrecord.h"
#include "settings.h"
#include "shared/mailbox.h"

#define RECORDS			"/" ZKL_PATH_RESERVED "/leaders"
#define TOKEN_FILE		"pg_stat_tmp/zklock.timeline"
#define TOKEN_SIZE		33
#define RECORD_FORMAT	"zklock history 1 " UINT64_FORMAT " %u %X/%X %s %s"

typedef struct History
{
	uint64		system;
	TimeLineID	timeline;
	XLogRecPtr	position;
	char		token[TOKEN_SIZE];
	char		server[ZKL_NODE_NAME_SIZE];
} History;

static void ask(ZklHistoryLook *look, const char *path, const History *replaces,
				int32 version);
static ZklHistoryAnswer judge(ZklHistoryLook *look, const char *path,
							  const char *answer, char *why);
static void get_mine(History *mine);
static bool parse(const char *text, History *history);
static bool contains_ancestor(const History *mine, const History *other);
static void get_token(TimeLineID timeline, char token[TOKEN_SIZE]);
static bool read_token(TimeLineID timeline, char token[TOKEN_SIZE]);
static void write_token(TimeLineID timeline, const char *token);

ZklHistoryAnswer
zkl_history_look(ZklHistoryLook *look, const char *path, char why[ZKL_WHY_SIZE])
{
	ZklCommandOutcome outcome;
	bool		replaced = look->replaces;
	char	   *answer;

	if (look->slot == 0)
		ask(look, path, NULL, 0);
	if (look->slot == 0 || !zkl_mailbox_is_done(look->slot - 1))
		return ZKL_HISTORY_PENDING;
	outcome = zkl_mailbox_result(look->slot - 1, &answer);
	zkl_history_end(look);
	ZKL_FAULT_POINT("history-answered");
	if (outcome == ZKL_COMMAND_DENIED)
	{
		strlcpy(why, "ZooKeeper's access control forbids this server to read or write the record of leaders.",
				ZKL_WHY_SIZE);
		return ZKL_HISTORY_REFUSED;
	}
	if (replaced && outcome == ZKL_COMMAND_OK)
		return ZKL_HISTORY_MAY_LEAD;

	/* Begin again, if the record has changed or an answer was lost. */
	if (replaced || outcome != ZKL_COMMAND_OK)
		return ZKL_HISTORY_PENDING;
	return judge(look, path, answer, why);
}

void
zkl_history_end(ZklHistoryLook *look)
{
	int			slot = look->slot;

	memset(look, 0, sizeof(*look));
	if (slot != 0)
		zkl_mailbox_end(slot - 1);
}

/* The znode stays, so that its versions never begin again. */
bool
zkl_history_forget(const char *path)
{
	char		name[ZKL_JOBRECORD_NAME_SIZE];

	zkl_job_record_name(path, name);
	return zkl_znodes_write(RECORDS, name, "", PG_INT64_MAX);
}

/* If there is no slot, the look has none afterwards, either. */
static void
ask(ZklHistoryLook *look, const char *path, const History *replaces, int32 version)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_READ_NEWEST};

	strlcpy(command.path, RECORDS, sizeof(command.path));
	zkl_job_record_name(path, command.child);
	if (replaces != NULL)
	{
		command.kind = ZKL_COMMAND_REPLACE;
		command.version = version;
		snprintf(command.data, sizeof(command.data), RECORD_FORMAT,
				 replaces->system, replaces->timeline,
				 LSN_FORMAT_ARGS(replaces->position), replaces->token,
				 replaces->server);
	}
	look->slot = zkl_mailbox_ask(&command) + 1;
	look->replaces = replaces != NULL && look->slot != 0;
}

/* The record was read. */
static ZklHistoryAnswer
judge(ZklHistoryLook *look, const char *path, const char *answer, char *why)
{
	const ZklListing *survey = zkl_listing_unpack(unconstify(char *, answer));
	const ZklListingNode *node = survey->nnodes > 0 ? &survey->nodes[0] : NULL;
	History		mine;
	History		last;

	get_mine(&mine);
	if (node == NULL || (node->data != NULL && node->data[0] == '\0'))
		ask(look, path, &mine, node == NULL ? -1 : node->version);
	else if (node->data == NULL || !parse(node->data, &last))
		strlcpy(why, "The record of the server that led last cannot be read.",
				ZKL_WHY_SIZE);
	else if (last.system != mine.system)
		snprintf(why, ZKL_WHY_SIZE,
				 "Server \"%s\" led last, which has another database system identifier.",
				 last.server);
	else if (last.timeline == mine.timeline && strcmp(last.token, mine.token) != 0)
		snprintf(why, ZKL_WHY_SIZE,
				 "Server \"%s\" led last, on a timeline %u that is not this server's timeline %u.",
				 last.server, last.timeline, mine.timeline);
	else if (last.timeline == mine.timeline && last.position <= mine.position)
		return ZKL_HISTORY_MAY_LEAD;
	else if (last.timeline != mine.timeline && contains_ancestor(&mine, &last))
		ask(look, path, &mine, node->version);
	else
		snprintf(why, ZKL_WHY_SIZE,
				 "Server \"%s\" led last, from %X/%X on timeline %u, which is not in the history of this server's timeline %u.",
				 last.server, LSN_FORMAT_ARGS(last.position), last.timeline,
				 mine.timeline);
	return why[0] == '\0' ? ZKL_HISTORY_PENDING : ZKL_HISTORY_REFUSED;
}

/*
 * The position is that of WAL on disk.  So it is in this history also after a crash,
 * and a standby that has received less was promoted without what the leader could
 * rely on when it began.
 */
static void
get_mine(History *mine)
{
	mine->system = GetSystemIdentifier();
	mine->position = GetFlushRecPtr(&mine->timeline);
	get_token(mine->timeline, mine->token);
	strlcpy(mine->server, zkl_settings_node_name(), sizeof(mine->server));
}

/* Any client may have written the text. */
static bool
parse(const char *text, History *history)
{
	uint32		high;
	uint32		low;
	int			at = -1;
	unsigned long long system;

	if (sscanf(text, "zklock history 1 %llu %u %X/%X %32[0-9a-f] %n", &system,
			   &history->timeline, &high, &low, history->token, &at) != 5 || at < 0)
		return false;
	history->system = system;
	history->position = ((uint64) high) << 32 | low;
	strlcpy(history->server, text +at, sizeof(history->server));
	return true;
}

/*
 * Did this timeline come from the other one, at or behind the position?  A timeline
 * whose history file is missing has no ancestors.
 */
static bool
contains_ancestor(const History *mine, const History *other)
{
	ListCell   *cell;

	foreach(cell, readTimeLineHistory(mine->timeline))
	{
		const TimeLineHistoryEntry *entry = lfirst(cell);

		if (entry->tli == other->timeline && entry->tli != mine->timeline &&
			other->position <= entry->end)
			return true;
	}
	return false;
}

/* The token of this server's timeline.  One that cannot be kept raises an error. */
static void
get_token(TimeLineID timeline, char token[TOKEN_SIZE])
{
	static TimeLineID known_timeline = 0;
	static char known[TOKEN_SIZE];
	uint8		random[16];

	if (known_timeline != timeline && !read_token(timeline, known))
	{
		if (!pg_strong_random(random, sizeof(random)))
			elog(ERROR, "could not generate random values");
		zkl_job_record_make_id(random, known);
		write_token(timeline, known);
	}
	known_timeline = timeline;
	strlcpy(token, known, TOKEN_SIZE);
}

static bool
read_token(TimeLineID timeline, char token[TOKEN_SIZE])
{
	char text[	128];
	int			fd = OpenTransientFile(TOKEN_FILE, O_RDONLY | PG_BINARY);
	int			length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	TimeLineID	of;

	if (fd >= 0)
		CloseTransientFile(fd);
	text[		Max(length, 0)] = '\0';

	return sscanf(text, "%u %32[0-9a-f]", &of, token) == 2 &&
		strlen(token) == TOKEN_SIZE - 1 && of == timeline;
}

/* Before the record has the token, it must be on disk. */
static void
write_token(TimeLineID timeline, const char *token)
{
	char text[	128];
	int			length = snprintf(text, sizeof(text), "%u %s\n", timeline, token);
	int			fd = OpenTransientFile(TOKEN_FILE ".new",
									   O_WRONLY | O_CREAT | O_TRUNC | PG_BINARY);
	bool		written = fd >= 0 && write(fd, text, length) == length;

	if (fd >= 0)
		CloseTransientFile(fd);
	if (!written)
		ereport(ERROR,
				errcode_for_file_access(),
				errmsg("could not write file \"%s\": %m", TOKEN_FILE));

	/* This syncs the file and its directory. */
	(void) durable_rename(TOKEN_FILE ".new", TOKEN_FILE, ERROR);
}
