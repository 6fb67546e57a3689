-- Releases an owner's permits; an owner without permits leaves the queue.
--
-- Needs: semaphore/queue.lua (clock, leave), semaphore/permits.lua (notify, owned, reclaim, release_owned)
-- KEYS  1 number of available permits   2 permits in use   3 the queue   4 expiry of each entry   5 clients
-- ARGV  1 owner   2 hold count afterwards, 0 for none   3 id prefix of its permits   4 the semaphore's channel
--       5 number of permits it was granted   6 the other name with the same auxiliary keys, or ''
-- Returns  -1  lost, in whole or in part: the permits it still had are released
--          -3  it still has all of them
--          otherwise released: the number of subscribers that were notified
local available, wrong = reclaim(KEYS[1], KEYS[2], KEYS[5], clock(), ARGV[4], ARGV[6])
if wrong then
  return wrong
end
if ARGV[2] ~= '0' then
  -- The store does not count holds.
  return #owned(KEYS[2], ARGV[3], ARGV[5]) == tonumber(ARGV[5]) and -3 or -1
end
local subscribers, had = release_owned(KEYS[1], KEYS[2], KEYS[5], ARGV[3], ARGV[5], ARGV[4])
if not subscribers and leave(KEYS[3], KEYS[4], ARGV[1]) then
  notify(ARGV[4], available)
end
return subscribers and had == tonumber(ARGV[5]) and subscribers or -1
