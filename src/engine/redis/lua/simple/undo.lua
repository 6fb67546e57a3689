-- Undoes an acquire of the simple lock whose outcome is unknown.
--
-- KEYS  1 the lock   2 the tombstones: zset of "<owner>#<attempt>" by expiry in ms
-- ARGV  1 owner   2 attempt   3 TTL of the tombstone in ms   4 the lock's channel
-- Returns  -6 nothing undone, with a tombstone   otherwise released: the number of subscribers that were notified
-- With a tombstone, the acquire is refused if it still arrives.
-- A key of another type is no error here: the acquire was refused because of it, but it may still arrive later.
if ARGV[2] == '1' and redis.pcall('GETRANGE', KEYS[1], 0, 63) == ARGV[1] then
  -- A fresh acquire that was carried out cannot arrive again, so that it needs no tombstone.
  redis.call('DEL', KEYS[1])
  return redis.call('PUBLISH', ARGV[4], '0')
end
-- A command that frees memory comes before the writes, so that a server short of memory allows them.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[3]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return -6
