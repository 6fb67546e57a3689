-- Reports how many permits there are. Reads only: late permits count as available, and the next acquire takes them back.
--
-- KEYS  1 the number of available permits   2 the permits that are out   3 clients
-- ARGV  1 the other name with the same side keys, or nothing
-- Returns  {TWIN, key}  the other name's key exists, and this one has no number: the permits are not its own
--          0; how many are available, or nil if nobody has said; how many are out
local there, wrong = available(KEYS[1], KEYS[2])
local twin = not there and not wrong and twin_of(ARGV[1])
if twin then
  return twin
end
if not wrong and is_unproven(there, KEYS[2], KEYS[3]) then
  wrong = redis.error_reply(UNPROVEN)
end
if wrong then
  return wrong
end
local out, late = redis.call('ZCARD', KEYS[2]), redis.call('ZCOUNT', KEYS[2], '-inf', clock())
return {0, there and string.format('%.0f', there + late) or false, out - late}
