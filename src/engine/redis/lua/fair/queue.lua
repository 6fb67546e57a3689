-- Prelude of the scripts of the fair lock: its wait queue.
--
-- queue is Redisson's list of owners; timeout is Redisson's zset of the times when each may be skipped; waiter_expiry is
-- distlock's zset of the times until which each distlock waiter counts as alive. A distlock waiter expires by that time, a
-- Redisson waiter by its score in timeout. All times are in ms of the server's clock.
-- Needs: format/queue.lua (foreign_queue)
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the first waiter that is alive; the crashed ones that were removed before it, as a list and as a set; and whether
-- there were more of them than one call removes: then the first waiter is not known yet, and the next call continues. An entry
-- without a score belongs to no waiter: Redisson would wait for it for ever.
local function first(queue, timeout, waiter_expiry, now)
  local crashed, head, more = {}, nil, false
  while true do
    head = redis.call('LINDEX', queue, 0)
    local score = head and (redis.call('ZSCORE', waiter_expiry, head) or redis.call('ZSCORE', timeout, head))
    if not head or (score and tonumber(score) > now) then
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
    redis.call('ZREM', waiter_expiry, unpack(crashed))
  end
  return head, crashed, more
end

-- Notifies a waiter that has become the first without a release, that the lock is free or when it will be. For Redisson, which
-- retries by itself when a hold ends, '0' means that the lock is free. A distlock waiter reacts to any message; '2' is one that
-- a monitor does not take for a release.
local function notify_waiter(lock, waiter_expiry, head, channel)
  if redis.call('ZSCORE', waiter_expiry, head) then
    redis.call('PUBLISH', channel .. ':' .. head, '2')
  elseif redis.call('EXISTS', lock) == 0 then
    redis.call('PUBLISH', channel .. ':' .. head, '0')
  end
end

-- Sets how long the queue lasts if no distlock waiter sends requests any more. Redisson's queue has no TTL, and its waiters do
-- not extend one: they must not lose their positions to the TTL of distlock, so that it is a day. If all waiters are of
-- distlock, which poll every few seconds, it is a quarter of an hour: longer than a Redisson waiter that joins them sleeps
-- between requests.
local function refresh_expiry(queue, timeout, waiter_expiry)
  local length = redis.call('ZCARD', timeout)
  local ours = redis.call('ZCARD', waiter_expiry) >= length
  for _, index in ipairs(length > 0 and ours and {0, -1} or {}) do
    local owner = redis.call('LINDEX', queue, index)
    ours = ours and owner and redis.call('ZSCORE', waiter_expiry, owner)
  end
  local ms = ours and 900000 or 86400000
  for _, key in ipairs({queue, timeout, waiter_expiry}) do
    local remaining_ttl = redis.call('PTTL', key)
    if remaining_ttl ~= -2 and (remaining_ttl < ms / 2 or remaining_ttl > ms) then
      redis.call('PEXPIRE', key, ms)
    end
  end
end

-- Notifies the first waiter that the lock is free, or the waiters for the plain lock of this name if the queue is empty. If the
-- first waiter is not known yet, the one with the newest request is alive for certain: its next request continues. In a queue
-- of another program there are no waiters: their acquire was refused.
local function notify(queue, timeout, waiter_expiry, now, channel)
  if foreign_queue(queue, timeout) then
    redis.call('PUBLISH', channel, '0')
    return
  end
  local head, _, more = first(queue, timeout, waiter_expiry, now)
  if more then
    head = redis.call('ZRANGE', waiter_expiry, -1, -1)[1]
  end
  if head then
    refresh_expiry(queue, timeout, waiter_expiry)
  end
  redis.call('PUBLISH', head and channel .. ':' .. head or channel, '0')
end

-- Removes an owner from the queue, with its score and its time in waiter_expiry. A foreign queue is left alone.
local function leave(lock, queue, timeout, waiter_expiry, now, owner, channel)
  if foreign_queue(queue, timeout) then
    return
  end
  if not redis.call('ZSCORE', timeout, owner) and not redis.call('ZSCORE', waiter_expiry, owner) then
    return
  end
  local was_first = first(queue, timeout, waiter_expiry, now) == owner
  redis.call('ZREM', timeout, owner)
  redis.call('ZREM', waiter_expiry, owner)
  redis.call('LREM', queue, 0, owner)
  refresh_expiry(queue, timeout, waiter_expiry)
  local head = was_first and first(queue, timeout, waiter_expiry, now)
  if head then
    notify_waiter(lock, waiter_expiry, head, channel)
  end
end

-- Returns the position of an owner's first entry, if it has one. If it has several, its last one is removed.
local function position_of(queue, owner)
  local at = redis.call('LPOS', queue, owner)
  if at and redis.call('LPOS', queue, owner, 'RANK', -1) ~= at then
    redis.call('LREM', queue, -1, owner)
  end
  return at
end

-- Returns where a call starts to scan a structure of this size. A small structure is scanned whole, a large one in a part that
-- differs from call to call.
local function scan_start(size)
  if size <= 50 then
    return 0
  end
  local time = redis.call('TIME')
  return math.max(0, (time[2] * 7919 + time[1]) % (size + 50) - 50)
end

-- Repairs the queue if its structures disagree: one was deleted or evicted, or a script of Redisson was stopped half-way. One
-- call repairs a bounded part, so that a request costs the same however long the queue is. Every distlock waiter repairs its
-- own entry with its next request. An entry that is removed here belongs to no waiter, or to a Redisson waiter with a score and
-- no entry: that waiter would believe that it waits, and without the score it queues again. Returns whether the structures
-- agreed, and whether any waiter may have a time in waiter_expiry.
local function repair(queue, timeout, waiter_expiry, now, requester)
  local length, scores, expiries = redis.call('LLEN', queue), redis.call('ZCARD', timeout), redis.call('ZCARD', waiter_expiry)
  if scores == length and expiries <= length then
    return true, expiries > 0
  end
  -- LPOS and LREM scan the list, so that fewer of them run on a long one.
  local scans = math.max(1, math.min(50, math.floor(20000 / (length + 1))))
  local function is_there(owner)
    local expiry = redis.call('ZSCORE', waiter_expiry, owner)
    return owner == requester or (expiry and tonumber(expiry) > now)
  end
  local seen, from = {}, scan_start(length)
  for i, owner in ipairs(redis.call('LRANGE', queue, from, from + 49)) do
    if scans <= 0 then
      break
    end
    if seen[owner] or (i == 1 and length > scores) then
      position_of(queue, owner)
      scans = scans - 1
    end
    if not redis.call('ZSCORE', timeout, owner) and not is_there(owner) then
      redis.call('LREM', queue, 1, owner)
      redis.call('ZREM', waiter_expiry, owner)
      scans = scans - 1
    end
    seen[owner] = true
  end
  if expiries > length then
    for _, owner in ipairs(redis.call('ZRANGEBYSCORE', waiter_expiry, '-inf', now, 'LIMIT', scan_start(expiries), 50)) do
      -- A crashed waiter that has an entry is removed soon: its time in waiter_expiry is over.
      if not redis.call('ZSCORE', timeout, owner) then
        redis.call('ZREM', waiter_expiry, owner)
      end
    end
  end
  if scores > length then
    from = scan_start(scores)
    for _, owner in ipairs(redis.call('ZRANGE', timeout, from, from + 49)) do
      if scans <= 0 then
        break
      end
      if not is_there(owner) then
        scans = scans - 1
        if not redis.call('LPOS', queue, owner) then
          redis.call('ZREM', timeout, owner)
          redis.call('ZREM', waiter_expiry, owner)
        end
      end
    end
  end
  return false, true
end

