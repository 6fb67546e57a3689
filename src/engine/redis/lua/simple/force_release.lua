-- Releases the simple lock, whichever owner holds it.
--
-- Needs: format/owner.lua (is_owner)
-- KEYS  1 the lock
-- ARGV  1 its channel
-- Returns  1 released   0 it was free
-- A key of another type, or a value that is no owner in the format of distlock, is an error: it may be anything.
local holder = redis.call('GETRANGE', KEYS[1], 0, 63)
if holder == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
if is_owner(holder) then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[1], '0')
  return 1
end
return redis.error_reply('WRONGTYPE a value that is no lock of ours')
