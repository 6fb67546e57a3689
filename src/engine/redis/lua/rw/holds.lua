-- Before the scripts of the read/write lock: who holds it, and for how long each.
--
-- lock is Redisson's hash of mode, readers and the writer, each with its count. base begins the keys that say how long each
-- reader is there, one for each time it holds the lock; a writer is there while the hash is. All in ms.
--
-- KEYS  those of the script behind it
-- Returns  nothing: it goes on there
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function key(base, reader, number)
  return base .. ':' .. reader .. ':rwlock_timeout:' .. number
end

-- How long a reader is still there; 0 or less if it has gone.
local function left(base, reader, count)
  local longest = -2
  for number = 1, tonumber(count) do
    longest = math.max(longest, redis.call('PTTL', key(base, reader, number)))
  end
  return longest
end

-- A reader that holds the lock so often is there this long, if it was not there longer.
local function stay(base, reader, count, lease)
  for number = 1, tonumber(count) do
    local own = key(base, reader, number)
    local there = redis.call('PTTL', own)
    if there == -2 then
      redis.call('SET', own, '1', 'PX', lease)
    elseif there < tonumber(lease) then
      -- Not written anew: a server short of memory would refuse that.
      redis.call('PEXPIRE', own, lease)
    end
  end
end

local function forget(base, reader, from, to)
  for number = from, tonumber(to) do
    redis.call('DEL', key(base, reader, number))
  end
end

-- Written also where it changes nothing: replicas acknowledge what was written before.
local function last(lock, lease)
  local there = redis.call('PTTL', lock)
  -- Whose end somebody has taken gets a new one, but not from a mere look (1 ms): that would be the end of it.
  if there ~= -1 or tonumber(lease) > 1 then
    redis.call('PEXPIRE', lock, math.max(there, tonumber(lease)))
  end
end

-- Takes out readers that have gone. How many are left, for how long the longest of them, and one of them.
local function readers(lock, base)
  local count, longest, one = 0, -2, nil
  local fields = redis.call('HGETALL', lock)
  for i = 1, #fields, 2 do
    local field, times = fields[i], tonumber(fields[i + 1])
    if times and not string.find(field, ':write', 1, true) then
      local there = left(base, field, times)
      if there > 0 then
        count, longest, one = count + 1, math.max(longest, there), field
      else
        redis.call('HDEL', lock, field)
      end
    end
  end
  return count, longest, one
end

-- What is held, and for how long: read, write or nothing. A hash without a mode is no such lock.
local function mode_of(lock)
  local ttl = redis.call('PTTL', lock)
  local mode = ttl ~= -2 and redis.call('HGET', lock, 'mode') or nil
  if ttl ~= -2 and not mode then
    return nil, ttl, redis.error_reply('WRONGTYPE no read/write lock')
  end
  return mode, ttl
end

