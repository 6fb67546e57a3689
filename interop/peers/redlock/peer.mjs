// The real redlock, driven by lines of JSON: a command per line on stdin, a reply per line on stdout.
//
//   {"id":1,"thread":"t1","client":"t1","cmd":"lock","name":"x","lease":30000}
//   {"id":1,"result":"5d41…","from":73412,"to":73978}
//   {"id":2,"error":"ReplyError","message":"…","from":…,"to":…}
//
// Commands of one thread run one after the other; those of different threads at the same time. `from` and `to` are the
// machine's monotonic clock in nanoseconds. The process ends with its stdin, without cleaning up.

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { Redis } from "ioredis";
import { hammer } from "./hammer.mjs";

// Its types and its module file disagree about what is exported; the CommonJS build does not.
const require = createRequire(import.meta.url);
const { default: Redlock, ExecutionError, ResourceLockedError } = require("redlock");
// Its package file is not exported either.
const installed = new URL("node_modules/redlock/package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(installed, "utf8"));

/** Its own pause between two tries, of which the half is chance. */
const BETWEEN = 200;
const ONCE = { retryCount: 0 };

/** By the names the harness gives them. */
const clients = new Map();

function clientOf({ client }) {
  if (!clients.has(client)) throw new Error(`there is no client \`${client}\`; connect first`);
  return clients.get(client);
}

/** One of several servers that hangs or is dead must not hold up the others, and what it was asked must not come later. */
const impatient = (patience = 2_000) => ({
  commandTimeout: patience,
  connectTimeout: patience,
  enableOfflineQueue: false,
});

/** Connects to one server, or to all of `addresses`, for one lock on a majority of them, with `patience` as the timeout of each. */
async function connect({ client, address, addresses, patience }) {
  const all = address
    ? [new Redis(address)]
    : addresses.map((address) => new Redis(address, impatient(patience)));
  for (const redis of all) {
    // A server is gone; the callers learn it from their own requests.
    redis.on("error", () => {});
    if (redis.status !== "ready") await once(redis, "ready");
  }
  clients.set(client, { redis: all[0], all, redlock: new Redlock(all), locks: new Map() });
}

/** In order, where there is one; a server that is gone has no last word. */
const quit = ({ all }) => Promise.all(all.map((redis) => redis.quit().catch(() => redis.disconnect())));

async function close(command) {
  await quit(clientOf(command));
  clients.delete(command.client);
}

const key = ({ thread, name }) => JSON.stringify([thread, name]);

/** Which value stands in the key. Waits without end, unless told how often to try again. */
async function lock(command, retryCount = -1) {
  const { redlock, locks } = clientOf(command);
  const taken = await redlock.acquire([command.name], command.lease, { retryCount });
  locks.set(key(command), taken);
  return taken.value;
}

/** The value, or nothing. Without `wait` it asks once. */
async function tryLock(command) {
  try {
    return await lock(command, Math.floor((command.wait ?? 0) / BETWEEN));
  } catch (error) {
    if (await isRefusal(error)) return null;
    throw error;
  }
}

/** Nothing, or why it was refused. Once, where it would by itself try ten times more to give back what is gone. */
async function unlock(command) {
  const { redlock, locks } = clientOf(command);
  return refusal(redlock.release(locks.get(key(command)), ONCE));
}

/** Nothing, or why it was refused. */
async function extend(command) {
  const { redlock, locks } = clientOf(command);
  const extended = redlock.extend(locks.get(key(command)), command.lease, ONCE);
  return refusal(extended.then((next) => locks.set(key(command), next)));
}

/** By the clock: it does not ask. */
const isMine = (command) => (clientOf(command).locks.get(key(command))?.expiration ?? 0) > Date.now();

/** What is in the store, through this library's client. */
async function look(command) {
  const { redis } = clientOf(command);
  const type = await redis.type(command.name);
  const value = await redis.get(command.name);
  return { type, value, left: await redis.pttl(command.name), locked: value !== null };
}

async function refusal(attempt) {
  try {
    await attempt;
    return null;
  } catch (error) {
    if (await isRefusal(error)) return `${error.name}: ${error.message}`;
    throw error;
  }
}

/** Reports whether the key is another client's, or gone, as opposed to servers that could not say. */
async function isRefusal(error) {
  if (!(error instanceof ExecutionError)) return false;
  const attempts = await Promise.all(error.attempts);
  // Without any attempt, the clock showed that the lease has expired. Of several servers some may not have replied.
  return attempts.every(({ votesAgainst }) =>
    [...votesAgainst.values()].some((vote) => vote instanceof ResourceLockedError),
  );
}

const deeds = {
  clock: () => process.hrtime.bigint(),
  close,
  connect,
  exit: () => Promise.all([...clients.values()].map(quit)).then(() => null),
  extend,
  hammer: (command) => hammer(clientOf(command), command),
  is_mine: isMine,
  library: () => `redlock ${version.replace("v", "")}`,
  lock: (command) => lock(command),
  look,
  try_lock: tryLock,
  unlock,
};

async function perform(command) {
  const from = process.hrtime.bigint();
  let outcome;
  try {
    const result = await deeds[command.cmd](command);
    // Nanoseconds are more than a number holds exactly.
    outcome = `"result":${typeof result === "bigint" ? result : JSON.stringify(result ?? null)}`;
  } catch (error) {
    outcome = `"error":${JSON.stringify(error.name)},"message":${JSON.stringify(error.message)}`;
  }
  const to = process.hrtime.bigint();
  process.stdout.write(`{"id":${command.id},${outcome},"from":${from},"to":${to}}\n`);
  if (command.cmd === "exit") process.exit(0);
}

/** What each thread does last. */
const threads = new Map();

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  // Dies as a killed process does: without a release, without a notification.
  if (command.cmd === "halt") process.kill(process.pid, "SIGKILL");
  const before = threads.get(command.thread) ?? Promise.resolve();
  threads.set(command.thread, before.then(() => perform(command)));
}
process.exit(0);
