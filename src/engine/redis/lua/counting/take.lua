-- Takes permits that are nobody's then, all or none, or stands in line for them.
--
-- KEYS  1 how many are there   2 what this client has done   3 the line   4 alive
-- ARGV  1 the request's number   2 the least that is not settled   3 how long to remember, in ms   4 the semaphore's channel
--       5 who stands in line   6 how many   7 how long it waits if it does not ask again, in ms; 0 if nobody is to wait for it
--       8 the other name with the same side keys, or nothing
-- Returns  {TWIN, key} the other name's key exists   -1 there are too few, or others are first   -3 taken   -4 it comes too late
local known = recall(KEYS[2], ARGV[1])
if known then
  return known
end
local there, wrong = stored_number(KEYS[1])
if wrong then
  return wrong
end
local twin = twin_of(ARGV[8])
if twin then
  return twin
end
local now, wanted = clock(), tonumber(ARGV[6])
local head = first(KEYS[3], KEYS[4], now)
if there and there >= wanted and (not head or head == ARGV[5]) then
  may_note(KEYS[2])
  settle(KEYS[2], ARGV[2], ARGV[3])
  local stood = head and leave(KEYS[3], KEYS[4], ARGV[5])
  -- Whatever may be denied comes before: what is taken and cannot be given back would be gone for good.
  there = redis.call('DECRBY', KEYS[1], wanted)
  note(KEYS[2], ARGV[1], 'took:' .. ARGV[6])
  if stood and there > 0 then
    -- Who stands behind it may find enough for itself.
    redis.call('PUBLISH', ARGV[4], text(there))
  end
  return -3
end
if ARGV[7] ~= '0' then
  stand(KEYS[3], KEYS[4], ARGV[5], now, tonumber(ARGV[7]))
end
return -1
