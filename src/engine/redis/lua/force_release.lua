-- Takes the plain lock from whoever holds it.
--
-- KEYS  1 the lock   2 its channel
-- Returns  1 taken   0 it was free
-- A key of another type is an error, not a lock to break.
if redis.call('HLEN', KEYS[1]) == 0 then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return 1
