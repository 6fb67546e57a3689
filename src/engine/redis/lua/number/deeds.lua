-- Prelude of the scripts of counters without an owner: the idempotency keys of a client, so that no request is carried out
-- twice.
--
-- done is private to distlock, one zset for each client. A member is "<request>:<outcome>", with the number of the request as
-- score; the member "below" has the least number that is not refused, less a half, as score. An outcome is the number before
-- and after the change, the number of permits that were taken, or that the request is undone.
--
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
local function text(value)
  return string.format('%.0f', value)
end

-- Returns the reply to a request that has arrived before, or arrives too late.
local function recall(done, request)
  local below = redis.call('ZSCORE', done, 'below')
  if below and tonumber(request) < tonumber(below) then
    return -4
  end
  local known = redis.call('ZRANGEBYSCORE', done, request, request)[1]
  if not known then
    return nil
  end
  local what, after = string.match(string.sub(known, #request + 2), '^(%-?%w+):?(%-?%w*)$')
  if what == 'undone' then
    return -4
  elseif what == 'took' then
    return -3, tonumber(after)
  end
  return {tonumber(what) or false, tonumber(after) or false}
end

-- Writes nothing, but fails for a user without the right to write, and on a server short of memory, before anything is counted.
local function may_note(done)
  redis.call('ZADD', done, 'XX', 0, '')
end

-- Forgets the requests below `settled`. Runs before anything is counted: if any of it is denied, nothing was counted yet, and
-- otherwise the outcome can be recorded afterwards.
local function settle(done, settled, ms)
  local below = string.format('%.1f', tonumber(settled) - 0.5)
  -- A command that frees memory comes before the writes, so that a server short of memory allows them.
  redis.call('ZREMRANGEBYSCORE', done, '-inf', '(' .. below)
  redis.call('ZADD', done, 'GT', below, 'below')
  redis.call('PEXPIRE', done, ms)
end

-- Records the outcome of a request.
local function note(done, request, what)
  redis.call('ZADD', done, request, request .. ':' .. what)
end

-- Carries out a request: sets the number to `after`, or deletes it if that is nil.
local function alter(key, done, before, after, request, settled, ms)
  local words = {before and text(before) or 'none', after and text(after) or 'none'}
  if after and not before then
    may_note(done)
  end
  settle(done, settled, ms)
  if before and not after then
    redis.call('DEL', key)
  elseif before and before ~= after then
    -- The number is not written anew, since it may have an expiry.
    redis.call('INCRBY', key, text(after - before))
  elseif after and not before then
    redis.call('SET', key, text(after))
  end
  note(done, request, table.concat(words, ':'))
  return {before or false, after or false}
end

-- Returns the permits that a request took, and marks the request as undone. Returns the number of subscribers that were
-- notified, or nil if the request took none.
local function give_back(key, done, request, channel)
  local _, count = recall(done, request)
  if not count then
    return nil
  end
  local kind = redis.call('TYPE', key)['ok']
  local there = kind == 'string' and stored_number(key)
  -- Removes nothing: a user without the right is stopped here, and a server short of memory allows the next write.
  redis.call('ZREM', done, '')
  may_note(done)
  -- A number that was deleted, or whose key has another type by now, is not created for that.
  there = there and redis.call('INCRBY', key, math.min(count, 9007199254740991 - there))
  redis.call('ZREM', done, request .. ':took:' .. text(count))
  note(done, request, 'undone')
  return there and there > 0 and redis.call('PUBLISH', channel, text(there)) or 0
end

