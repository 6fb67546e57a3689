"""redis-py's Lock. It receives its work as lines of JSON, described in bench/src/line.rs.

One caller works through the blocking client, which is the faster one alone; several through asyncio, where a task is
a caller and the connections come from a pool. redis-py does not share a connection between callers.
"""

import asyncio
import json
import sys
import time
from collections import Counter

import redis
import redis.asyncio

LEASE = 30
# More connections than this only make the server and the loop slower.
CONNECTIONS = 64
CANNOT = {"hold": "does not renew", "queue": "polls"}
VERSION = f"redis-py {redis.__version__}, hiredis, Python {sys.version.split()[0]}"


def say(answer):
    print(json.dumps(answer), flush=True)


def name(number):
    return f"bench:{number}"


def names_of(caller, work):
    """The names a caller goes through, over and over."""
    if work["names"] == 1:
        numbers = [0]
    elif work["names"] == work["callers"]:
        numbers = [caller]
    else:
        each = work["names"] // work["callers"]
        numbers = range(caller * each, (caller + 1) * each)
    while True:
        for number in numbers:
            yield name(number)


def bucket(nanos):
    shift = max(0, nanos.bit_length() - 8)
    return shift * 128 + (nanos >> shift)


def tally(callers, seconds):
    counts = [len(took) for took, _ in callers]
    latency = Counter(bucket(nanos) for took, _ in callers for nanos in took)
    return {
        "cycles": sum(counts),
        "finished": sum(finished for _, finished in callers),
        "seconds": seconds,
        "latency": sorted(latency.items()),
        "least": min(counts),
        "most": max(counts),
    }


def cycle_alone(client, work, seconds):
    names = names_of(0, work)
    took, finished = [], 0
    began = time.monotonic_ns()
    end = began + int(seconds * 1e9)
    while True:
        from_ = time.monotonic_ns()
        if from_ >= end:
            return tally([(took, finished)], (from_ - began) / 1e9)
        lock = client.lock(next(names), timeout=LEASE)
        lock.acquire()
        lock.release()
        took.append(time.monotonic_ns() - from_)
        finished += 1


async def cycle(client, work, seconds):
    began = time.monotonic_ns()
    end = began + int(seconds * 1e9)
    holder, handoffs = None, 0

    async def caller(number):
        nonlocal holder, handoffs
        took, finished = [], 0
        for one in names_of(number, work):
            from_ = time.monotonic_ns()
            if from_ >= end:
                return took, finished
            lock = client.lock(one, timeout=LEASE)
            await lock.acquire()
            passed = work["names"] == 1 and holder != number
            holder = number
            await lock.release()
            to = time.monotonic_ns()
            finished += 1
            if to < end:
                took.append(to - from_)
                handoffs += passed

    callers = [asyncio.create_task(caller(number)) for number in range(work["callers"])]
    return tally(await asyncio.gather(*callers), seconds) | {"handoffs": handoffs}


def cycles_alone(work):
    client = redis.Redis.from_url(work["url"])
    cycle_alone(client, work, work["warmup"])
    ready()
    say(cycle_alone(client, work, work["seconds"]))
    client.close()


async def cycles(work):
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        work["url"], max_connections=min(work["callers"], CONNECTIONS), timeout=None
    )
    client = redis.asyncio.Redis(connection_pool=pool)
    await cycle(client, work, work["warmup"])
    ready()
    say(await cycle(client, work, work["seconds"]))
    await client.aclose()
    await pool.disconnect()


def steps(work):
    client = redis.Redis.from_url(work["url"])
    ready()
    lock = client.lock(name(0), timeout=LEASE)
    for line in iter(sys.stdin.readline, ""):
        match line.strip():
            case "lock":
                lock.acquire()
                at = time.monotonic_ns()
            case "unlock":
                at = time.monotonic_ns()
                lock.release()
            case "end":
                break
            case other:
                raise ValueError(f"not a step: {other}")
        say({"at": at})
    client.close()


def ready():
    say({"ready": True, "version": VERSION})
    sys.stdin.readline()


def perform(work):
    if work["job"] in CANNOT:
        say({"cannot": CANNOT[work["job"]]})
    elif work["job"] == "step":
        steps(work)
    elif work["job"] != "cycle":
        say({"cannot": f"does not know {work['job']}"})
    elif work["callers"] == 1:
        cycles_alone(work)
    else:
        asyncio.run(cycles(work))


def main():
    for line in iter(sys.stdin.readline, ""):
        try:
            perform(json.loads(line))
        except Exception as error:  # The orchestrator has to learn of any failure.
            say({"failed": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
