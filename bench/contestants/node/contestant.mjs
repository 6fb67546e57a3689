// The contestant redlock. It receives its work as lines of JSON, described in bench/src/line.rs.

import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { Redis } from "ioredis";

// Its types and its module file disagree about what is exported; the CommonJS build does not.
const require = createRequire(import.meta.url);
const { default: Redlock } = require("redlock");

const LEASE = 30_000;
const VERSION = `redlock 5.0.0-beta.2, ioredis 5.11.1 with auto-pipelining, Node ${process.versions.node}`;
const CANNOT = { queue: "polls" };

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const hear = async () => (await lines.next()).value;
const name = (number) => `bench:${number}`;
const now = () => process.hrtime.bigint();

async function ready() {
  say({ ready: true, version: VERSION });
  await hear();
}

/** Returns the names a caller goes through, over and over. */
function* namesOf(caller, work) {
  if (work.names === 1 || work.names === work.callers) {
    const only = name(work.names === 1 ? 0 : caller);
    for (;;) yield only;
  }
  const each = Math.floor(work.names / work.callers);
  for (let next = 0; ; next = (next + 1) % each) yield name(caller * each + next);
}

function bucket(nanos) {
  const shift = Math.max(0, Math.floor(Math.log2(Math.max(nanos, 1))) - 7);
  return shift * 128 + Math.floor(nanos / 2 ** shift);
}

async function cycle(redlock, work, seconds) {
  const began = performance.now();
  const end = began + seconds * 1000;
  let holder;
  let handoffs = 0;
  const callers = Array.from({ length: work.callers }, async (_, caller) => {
    const names = namesOf(caller, work);
    const took = [];
    let finished = 0;
    for (;;) {
      const from = performance.now();
      if (from >= end) return { took, finished };
      const lock = await redlock.acquire([names.next().value], LEASE);
      const passed = work.names === 1 && holder !== caller;
      holder = caller;
      await lock.release();
      const to = performance.now();
      finished++;
      if (to >= end) continue;
      took.push(Math.round((to - from) * 1e6));
      if (passed) handoffs++;
    }
  });
  const done = await Promise.all(callers);
  const latency = new Map();
  for (const { took } of done) {
    for (const nanos of took) latency.set(bucket(nanos), (latency.get(bucket(nanos)) ?? 0) + 1);
  }
  const counts = done.map(({ took }) => took.length);
  return {
    cycles: counts.reduce((sum, count) => sum + count, 0),
    finished: done.reduce((sum, { finished }) => sum + finished, 0),
    seconds,
    latency: [...latency],
    handoffs,
    least: Math.min(...counts),
    most: Math.max(...counts),
  };
}

/** Holds every name inside `using`, which extends its locks. */
async function hold(redlock, work) {
  const signals = [];
  let held = 0;
  let all, over;
  const holding = new Promise((resolve) => (all = resolve));
  const end = new Promise((resolve) => (over = resolve));
  const uses = [];
  const caller = async (from) => {
    for (let number = from; number < work.names; number += work.callers) {
      await new Promise((taken, failed) => {
        const use = redlock.using([name(number)], LEASE, async (signal) => {
          if (++held === work.names) all();
          signals.push(signal);
          taken();
          await end;
        });
        // A lost lock cannot be released: the loss is counted, not thrown.
        uses.push(use.catch(failed));
      });
    }
  };
  await Promise.all(Array.from({ length: work.callers }, (_, from) => caller(from)));
  await holding;
  say({ held });
  await hear();
  // Reported before the release: no other contestant has to release its locks first.
  say({ lost: signals.filter((signal) => signal.aborted).length });
  over();
  await Promise.all(uses);
}

async function steps(redlock) {
  let lock;
  for (;;) {
    const word = await hear();
    let at;
    if (word === "lock") {
      lock = await redlock.acquire([name(0)], LEASE);
      at = now();
    } else if (word === "unlock") {
      at = now();
      await lock.release();
    } else if (word === "end") {
      return;
    } else {
      throw new Error(`not a step: ${word}`);
    }
    say({ at: Number(at) });
  }
}

async function perform(work) {
  if (CANNOT[work.job]) {
    say({ cannot: CANNOT[work.job] });
    return;
  }
  const client = new Redis(work.url, { enableAutoPipelining: true });
  // The delay and jitter are its defaults (200 ± 100 ms); it may try as often as it takes.
  const redlock = new Redlock([client], { retryCount: -1 });
  const few = { ...work, callers: Math.min(work.callers, 64), names: Math.min(work.callers, 64) };
  try {
    if (work.job === "cycle") {
      await cycle(redlock, work, work.warmup);
      await ready();
      say(await cycle(redlock, work, work.seconds));
    } else if (work.job === "hold") {
      await cycle(redlock, few, work.warmup);
      await ready();
      await hold(redlock, work);
    } else if (work.job === "step") {
      await ready();
      await steps(redlock);
    } else {
      say({ cannot: `does not know ${work.job}` });
    }
  } finally {
    client.disconnect();
  }
}

for (let line = await hear(); line !== undefined; line = await hear()) {
  try {
    await perform(JSON.parse(line));
  } catch (error) {
    say({ failed: `${error.name}: ${error.message}` });
  }
}
