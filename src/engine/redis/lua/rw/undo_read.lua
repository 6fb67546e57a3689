-- Undoes a reader's acquire whose outcome is unknown.
--
-- Needs: rw/holds.lua (clock, delete_timeouts, expire_with, extend_reader, readers, remaining_ttl)
-- KEYS  1 the lock   2 the tombstones: zset of "<owner>#<attempt>" by expiry in ms
-- ARGV  1 owner   2 attempt   3 hold count before the acquire   4 TTL of the tombstone in ms
--       5 the lock's channel   6 prefix of the readers' timeout keys
-- Returns  -3 lowered and still held, with a tombstone   -6 nothing undone, with a tombstone
--          otherwise released: the number of subscribers that were notified
-- With a tombstone, the acquire is refused if it still arrives.
-- A key of another type is no error here: the acquire was refused because of it, but it may still arrive later.
local held = redis.pcall('HGET', KEYS[1], ARGV[1])
held = type(held) == 'string' and held or nil
local own_ttl, each = remaining_ttl(ARGV[6], ARGV[1], held)
if ARGV[2] == '1' and own_ttl > 0 then
  -- A fresh acquire that was carried out cannot arrive again, so that it needs no tombstone.
  redis.call('HDEL', KEYS[1], ARGV[1])
  delete_timeouts(ARGV[6], ARGV[1], 1, held)
  if redis.call('HGET', KEYS[1], 'mode') ~= 'read' then
    return 0
  end
  local count, _, longest = readers(KEYS[1], ARGV[6])
  if count > 0 then
    expire_with(KEYS[1], longest)
    return 0
  end
  redis.call('DEL', KEYS[1])
  return redis.call('PUBLISH', ARGV[5], '0')
end
local now, count = clock(), tonumber(ARGV[3])
local above = own_ttl > 0 and tonumber(held) > count
-- A command that frees memory comes before the writes, so that a server short of memory allows them.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if above then
  delete_timeouts(ARGV[6], ARGV[1], count + 1, held)
end
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if above then
  extend_reader(ARGV[6], ARGV[1], count, own_ttl, each)
  redis.call('HSET', KEYS[1], ARGV[1], count)
  return -3
end
return -6
