-- Releases all permits in use.
--
-- Needs: format/alias.lua (alias_of), semaphore/queue.lua (clock), semaphore/permits.lua (UNPROVEN, add, delete_clients,
--        is_unproven, notify, reclaim)
-- KEYS  1 number of available permits   2 permits in use   3 clients
-- ARGV  1 the semaphore's channel   2 the other name with the same auxiliary keys, or ''
-- Returns  1 released   0 none was in use   {TWIN, key} the other name's key exists: the permits may be its
local alias = alias_of(ARGV[2])
if alias then
  return alias
end
local available, wrong = reclaim(KEYS[1], KEYS[2], KEYS[3], clock(), ARGV[1], '')
if not wrong and is_unproven(available, KEYS[2], KEYS[3]) then
  wrong = redis.error_reply(UNPROVEN)
end
if wrong then
  return wrong
end
local in_use = redis.call('ZCARD', KEYS[2])
if in_use == 0 then
  return 0
end
available = add(KEYS[1], in_use)
-- ZREMRANGEBYSCORE, not DEL: the script has run this command before, so that the user is known to have the right.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', 'inf')
delete_clients(KEYS[2], KEYS[3])
notify(ARGV[1], available)
return 1
