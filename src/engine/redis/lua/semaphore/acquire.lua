-- Acquires permits, all or none, or queues for them.
--
-- Needs: format/alias.lua (alias_of), format/permits.lua (NO_END), semaphore/queue.lua (clock, enqueue, first, leave),
--        semaphore/permits.lua (UNPROVEN, extend, ids, is_unproven, lease_until, notify, read_available, reclaim,
--        record_client, sync_expiry)
-- KEYS  1 number of available permits   2 permits in use   3 the tombstones: zset of "<owner>#<attempt>"   4 the queue
--       5 expiry of each entry   6 clients
-- ARGV  1 owner   2 attempt: 1 for a fresh acquire, more with permits of its own   3 id prefix of its permits
--       4 number of permits   5 lease in ms   6 how long it stays queued without another request, in ms; 0 to not queue
--       7 the semaphore's channel   8 total to set if the number is missing, or ''
--       9 the other name with the same auxiliary keys, or ''
-- Returns  -3 granted   -4 undone before it arrived   -5 no permits to keep   {TWIN, key} the other name's key exists
--          otherwise the ms until the next permit in use expires, -1 if none does
local owner, now, lease = ARGV[1], clock(), tonumber(ARGV[5])
local available, wrong = read_available(KEYS[1], KEYS[2])
-- Only if a permit has expired: a server without memory refuses a script that frees nothing first.
if not wrong and redis.call('ZCOUNT', KEYS[2], '-inf', now) > 0 then
  available, wrong = reclaim(KEYS[1], KEYS[2], KEYS[6], now, ARGV[7], ARGV[9])
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
local had = extend(KEYS[1], KEYS[2], ARGV[3], wanted, now + lease)
if had == wanted then
  record_client(KEYS[6], ARGV[3], owner, lease)
  return -3
end
if had > 0 or ARGV[2] ~= '1' then
  -- Some of its permits are gone: a grant would invent them.
  return -5
end
local alias = alias_of(ARGV[9])
if alias then
  return alias
end
if is_unproven(available, KEYS[2], KEYS[6]) then
  return redis.error_reply(UNPROVEN)
end
if not available and ARGV[8] ~= '' then
  -- Permits may be in use even if the number was deleted.
  available = tonumber(ARGV[8]) - redis.call('ZCARD', KEYS[2])
  redis.call('SET', KEYS[1], string.format('%.0f', available))
end
local head, all = first(KEYS[4], KEYS[5], now), (available or 0) + redis.call('ZCARD', KEYS[2])
-- A first waiter that wants more permits than exist by now does not block the queue. Its owner number contains how many it
-- wants.
local waited, number = head, head and tonumber(string.match(head, ':(%-?%d+)$'))
if number and number % 65536 + 1 > all then
  head = nil
end
if available and available >= wanted and (not head or head == owner) then
  -- Adds nothing: a user without the right is stopped here, before the number is lowered for good.
  redis.call('ZADD', KEYS[2], 'XX', 0, '')
  available = redis.call('DECRBY', KEYS[1], wanted)
  lease_until(KEYS[2], ids(ARGV[3], wanted), now + lease)
  sync_expiry(KEYS[1], KEYS[2])
  record_client(KEYS[6], ARGV[3], owner, lease)
  if waited and leave(KEYS[4], KEYS[5], owner) then
    -- The next waiter may find enough permits for itself.
    notify(ARGV[7], available)
  end
  return -3
end
-- A waiter that wants more permits than exist would block all others for as long as it likes.
if ARGV[6] ~= '0' and wanted > all then
  if leave(KEYS[4], KEYS[5], owner) then
    notify(ARGV[7], available)
  end
elseif ARGV[6] ~= '0' then
  enqueue(KEYS[4], KEYS[5], owner, now, tonumber(ARGV[6]))
end
local soonest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
-- NO_END is Redisson's score for a permit without an expiry.
if not soonest or tonumber(soonest) >= NO_END then
  return -1
end
return tonumber(soonest) - now
