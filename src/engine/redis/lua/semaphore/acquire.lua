-- Takes permits, all or none, or stands in line for them.
--
-- KEYS  1 how many are there   2 those that are out   3 the undone acquires: zset of "<owner>#<attempt>"   4 the line   5 alive
--       6 clients
-- ARGV  1 owner   2 attempt: 1 from zero, more with permits of its own   3 what its permits' ids begin with   4 how many
--       5 lease in ms   6 how long it waits if it does not ask again, in ms; 0 if nobody is to wait for it
--       7 the semaphore's channel   8 of how many, if nobody has said; or nothing
--       9 the other name with the same side keys, or nothing
-- Returns  -3 granted   -4 undone before it came   -5 nothing to re-enter   {TWIN, key} the other name's key exists
--          otherwise how many ms until one comes back by itself, -1 if none does
local owner, now, lease = ARGV[1], clock(), tonumber(ARGV[5])
local there, wrong = available(KEYS[1], KEYS[2])
-- Only where there is something to take back: a server without memory refuses who frees nothing first.
if not wrong and redis.call('ZCOUNT', KEYS[2], '-inf', now) > 0 then
  there, wrong = reclaim(KEYS[1], KEYS[2], KEYS[6], now, ARGV[7], ARGV[9])
end
if redis.call('ZSCORE', KEYS[3], owner .. '#' .. ARGV[2]) then
  return -4
end
if wrong then
  return wrong
end
-- Read before anything is written: a key of another type is an error.
redis.call('HGET', KEYS[6], '')
local wanted = tonumber(ARGV[4])
local had = keep(KEYS[1], KEYS[2], ARGV[3], wanted, now + lease)
if had == wanted then
  note(KEYS[6], ARGV[3], owner, lease)
  return -3
end
if had > 0 or ARGV[2] ~= '1' then
  -- With permits that have gone: granting it would make them up.
  return -5
end
local twin = twin_of(ARGV[9])
if twin then
  return twin
end
if is_unproven(there, KEYS[2], KEYS[6]) then
  return redis.error_reply(UNPROVEN)
end
if not there and ARGV[8] ~= '' then
  -- Some may be out though somebody has deleted the number.
  there = tonumber(ARGV[8]) - redis.call('ZCARD', KEYS[2])
  redis.call('SET', KEYS[1], string.format('%.0f', there))
end
local head, all = first(KEYS[4], KEYS[5], now), (there or 0) + redis.call('ZCARD', KEYS[2])
-- One who wants more than there are by now is not obeyed; how many is in its number.
local waited, number = head, head and tonumber(string.match(head, ':(%-?%d+)$'))
if number and number % 65536 + 1 > all then
  head = nil
end
if there and there >= wanted and (not head or head == owner) then
  -- None, so that one who may not is stopped before they are taken from the number, and for good.
  redis.call('ZADD', KEYS[2], 'XX', 0, '')
  there = redis.call('DECRBY', KEYS[1], wanted)
  lease_until(KEYS[2], ids(ARGV[3], wanted), now + lease)
  together(KEYS[1], KEYS[2])
  note(KEYS[6], ARGV[3], owner, lease)
  if waited and leave(KEYS[4], KEYS[5], owner) then
    -- Who stands behind it may find enough for itself.
    tell(ARGV[7], there)
  end
  return -3
end
-- Who wants more than there are in all would keep everybody out for as long as it likes.
if ARGV[6] ~= '0' and wanted > all then
  if leave(KEYS[4], KEYS[5], owner) then
    tell(ARGV[7], there)
  end
elseif ARGV[6] ~= '0' then
  stand(KEYS[4], KEYS[5], owner, now, tonumber(ARGV[6]))
end
local soonest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
-- Redisson's way to say that it has no end.
if not soonest or tonumber(soonest) >= NO_END then
  return -1
end
return tonumber(soonest) - now
