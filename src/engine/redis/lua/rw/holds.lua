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

-- How long a reader is still there; 0 or less if it has gone. Second, how long each of its keys is.
local function left(base, reader, count)
  local longest, each = -2, {}
  for number = 1, math.min(tonumber(count) or 0, MOST_READS) do
    each[number] = redis.call('PTTL', key(base, reader, number))
    longest = math.max(longest, each[number])
  end
  return longest, each
end

-- A reader that holds the lock so often is there this long, if it was not there longer. `each` is what left() has returned, so
-- that no key is asked for twice.
local function master_epoch(base, reader, count, lease, each)
  for number = 1, math.min(tonumber(count) or 0, MOST_READS) do
    local own = key(base, reader, number)
    local there = each and each[number] or redis.call('PTTL', own)
    if there == -2 then
      redis.call('SET', own, '1', 'PX', lease)
    elseif there < tonumber(lease) then
      -- Not written anew: a server short of memory would refuse that.
      redis.call('PEXPIRE', own, lease)
    end
  end
end

local function forget(base, reader, from, to)
  local keys = {}
  for number = from, math.min(tonumber(to) or 0, MOST_READS) do
    keys[#keys + 1] = key(base, reader, number)
  end
  if #keys > 0 then
    redis.call('DEL', unpack(keys))
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

-- Some fields of the lock: all of up to 500, of a larger hash a random sample. Whether these are all.
local function some_fields(lock)
  local size = redis.call('HLEN', lock)
  if size == 0 then
    return {}, true
  end
  local fields = redis.call('HRANDFIELD', lock, size <= 500 and size or 100)
  return fields, #fields == size
end

-- The values of fields. Each length is checked first, and a value that is too long for a count is not read: it is false.
local function short_values(lock, fields)
  local short = {}
  for i, field in ipairs(fields) do
    -- A field that does not exist stands for the long one.
    short[i] = redis.call('HSTRLEN', lock, field) <= 9 and field or ''
  end
  return #fields > 0 and redis.call('HMGET', lock, unpack(short)) or {}
end

-- Whether a field is part of a lock. The value is false if it is too long to be read.
local function is_part(field, value)
  local owner, writes = is_owner(field)
  return field == 'mode' or owner and value and (writes and hold_count(value) or read_count(value))
end

-- How many commands this script may still run to examine readers. The owner's own holds and what checks the format come to
-- 350, and 1,000 is the most that one call may cost.
local room = 600

-- Removes crashed readers, and counts the others, up to `enough`. The count, one of these readers, and how long the last of them
-- stays; nil if some were not examined: a call examines a limited number, and counts at least one more reader then.
local function readers(lock, base, enough)
  local fields, all = some_fields(lock)
  for _, field in ipairs(fields) do
    -- Another program's field: nothing is removed, and the lock counts as held by others.
    if field ~= 'mode' and not is_owner(field) then
      return 2, nil, nil
    end
  end
  local count, longest, one, crashed = 0, -2, nil, {}
  -- The names are read by one command, each count takes one of its own: a few at a time, so that a call that looks for one reader
  -- stops soon.
  for from = 1, #fields, 16 do
    local some = {unpack(fields, from, math.min(from + 15, #fields))}
    if room <= #some then
      all = false
      break
    end
    room = room - #some - 1
    local counts = short_values(lock, some)
    for i, field in ipairs(some) do
      -- Another program's value: the same.
      if not is_part(field, counts[i]) then
        return 2, nil, nil
      end
      local _, writes = is_owner(field)
      local times = field ~= 'mode' and not writes and read_count(counts[i])
      if times and times <= room then
        room = room - times
        local there = left(base, field, times)
        if there > 0 then
          count, longest, one = count + 1, math.max(longest, there), field
        else
          crashed[#crashed + 1] = field
        end
      elseif times then
        all = false
      end
      if count == enough then
        break
      end
    end
    if count == enough then
      all, longest = true, nil
      break
    end
  end
  if #crashed > 0 then
    redis.call('HDEL', lock, unpack(crashed))
  end
  if all then
    return count, one, longest
  end
  return count + 1, nil, nil
end

-- The lock lasts as long as the last of its readers, if that is known.
local function last_with(lock, longest)
  if longest then
    redis.call('PEXPIRE', lock, longest)
  end
end

-- What is held, and for how long: read, write or nothing. A hash of another format is an error.
local function mode_of(lock)
  local ttl = redis.call('PTTL', lock)
  local mode = ttl ~= -2 and read_write_mode(lock) or nil
  if ttl ~= -2 and not mode then
    return nil, ttl, redis.error_reply('WRONGTYPE no read/write lock')
  end
  return mode, ttl
end

