-- Undoes a writer's acquire whose outcome is unknown: a hold, or an entry of the waiting writers.
--
-- Needs: rw/holds.lua (clock, expire_with, readers)
-- KEYS  1 the lock   2 the tombstones: zset of "<owner>#<attempt>" by expiry in ms   3 the waiting writers
-- ARGV  1 owner   2 attempt   3 hold count before the acquire   4 TTL of the tombstone in ms
--       5 the lock's channel   6 prefix of the readers' timeout keys
-- Returns  -3 lowered and still held, with a tombstone   -6 nothing undone, with a tombstone
--          otherwise released: the number of subscribers that were notified
-- With a tombstone, the acquire is refused if it still arrives.
local writer, now = ARGV[1] .. ':write', clock()
-- A key of another type is no error here: the acquire was refused because of it, but it may still arrive later.
local held = redis.pcall('HGET', KEYS[1], writer)
held = type(held) == 'string' and held or nil
if ARGV[2] == '1' and held then
  -- A fresh acquire that was carried out cannot arrive again, so that it needs no tombstone.
  redis.call('HDEL', KEYS[1], writer)
  local count, _, longest = readers(KEYS[1], ARGV[6])
  if count == 0 then
    redis.call('DEL', KEYS[1])
  else
    redis.call('HSET', KEYS[1], 'mode', 'read')
    expire_with(KEYS[1], longest)
  end
  return redis.call('PUBLISH', ARGV[5], '1')
end
if ARGV[2] == '1' and redis.call('ZREM', KEYS[3], ARGV[1]) == 1
    and redis.call('ZCOUNT', KEYS[3], '(' .. now, '+inf') == 0
    and redis.pcall('HGET', KEYS[1], 'mode') ~= 'write' then
  -- Readers of distlock that waited for this writer alone can stop waiting. Nothing was released, so that the message is one
  -- that Redisson's waiters and monitors do not take for a release.
  redis.call('PUBLISH', ARGV[5], '2')
end
-- A command that frees memory comes before the writes, so that a server short of memory allows them.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if held and tonumber(held) > tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[1], writer, ARGV[3])
  return -3
end
return -6
