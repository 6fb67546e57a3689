-- Gives the plain lock back and, if only we listen for it, takes it for another owner of ours.
--
-- KEYS  1 the lock   2 the undone acquires
-- ARGV  1 who gives it back   2 who gets it   3 lease in ms   4 how many of the listeners are us
--       5 the lock's channel
-- Returns  -1 nobody holds it   -2 somebody else does   -3 granted
--          otherwise released only, and how many listened
-- Read before anything is written: marks of another type are an error.
local undone = redis.call('ZSCORE', KEYS[2], ARGV[2] .. '#1')
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
end
local listeners = redis.call('PUBLISH', ARGV[5], '0')
if listeners > tonumber(ARGV[4]) or undone then
  return listeners
end
redis.call('HSET', KEYS[1], ARGV[2], '1')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return -3
