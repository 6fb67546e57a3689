-- Before the scripts of the fair lock: those who wait in its line.
--
-- queue is Redisson's list of owners, timeout its zset of when each may be passed over, alive our own of until when a waiter
-- of ours is there: it goes by that, Redisson's waiters by the other. All in ms of the server's clock.
--
-- KEYS  those of the script behind it
-- Returns  nothing: it goes on there
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Who is first, of those who are there; and whether others were passed over. One without a score is nobody: Redisson would
-- wait for it for ever.
local function first(queue, timeout, alive, now)
  local passed = false
  while true do
    local head = redis.call('LINDEX', queue, 0)
    if not head then
      return nil, passed
    end
    local there = redis.call('ZSCORE', alive, head) or redis.call('ZSCORE', timeout, head)
    if there and tonumber(there) > now then
      return head, passed
    end
    redis.call('LPOP', queue)
    redis.call('ZREM', timeout, head)
    redis.call('ZREM', alive, head)
    passed = true
  end
end

-- Tells whoever has come to be the first, where nobody gives the lock back: that it is free, or when it will be. To
-- Redisson, which asks by itself when a hold ends, '0' says that it is free. Ours come whatever the word, and whoever only
-- watches must not take it for a release.
local function remind(lock, alive, head, channel)
  if redis.call('ZSCORE', alive, head) then
    redis.call('PUBLISH', channel .. ':' .. head, '2')
  elseif redis.call('EXISTS', lock) == 0 then
    redis.call('PUBLISH', channel .. ':' .. head, '0')
  end
end

-- How long the line lasts if nobody of ours comes by any more. Redisson gives its line no end, and its waiters put none off:
-- they must not lose their places to ours, so it is a day. Where all are ours, who ask every few seconds, a quarter of an
-- hour: longer than a Java that joins them sleeps without asking.
local function lasts(queue, timeout, alive)
  local length = redis.call('ZCARD', timeout)
  local ours = redis.call('ZCARD', alive) >= length
  for _, place in ipairs(length > 0 and ours and {0, -1} or {}) do
    local owner = redis.call('LINDEX', queue, place)
    ours = ours and owner and redis.call('ZSCORE', alive, owner)
  end
  local ms = ours and 900000 or 86400000
  for _, key in ipairs({queue, timeout, alive}) do
    local left = redis.call('PTTL', key)
    if left ~= -2 and (left < ms / 2 or left > ms) then
      redis.call('PEXPIRE', key, ms)
    end
  end
end

-- Somebody leaves, if it stands in line, or would again by its mark.
local function leave(lock, queue, timeout, alive, now, owner, channel)
  if not redis.call('ZSCORE', timeout, owner) and not redis.call('ZSCORE', alive, owner) then
    return
  end
  local was_first = first(queue, timeout, alive, now) == owner
  redis.call('ZREM', timeout, owner)
  redis.call('ZREM', alive, owner)
  redis.call('LREM', queue, 0, owner)
  lasts(queue, timeout, alive)
  local head = was_first and first(queue, timeout, alive, now)
  if head then
    remind(lock, alive, head, channel)
  end
end

-- Whoever has a score but no place would believe that it waits: without one it comes again. One of ours that Redisson has
-- passed over keeps its mark while it is there, and by that its place. Says whether anybody may have a mark.
local function mend(queue, timeout, alive, now)
  local length, marks = redis.call('LLEN', queue), redis.call('ZCARD', alive)
  if redis.call('ZCARD', timeout) == length and marks <= length then
    return marks > 0
  end
  local places = {}
  for _, owner in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    places[owner] = true
    if not redis.call('ZSCORE', timeout, owner) and not redis.call('ZSCORE', alive, owner) then
      -- Nobody: left here, it would have the whole line looked at with every question.
      redis.call('LREM', queue, 0, owner)
    end
  end
  -- Not of those who have a place: by its mark one of ours that died is passed over soon.
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', now)) do
    if not places[owner] then
      redis.call('ZREM', alive, owner)
    end
  end
  for _, owner in ipairs(redis.call('ZRANGE', timeout, 0, -1)) do
    if not places[owner] then
      redis.call('ZREM', timeout, owner)
    end
  end
  return true
end

