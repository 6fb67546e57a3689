-- Undoes an acquire of the fair lock whose outcome is unknown: a hold, or a queue entry.
--
-- Needs: fair/queue.lua (clock, leave, notify)
-- KEYS  1 the lock   2 the tombstones: zset of "<owner>#<attempt>" by expiry in ms
--       3 the queue   4 when Redisson skips each waiter   5 expiry of each distlock waiter
-- ARGV  1 owner   2 attempt   3 hold count before the acquire   4 TTL of the tombstone in ms
--       5 the lock's channel
-- Returns  -3 lowered and still held   -6 nothing undone   0 released; each with a tombstone
-- With a tombstone, the acquire is refused if it still arrives.
local remaining_count, now = tonumber(ARGV[3]), clock()
-- A key of another type is no error here: the acquire was refused because of it, but it may still arrive later.
local held = redis.pcall('HGET', KEYS[1], ARGV[1])
local above = type(held) == 'string' and tonumber(held) > remaining_count
local released = above and remaining_count == 0
if released then
  redis.call('HDEL', KEYS[1], ARGV[1])
  notify(KEYS[3], KEYS[4], KEYS[5], now, ARGV[5])
elseif ARGV[2] == '1' then
  leave(KEYS[1], KEYS[3], KEYS[4], KEYS[5], now, ARGV[1], ARGV[5])
end
-- Even an acquire that was carried out may arrive again: a queued waiter sends many requests. A command that frees memory comes
-- before the writes, so that a server short of memory allows them.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if released then
  return 0
end
if above then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  return -3
end
return -6
