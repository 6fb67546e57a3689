-- Takes permits, all or none, or queues for them. Permits that were taken have no owner.
--
-- Needs: format/number.lua (stored_number), number/dedup.lua (check_recordable, discard_acked, record, recorded_outcome,
--        text), format/alias.lua (alias_of), semaphore/queue.lua (clock, enqueue, first, leave)
-- KEYS  1 number of available permits   2 this client's idempotency keys   3 the queue   4 expiry of each entry
-- ARGV  1 number of the request   2 acked_below   3 TTL of the idempotency keys in ms   4 the semaphore's channel
--       5 the waiter   6 number of permits   7 how long it stays queued without another request, in ms; 0 to not queue
--       8 the other name with the same auxiliary keys, or ''
-- Returns  {TWIN, key} the other name's key exists   -1 too few, or others are first   -3 taken
--          -4 undone, or below an earlier acked_below
local known = recorded_outcome(KEYS[2], ARGV[1])
if known then
  return known
end
local available, wrong = stored_number(KEYS[1])
if wrong then
  return wrong
end
local alias = alias_of(ARGV[8])
if alias then
  return alias
end
local now, wanted = clock(), tonumber(ARGV[6])
local head = first(KEYS[3], KEYS[4], now)
if available and available >= wanted and (not head or head == ARGV[5]) then
  check_recordable(KEYS[2])
  discard_acked(KEYS[2], ARGV[2], ARGV[3])
  local was_queued = head and leave(KEYS[3], KEYS[4], ARGV[5])
  -- Every command that may be denied comes first: permits that were taken and cannot be returned would be lost for good.
  available = redis.call('DECRBY', KEYS[1], wanted)
  record(KEYS[2], ARGV[1], 'took:' .. ARGV[6])
  if was_queued and available > 0 then
    -- The next waiter may find enough permits for itself.
    redis.call('PUBLISH', ARGV[4], text(available))
  end
  return -3
end
if ARGV[7] ~= '0' then
  enqueue(KEYS[3], KEYS[4], ARGV[5], now, tonumber(ARGV[7]))
end
return -1
