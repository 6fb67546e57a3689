"""The real redis-py Lock, driven by lines of JSON: a command per line on stdin, a reply per line on stdout.

    {"id":1,"thread":"t1","client":"t1","cmd":"lock","name":"x","lease":30000}
    {"id":1,"result":"0b5c…","from":73412,"to":73978}
    {"id":2,"error":"redis.exceptions.ConnectionError","message":"…","from":…,"to":…}

Commands of one thread run one after the other on that very thread; those of different threads at the same time.
`from` and `to` are the machine's monotonic clock in nanoseconds. The end of stdin is the end of the process, without
cleaning up.
"""

import json
import os
import queue
import sys
import threading
import time

import redis
from redis.exceptions import LockError

from hammer import Hammer


class Clients:
    """The clients of this process, by the names the harness gives them."""

    def __init__(self):
        self.clients = {}

    def deeds(self):
        return {"connect": self.connect, "close": self.close}

    def of(self, command):
        return self.clients[command["client"]]

    def connect(self, command):
        client = redis.Redis.from_url(command["address"])
        client.ping()
        self.clients[command["client"]] = client

    def close(self, command):
        self.clients.pop(command["client"]).close()

    def close_all(self):
        for client in self.clients.values():
            client.close()


class Locks:
    """`redis.lock.Lock`. Times are milliseconds; a lease that is left out has no end, as is its default."""

    def __init__(self, clients):
        self.clients = clients
        # One object per thread, client and name, as a function that locks and unlocks in one place would have it.
        self.mine = threading.local()

    def deeds(self):
        return {
            "lock": self.lock,
            "try_lock": self.try_lock,
            "unlock": self.unlock,
            "extend": self.extend,
            "is_mine": lambda command: self.held(command).owned(),
            "look": self.look,
        }

    def lock(self, command):
        """Acquires with the `value` of the command, or with one of its own."""
        lock = self.fresh(command)
        lock.acquire(token=command.get("value"))
        return lock.local.token.decode()

    def try_lock(self, command):
        """Returns the value of the key, or None. Without `wait` it sends one request."""
        lock = self.fresh(command)
        wait = command.get("wait")
        if wait is None:
            granted = lock.acquire(blocking=False)
        else:
            granted = lock.acquire(blocking_timeout=wait / 1000)
        return lock.local.token.decode() if granted else None

    def unlock(self, command):
        """Returns None, or why it was refused."""
        return refusal(self.held(command).release)

    def extend(self, command):
        """Returns None, or why it was refused. It uses the two ways of redis-py in turn."""
        lock = self.held(command)
        lease = command["lease"] / 1000
        lock.reacquires = not getattr(lock, "reacquires", False)
        if lock.reacquires and lock.timeout == lease:
            return refusal(lock.reacquire)
        return refusal(lambda: lock.extend(lease, replace_ttl=True))

    def look(self, command):
        """Returns the state of the lock in the store, read through this library's client."""
        client, name = self.clients.of(command), command["name"]
        value = client.get(name)
        return {
            "type": client.type(name).decode(),
            "value": value and value.decode(),
            "left": client.pttl(name),
            "locked": client.lock(name).locked(),
        }

    def fresh(self, command):
        lease = command.get("lease")
        lock = self.clients.of(command).lock(command["name"], timeout=lease and lease / 1000)
        self.all_mine()[command["client"], command["name"]] = lock
        return lock

    def held(self, command):
        return self.all_mine()[command["client"], command["name"]]

    def all_mine(self):
        if not hasattr(self.mine, "locks"):
            self.mine.locks = {}
        return self.mine.locks


def refusal(attempt):
    try:
        attempt()
    except LockError as error:
        return f"{type(error).__name__}: {error}"


class Peer:
    def __init__(self):
        self.clients = Clients()
        self.deeds = {
            **self.clients.deeds(),
            **Locks(self.clients).deeds(),
            **Hammer(self.clients).deeds(),
            "clock": lambda command: time.monotonic_ns(),
            "library": lambda command: f"redis-py {redis.__version__}",
            "exit": lambda command: self.clients.close_all(),
        }
        self.threads = {}
        self.speaking = threading.Lock()

    def take(self, command):
        if command["cmd"] == "halt":
            # Dies as a killed process does: without a release, without a notification.
            os._exit(137)
        name = command.get("thread", "main")
        if name not in self.threads:
            commands = self.threads[name] = queue.SimpleQueue()
            threading.Thread(target=self.work, args=[commands], name=name, daemon=True).start()
        self.threads[name].put(command)

    def work(self, commands):
        while True:
            command = commands.get()
            answer = {"id": command["id"], "from": time.monotonic_ns()}
            try:
                answer["result"] = self.deeds[command["cmd"]](command)
            except Exception as error:  # The harness has to learn of any failure.
                answer["error"] = f"{type(error).__module__}.{type(error).__name__}"
                answer["message"] = str(error)
            answer["to"] = time.monotonic_ns()
            with self.speaking:
                print(json.dumps(answer), flush=True)
            if command["cmd"] == "exit":
                os._exit(0)


if __name__ == "__main__":
    peer = Peer()
    for line in iter(sys.stdin.readline, ""):
        peer.take(json.loads(line))
    os._exit(0)
