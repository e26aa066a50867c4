# Work of several transactions under one claim without a session, through a pooler in transaction mode:
#
#	with lock(conninfo, "/jobs/import", "1 min") as claim:
#		with transaction(conninfo, claim) as (connection, token):
#			...
#
# Work that takes long calls zk_claim_renew between its transactions.  If the client dies, the lock is
# free after the lease time.

from contextlib import contextmanager
import psycopg

def call(conninfo, function, *parameters):
    arguments = ", ".join(["%s"] * len(parameters))
    with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as connection:
        return connection.execute(f"SELECT {function}({arguments})", parameters).fetchone()[0]

@contextmanager
def lock(conninfo, path, lease_time):
    claim = call(conninfo, "zk_claim_request", path, lease_time)
    try:
        while not call(conninfo, "zk_claim_wait", claim, "10 s"):
            pass
        yield claim
    finally:
        call(conninfo, "zk_claim_release", claim)

@contextmanager
def transaction(conninfo, claim):
    with psycopg.connect(conninfo, prepare_threshold=None) as connection:
        token = connection.execute("SELECT zk_xact_claim_use(%s)", [claim]).fetchone()[0]
        yield connection, token
