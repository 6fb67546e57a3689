-- Releases the fair lock, whichever owner holds it.
--
-- Needs: format/lock.lua (is_lock), fair/queue.lua (clock, notify)
-- KEYS  1 the lock   2 the queue   3 when Redisson skips each waiter   4 expiry of each distlock waiter
-- ARGV  1 its channel
-- Returns  1 released   0 it was free
-- A key of another type, or a hash that is no lock, is an error.
if redis.call('HLEN', KEYS[1]) == 0 then
  return 0
end
if not is_lock(KEYS[1]) then
  return redis.error_reply('WRONGTYPE a hash that is no lock')
end
redis.call('DEL', KEYS[1])
notify(KEYS[2], KEYS[3], KEYS[4], clock(), ARGV[1])
return 1
