-- Prelude of the scripts of both semaphores: the clock, and the queue of waiters for several permits.
--
-- queue and waiter_expiry are private to distlock: the waiters, and until when each counts as alive, in ms of the server's
-- clock.
--
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the first waiter that is alive. One call removes a bounded number of crashed ones before it; if there are more, it
-- returns one of them, and the next call continues.
local function first(queue, waiter_expiry, now)
  local head
  for removed = 0, 200 do
    head = redis.call('LINDEX', queue, 0)
    local expiry = head and redis.call('ZSCORE', waiter_expiry, head)
    if not head or (expiry and tonumber(expiry) > now) or removed == 200 then
      break
    end
    redis.call('LPOP', queue)
    redis.call('ZREM', waiter_expiry, head)
  end
  return head
end

-- Queues an owner, or keeps its entry, for this many ms; should every waiter crash, the queue expires soon after. An entry whose
-- expiry was lost is replaced, so that no owner is queued twice, and an expiry whose entry was lost gets one. The queue is
-- searched for the entry only while there are fewer entries than expiries, which happens after entries were lost.
local function enqueue(queue, waiter_expiry, owner, now, ms)
  local has_expiry = redis.call('ZSCORE', waiter_expiry, owner)
  if not has_expiry then
    redis.call('LREM', queue, 0, owner)
  end
  local short = has_expiry and redis.call('LLEN', queue) < redis.call('ZCARD', waiter_expiry)
  if not has_expiry or short and not redis.call('LPOS', queue, owner) then
    redis.call('RPUSH', queue, owner)
  end
  redis.call('ZADD', waiter_expiry, string.format('%.0f', now + ms), owner)
  redis.call('PEXPIRE', queue, 60000)
  redis.call('PEXPIRE', waiter_expiry, 60000)
end

-- Removes an owner from the queue, and returns whether it was queued.
local function leave(queue, waiter_expiry, owner)
  return redis.call('ZREM', waiter_expiry, owner) + redis.call('LREM', queue, 0, owner) > 0
end

