"""Many threads that add one to a counter under a lock, by reading and then writing it, and log when they held it.

Each grant is a line of the log, `name who from to`, with the machine's monotonic clock: from after the lock was granted
until before it is released. Our own workers write the same.
"""

import random
import threading
import time


class Hammer:
    def __init__(self, clients):
        self.clients = clients

    def deeds(self):
        return {"hammer": self.hammer}

    def hammer(self, command):
        """`names`, `threads`, `millis`, `seed`, `log`, `who`, and the `manner`: `unlocked` for a control run."""
        client = self.clients.of(command)
        crowd = [Worker(client, command, number) for number in range(command["threads"])]
        for worker in crowd:
            worker.start()
        for worker in crowd:
            worker.join()
        for worker in crowd:
            if worker.failure is not None:
                raise worker.failure
        with open(command["log"], "w", encoding="utf-8") as log:
            log.writelines(line for worker in crowd for line in worker.lines)
        return {
            "grants": sum(len(worker.lines) for worker in crowd),
            "refused": sum(worker.refused for worker in crowd),
        }


class Worker(threading.Thread):
    def __init__(self, client, command, number):
        super().__init__(daemon=True)
        self.client = client
        self.names = command["names"]
        self.who = f"{command['who']}/{number}"
        self.number = number
        self.locked = command["manner"] != "unlocked"
        self.random = random.Random(command["seed"] + number)
        self.end = time.monotonic_ns() + command["millis"] * 1_000_000
        self.lines = []
        self.refused = 0
        self.failure = None

    def run(self):
        try:
            while time.monotonic_ns() < self.end:
                self.turn(self.random.choice(self.names))
        except Exception as failure:
            self.failure = failure

    def turn(self, name):
        """Plays one turn, with a grant if the lock was acquired. The ways to lock are spread over the threads."""
        lock = self.client.lock(name, timeout=30)
        if self.locked:
            patience = 1 if self.number % 4 == 3 else None
            if not lock.acquire(blocking_timeout=patience):
                self.refused += 1
                return
        from_ = time.monotonic_ns()
        value = self.client.get(f"counter:{name}")
        if self.random.randrange(16) == 0:
            time.sleep(0.001)
        self.client.set(f"counter:{name}", int(value or 0) + 1)
        to = time.monotonic_ns()
        self.lines.append(f"{name} {self.who} {from_} {to}\n")
        if self.locked:
            if self.number % 4 == 2:
                lock.extend(30, replace_ttl=True)
            lock.release()
