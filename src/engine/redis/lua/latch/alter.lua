-- Changes a latch's count, once for each request.
--
-- KEYS  1 the count   2 what this client has done
-- ARGV  1 the request's number   2 the least that is not settled   3 how long to remember, in ms   4 the latch's channel
--       5 once (so many, if there is no count), down (one less, and none at zero) or forget   6 how many
-- Returns  -4 it comes too late   otherwise what there was and what there is, nil where there is nothing
local known = recall(KEYS[2], ARGV[1])
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
  -- A number below one is another program's, and stays: no latch has such a count.
  if before == 1 then
    after = nil
  elseif before and before > 1 then
    after = before - 1
  end
elseif ARGV[5] == 'forget' then
  after = nil
end
local answer = alter(KEYS[1], KEYS[2], before, after, ARGV[1], ARGV[2], ARGV[3])
-- Redisson's words: 1 closes its waiters' gates, 0 opens them.
if after and not before then
  redis.call('PUBLISH', ARGV[4], '1')
elseif before and not after then
  redis.call('PUBLISH', ARGV[4], '0')
end
return answer
