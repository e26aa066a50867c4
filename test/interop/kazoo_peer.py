#!/usr/bin/python3
"""A Python service on kazoo, for tests: one request a line in, answers out.

    kazoo_peer.py HOSTS SESSION_TIMEOUT_MS [USER:PASSWORD]

With a user, clients authenticate, and what they make is only for that user.

The protocol is that of InteropPeer.pm, which drives this program.  An actor is a
thread: what one is asked to do, it does in that order.

Kinds of locks, as a user of kazoo can have them:

    mutex, read, write      kazoo's classes, with two lines that make them use Curator's
                            names: excluded by Curator, and excluding it
    patterns,               kazoo's classes as they are, with extra_lock_patterns: they
    read_patterns,          wait for Curator, but Curator does not see them
    write_patterns
    stock, stock_read,      kazoo's classes as they are
    stock_write
"""
import logging
import os
import queue
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, ReadLock, WriteLock
from kazoo.security import CREATOR_ALL_ACL

logging.basicConfig(level=logging.CRITICAL)

PATIENCE = 60  # for a ZooKeeper that is away


class CuratorMutex(Lock):
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


class CuratorWriteLock(Lock):
    _NODE_NAME = "-__WRIT__"
    _EXCLUDE_NAMES = ["-__WRIT__", "-__READ__"]


class CuratorReadLock(Lock):
    _NODE_NAME = "-__READ__"
    _EXCLUDE_NAMES = ["-__WRIT__"]


KINDS = {
    "mutex": (CuratorMutex, []),
    "read": (CuratorReadLock, []),
    "write": (CuratorWriteLock, []),
    "patterns": (Lock, ["-lock-"]),
    "read_patterns": (ReadLock, ["__WRIT__"]),
    "write_patterns": (WriteLock, ["__WRIT__", "__READ__"]),
    "stock": (Lock, []),
    "stock_read": (ReadLock, []),
    "stock_write": (WriteLock, []),
}


def say(line):
    # One write, because several threads say something.
    os.write(sys.stdout.fileno(), (line + "\n").encode())


def as_bool(value):
    return "t" if value else "f"


class Request:
    def __init__(self, line):
        self.id, self.actor, self.op, *self.args = line.split()
        self.client = self.actor.split(".")[0]

    def answer(self, value):
        say(f"{self.id} ok {value}")

    def fail(self, error):
        say(f"{self.id} error {type(error).__name__}: {' '.join(str(error).split())}")


class Actor:
    def __init__(self, name, client):
        self.name = name
        self.client = client
        self.queue = queue.Queue()
        self.locks = {}
        self.waiting_for = None
        threading.Thread(target=self.run, name=name, daemon=True).start()

    def run(self):
        while True:
            request = self.queue.get()
            try:
                request.answer(getattr(self, request.op)(*request.args))
            except Exception as error:  # the test decides what an error means
                request.fail(error)

    def lock(self, kind, path):
        if (kind, path) not in self.locks:
            recipe, patterns = KINDS[kind]
            self.locks[kind, path] = recipe(
                self.client, path, self.name, extra_lock_patterns=patterns)
        return self.locks[kind, path]

    def acquire(self, kind, path, ms="-"):
        self.waiting_for = lock = self.lock(kind, path)
        try:
            if ms == "-":
                return as_bool(lock.acquire())
            if ms == "0":
                return as_bool(lock.acquire(blocking=False))
            return as_bool(lock.acquire(timeout=int(ms) / 1000))
        except LockTimeout:
            return "f"
        finally:
            self.waiting_for = None

    def release(self, kind, path):
        return as_bool(self.lock(kind, path).release())

    def held(self, kind, path):
        return as_bool(self.lock(kind, path).is_acquired)

    def cancel(self):
        lock = self.waiting_for
        if lock:
            lock.cancel()
        return as_bool(lock)

    def hammer(self, kind, path, directory, rounds, hold_us="0"):
        """Until so many rounds are done or "stop" is in the directory; 0 is endless."""
        lock = self.lock(kind, path)
        mode = "s" if "read" in kind else "x"
        rounds = int(rounds)
        hold = int(hold_us) / 1e6
        done = 0
        counter = os.open(directory + "/counter", os.O_RDWR)
        history = os.open(directory + "/history", os.O_WRONLY | os.O_APPEND)
        try:
            while (rounds == 0 or done < rounds) and not os.path.exists(directory + "/stop"):
                if not lock.acquire():
                    raise RuntimeError("not acquired, after %d rounds" % done)
                self.section(mode, counter, history, hold)
                lock.release()
                done += 1
        finally:
            os.close(counter)
            os.close(history)
        return done

    def section(self, mode, counter, history, hold):
        """The critical section.  See History.pm, which has the same and checks it."""
        begin = time.monotonic_ns()
        value = int(os.pread(counter, 12, 0))
        if hold:
            time.sleep(hold)
        if mode == "x":
            os.pwrite(counter, b"%012d" % (value + 1), 0)
        end = time.monotonic_ns()
        os.write(history, f"{begin} {end} {mode} {value} {self.name}\n".encode())


class Peer:
    def __init__(self, hosts, session_timeout, identity=None):
        self.hosts = hosts
        self.session_timeout = session_timeout
        self.credentials = {"auth_data": [("digest", identity)],
                            "default_acl": CREATOR_ALL_ACL} if identity else {}
        self.clients = {}
        self.actors = {}

    def client(self, name):
        if name not in self.clients:
            client = KazooClient(
                self.hosts,
                timeout=self.session_timeout,
                connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 0.5},
                command_retry={"max_tries": -1, "delay": 0.05, "max_delay": 0.5,
                               "deadline": PATIENCE},
                **self.credentials,
            )
            client.start(PATIENCE)
            self.clients[name] = client
        return self.clients[name]

    def actor(self, request):
        if request.actor not in self.actors:
            self.actors[request.actor] = Actor(request.actor, self.client(request.client))
        return self.actors[request.actor]

    def close(self, name):
        client = self.clients.pop(name, None)
        self.actors = {actor: a for actor, a in self.actors.items()
                       if actor.split(".")[0] != name}
        if client:
            client.stop()
            client.close()
        return "t"

    def dispatch(self, request):
        """Operations that do not wait for a busy actor are done here, the rest by its
        thread."""
        if request.op == "session":
            request.answer(hex(self.client(request.client).client_id[0]))
        elif request.op == "clock":
            request.answer(time.monotonic_ns())
        elif request.op == "cancel":
            request.answer(self.actor(request).cancel())
        elif request.op == "close":
            request.answer(self.close(request.client))
        elif request.op in ("acquire", "release", "held", "hammer"):
            self.actor(request).queue.put(request)
        else:
            raise ValueError("no such operation: " + request.op)


def main():
    peer = Peer(sys.argv[1], int(sys.argv[2]) / 1000, *sys.argv[3:])
    for line in sys.stdin:
        request = Request(line)
        try:
            peer.dispatch(request)
        except Exception as error:
            request.fail(error)
    os._exit(0)  # the test is gone: no good-byes, as if the service had died


main()
