-- Undoes a request whose outcome is unknown: returns what it took, and refuses the request if it still arrives.
--
-- Needs: number/dedup.lua (recorded_outcome, release_taken)
-- KEYS  1 the number   2 this client's idempotency keys
-- ARGV  1 number of the request   2 TTL of the idempotency keys in ms   3 the counter's channel
-- Returns  -6 nothing returned: refused if it still arrives
--          otherwise returned: the number of subscribers that were notified
local subscribers = release_taken(KEYS[1], KEYS[2], ARGV[1], ARGV[3])
if subscribers then
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  return subscribers
end
if not recorded_outcome(KEYS[2], ARGV[1]) then
  -- A command that frees memory, so that a server short of memory allows the next write.
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZADD', KEYS[2], ARGV[1], ARGV[1] .. ':undone')
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
return -6
