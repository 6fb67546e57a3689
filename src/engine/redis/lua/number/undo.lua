-- Takes back a request whose outcome nobody knows: what it took, or that it may come.
--
-- KEYS  1 the number   2 what this client has done
-- ARGV  1 the request's number   2 how long to remember, in ms   3 the number's channel
-- Returns  -6 refused if it comes   otherwise given back, and how many listened
local listeners = give_back(KEYS[1], KEYS[2], ARGV[1], ARGV[3])
if listeners then
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  return listeners
end
if not recall(KEYS[2], ARGV[1]) then
  -- A write that frees, so that a server short of memory lets the next one through.
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZADD', KEYS[2], ARGV[1], ARGV[1] .. ':undone')
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
return -6
