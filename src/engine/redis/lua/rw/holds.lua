-- Prelude of the scripts of the read/write lock: its holders, and the lease of each.
--
-- lock is Redisson's hash of mode, readers and the writer, each with its hold count. reader_timeout_prefix is the prefix of
-- the keys whose TTLs are the leases of a reader, one key for each hold; a writer's lease is the TTL of the hash. All times
-- are in ms.
-- Needs: format/owner.lua (hold_count, is_owner), format/read_write.lua (MOST_READS, read_count, read_write_mode)
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function timeout_key(reader_timeout_prefix, reader, number)
  return reader_timeout_prefix .. ':' .. reader .. ':rwlock_timeout:' .. number
end

-- Returns the remaining lease of a reader, 0 or less if it has expired, and the remaining TTL of each of its keys.
local function remaining_ttl(reader_timeout_prefix, reader, count)
  local longest, each = -2, {}
  for number = 1, math.min(tonumber(count) or 0, MOST_READS) do
    each[number] = redis.call('PTTL', timeout_key(reader_timeout_prefix, reader, number))
    longest = math.max(longest, each[number])
  end
  return longest, each
end

-- Sets the lease of a reader with this hold count, if it is longer than the current one. `each` is the second result of
-- remaining_ttl(), so that no TTL is read twice.
local function extend_reader(reader_timeout_prefix, reader, count, lease, each)
  for number = 1, math.min(tonumber(count) or 0, MOST_READS) do
    local own = timeout_key(reader_timeout_prefix, reader, number)
    local ttl = each and each[number] or redis.call('PTTL', own)
    if ttl == -2 then
      redis.call('SET', own, '1', 'PX', lease)
    elseif ttl < tonumber(lease) then
      -- PEXPIRE, not SET, which a server short of memory would refuse.
      redis.call('PEXPIRE', own, lease)
    end
  end
end

local function delete_timeouts(reader_timeout_prefix, reader, from, to)
  local keys = {}
  for number = from, math.min(tonumber(to) or 0, MOST_READS) do
    keys[#keys + 1] = timeout_key(reader_timeout_prefix, reader, number)
  end
  if #keys > 0 then
    redis.call('DEL', unpack(keys))
  end
end

-- Extends the lease of the lock. It is written even if nothing changes: replica acknowledgements are waited for by the last
-- write.
local function extend_expiry(lock, lease)
  local ttl = redis.call('PTTL', lock)
  -- A lock whose expiry another program has removed gets a new one, but not from a check of the lease, which asks for
  -- 1 ms and would end the hold.
  if ttl ~= -1 or tonumber(lease) > 1 then
    redis.call('PEXPIRE', lock, math.max(ttl, tonumber(lease)))
  end
end

-- Returns some fields of the lock, all of up to 500 and of a larger hash a random sample, and whether these are all.
local function some_fields(lock)
  local size = redis.call('HLEN', lock)
  if size == 0 then
    return {}, true
  end
  local fields = redis.call('HRANDFIELD', lock, size <= 500 and size or 100)
  return fields, #fields == size
end

-- Returns the values of fields. Each length is checked first, and a value that is too long for a count is not read: it is
-- false.
local function short_values(lock, fields)
  local short = {}
  for i, field in ipairs(fields) do
    -- A field that does not exist replaces one with a value that is too long.
    short[i] = redis.call('HSTRLEN', lock, field) <= 9 and field or ''
  end
  return #fields > 0 and redis.call('HMGET', lock, unpack(short)) or {}
end

-- Returns whether a field is part of a lock. The value is false if it is too long to be read.
local function is_part(field, value)
  local owner, writes = is_owner(field)
  return field == 'mode' or owner and value and (writes and hold_count(value) or read_count(value))
end

-- How many commands this script may still run to examine readers. The owner's own holds and the checks of the format come to
-- 350, and 1,000 is the most that one call may cost.
local budget = 600

-- Removes crashed readers, and counts the others, up to `enough`. Returns the count, one of these readers, and the longest
-- remaining lease. A call examines a limited number: if some readers were left out, the last two results are nil, and the count
-- is one more than the readers that were found, since one of the others may be alive.
local function readers(lock, reader_timeout_prefix, enough)
  local fields, all = some_fields(lock)
  for _, field in ipairs(fields) do
    -- The field belongs to another program: nothing is removed, and the lock counts as held by others.
    if field ~= 'mode' and not is_owner(field) then
      return 2, nil, nil
    end
  end
  local count, longest, one, crashed = 0, -2, nil, {}
  -- One command reads all names, but each count takes a command of its own. A few counts are read at a time, so that a call
  -- that looks for one reader stops soon.
  for from = 1, #fields, 16 do
    local some = {unpack(fields, from, math.min(from + 15, #fields))}
    if budget <= #some then
      all = false
      break
    end
    budget = budget - #some - 1
    local counts = short_values(lock, some)
    for i, field in ipairs(some) do
      -- The value belongs to another program: the same applies.
      if not is_part(field, counts[i]) then
        return 2, nil, nil
      end
      local _, writes = is_owner(field)
      local times = field ~= 'mode' and not writes and read_count(counts[i])
      if times and times <= budget then
        budget = budget - times
        local ttl = remaining_ttl(reader_timeout_prefix, field, times)
        if ttl > 0 then
          count, longest, one = count + 1, math.max(longest, ttl), field
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

-- The lock lasts as long as the lease of its last reader, if that is known.
local function expire_with(lock, longest)
  if longest then
    redis.call('PEXPIRE', lock, longest)
  end
end

-- Returns the mode, read, write or nil, and the TTL of the lock. A hash of another format is an error.
local function mode_of(lock)
  local ttl = redis.call('PTTL', lock)
  local mode = ttl ~= -2 and read_write_mode(lock) or nil
  if ttl ~= -2 and not mode then
    return nil, ttl, redis.error_reply('WRONGTYPE no read/write lock')
  end
  return mode, ttl
end

