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

-- The first waiter that is there; the crashed ones that were removed before it, as a list and as a set; and whether there
-- were more of them than one call removes: then the first waiter is not known yet, and the next call goes on. An entry
-- without a score belongs to no waiter: Redisson would wait for it for ever.
local function first(queue, timeout, alive, now)
  local crashed, head, more = {}, nil, false
  while true do
    head = redis.call('LINDEX', queue, 0)
    local there = head and (redis.call('ZSCORE', alive, head) or redis.call('ZSCORE', timeout, head))
    if not head or (there and tonumber(there) > now) then
      break
    end
    if #crashed == 100 then
      head, more = nil, true
      break
    end
    redis.call('LPOP', queue)
    crashed[#crashed + 1], crashed[head] = head, true
  end
  if #crashed > 0 then
    redis.call('ZREM', timeout, unpack(crashed))
    redis.call('ZREM', alive, unpack(crashed))
  end
  return head, crashed, more
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

-- Notifies the first waiter that the lock is free, or those who want the plain lock of this name if nobody waits. Where the
-- first is not known yet, the waiter that asked last is there for certain: its question goes on. In a queue of another program
-- nobody waits: the acquire was refused.
local function notify(queue, timeout, alive, now, channel)
  if foreign_queue(queue, timeout) then
    redis.call('PUBLISH', channel, '0')
    return
  end
  local head, _, more = first(queue, timeout, alive, now)
  if more then
    head = redis.call('ZRANGE', alive, -1, -1)[1]
  end
  if head then
    lasts(queue, timeout, alive)
  end
  redis.call('PUBLISH', head and channel .. ':' .. head or channel, '0')
end

-- Removes an owner from the queue, with its score and mark. A foreign queue is left alone.
local function leave(lock, queue, timeout, alive, now, owner, channel)
  if foreign_queue(queue, timeout) then
    return
  end
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

-- Where an owner's first entry is, if it has one. Its last one is removed if it has several.
local function place(queue, owner)
  local at = redis.call('LPOS', queue, owner)
  if at and redis.call('LPOS', queue, owner, 'RANK', -1) ~= at then
    redis.call('LREM', queue, -1, owner)
  end
  return at
end

-- Where a call begins to look at a structure of this size: all of it is looked at if it is small, and otherwise a part that
-- differs from call to call.
local function part(size)
  if size <= 50 then
    return 0
  end
  local time = redis.call('TIME')
  return math.max(0, (time[2] * 7919 + time[1]) % (size + 50) - 50)
end

-- Repairs the queue if its structures disagree: one was deleted or evicted, or a script of Redisson's was stopped half-way.
-- One call does a bounded part of it, so that a question costs the same however long the queue is. Every waiter of ours
-- repairs its own entry with its next question; what is removed here belongs to none, or to a waiter of Redisson's that has a
-- score and no entry: it would believe that it waits, and without the score it queues again.
-- Says whether the structures agreed, and whether any waiter may have a mark.
local function mend(queue, timeout, alive, now, asking)
  local length, scores, marks = redis.call('LLEN', queue), redis.call('ZCARD', timeout), redis.call('ZCARD', alive)
  if scores == length and marks <= length then
    return true, marks > 0
  end
  -- LPOS and LREM go through the list: fewer of them in a long one.
  local scans = math.max(1, math.min(50, math.floor(20000 / (length + 1))))
  local function is_there(owner)
    local mark = redis.call('ZSCORE', alive, owner)
    return owner == asking or (mark and tonumber(mark) > now)
  end
  local seen, from = {}, part(length)
  for i, owner in ipairs(redis.call('LRANGE', queue, from, from + 49)) do
    if scans <= 0 then
      break
    end
    if seen[owner] or (i == 1 and length > scores) then
      place(queue, owner)
      scans = scans - 1
    end
    if not redis.call('ZSCORE', timeout, owner) and not is_there(owner) then
      redis.call('LREM', queue, 1, owner)
      redis.call('ZREM', alive, owner)
      scans = scans - 1
    end
    seen[owner] = true
  end
  if marks > length then
    for _, owner in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', now, 'LIMIT', part(marks), 50)) do
      -- By its mark a crashed waiter that has an entry is removed soon.
      if not redis.call('ZSCORE', timeout, owner) then
        redis.call('ZREM', alive, owner)
      end
    end
  end
  if scores > length then
    from = part(scores)
    for _, owner in ipairs(redis.call('ZRANGE', timeout, from, from + 49)) do
      if scans <= 0 then
        break
      end
      if not is_there(owner) then
        scans = scans - 1
        if not redis.call('LPOS', queue, owner) then
          redis.call('ZREM', timeout, owner)
          redis.call('ZREM', alive, owner)
        end
      end
    end
  end
  return false, true
end

