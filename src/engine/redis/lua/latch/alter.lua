-- Changes a latch's count, once for each request.
--
-- Needs: format/number.lua (stored_number), number/dedup.lua (alter, recorded_outcome)
-- KEYS  1 the count   2 this client's idempotency keys
-- ARGV  1 number of the request   2 acked_below   3 TTL of the idempotency keys in ms   4 the latch's channel
--       5 once (N, if there is no count), down (one less, and no count at zero) or forget   6 N
-- Returns  -4 undone, or below an earlier acked_below   otherwise the count before and after, nil for a missing count
local known = recorded_outcome(KEYS[2], ARGV[1])
if known then
  return known
end
local before, wrong = stored_number(KEYS[1])
if wrong then
  return wrong
end
local after = before
if ARGV[5] == 'once' then
  after = before or tonumber(ARGV[6])
elseif ARGV[5] == 'down' then
  -- A count below one belongs to another program, and stays: no latch has such a count.
  if before == 1 then
    after = nil
  elseif before and before > 1 then
    after = before - 1
  end
elseif ARGV[5] == 'forget' then
  after = nil
end
local reply = alter(KEYS[1], KEYS[2], before, after, ARGV[1], ARGV[2], ARGV[3])
-- Redisson's messages: 1 makes its waiters wait, 0 lets them continue.
if after and not before then
  redis.call('PUBLISH', ARGV[4], '1')
elseif before and not after then
  redis.call('PUBLISH', ARGV[4], '0')
end
return reply
