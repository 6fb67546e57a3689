-- Gives back an owner's permits; one that has none waits no longer.
--
-- KEYS  1 how many are there   2 those that are out   3 the line   4 alive   5 clients
-- ARGV  1 owner   2 0, or how often it still holds them   3 what its permits' ids begin with   4 the semaphore's channel
--       5 how many it was granted   6 the other name with the same side keys, or nothing
-- Returns  -1  lost, in whole or in part: what it still had is released
--          -3  it has them still
--          otherwise released, and how many listened
local there, wrong = reclaim(KEYS[1], KEYS[2], KEYS[5], clock(), ARGV[4], ARGV[6])
if wrong then
  return wrong
end
if ARGV[2] ~= '0' then
  -- It is not counted here how often.
  return #owned(KEYS[2], ARGV[3], ARGV[5]) == tonumber(ARGV[5]) and -3 or -1
end
local listeners, had = give_back(KEYS[1], KEYS[2], KEYS[5], ARGV[3], ARGV[5], ARGV[4])
if not listeners and leave(KEYS[3], KEYS[4], ARGV[1]) then
  tell(ARGV[4], there)
end
return listeners and had == tonumber(ARGV[5]) and listeners or -1
