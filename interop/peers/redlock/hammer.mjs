// Many tasks that add one to a counter under a lock, by reading and then writing it, and note when they held it.
//
// Each grant is a line of the log, `name who from to`, with the machine's monotonic clock: from after the lock was granted
// until before it is given back. Our own workers write the same.

import { writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

/** `names`, `threads`, `millis`, `log`, `who`, and the `manner`: `unlocked` for a control run. */
export async function hammer({ redis, redlock }, work) {
  const end = performance.now() + work.millis;
  const tasks = Array.from({ length: work.threads }, async (_, number) => {
    const lines = [];
    let refused = 0;
    while (performance.now() < end) {
      const name = work.names[Math.floor(Math.random() * work.names.length)];
      const line = await turn(redis, redlock, work, name, number);
      if (line) lines.push(line);
      else refused++;
    }
    return { lines, refused };
  });
  const done = await Promise.all(tasks);
  const lines = done.flatMap((task) => task.lines);
  await writeFile(work.log, lines.join(""));
  return { grants: lines.length, refused: done.reduce((sum, task) => sum + task.refused, 0) };
}

/** One grant, if it comes; what it returns is its line. The ways to lock are spread over the tasks. */
async function turn(redis, redlock, work, name, number) {
  const locked = work.manner !== "unlocked";
  let lock;
  if (locked) {
    const retryCount = number % 4 === 3 ? 5 : -1;
    try {
      lock = await redlock.acquire([name], 30_000, { retryCount });
    } catch (error) {
      if (error.name === "ExecutionError") return null;
      throw error;
    }
  }
  const from = process.hrtime.bigint();
  const value = await redis.get(`counter:${name}`);
  if (Math.floor(Math.random() * 16) === 0) await sleep(1);
  await redis.set(`counter:${name}`, Number(value ?? 0) + 1);
  const to = process.hrtime.bigint();
  if (locked) {
    if (number % 4 === 2) lock = await redlock.extend(lock, 30_000, { retryCount: 0 });
    await redlock.release(lock, { retryCount: 0 });
  }
  return `${name} ${work.who}/${number} ${from} ${to}\n`;
}
