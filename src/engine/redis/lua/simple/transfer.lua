-- Releases the simple lock and, if no other client subscribes to it, acquires it for another owner of the same client.
--
-- KEYS  1 the lock   2 the tombstones
-- ARGV  1 the owner that releases it   2 the owner that acquires it   3 lease in ms   4 number of the client's own subscriptions
--       5 the lock's channel
-- Returns  -1 not held   -2 held by another owner   -3 granted
--          otherwise released only: the number of subscribers that were notified
-- The tombstones are read before anything is written: a key of another type is an error.
local undone = redis.call('ZSCORE', KEYS[2], ARGV[2] .. '#1')
-- The range is longer than any owner of distlock.
if redis.call('GETRANGE', KEYS[1], 0, 63) ~= ARGV[1] then
  return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
end
redis.call('DEL', KEYS[1])
local subscribers = redis.call('PUBLISH', ARGV[5], '0')
if subscribers > tonumber(ARGV[4]) or undone then
  return subscribers
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return -3
