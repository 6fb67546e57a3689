-- Prelude of the scripts of counters without an owner: the idempotency keys of a client, so that no request is carried out
-- twice.
--
-- dedup is private to distlock, one zset for each client. A member is "<request>:<outcome>", with the number of the request as
-- score. The member "below" has the score N - 0.5: requests below N are refused. An outcome is the number before
-- and after the change, the number of permits that were taken, or that the request is undone.
--
-- Needs: format/number.lua (stored_number)
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
local function text(value)
  return string.format('%.0f', value)
end

-- Returns the reply to a request that has arrived before, or arrives too late.
local function recorded_outcome(dedup, request)
  local below = redis.call('ZSCORE', dedup, 'below')
  if below and tonumber(request) < tonumber(below) then
    return -4
  end
  local known = redis.call('ZRANGEBYSCORE', dedup, request, request)[1]
  if not known then
    return nil
  end
  local outcome, after = string.match(string.sub(known, #request + 2), '^(%-?%w+):?(%-?%w*)$')
  if outcome == 'undone' then
    return -4
  elseif outcome == 'took' then
    return -3, tonumber(after)
  end
  return {tonumber(outcome) or false, tonumber(after) or false}
end

-- Writes nothing, but fails for a user without the right to write, and on a server short of memory, before anything is counted.
local function check_recordable(dedup)
  redis.call('ZADD', dedup, 'XX', 0, '')
end

-- Forgets the requests below `acked_below`. Runs before anything is counted: if any of it is denied, nothing was counted yet,
-- and otherwise the outcome can be recorded afterwards.
local function discard_acked(dedup, acked_below, ms)
  local below = string.format('%.1f', tonumber(acked_below) - 0.5)
  -- A command that frees memory comes before the writes, so that a server short of memory allows them.
  redis.call('ZREMRANGEBYSCORE', dedup, '-inf', '(' .. below)
  redis.call('ZADD', dedup, 'GT', below, 'below')
  redis.call('PEXPIRE', dedup, ms)
end

-- Records the outcome of a request.
local function record(dedup, request, outcome)
  redis.call('ZADD', dedup, request, request .. ':' .. outcome)
end

-- Carries out a request: sets the number to `after`, or deletes it if that is nil.
local function alter(key, dedup, before, after, request, acked_below, ms)
  local words = {before and text(before) or 'none', after and text(after) or 'none'}
  if after and not before then
    check_recordable(dedup)
  end
  discard_acked(dedup, acked_below, ms)
  if before and not after then
    redis.call('DEL', key)
  elseif before and before ~= after then
    -- The number is not written anew, since it may have an expiry.
    redis.call('INCRBY', key, text(after - before))
  elseif after and not before then
    redis.call('SET', key, text(after))
  end
  record(dedup, request, table.concat(words, ':'))
  return {before or false, after or false}
end

-- Returns the permits that a request took, and marks the request as undone. Returns the number of subscribers that were
-- notified, or nil if the request took none.
local function release_taken(key, dedup, request, channel)
  local _, count = recorded_outcome(dedup, request)
  if not count then
    return nil
  end
  local kind = redis.call('TYPE', key)['ok']
  local number = kind == 'string' and stored_number(key)
  -- Removes nothing: a user without the right is stopped here, and a server short of memory allows the next write.
  redis.call('ZREM', dedup, '')
  check_recordable(dedup)
  -- A number that was deleted, or whose key has another type by now, is not created for that.
  number = number and redis.call('INCRBY', key, math.min(count, 9007199254740991 - number))
  redis.call('ZREM', dedup, request .. ':took:' .. text(count))
  record(dedup, request, 'undone')
  return number and number > 0 and redis.call('PUBLISH', channel, text(number)) or 0
end

