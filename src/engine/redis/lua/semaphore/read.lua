-- Reports the number of permits. It only reads: expired permits count as available, and the next acquire reclaims them.
--
-- Needs: format/alias.lua (alias_of), semaphore/queue.lua (clock), semaphore/permits.lua (UNPROVEN, is_unproven,
--        read_available)
-- KEYS  1 number of available permits   2 permits in use   3 clients
-- ARGV  1 the other name with the same auxiliary keys, or ''
-- Returns  {TWIN, key}  the other name's key exists, and this one has no number: the permits are not its own
--          {0; number of available permits, or nil if it is missing; number of permits in use}
local available, wrong = read_available(KEYS[1], KEYS[2])
local alias = not available and not wrong and alias_of(ARGV[1])
if alias then
  return alias
end
if not wrong and is_unproven(available, KEYS[2], KEYS[3]) then
  wrong = redis.error_reply(UNPROVEN)
end
if wrong then
  return wrong
end
local in_use, expired = redis.call('ZCARD', KEYS[2]), redis.call('ZCOUNT', KEYS[2], '-inf', clock())
return {0, available and string.format('%.0f', available + expired) or false, in_use - expired}
