#!/usr/bin/python3
"""A service on kazoo, for the benchmark: one session, and a thread for each client.
Each thread has Lock objects of its own.

    kazoo_bench.py HOSTS

Reads requests, a line each:

    mutex CLIENTS SECONDS PATH PATHS COUNTER -   kazoo's Lock, in a loop
"""
import logging
import mmap
import os
import random
import struct
import sys
import threading
import time

from kazoo.client import KazooClient

logging.basicConfig(level=logging.CRITICAL)


def map_counter(name):
    if name == "-":
        return None
    with open(name, "r+b") as f:
        return mmap.mmap(f.fileno(), 8)


class Worker(threading.Thread):
    def __init__(self, client, number, end, path, paths, counter):
        super().__init__()
        self.client, self.number, self.end = client, number, end
        self.path, self.paths, self.counter = path, paths, counter
        self.rounds = 0
        self.locks = {}
        self.error = None

    def choose(self):
        if self.paths == 0:
            return self.client.Lock("%s/%x-%d-%d" % (
                self.path, os.getpid() << 20 | id(self) & 0xfffff, self.number, self.rounds))
        path = self.path
        if self.paths > 1:
            path += "/%d" % random.randrange(self.paths)
        if path not in self.locks:
            self.locks[path] = self.client.Lock(path)
        return self.locks[path]

    def count(self):
        if self.counter:
            value, = struct.unpack("q", self.counter[:8])
            self.counter[:8] = struct.pack("q", value + 1)

    def run(self):
        try:
            while time.monotonic() < self.end:
                lock = self.choose()
                lock.acquire()
                self.count()
                lock.release()
                self.rounds += 1
        except Exception as error:
            self.error = error


def mutex(client, clients, seconds, path, paths, counter, _form):
    begin = time.monotonic()
    workers = [Worker(client, i, begin + float(seconds), path, int(paths), map_counter(counter))
               for i in range(int(clients))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.error:
            raise worker.error
    return " ".join(map(str, [time.monotonic() - begin] + [w.rounds for w in workers]))


def main():
    client = KazooClient(sys.argv[1], timeout=10)
    client.start(30)
    for line in sys.stdin:
        try:
            word, *args = line.split()
            if word != "mutex":
                raise ValueError("no such request: " + word)
            print("ok", mutex(client, *args), flush=True)
        except Exception as error:
            print("error", repr(error), flush=True)
    os._exit(0)


main()
