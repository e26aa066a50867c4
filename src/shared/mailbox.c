/*-------------------------------------------------------------------------
 *
 * mailbox.c
 *	  Commands: what a backend makes the worker do once, besides tickets.
 *
 * States, their changes and the lock are described in mailbox.h.
 *
 * src/shared/mailbox.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/dsm.h"
#include "storage/proc.h"

#include "compat.h"
#include "settings.h"
#include "shared/locktable.h"
#include "shared/mailbox.h"
#include "shared/rolequota.h"

/* Most results are smaller, and then need no segment. */
#define INLINE_SIZE		4096

typedef enum SlotState
{
	SLOT_FREE,
	SLOT_ASKED,
	SLOT_RUNNING,
	SLOT_DONE
} SlotState;

typedef struct Slot
{
	SlotState	state;
	uint32		serial;			/* the worker also reads it without the lock */
	int			proc_number;	/* of the backend */
	Oid			role;			/* the role that logged in */
	bool		again;			/* an earlier worker may have done it already */
	ZklCommand	command;
	pg_atomic_uint64 heard_at;	/* written by the worker, without the lock */

	/* from DONE on; the slot's backend then reads these without the lock */
	ZklCommandOutcome outcome;
	Size		size;			/* of the result; 0 if there is none */
	dsm_handle	segment;		/* the segment with the result, if it is not
								 * in the slot */
	char		answer[INLINE_SIZE];
} Slot;

typedef struct Commands
{
	LWLock	   *lock;			/* protects the slots */
	ConditionVariable slot_freed;	/* synchronizes itself */
	Slot		slots[ZKL_COMMANDS];
} Commands;

static Commands *commands = NULL;

static int	free_slot(void);
static dsm_segment *make_segment(const char *answer, Size size);

Size
zkl_mailbox_size(void)
{
	return sizeof(Commands);
}

void
zkl_mailbox_attach(void *memory, LWLockPadded *locks, bool is_new)
{
	commands = memory;
	if (!is_new)
		return;
	commands->lock = &locks->lock;
	ConditionVariableInit(&commands->slot_freed);
	for (int i = 0; i < ZKL_COMMANDS; i++)
		pg_atomic_init_u64(&commands->slots[i].heard_at, 0);
}

/*
 * Backends
 */

int
zkl_mailbox_ask(const ZklCommand *command)
{
	int			taken;

	LWLockAcquire(commands->lock, LW_EXCLUSIVE);
	taken = free_slot();
	if (taken >= 0)
	{
		Slot	   *slot = &commands->slots[taken];

		slot->proc_number = zkl_my_proc_number();
		slot->role = MyProc->roleId;
		slot->again = false;
		slot->command = *command;
		slot->size = 0;

		/*
		 * A reply to the slot's previous command does not count for this one.
		 */
		pg_atomic_write_u64(&slot->heard_at, 0);
		slot->state = SLOT_ASKED;
		zkl_lock_table_wake_worker();
	}
	LWLockRelease(commands->lock);
	return taken;
}

/*
 * Find a slot that this backend may take; -1 if there is none.  The caller
 * holds the lock.
 */
static int
free_slot(void)
{
	int			found = -1;
	int			nfree = 0;
	int			mine = 0;

	for (int i = 0; i < ZKL_COMMANDS; i++)
	{
		if (commands->slots[i].state == SLOT_FREE)
		{
			found = i;
			nfree++;
		}
		else
			mine += commands->slots[i].role == MyProc->roleId;
	}
	return zkl_role_quota_allows(mine, nfree) ? found : -1;
}

/*
 * The first call only adds this backend to the list that a freed slot wakes,
 * and returns at once.  The caller then tries again before it sleeps, so it
 * misses no wake-up.
 */
void
zkl_mailbox_wait_for_slot(long timeout_ms)
{
	static uint32 wait_event = 0;

	(void) ConditionVariableTimedSleep(&commands->slot_freed, timeout_ms,
									   zkl_wait_event("ZklockCommandSlot",
													  &wait_event));
}

bool
zkl_mailbox_is_done(int slot)
{
	bool		is_done;

	LWLockAcquire(commands->lock, LW_SHARED);
	is_done = commands->slots[slot].state == SLOT_DONE;
	LWLockRelease(commands->lock);
	return is_done;
}

int64
zkl_mailbox_heard_at(int slot)
{
	return (int64) pg_atomic_read_u64(&commands->slots[slot].heard_at);
}

/*
 * This needs no lock, because the worker does not touch a slot that is DONE.
 */
ZklCommandOutcome
zkl_mailbox_result(int slot, char **answer)
{
	const Slot *done = &commands->slots[slot];
	dsm_segment *segment;

	Assert(zkl_mailbox_is_done(slot));
	*answer = NULL;
	if (done->size == 0)
		return done->outcome;

	/* The result for a large directory may be larger than palloc() allows. */
	*answer = MemoryContextAllocHuge(CurrentMemoryContext, done->size);
	if (done->segment == DSM_HANDLE_INVALID)
		memcpy(*answer, done->answer, done->size);
	else
	{
		segment = dsm_attach(done->segment);
		if (segment == NULL)
			elog(ERROR, "could not attach the answer of the zklock worker");
		memcpy(*answer, dsm_segment_address(segment), done->size);
		dsm_detach(segment);
	}
	return done->outcome;
}

/*
 * If the worker is still busy with the command, it will find another
 * serial, and drop the result.
 */
void
zkl_mailbox_end(int slot)
{
	Slot	   *ended = &commands->slots[slot];
	dsm_handle	segment = DSM_HANDLE_INVALID;

	LWLockAcquire(commands->lock, LW_EXCLUSIVE);
	Assert(ended->state != SLOT_FREE);
	if (ended->state == SLOT_DONE)
		segment = ended->segment;
	ended->segment = DSM_HANDLE_INVALID;
	ended->serial++;
	ended->state = SLOT_FREE;

	/*
	 * Wake all backends that wait: the first of them may not be allowed to
	 * take the slot, because its role has its share.
	 */
	ConditionVariableBroadcast(&commands->slot_freed);
	LWLockRelease(commands->lock);

	/*
	 * The slot no longer has the handle, so no other process frees the
	 * segment.  Do this after the unlock, because it takes locks of
	 * PostgreSQL.
	 */
	if (segment != DSM_HANDLE_INVALID)
		dsm_unpin_segment(segment);
}

/*
 * The worker
 */

/*
 * Nothing is known about a command that was under way.  Do it again: each
 * command may be done twice.
 */
void
zkl_mailbox_adopt(void)
{
	LWLockAcquire(commands->lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZKL_COMMANDS; i++)
	{
		Slot	   *slot = &commands->slots[i];

		if (slot->state != SLOT_RUNNING)
			continue;
		slot->again = true;
		slot->state = SLOT_ASKED;
	}
	LWLockRelease(commands->lock);
}

/*
 * The worker gets a copy of the command, because the backend may give the slot
 * back at any moment.
 */
bool
zkl_mailbox_take(ZklTakenCommand *taken)
{
	bool		any = false;

	LWLockAcquire(commands->lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZKL_COMMANDS && !any; i++)
	{
		Slot	   *asked = &commands->slots[i];

		if (asked->state != SLOT_ASKED)
			continue;
		taken->slot = i;
		taken->serial = asked->serial;
		taken->role = asked->role;
		taken->again = asked->again;
		taken->command = asked->command;
		asked->state = SLOT_RUNNING;
		any = true;
	}
	LWLockRelease(commands->lock);
	return any;
}

/*
 * The worker drops a command when its backend has given the slot back.  It
 * looks again with the lock when the command is finished.
 */
bool
zkl_mailbox_is_wanted(int slot, uint32 serial)
{
	return commands->slots[slot].serial == serial;
}

/*
 * Without the lock, the worker may write to the slot's next command, which
 * then only waits a little longer.
 */
void
zkl_mailbox_note_heard(int slot, uint32 serial)
{
	if (zkl_mailbox_is_wanted(slot, serial))
		pg_atomic_write_u64(&commands->slots[slot].heard_at, zkl_now());
}

void
zkl_mailbox_finish(int slot, uint32 serial, ZklCommandOutcome outcome,
				   const char *answer, Size size)
{
	Slot	   *done = &commands->slots[slot];
	dsm_segment *segment = NULL;

	/*
	 * Create the segment before locking the slots: the creation takes long,
	 * and may fail.
	 */
	if (size > INLINE_SIZE)
	{
		segment = make_segment(answer, size);
		if (segment == NULL)
		{
			outcome = ZKL_COMMAND_NO_MEMORY;
			size = 0;
		}
	}

	LWLockAcquire(commands->lock, LW_EXCLUSIVE);

	/*
	 * If the backend has ended, the segment is not pinned, and the detach
	 * below destroys it.
	 */
	if (done->serial == serial)
	{
		Assert(done->state == SLOT_RUNNING);
		done->outcome = outcome;
		done->size = size;
		done->segment = DSM_HANDLE_INVALID;
		if (segment != NULL)
		{
			/* The pin keeps the segment when the worker detaches from it. */
			dsm_pin_segment(segment);
			done->segment = dsm_segment_handle(segment);
		}
		else if (size > 0)
			memcpy(done->answer, answer, size);
		done->state = SLOT_DONE;
		SetLatch(&zkl_proc(done->proc_number)->procLatch);
	}
	LWLockRelease(commands->lock);

	if (segment != NULL)
		dsm_detach(segment);
}

/*
 * Create a segment with the result; NULL if there is no memory, because an
 * error would end the worker.  A resource owner cleans up after a failure.
 */
static dsm_segment *
make_segment(const char *answer, Size size)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner previous = CurrentResourceOwner;
	ResourceOwner owner = ResourceOwnerCreate(NULL, "zklock answer");
	dsm_segment *volatile segment = NULL;

	/*
	 * dsm_create() needs a resource owner, which undoes its steps after an
	 * error.
	 */
	CurrentResourceOwner = owner;
	PG_TRY();
	{
		segment = dsm_create(size, DSM_CREATE_NULL_IF_MAXSEGMENTS);
		if (segment != NULL)
			dsm_pin_mapping(segment);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
	}
	PG_END_TRY();
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_BEFORE_LOCKS, false, true);
	CurrentResourceOwner = previous;
	ResourceOwnerDelete(owner);

	if (segment != NULL)
		memcpy(dsm_segment_address(segment), answer, size);
	return segment;
}
