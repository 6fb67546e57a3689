-- Takes back all permits that are out.
--
-- KEYS  1 how many are there   2 those that are out   3 clients
-- ARGV  1 the semaphore's channel   2 the other name with the same side keys, or nothing
-- Returns  1 some were out   0 none was   {TWIN, key} the other name's key exists: the permits may be its
local twin = twin_of(ARGV[2])
if twin then
  return twin
end
local there, wrong = reclaim(KEYS[1], KEYS[2], KEYS[3], clock(), ARGV[1], '')
if not wrong and is_unproven(there, KEYS[2], KEYS[3]) then
  wrong = redis.error_reply(UNPROVEN)
end
if wrong then
  return wrong
end
local out = redis.call('ZCARD', KEYS[2])
if out == 0 then
  return 0
end
there = add(KEYS[1], out)
-- Not deleted: to do it this way was allowed before.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', 'inf')
forget_clients(KEYS[2], KEYS[3])
tell(ARGV[1], there)
return 1
