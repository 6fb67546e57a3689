-- Undoes an acquire of permits whose outcome is unknown: permits, or a queue entry.
--
-- Needs: semaphore/queue.lua (clock, leave), semaphore/permits.lua (notify, reclaim, release_owned)
-- KEYS  1 number of available permits   2 permits in use   3 the tombstones: zset of "<owner>#<attempt>" by expiry in ms
--       4 the queue   5 expiry of each entry   6 clients
-- ARGV  1 owner   2 attempt   3 id prefix of its permits   4 TTL of the tombstone in ms   5 the semaphore's channel
--       6 number of permits it wanted   7 the other name with the same auxiliary keys, or ''
-- Returns  -6 nothing released, with a tombstone   otherwise released: the number of subscribers that were notified
-- With a tombstone, the acquire is refused if it still arrives.
local now = clock()
-- A key of another type is no error here: the acquire was refused because of it, but it may still arrive later.
local available, wrong = nil, type(redis.pcall('GETRANGE', KEYS[1], 0, 0)) == 'table' or type(redis.pcall('ZCARD', KEYS[2])) == 'table'
if not wrong then
  available, wrong = reclaim(KEYS[1], KEYS[2], KEYS[6], now, ARGV[5], ARGV[7])
end
if not wrong and ARGV[2] == '1' then
  local subscribers = release_owned(KEYS[1], KEYS[2], KEYS[6], ARGV[3], ARGV[6], ARGV[5])
  if subscribers then
    -- A fresh acquire that was carried out cannot arrive again, so that it needs no tombstone.
    return subscribers
  end
end
if ARGV[2] == '1' and leave(KEYS[4], KEYS[5], ARGV[1]) then
  notify(ARGV[5], available)
end
-- A command that frees memory comes before the writes, so that a server short of memory allows them.
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return -6
