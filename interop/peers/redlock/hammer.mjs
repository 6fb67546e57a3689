// Many tasks that add one to a counter under a lock, by reading and then writing it, and log when they held it.
//
// Each grant is a line of the log, `name who from to`, with the machine's monotonic clock: from after the lock was granted
// until before it is released. Our own workers write the same.

import { writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

/** `names`, `threads`, `millis`, `log`, `who`, and the `manner`: `unlocked` for a control run. */
export async function hammer({ redis, redlock, all }, work) {
  const several = all.length > 1;
  const end = performance.now() + work.millis;
  const tasks = Array.from({ length: work.threads }, async (_, number) => {
    const lines = [];
    let refused = 0;
    while (performance.now() < end) {
      const name = work.names[Math.floor(Math.random() * work.names.length)];
      const line = await turn(redis, redlock, several, work, name, number);
      if (line) lines.push(line);
      else refused++;
      // redlock pauses only between its own tries.
      if (several && !line) await sleep(50 + Math.random() * 100);
    }
    return { lines, refused };
  });
  const done = await Promise.all(tasks);
  const lines = done.flatMap((task) => task.lines);
  await writeFile(work.log, lines.join(""));
  return { grants: lines.length, refused: done.reduce((sum, task) => sum + task.refused, 0) };
}

/**
 * One grant, if it comes; what it returns is its line. The ways to lock are spread over the tasks.
 *
 * Of several servers it keeps between its tries what it has of fewer than most, and is kept out by that itself: two that
 * wait have to wait for the end of their leases. Only the last try gives it back, so here each is the last.
 */
async function turn(redis, redlock, several, work, name, number) {
  const locked = work.manner !== "unlocked";
  let lock;
  if (locked) {
    const retryCount = several ? 0 : number % 4 === 3 ? 5 : -1;
    try {
      lock = await redlock.acquire([name], several ? 5_000 : 30_000, { retryCount });
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
    if (number % 4 === 2) lock = await redlock.extend(lock, several ? 5_000 : 30_000, { retryCount: 0 });
    await redlock.release(lock, { retryCount: 0 });
  }
  return `${name} ${work.who}/${number} ${from} ${to}\n`;
}
