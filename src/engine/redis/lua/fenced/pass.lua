-- Gives the fenced lock back and, if only we listen for it, takes it for another owner of ours.
--
-- KEYS  1 the lock   2 the undone acquires   3 the last token
-- ARGV  1 who gives it back   2 who gets it   3 lease in ms   4 how many of the listeners are us
--       5 the lock's channel   6 the greatest token the client has seen
-- Returns  -1 nobody holds it   -2 somebody else does   granted: its token, in a list
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
local token = new_token(KEYS[3], ARGV[6])
if not token then
  return listeners
end
redis.call('HSET', KEYS[1], ARGV[2], '1')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {token}
