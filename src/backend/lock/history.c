/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Only a server with the newest history of the database may lead.
 *
 * The claims process looks at the record when it has the lock, before commits
 * that require the leadership may rely on it.  Why no older history leads
 * then:
 *
 *	- The lock has one holder.  The read comes after a round of a quorum, so it
 *	  shows what any leader before has written.
 *	- If the record has another history, the server replaces it, on condition
 *	  of the version.  A claims process that stood still between the read and
 *	  the write finds another version if another server has led meanwhile.
 *	- If the record has this server's own history, no other history has led
 *	  since that was written, and the record keeps its position in WAL.  That
 *	  is the position at which this history began to lead, however often it led
 *	  since.  So a standby may lead next that follows from anywhere behind
 *	  that.
 *
 * Two standbys may be promoted from the same position to timelines with the
 * same number, and a copy of a data directory has the timeline of its
 * original.  The files of PostgreSQL do not tell these apart.  So the record
 * has a random TOKEN, and a server has the same history only if it has that
 * token in its file.  The token changes when a leadership begins, each minute
 * while it lasts, and when it ends in order: first in the file, which also has
 * the token that it replaces, and then in the record, on condition of the
 * version.
 *
 *	- A server that dies between the two, or whose reply is lost, finds either
 *	  token in the record, and has both.
 *	- A copy from before the last change has neither, and does not lead.
 *	- A copy from after that has the token.  It may lack what was committed
 *	  since, unless the record says that the leadership has ended in order.
 *	  Therefore the file has its own inode: one with another inode is a copy.
 *	- If the leadership has ended in order, the first of the copies and the
 *	  original that leads changes the token, and then the others do not have
 *	  it.
 *
 * A command that was given up may still be under way when the next look
 * begins.  Each look begins with a check by a quorum, in the session of that
 * command or in a later session.  So the look reads what was written by the
 * last command that can still be carried out, and the token in the record is
 * always one of the two in the file.
 *
 * Base backups leave the directory of the file out, so a copy by pg_basebackup
 * has no token.  It leads when it was promoted, as any standby.
 *
 * One copy is not noticed: it was made after the last change, its file has the
 * inode of the original, as in a snapshot of a whole volume, and the original
 * dies within the minute.
 *
 * Another case is not noticed, either: of two timelines with the same number
 * and beginning, one has led, and the other one, which has not, is promoted
 * once more.
 *
 * src/backend/lock/history.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/timeline.h"
#include "access/xlog.h"
#include "common/hashfn.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "backend/lock/history.h"
#include "backend/znodes.h"
#include "faultpoint.h"
#include "protocol/path.h"
#include "settings.h"
#include "shared/mailbox.h"

#define PROOF_FILE		"pg_stat_tmp/zklock.leader.%016llx"
#define PROOF_FORMAT	"%llu %u %s %s " INT64_FORMAT " %s\n"
#define PROOF_SIZE		512
#define RECORD_FORMAT	"zklock history 1 " UINT64_FORMAT " %u %X/%X %s %s %s"

/* How long a server that leads keeps the same token. */
#define RENEWAL_INTERVAL	ZKL_MS(60000)

typedef struct History
{
	uint64		system;
	TimeLineID	timeline;
	XLogRecPtr	position;
	char		token[ZKL_HISTORY_TOKEN_SIZE];
	bool		leads;			/* false: it ended its leadership in order */
	char		server[ZKL_NODE_NAME_SIZE];
} History;

static ZklHistoryAnswer take_reply(ZklHistoryLook *look, const char *path,
								   char *why);
static void ask(ZklHistoryLook *look, const char *path, const History *replaces,
				int32 version);
static ZklHistoryAnswer answer_failure(ZklHistoryLook *look, const char *sentence,
									   char *why);
static ZklHistoryAnswer answer_may_lead(ZklHistoryLook *look);
static void give_slot_back(ZklHistoryLook *look);
static ZklHistoryAnswer judge(ZklHistoryLook *look, const char *path,
							  const char *answer, char *why);
static void judge_timeline(const ZklHistoryProof *proof, const History *mine,
						   const History *last, char *why);
static void report_other_history(const History *mine, const History *last,
								 char *why);
static ZklHistoryAnswer change_token(ZklHistoryLook *look, const char *path,
									 History *mine, const History *last,
									 int32 version, char *why);
static void get_mine(History *mine);
static bool parse(const char *str, History *history);
static bool contains_ancestor(const History *mine, const History *other);
static void name_file(const char *path, char name[MAXPGPATH]);
static void read_proof(const char *path, TimeLineID timeline,
					   ZklHistoryProof *proof);
static bool write_proof(const char *path, const ZklHistoryProof *proof,
						int elevel);

ZklHistoryAnswer
zkl_history_look(ZklHistoryLook *look, const char *path, bool leads,
				 char why[ZKL_WHY_SIZE])
{
	/*
	 * The leadership ends during a change of its token, so give that change
	 * up.
	 */
	if (look->leads != leads)
		give_slot_back(look);
	look->leads = leads;
	if (look->slot == 0)
		ask(look, path, NULL, 0);
	if (look->slot == 0 || !zkl_mailbox_is_done(look->slot - 1))
		return ZKL_HISTORY_PENDING;
	return take_reply(look, path, why);
}

static ZklHistoryAnswer
take_reply(ZklHistoryLook *look, const char *path, char *why)
{
	bool		replaced = look->replaces;
	char	   *answer;
	ZklCommandOutcome outcome = zkl_mailbox_result(look->slot - 1, &answer);

	give_slot_back(look);
	ZKL_FAULT_POINT("history-answered");
	if (outcome == ZKL_COMMAND_DENIED)
		return answer_failure(look, "ZooKeeper's access control forbids this server to read or write the record of leaders.",
							  why);
	if (outcome == ZKL_COMMAND_QUOTA)
		return answer_failure(look, "A quota in ZooKeeper is used up, so this server cannot write the record of leaders.",
							  why);
	if (outcome == ZKL_COMMAND_AWAY && !look->leads)
		return ZKL_HISTORY_REFUSED;

	/*
	 * If the record has changed or an answer was lost, the next call begins
	 * again.
	 */
	if (outcome != ZKL_COMMAND_OK)
		return ZKL_HISTORY_PENDING;
	return replaced ? answer_may_lead(look) : judge(look, path, answer, why);
}

/* A server that leads goes on with the token that it has, and tries again later. */
static ZklHistoryAnswer
answer_failure(ZklHistoryLook *look, const char *sentence, char *why)
{
	if (look->has_led && look->leads)
		return answer_may_lead(look);
	strlcpy(why, sentence, ZKL_WHY_SIZE);
	return ZKL_HISTORY_REFUSED;
}

static ZklHistoryAnswer
answer_may_lead(ZklHistoryLook *look)
{
	look->has_led = true;
	look->due = zkl_now() + RENEWAL_INTERVAL;
	return ZKL_HISTORY_MAY_LEAD;
}

static void
give_slot_back(ZklHistoryLook *look)
{
	int			slot = look->slot;

	look->slot = 0;
	look->replaces = false;
	if (slot != 0)
		zkl_mailbox_end(slot - 1);
}

void
zkl_history_end(ZklHistoryLook *look)
{
	give_slot_back(look);
	memset(look, 0, sizeof(*look));
}

/* Empty the znode rather than delete it, so that its versions never begin again. */
bool
zkl_history_forget(const char *path)
{
	char		name[ZKL_PATH_NAME_SIZE];

	zkl_path_name(path, name);
	return zkl_znodes_write(ZKL_PATH_LEADERS, name, "", PG_INT64_MAX, ZKL_PATIENCE_LOOK);
}

/* If the mailbox has no slot for this process, this sets look->slot to 0. */
static void
ask(ZklHistoryLook *look, const char *path, const History *replaces, int32 version)
{
	ZklCommand	command = {.kind = ZKL_COMMAND_READ_NEWEST};

	strlcpy(command.path, ZKL_PATH_LEADERS, sizeof(command.path));
	zkl_path_name(path, command.child);
	if (replaces != NULL)
	{
		command.kind = ZKL_COMMAND_REPLACE;
		command.version = version;
		snprintf(command.data, sizeof(command.data), RECORD_FORMAT,
				 replaces->system, replaces->timeline,
				 LSN_FORMAT_ARGS(replaces->position), replaces->token,
				 replaces->leads ? "leads" : "ended", replaces->server);
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
	bool		is_empty = node == NULL || (node->data != NULL && node->data[0] == '\0');
	History		mine;
	History		last = {0};

	get_mine(&mine);

	/*
	 * If is_original is set, the file has been read or written since the
	 * server got this lock, so the copy in memory is up to date.
	 */
	if (!look->proof.is_original)
		read_proof(path, mine.timeline, &look->proof);
	if (is_empty)
		;						/* any history may lead */
	else if (node->data == NULL || !parse(node->data, &last))
		strlcpy(why, "The record of the server that led last cannot be read.",
				ZKL_WHY_SIZE);
	else if (last.system != mine.system)
		snprintf(why, ZKL_WHY_SIZE,
				 "Server \"%s\" led last, which has another database system identifier.",
				 last.server);
	else if (last.timeline == mine.timeline)
		judge_timeline(&look->proof, &mine, &last, why);
	else if (!contains_ancestor(&mine, &last))
		report_other_history(&mine, &last, why);
	return why[0] != '\0' ? ZKL_HISTORY_REFUSED :
		change_token(look, path, &mine, &last, node == NULL ? -1 : node->version, why);
}

/* The record has the timeline of this server.  Is it the same one? */
static void
judge_timeline(const ZklHistoryProof *proof, const History *mine, const History *last,
			   char *why)
{
	bool		has_token = strcmp(last->token, proof->token) == 0 ||
	strcmp(last->token, proof->replaced) == 0;

	if (proof->timeline == 0)
		snprintf(why, ZKL_WHY_SIZE,
				 "Server \"%s\" led last, on a timeline %u that is not this server's timeline %u.",
				 last->server, last->timeline, mine->timeline);
	else if (!has_token || (last->leads && !proof->is_original))
		snprintf(why, ZKL_WHY_SIZE,
				 "Server \"%s\" led last, and this looks like a copy of its data directory, made after %s; call zk_leader_forget if it is the only one.",
				 last->server, timestamptz_to_str(proof->made_at));
	else if (last->position > mine->position)
		report_other_history(mine, last, why);
}

static void
report_other_history(const History *mine, const History *last, char *why)
{
	snprintf(why, ZKL_WHY_SIZE,
			 "Server \"%s\" led last, from %X/%X on timeline %u, which is not in the history of this server's timeline %u.",
			 last->server, LSN_FORMAT_ARGS(last->position), last->timeline,
			 mine->timeline);
}

/* Change the token: in the file first, and then in the record. */
static ZklHistoryAnswer
change_token(ZklHistoryLook *look, const char *path, History *mine,
			 const History *last, int32 version, char *why)
{
	bool		is_same = last->timeline == mine->timeline;
	ZklHistoryProof proof = {
		.timeline = mine->timeline,.made_at = GetCurrentTimestamp(),.is_original = true
	};
	uint8		random[16];

	strlcpy(proof.replaced, is_same ? last->token : "-", sizeof(proof.replaced));
	if (pg_strong_random(random, sizeof(random)))
		zkl_path_make_id(random, proof.token);

	/* Without a new token, a server that leads keeps its old one. */
	if (proof.token[0] == '\0' ||
		!write_proof(path, &proof, look->leads && !look->has_led ? ERROR : LOG))
		return answer_failure(look, "This server cannot make a token that tells it from a copy.",
							  why);
	look->proof = proof;
	ZKL_FAULT_POINT("history-filed");
	strlcpy(mine->token, proof.token, sizeof(mine->token));
	mine->leads = look->leads;
	if (is_same)
		mine->position = last->position;
	ask(look, path, mine, version);
	return ZKL_HISTORY_PENDING;
}

/*
 * The position is the end of the WAL that is on disk, so even a crash does not
 * remove it from this history.  A standby that was promoted without having
 * received WAL up to this position lacks what the leader relied on when its
 * leadership began.
 */
static void
get_mine(History *mine)
{
	mine->system = GetSystemIdentifier();
	mine->position = GetFlushRecPtr(&mine->timeline);
	strlcpy(mine->server, zkl_settings_node_name(), sizeof(mine->server));
}

/* Any client may have written the text. */
static bool
parse(const char *str, History *history)
{
	uint32		high;
	uint32		low;
	char		state[6];
	int			at = -1;
	unsigned long long system;

	if (sscanf(str, "zklock history 1 %llu %u %X/%X %32[0-9a-f] %5s %n", &system,
			   &history->timeline, &high, &low, history->token, state, &at) != 6 || at < 0)
		return false;

	/* Any other state counts as a leadership that has not ended in order. */
	history->leads = strcmp(state, "ended") != 0;
	history->system = system;
	history->position = ((uint64) high) << 32 | low;
	strlcpy(history->server, str + at, sizeof(history->server));
	return true;
}

/*
 * Did this timeline come from the other one, at or behind the position?  A
 * timeline whose history file is missing has no ancestors.
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

/*
 * The file
 */

/* Use a hash, because a path may be longer than the name of a file. */
static void
name_file(const char *path, char name[MAXPGPATH])
{
	snprintf(name, MAXPGPATH, PROOF_FILE,
			 (unsigned long long) hash_bytes_extended((const unsigned char *) path,
													  strlen(path), 0));
}

/*
 * Read from the file what proves that this server has the history in the
 * record.  The proof is empty if the file has nothing about this timeline.
 */
static void
read_proof(const char *path, TimeLineID timeline, ZklHistoryProof *proof)
{
	char		name[MAXPGPATH];
	char		content[PROOF_SIZE];
	struct stat status;
	unsigned long long inode;
	int			fd;
	int			length;
	int			at = -1;

	memset(proof, 0, sizeof(*proof));
	name_file(path, name);
	fd = OpenTransientFile(name, O_RDONLY | PG_BINARY);
	if (fd < 0)
		return;
	length = fstat(fd, &status) == 0 ? read(fd, content, sizeof(content) - 1) : -1;
	CloseTransientFile(fd);
	content[Max(length, 0)] = '\0';
	if (sscanf(content, "%llu %u %32s %32s " INT64_FORMAT " %n", &inode,
			   &proof->timeline, proof->token, proof->replaced,
			   &proof->made_at, &at) != 5 || at < 0 ||
		proof->timeline != timeline ||
		strncmp(content + at, path, strlen(path)) != 0 ||
		strcmp(content + at + strlen(path), "\n") != 0)
		memset(proof, 0, sizeof(*proof));
	else
		proof->is_original = inode == (unsigned long long) status.st_ino;
}

/*
 * Write a new file, which has a new inode and must name that inode.  Readers,
 * and copies, find either the old file or the new one.  If this returns true,
 * the new file is on disk.  A failure is reported at "elevel".
 */
static bool
write_proof(const char *path, const ZklHistoryProof *proof, int elevel)
{
	char		name[MAXPGPATH];
	char		new_name[MAXPGPATH + 4];
	char		content[PROOF_SIZE];
	struct stat status;
	int			fd;
	int			length = 0;
	bool		written = false;

	name_file(path, name);
	snprintf(new_name, sizeof(new_name), "%s.new", name);
	unlink(new_name);
	fd = OpenTransientFile(new_name, O_WRONLY | O_CREAT | O_EXCL | PG_BINARY);
	if (fd >= 0 && fstat(fd, &status) == 0)
	{
		length = snprintf(content, sizeof(content), PROOF_FORMAT,
						  (unsigned long long) status.st_ino, proof->timeline,
						  proof->token, proof->replaced, proof->made_at, path);
		errno = ENOSPC;			/* if it writes less without an error */
		written = write(fd, content, length) == length;
	}
	if (!written)
		ereport(elevel,
				errcode_for_file_access(),
				errmsg("could not write file \"%s\": %m", new_name));
	if (fd >= 0)
		CloseTransientFile(fd);

	/* This syncs the file and its directory. */
	return written && durable_rename(new_name, name, elevel) == 0;
}
