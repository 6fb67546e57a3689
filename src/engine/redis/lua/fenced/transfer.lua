-- Releases the fenced lock and, if no other client subscribes to it, acquires it for another owner of the same client.
--
-- Needs: fenced/token.lua (new_token)
-- KEYS  1 the lock   2 the tombstones   3 the last token
-- ARGV  1 the owner that releases it   2 the owner that acquires it   3 lease in ms   4 number of the client's own subscriptions
--       5 the lock's channel   6 the greatest token the client has seen
-- Returns  -1 not held   -2 held by another owner   granted: its token, in a list
--          otherwise released only: the number of subscribers that were notified
-- The tombstones are read before anything is written: a key of another type is an error.
local undone = redis.call('ZSCORE', KEYS[2], ARGV[2] .. '#1')
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
end
local subscribers = redis.call('PUBLISH', ARGV[5], '0')
if subscribers > tonumber(ARGV[4]) or undone then
  return subscribers
end
local token = new_token(KEYS[3], ARGV[6])
if not token then
  return subscribers
end
redis.call('HSET', KEYS[1], ARGV[2], '1')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {token}
