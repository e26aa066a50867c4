#!/usr/bin/env python3
"""retry.py CONNINFO PATH STATEMENT: run an SQL statement in a transaction under a lock.

This is the loop that an application needs around such a transaction, with psycopg.
Copy run_locked() into yours.
"""
import datetime
import random
import sys
import time

import psycopg

# The transaction did nothing, and may succeed if it is tried again:
AT_ONCE = {
    "ZK001",  # the lock was lost, or is in doubt
    "40P01",  # deadlock detected
    "40001",  # serialization failure
}
LATER = {
    "08006",  # ZooKeeper cannot be reached
}
# ZK002, the lease time is over, is not here: the work would take too long again.


def run_locked(conninfo, path, work, timeout=datetime.timedelta(seconds=30), attempts=5):
    """Call work(cursor) in a transaction that holds the lock; return what it returns.

    After a failed commit whose outcome is unknown, because the connection broke, this
    raises the error.  Only the caller knows whether the work may be done twice.
    """
    for attempt in range(1, attempts + 1):
        connection = None
        try:
            # A loss may end the connection, so each attempt has its own.  Leaving this "with"
            # commits.
            with psycopg.connect(conninfo) as connection:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT zk_xact_lock_acquire(%s, %s)", (path, timeout))
                    if not cursor.fetchone()[0]:
                        raise TimeoutError(f"lock {path} was not granted within {timeout}")
                    return work(cursor)
        except psycopg.Error as error:
            # Without a connection, nothing was done: PostgreSQL may be starting (57P03), but
            # psycopg has no SQLSTATE of that.
            later = connection is None or error.sqlstate in LATER
            if attempt == attempts or not later and error.sqlstate not in AT_ONCE:
                raise
            print(f"attempt {attempt} failed with {error.sqlstate or error}", file=sys.stderr, flush=True)
            if later:
                time.sleep(random.uniform(0, min(2**attempt, 60)))


if __name__ == "__main__":
    run_locked(sys.argv[1], sys.argv[2], lambda cursor: cursor.execute(sys.argv[3]))
