-- Acquires the fair lock, re-enters it, or queues for it.
--
-- Needs: format/alias.lua (alias_of), format/lock.lua (is_lock), format/queue.lua (foreign_queue), fair/queue.lua (clock,
--        first, notify_waiter, position_of, refresh_expiry, repair)
-- KEYS  1 the lock: hash of owner -> hold count
--       2 the tombstones of this lock: zset of "<owner>#<attempt>"
--       3 the queue: list of owners   4 when Redisson skips each waiter   5 expiry of each distlock waiter
-- ARGV  1 owner   2 attempt: 1 for a fresh acquire, more for a reentry   3 hold count after it   4 lease in ms
--       5 how long the waiter stays queued without another request, in ms; 0 to not queue
--       6 the other name with the same auxiliary keys, or ''
-- Returns  -3 granted   -4 undone before it arrived   -5 no hold to re-enter
--          {TWIN, key} the other name's key exists
--          otherwise the holder's remaining ms, -1 if it has no expiry or others are first
-- A key of another type, a hash that is no lock, or a queue of another program is an error.
local owner, now = ARGV[1], clock()
if redis.call('ZSCORE', KEYS[2], owner .. '#' .. ARGV[2]) then
  return -4
end
local ttl = redis.call('PTTL', KEYS[1])
local held = ttl ~= -2 and redis.call('HGET', KEYS[1], owner)
if held then
  if ttl < tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
  end
  if tonumber(held) < tonumber(ARGV[3]) then
    -- A server short of memory refuses HSET as the first write of a script, but allows it after a command that frees memory. No
    -- owner has the name ''.
    redis.call('HDEL', KEYS[1], '')
    redis.call('HSET', KEYS[1], owner, ARGV[3])
  end
  return -3
end
if ttl ~= -2 and not is_lock(KEYS[1]) then
  return redis.error_reply('WRONGTYPE a hash that is no lock')
end
local alias = ttl == -2 and alias_of(ARGV[6])
if alias then
  return alias
end
local foreign = foreign_queue(KEYS[3], KEYS[4])
if foreign then
  return foreign
end
local agree, has_expiries = repair(KEYS[3], KEYS[4], KEYS[5], now, owner)
local own, own_expiry = redis.call('ZSCORE', KEYS[4], owner), has_expiries and redis.call('ZSCORE', KEYS[5], owner)
-- Whether the owner has an entry in the queue. Its score says so, unless a key was lost: then the list is searched, so that no
-- owner is queued twice.
local queued = own
if ARGV[5] ~= '0' and (not agree or (own_expiry and not own)) then
  queued = position_of(KEYS[3], owner)
  -- The waiter is alive by its time in waiter_expiry, but has neither score nor entry: Redisson has removed it while it was
  -- the first.
  if not queued and not own and own_expiry and tonumber(own_expiry) > now then
    redis.call('LPUSH', KEYS[3], owner)
    queued = 0
  end
end
-- The channel has the same suffix as the queue.
local channel = 'redisson_lock__channel:' .. string.sub(KEYS[3], string.len('redisson_lock_queue:') + 1)
local head, crashed, more
if ttl == -2 then
  -- The hold to re-enter is gone: a grant would invent it.
  if ARGV[2] ~= '1' then
    return -5
  end
  head, crashed, more = first(KEYS[3], KEYS[4], KEYS[5], now)
  if crashed[owner] then
    own, queued = false, false
  end
  if not more and (not head or head == owner) then
    if head then
      redis.call('LPOP', KEYS[3])
      redis.call('ZREM', KEYS[4], owner)
      redis.call('ZREM', KEYS[5], owner)
      if not agree then
        redis.call('LREM', KEYS[3], 0, owner)
      end
      refresh_expiry(KEYS[3], KEYS[4], KEYS[5])
    end
    redis.call('HSET', KEYS[1], owner, ARGV[3])
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
    -- The next waiter polls every three seconds. A shorter lease may expire before that, so that the waiter is notified, and
    -- its request returns when the lease expires.
    local next = head and tonumber(ARGV[4]) < 5000 and first(KEYS[3], KEYS[4], KEYS[5], now)
    if next then
      notify_waiter(KEYS[1], KEYS[5], next, channel)
    end
    return -3
  end
  if head and #crashed > 0 then
    -- The waiter that was notified of the release has crashed.
    notify_waiter(KEYS[1], KEYS[5], head, channel)
  elseif head and not redis.call('ZSCORE', KEYS[5], head) then
    -- If the holder has crashed, no waiter was notified, and Redisson before 3.32 may not know when to retry. This message
    -- wakes a Redisson waiter that sleeps; one that does not sleep is sending a request and does not receive it.
    redis.call('PUBLISH', channel .. ':' .. head, '1')
  end
end
if ARGV[5] == '0' then
  return ttl == -2 and -1 or ttl
end

-- The score is five minutes, Redisson's own default, after the end of the hold, and five minutes after the score of the last
-- entry. With less, Redisson would skip waiters that are alive: when one of its waiters leaves, it subtracts that waiter's five
-- minutes from the scores of all later ones. Behind a distlock waiter the last score itself is enough, because distlock
-- subtracts nothing; five minutes more would only make everyone wait longer if a Redisson waiter crashed.
local score = now + math.max(ttl, 0) + 300000
if not queued then
  local last = redis.call('LINDEX', KEYS[3], -1)
  local behind = last and redis.call('ZSCORE', KEYS[4], last)
  if behind then
    local wait = redis.call('ZSCORE', KEYS[5], last) and 0 or 300000
    score = math.max(score, tonumber(behind) + wait)
  end
  redis.call('RPUSH', KEYS[3], owner)
end
-- A server short of memory refuses ZADD as the first write of a script: the waiter would lose its position.
redis.call('ZREM', KEYS[5], '')
if not own or tonumber(own) < score then
  redis.call('ZADD', KEYS[4], string.format('%.0f', score), owner)
end
redis.call('ZADD', KEYS[5], string.format('%.0f', now + tonumber(ARGV[5])), owner)
refresh_expiry(KEYS[3], KEYS[4], KEYS[5])
if ttl ~= -2 then
  head, crashed, more = first(KEYS[3], KEYS[4], KEYS[5], now)
  if head and head ~= owner and #crashed > 0 then
    -- The new first waiter has to know when the hold ends.
    notify_waiter(KEYS[1], KEYS[5], head, channel)
  end
end
if more then
  -- Crashed waiters are still in front of this one: it retries at once.
  return 1
end
-- Only the first waiter has to know when the hold ends: otherwise all would send a request at that moment.
return ttl ~= -2 and head == owner and ttl or -1
