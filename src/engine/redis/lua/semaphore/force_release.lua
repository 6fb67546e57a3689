-- Takes back all permits that are out.
--
-- KEYS  1 how many are there   2 those that are out
-- ARGV  1 the semaphore's channel
-- Returns  1 some were out   0 none was
local _, wrong = reclaim(KEYS[1], KEYS[2], clock(), ARGV[1])
if wrong then
  return wrong
end
local out = redis.call('ZCARD', KEYS[2])
if out == 0 then
  return 0
end
local there = add(KEYS[1], out)
-- Not deleted: to do it this way was allowed before.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', 'inf')
tell(ARGV[1], there)
return 1
