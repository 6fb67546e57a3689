-- Before the scripts of numbers that are nobody's: what a client has done to one, so that nothing is done twice.
--
-- done is ours, one for each client: a zset of "<request>:<what came of it>" by the request's number, and "below", by the
-- least number that is not refused, less a half. What came of it is what there was and what there is, or that it took so many,
-- or that it is not to be.
--
-- KEYS  those of the script behind it
-- Returns  nothing: it goes on there
local function text(value)
  return string.format('%.0f', value)
end

-- What to answer to a request that has come before, or comes too late.
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

-- Writes nothing: who may not, or on a server short of memory, is stopped here, before anything is counted.
local function may_note(done)
  redis.call('ZADD', done, 'XX', 0, '')
end

-- Requests that are settled are forgotten. Before anything is counted: whatever of this is denied, it can be noted then.
local function settle(done, settled, ms)
  local below = string.format('%.1f', tonumber(settled) - 0.5)
  -- What frees comes before what is written, so that a server short of memory lets it through.
  redis.call('ZREMRANGEBYSCORE', done, '-inf', '(' .. below)
  redis.call('ZADD', done, 'GT', below, 'below')
  redis.call('PEXPIRE', done, ms)
end

-- This came of a request.
local function note(done, request, what)
  redis.call('ZADD', done, request, request .. ':' .. what)
end

-- Carries out a request for which there is to be another number, or none.
local function alter(key, done, before, after, request, settled, ms)
  local words = {before and text(before) or 'none', after and text(after) or 'none'}
  if after and not before then
    may_note(done)
  end
  settle(done, settled, ms)
  if before and not after then
    redis.call('DEL', key)
  elseif before and before ~= after then
    -- Not written anew: it may have been given an end.
    redis.call('INCRBY', key, text(after - before))
  elseif after and not before then
    redis.call('SET', key, text(after))
  end
  note(done, request, table.concat(words, ':'))
  return {before or false, after or false}
end

-- Takes back what a request took, which is not to be any more. How many listened; nothing if it took none.
local function give_back(key, done, request, channel)
  local _, count = recall(done, request)
  if not count then
    return nil
  end
  local kind = redis.call('TYPE', key)['ok']
  local there = kind == 'string' and stored_number(key)
  -- None, for the same reason; and a server short of memory lets the next one through.
  redis.call('ZREM', done, '')
  may_note(done)
  -- What was forgotten, or is something else by now, is not made anew for that.
  there = there and redis.call('INCRBY', key, math.min(count, 9007199254740991 - there))
  redis.call('ZREM', done, request .. ':took:' .. text(count))
  note(done, request, 'undone')
  return there and there > 0 and redis.call('PUBLISH', channel, text(there)) or 0
end

