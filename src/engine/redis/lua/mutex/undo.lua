-- Undoes an acquire of the plain lock whose outcome is unknown.
--
-- KEYS  1 the lock   2 the tombstones: zset of "<owner>#<attempt>" by expiry in ms
-- ARGV  1 owner   2 attempt   3 hold count before the acquire   4 TTL of the tombstone in ms
--       5 the lock's channel
-- Returns  -3 lowered and still held, with a tombstone   -6 nothing undone, with a tombstone
--          otherwise released: the number of subscribers that were notified
-- With a tombstone, the acquire is refused if it still arrives.
local remaining_count = tonumber(ARGV[3])
-- A key of another type is no error here: the acquire was refused because of it, but it may still arrive later.
local held = redis.pcall('HGET', KEYS[1], ARGV[1])
local above = type(held) == 'string' and tonumber(held) > remaining_count
if above and remaining_count == 0 then
  -- A fresh acquire that was carried out cannot arrive again, so that it needs no tombstone.
  redis.call('HDEL', KEYS[1], ARGV[1])
  return redis.call('PUBLISH', ARGV[5], '0')
end
-- Within a hold that continues, the count does not show whether the acquire was carried out: other holds may have been released
-- meanwhile. A command that frees memory comes before the writes, so that a server short of memory allows them.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if above then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  return -3
end
return -6
