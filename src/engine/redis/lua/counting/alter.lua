-- Changes a semaphore's number of permits, once for each request.
--
-- KEYS  1 how many are there   2 what this client has done
-- ARGV  1 the request's number   2 the least that is not settled   3 how long to remember, in ms   4 the semaphore's channel
--       5 add (so many, or fewer), drain, forget, once (so many, if nobody has said) or set   6 how many
--       7 the other name with the same side keys, or nothing
-- Returns  {TWIN, key}  the other name's key exists
--          -4  it comes too late
--          {the number before, the number after}, nil for a missing number
local known = recall(KEYS[2], ARGV[1])
if known then
  return known
end
local before, wrong = stored_number(KEYS[1])
if wrong then
  return wrong
end
local twin = not before and ARGV[5] ~= 'forget' and twin_of(ARGV[7])
if twin then
  return twin
end
local after, many = before, tonumber(ARGV[6])
if ARGV[5] == 'add' and math.abs((before or 0) + many) <= 9007199254740991 then
  after = (before or 0) + many
elseif ARGV[5] == 'drain' then
  -- Fewer than none are not drained: that would make some up.
  after = before and math.min(before, 0)
elseif ARGV[5] == 'forget' then
  after = nil
elseif ARGV[5] == 'once' then
  after = before or many
elseif ARGV[5] == 'set' then
  after = many
end
local answer = alter(KEYS[1], KEYS[2], before, after, ARGV[1], ARGV[2], ARGV[3])
-- Redisson's word is how many there are; its waiters cannot stand a negative one.
if after and after > 0 and after > (before or 0) then
  redis.call('PUBLISH', ARGV[4], text(after))
end
return answer
