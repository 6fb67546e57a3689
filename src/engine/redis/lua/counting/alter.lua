-- Changes a semaphore's number of permits, once for each request.
--
-- Needs: format/number.lua (stored_number), number/dedup.lua (alter, recorded_outcome, text), format/alias.lua (alias_of)
-- KEYS  1 number of available permits   2 this client's idempotency keys
-- ARGV  1 number of the request   2 acked_below   3 TTL of the idempotency keys in ms   4 the semaphore's channel
--       5 add (N, may be negative), drain, forget, once (N, if the number is missing) or set (N)   6 N
--       7 the other name with the same auxiliary keys, or ''
-- Returns  {TWIN, key}  the other name's key exists
--          -4  undone, or below an earlier acked_below
--          {the number before, the number after}, nil for a missing number
local known = recorded_outcome(KEYS[2], ARGV[1])
if known then
  return known
end
local before, wrong = stored_number(KEYS[1])
if wrong then
  return wrong
end
local alias = not before and ARGV[5] ~= 'forget' and alias_of(ARGV[7])
if alias then
  return alias
end
local after, many = before, tonumber(ARGV[6])
if ARGV[5] == 'add' and math.abs((before or 0) + many) <= 9007199254740991 then
  after = (before or 0) + many
elseif ARGV[5] == 'drain' then
  -- A negative number is not drained: that would create permits.
  after = before and math.min(before, 0)
elseif ARGV[5] == 'forget' then
  after = nil
elseif ARGV[5] == 'once' then
  after = before or many
elseif ARGV[5] == 'set' then
  after = many
end
local reply = alter(KEYS[1], KEYS[2], before, after, ARGV[1], ARGV[2], ARGV[3])
-- Redisson's message is the number of available permits; its waiters cannot handle a negative one.
if after and after > 0 and after > (before or 0) then
  redis.call('PUBLISH', ARGV[4], text(after))
end
return reply
