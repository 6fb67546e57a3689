-- Releases the plain lock, whichever owner holds it.
--
-- Needs: format/lock.lua (is_lock)
-- KEYS  1 the lock
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
redis.call('PUBLISH', ARGV[1], '0')
return 1
