-- Returns the permits of a take whose reply was never received; a request that has taken nothing leaves the queue.
--
-- Needs: format/number.lua (stored_number), number/dedup.lua (release_taken, text), semaphore/queue.lua (leave)
-- KEYS  1 number of available permits   2 this client's idempotency keys   3 the queue   4 expiry of each entry
-- ARGV  1 number of the request or waiter   2 the same as an owner   3 hold count afterwards, 0 for none
--       4 the semaphore's channel
-- Returns  -1 it had taken nothing   otherwise returned: the number of subscribers that were notified
if ARGV[3] ~= '0' then
  return -1
end
local subscribers = release_taken(KEYS[1], KEYS[2], ARGV[1], ARGV[4])
if subscribers then
  return subscribers
end
local kind = redis.call('TYPE', KEYS[1])['ok']
local available = kind == 'string' and stored_number(KEYS[1])
if leave(KEYS[3], KEYS[4], ARGV[2]) and (available or 0) > 0 then
  redis.call('PUBLISH', ARGV[4], text(available))
end
return -1
