-- Releases the simple lock. A partial release changes nothing: only the client of the owner counts its holds.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 hold count afterwards, 0 for none   3 the lock's channel
-- Returns  -1 not held   -2 held by another owner   -3 still held by this owner
--          otherwise released: the number of subscribers that were notified
-- The range below is longer than any owner of distlock.
if redis.call('GETRANGE', KEYS[1], 0, 63) == ARGV[1] then
  if ARGV[2] ~= '0' then
    return -3
  end
  redis.call('DEL', KEYS[1])
  return redis.call('PUBLISH', ARGV[3], '0')
end
return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
