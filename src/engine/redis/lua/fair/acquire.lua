-- Takes the fair lock, takes it once more, or stands in line for it.
--
-- KEYS  1 the lock: hash of owner -> hold count
--       2 the undone acquires of this lock: zset of "<owner>#<attempt>"
--       3 the line: list of owners   4 when Redisson passes each over   5 until when ours are there
-- ARGV  1 owner   2 attempt: 1 from zero, more into a hold of its own   3 count to hold   4 lease in ms
--       5 how long it is there if it does not ask again, in ms; 0 if it does not wait
-- Returns  -3 granted   -4 undone before it came   -5 nothing to re-enter
--          otherwise the holder's remaining ms, -1 if it has no end or others are first
-- A key of another type, or a hash without an owner in it, is an error.
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
    -- A server short of memory refuses HSET as a script's first write, but lets it through behind
    -- one that frees. Nobody is called ''.
    redis.call('HDEL', KEYS[1], '')
    redis.call('HSET', KEYS[1], owner, ARGV[3])
  end
  return -3
end
local marked = mend(KEYS[3], KEYS[4], KEYS[5], now)
local back = marked and not redis.call('ZSCORE', KEYS[4], owner) and redis.call('ZSCORE', KEYS[5], owner)
back = back and tonumber(back) > now
-- Still there by our mark, and without a score: Redisson has passed it over, when it was the first. Unless it has a place:
-- then somebody has deleted the scores.
if back and not redis.call('LPOS', KEYS[3], owner) then
  redis.call('LPUSH', KEYS[3], owner)
end
if ttl == -2 then
  -- Into a hold that is gone: granting it would make that hold up.
  if ARGV[2] ~= '1' then
    return -5
  end
  local head, passed = first(KEYS[3], KEYS[4], KEYS[5], now)
  if not head or head == owner then
    if head then
      redis.call('LPOP', KEYS[3])
      redis.call('ZREM', KEYS[4], owner)
      redis.call('ZREM', KEYS[5], owner)
      lasts(KEYS[3], KEYS[4], KEYS[5])
    end
    redis.call('HSET', KEYS[1], owner, ARGV[3])
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
    return -3
  end
  -- It is called as the line is.
  local channel = 'redisson_lock__channel:' .. string.sub(KEYS[3], string.len('redisson_lock_queue:') + 1)
  if passed then
    -- Whoever was told that it is free has gone.
    remind(KEYS[1], KEYS[5], head, channel)
  elseif not redis.call('ZSCORE', KEYS[5], head) then
    -- If the holder has died, nobody was told, and Redisson before 3.32 may not know when to ask. This wakes whoever
    -- sleeps there; who does not is asking, and hears nothing of it.
    redis.call('PUBLISH', channel .. ':' .. head, '1')
  end
elseif ttl == -1 then
  -- No lock is without an end, so it may be somebody's data: then nobody must wait for it.
  -- Nobody has that many owners; a great hash is not worth reading.
  local fields = redis.call('HLEN', KEYS[1]) <= 100 and redis.call('HGETALL', KEYS[1]) or {}
  local lock = false
  for i = 1, #fields, 2 do
    lock = lock or string.match(fields[i], '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+')
  end
  if not lock then
    return redis.error_reply('WRONGTYPE a hash that is no lock')
  end
end
if ARGV[5] == '0' then
  return ttl == -2 and -1 or ttl
end

-- Behind the holder's end and the last one's score, by Redisson's own five minutes: with less, its arithmetic, which takes
-- one waiter's time from all the others, would pass over those who are there. Behind one of ours its score will do: it
-- takes nothing from anybody. More would be added to all who come later, and be waited for should one of Redisson's die.
local score = now + math.max(ttl, 0) + 300000
local own = redis.call('ZSCORE', KEYS[4], owner)
if not own and not back then
  local last = redis.call('LINDEX', KEYS[3], -1)
  local behind = last and redis.call('ZSCORE', KEYS[4], last)
  if behind then
    local more = redis.call('ZSCORE', KEYS[5], last) and 0 or 300000
    score = math.max(score, tonumber(behind) + more)
  end
  redis.call('RPUSH', KEYS[3], owner)
end
-- A server short of memory refuses ZADD as a script's first write: whoever stands here would lose its place.
redis.call('ZREM', KEYS[5], '')
if not own or tonumber(own) < score then
  redis.call('ZADD', KEYS[4], string.format('%.0f', score), owner)
end
redis.call('ZADD', KEYS[5], string.format('%.0f', now + tonumber(ARGV[5])), owner)
lasts(KEYS[3], KEYS[4], KEYS[5])
-- Only the first has to know when the hold ends: the others would all ask at that moment.
if first(KEYS[3], KEYS[4], KEYS[5], now) == owner then
  return ttl
end
return -1
