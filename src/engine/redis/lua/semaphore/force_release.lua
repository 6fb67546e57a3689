-- Releases all permits in use.
--
-- KEYS  1 number of available permits   2 permits in use   3 clients
-- ARGV  1 the semaphore's channel   2 the other name with the same side keys, or ''
-- Returns  1 released   0 none was in use   {TWIN, key} the other name's key exists: the permits may be its
local alias = alias_of(ARGV[2])
if alias then
  return alias
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
-- ZREMRANGEBYSCORE, not DEL: the script has run this command before, so that the user is known to have the right.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', 'inf')
forget_clients(KEYS[2], KEYS[3])
notify(ARGV[1], there)
return 1
