-- Before the scripts of the semaphore: its permits.
--
-- there is Redisson's number of permits that can be had, out its zset of those that cannot, each an id of 16 bytes and until
-- when it is out, in ms of the server's clock. clients is ours: what the ids of a client's permits begin with, and its uuid, for
-- those who look whose they are.
--
-- KEYS  those of the script behind it
-- Returns  nothing: it goes on there
-- An owner's permit by its number; shared is what all of them begin with.
local function id(shared, number)
  return shared .. struct.pack('>I4', number)
end

-- How many are there, nil if nobody has said; or that it is no such number.
local function count(there)
  local found = redis.call('GET', there)
  if not found then
    return nil
  end
  -- As Redis writes them, and no greater than what can be counted exactly: what it could not add to would be lost.
  local plain = found == '0' or string.match(found, '^%-?[1-9]%d*$')
  local number = plain and tonumber(found)
  if not number or math.abs(number) > 9007199254740991 then
    return nil, redis.error_reply('WRONGTYPE no number of permits')
  end
  return number
end

-- What is out ends with the number, if that has an end; Redisson gives it one, and forgets it again.
local function together(there, out)
  local ends, now = redis.call('PTTL', there), redis.call('PTTL', out)
  if ends > 0 and now ~= ends then
    redis.call('PEXPIRE', out, ends)
  elseif ends == -1 and now > 0 then
    redis.call('PERSIST', out)
  end
end

-- Adds to the number what comes back, if somebody has said one: it is not made anew. Before what is out is taken away, and that is
-- tried on nothing before: whichever of both the user may not do, no permit is lost and none made up.
local function add(there, many)
  return count(there) and redis.call('INCRBY', there, many)
end

-- How many listened to how many there are.
local function tell(channel, number)
  return number and number > 0 and redis.call('PUBLISH', channel, number) or 0
end

-- Takes back what nobody has given back in time. How many are there then, or what is wrong.
local function reclaim(there, out, now, channel)
  local number, wrong = count(there)
  if wrong then
    return nil, wrong
  end
  -- None. A server without memory lets the next one through after it.
  redis.call('ZREMRANGEBYSCORE', out, 1, 0)
  local late = redis.call('ZCOUNT', out, '-inf', now)
  if late > 0 then
    number = add(there, late)
    redis.call('ZREMRANGEBYSCORE', out, '-inf', now)
    tell(channel, number)
  end
  return number
end

-- Takes back these permits. How many are there then.
local function take_back(there, out, ids)
  -- None.
  redis.call('ZREM', out, '')
  local number = add(there, #ids)
  for _, permit in ipairs(ids) do
    redis.call('ZREM', out, permit)
  end
  return number
end

-- Notes whose permits begin so, for as long as they are out.
local function note(clients, shared, owner, lease)
  redis.call('HSET', clients, string.sub(shared, 1, 4), string.match(owner, '^[^:]*'))
  if redis.call('PTTL', clients) < lease then
    redis.call('PEXPIRE', clients, lease)
  end
end

-- Those of an owner's permits that are out, of so many.
local function owned(out, shared, permits)
  local ids = {}
  for number = 1, tonumber(permits) do
    if redis.call('ZSCORE', out, id(shared, number)) then
      ids[#ids + 1] = id(shared, number)
    end
  end
  return ids
end

-- Gives back all permits of an owner, of so many. How many listened; nothing if it had none.
local function give_back(there, out, clients, shared, permits, channel)
  local ids = owned(out, shared, permits)
  if #ids == 0 then
    return nil
  end
  local listeners = tell(channel, take_back(there, out, ids))
  if redis.call('EXISTS', out) == 0 then
    redis.call('DEL', clients)
  end
  return listeners
end

-- Makes all permits of an owner last until then, if they would end sooner and it has all of them. How many it has.
local function keep(there, out, shared, permits, till)
  local ids = owned(out, shared, permits)
  if #ids == tonumber(permits) then
    together(there, out)
    for _, permit in ipairs(ids) do
      if tonumber(redis.call('ZSCORE', out, permit)) < till then
        redis.call('ZADD', out, string.format('%.0f', till), permit)
      end
    end
  end
  return #ids
end

