#!/usr/bin/python3
"""A ZooKeeper client for tests: one JSON request a line in, one answer a line out.

    {"op": "children", "path": "/zklock"}   ->  {"result": [...]}  or  {"error": "NoNodeError"}

Every request may name a "client"; each name has a session of its own, made when it is
first used and held until "close".  So a test can be several foreign services at once.
A request with a "server" (an address) is for this one of the ensemble.  A client that is
made with a "user" (user:password) authenticates.  Times are in seconds.  ZOOKEEPER_TLS=CA,CERTIFICATE,KEY
names the files for TLS.
"""
import json
import logging
import os
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl

logging.basicConfig(level=logging.CRITICAL)

PATIENCE = 60  # for a ZooKeeper that is away


def session_password(session_id):
    """The server's password of a session, which is a function of its id alone:
    java.util.Random(id ^ 0xB3415C00).nextBytes(16)."""
    mask = (1 << 48) - 1
    state = ((session_id ^ 0xB3415C00) ^ 0x5DEECE66D) & mask
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & mask
        password += ((state >> 16) & 0xFFFFFFFF).to_bytes(4, "little")
    return password


def stat_as_dict(stat):
    return {name: getattr(stat, name) for name in stat._fields}


class Clients:
    def __init__(self, hosts):
        self.hosts = hosts
        self.clients = {}
        self.tls = {}
        if "ZOOKEEPER_TLS" in os.environ:
            files = os.environ["ZOOKEEPER_TLS"].split(",")
            self.tls = dict(zip(("ca", "certfile", "keyfile"), files), use_ssl=True)

    def get(self, name, timeout, hosts=None, user=None):
        if name not in self.clients:
            # A ZooKeeper server that is starting may lose a client's first request, and never
            # answer it.  kazoo waits for the answer for the session timeout, divided by the
            # number of addresses.  So each address is there several times.
            addresses = (hosts or self.hosts).split(",")
            client = KazooClient(
                ",".join(addresses * max(1, int(timeout // (3 * len(addresses))))),
                timeout=timeout,
                auth_data=[("digest", user)] if user else None,
                connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 0.5},
                command_retry={"max_tries": -1, "delay": 0.05, "max_delay": 0.5,
                               "deadline": PATIENCE},
                **self.tls,
            )
            client.start(PATIENCE)
            self.clients[name] = client
        return self.clients[name]

    def close(self, name):
        client = self.clients.pop(name, None)
        if client:
            client.stop()
            client.close()

    def kill_session(self, session_id):
        """End a session that is not ours: join it, then close it.  Every server is
        asked, because a leader that was paused and has been deposed calls sessions
        expired that live on."""
        return any(self.join_and_close(server, session_id)
                   for server in self.hosts.split(","))

    @staticmethod
    def join_and_close(server, session_id):
        intruder = KazooClient(
            server, client_id=(session_id, session_password(session_id)))
        try:
            intruder.start(5)
            return intruder.client_id[0] == session_id
        except intruder.handler.timeout_exception:
            return False
        finally:
            intruder.stop()
            intruder.close()


def acl_for_everybody(perms):
    return [make_entry("world", "anyone", perms)]


def make_entry(scheme, identity, perms):
    return make_acl(scheme, identity, read="r" in perms, create="c" in perms,
                    delete="d" in perms, write="w" in perms, admin="a" in perms)


def perform(clients, op, session_timeout, client="default", path=None, data="",
            ephemeral=False, sequence=False, session_id=None, version=-1, perms=None,
            server=None, user=None, acl=None):
    if op == "close":
        return clients.close(client)
    if op == "kill_session":
        return clients.kill_session(session_id)

    zk = clients.get(server or client, session_timeout, server, user)
    if acl is None:
        acl = perms and acl_for_everybody(perms)
    else:
        acl = [make_entry(*entry) for entry in acl]
    if op == "session_id":
        return zk.client_id and zk.client_id[0]  # none while there is no session
    if op == "create":
        return zk.create(path, data.encode(), ephemeral=ephemeral, sequence=sequence,
                         acl=acl, makepath=not perms)
    if op == "create_many":
        return create_many(zk, path, *data.split())
    if op == "set":
        return stat_as_dict(zk.set(path, data.encode(), version))
    if op == "delete":
        return zk.delete(path, version)
    if op == "allow":
        return stat_as_dict(zk.set_acls(path, acl))
    if op == "acl":
        return sorted([entry.id.scheme, entry.id.id, entry.perms]
                      for entry in zk.retry(zk.get_acls, path)[0])

    # A follower may lag; a test wants to read every write that any client has seen answered.
    zk.retry(zk.sync, "/")
    if op == "children":
        return sorted(zk.retry(zk.get_children, path))
    if op == "get":
        data, stat = zk.retry(zk.get, path)
        return {"data": data.decode("utf-8", "replace"), **stat_as_dict(stat)}
    if op == "exists":
        stat = zk.retry(zk.exists, path)
        return stat and stat_as_dict(stat)
    if op == "tree":
        return tree(zk, path)
    if op == "snapshot":
        return snapshot(zk, path)
    raise ValueError("no such operation: " + op)


def create_many(zk, path, n, prefix=""):
    """So many children of path, as the directories of locks below it would be."""
    n = int(n)
    zk.ensure_path(path)
    for first in range(0, n, 1000):
        transaction = zk.transaction()
        for i in range(first, min(first + 1000, n)):
            transaction.create("%s/%s%d" % (path, prefix, i))
        transaction.commit()


def tree(zk, path):
    """All paths below path, in order."""
    found = []
    try:
        for name in sorted(zk.retry(zk.get_children, path)):
            child = path.rstrip("/") + "/" + name
            found += [child] + tree(zk, child)
    except NoNodeError:
        pass
    return found


def snapshot(zk, path):
    """The stat and data of the znode, and of each znode below it."""
    found = {}
    for znode in [path] + tree(zk, path):
        try:
            data, stat = zk.retry(zk.get, znode)
            found[znode] = {"data": data.decode("utf-8", "replace"), **stat_as_dict(stat)}
        except NoNodeError:
            pass
    return found


def main():
    clients = Clients(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = {"result": perform(clients, **json.loads(line))}
        except Exception as error:  # the test decides what an error means
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


main()
