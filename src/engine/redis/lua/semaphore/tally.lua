-- Before the scripts of the semaphore: its permits.
--
-- there is Redisson's number of permits that can be had, out its zset of those that cannot, each an id of 16 bytes and until
-- when it is out, in ms of the server's clock. clients is ours: what the ids of a client's permits begin with, and its uuid. It
-- tells whose a permit is, and proves that the zset holds permits where the number is missing.
--
-- KEYS  those of the script behind it
-- Returns  nothing: it goes on there
-- An owner's permit by its number; shared is what all of them begin with.
local function id(shared, number)
  return shared .. struct.pack('>I4', number)
end

-- All permits of an owner that was granted so many.
local function ids(shared, permits)
  local all = {}
  for number = 1, permits do
    all[number] = id(shared, number)
  end
  return all
end

-- Lists in portions that fit into one command: a call for each id would take too long where there are thousands.
local function portions(list, size)
  local all = {}
  for from = 1, #list, size do
    all[#all + 1] = {unpack(list, from, math.min(from + size - 1, #list))}
  end
  return all
end

-- Sets the end of these permits; with further words of ZADD, if any.
local function lease_until(out, ids, till, ...)
  local words, score = {...}, string.format('%.0f', till)
  for _, some in ipairs(portions(ids, 1000)) do
    local args = {unpack(words)}
    for _, permit in ipairs(some) do
      args[#args + 1] = score
      args[#args + 1] = permit
    end
    redis.call('ZADD', out, unpack(args))
  end
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
  return stored_number(there) and redis.call('INCRBY', there, many)
end

-- How many listened to how many there are.
local function tell(channel, number)
  return number and number > 0 and redis.call('PUBLISH', channel, number) or 0
end

-- Forgets the clients that had permits, once no permit is in use. A key of another type is another program's.
local function forget_clients(out, clients)
  if redis.call('EXISTS', out) == 0 and redis.pcall('HGET', clients, '') == false then
    redis.call('DEL', clients)
  end
end

-- The number of available permits, or nil if it is missing. The second result is an error, if either key is foreign. The error
-- tells which key it is, since the user knows only the number's.
local function available(there, out)
  local number, wrong = stored_number(there)
  if wrong then
    return number, wrong
  end
  local size = redis.pcall('ZCARD', out)
  if type(size) == 'table' then
    if string.find(size.err, '^WRONGTYPE') then
      wrong = redis.error_reply('WRONGTYPE the key of its permits in use, {NAME}:timeout, has a value of another type')
    else
      wrong = size
    end
  elseif not are_permits(out) then
    wrong = redis.error_reply('WRONGTYPE the key of its permits in use, {NAME}:timeout, is a zset that holds no permits')
  end
  return number, wrong
end

local UNPROVEN = 'WRONGTYPE the key of its permits in use, {NAME}:timeout, is a zset that may hold no permits'

-- Whether the zset may be another program's: its format is that of permits, but the number is missing, and distlock has not noted
-- the clients.
local function is_unproven(number, out, clients)
  return not number and not are_noted(out, clients)
end

-- Takes back the permits that nobody has given back in time. Returns how many are available then, nil if the number is missing;
-- the second result is an error, if either key is foreign. Where the zset may be another program's, or the permits those of the
-- other name, nothing is changed and no error is returned. twin is the other name, or '' if the caller knows that it is free.
local function reclaim(there, out, clients, now, channel, twin)
  local number, wrong = available(there, out)
  if wrong or twin_of(twin) or is_unproven(number, out, clients) then
    return number, wrong
  end
  -- None. A server without memory lets the next one through after it.
  redis.call('ZREMRANGEBYSCORE', out, 1, 0)
  local late = redis.call('ZCOUNT', out, '-inf', now)
  if late > 0 then
    number = add(there, late)
    redis.call('ZREMRANGEBYSCORE', out, '-inf', now)
    tell(channel, number)
    forget_clients(out, clients)
  end
  return number
end

-- Takes back these permits. How many are there then.
local function take_back(there, out, ids)
  -- None.
  redis.call('ZREM', out, '')
  local number = add(there, #ids)
  for _, some in ipairs(portions(ids, 1000)) do
    redis.call('ZREM', out, unpack(some))
  end
  return number
end

-- Notes the client whose permit ids have this prefix, until a day after their end: the note proves that the zset holds permits,
-- even if they are late and their number is lost.
local function note(clients, shared, owner, lease)
  local ms = lease + 86400000
  redis.call('HSET', clients, string.sub(shared, 1, 4), string.match(owner, '^[^:]*'))
  if redis.call('PTTL', clients) < ms then
    redis.call('PEXPIRE', clients, string.format('%.0f', ms))
  end
end

-- Returns which of an owner's N permits are in use, and when the first of them expires.
local function owned(out, shared, permits)
  local found, soonest = {}, nil
  for _, some in ipairs(portions(ids(shared, tonumber(permits)), 1000)) do
    for i, score in ipairs(redis.call('ZMSCORE', out, unpack(some))) do
      if score then
        found[#found + 1] = some[i]
        soonest = math.min(soonest or tonumber(score), tonumber(score))
      end
    end
  end
  return found, soonest
end

-- Releases all permits of an owner. Returns the number of listeners and of permits; nil if it had none.
local function give_back(there, out, clients, shared, permits, channel)
  local ids = owned(out, shared, permits)
  if #ids == 0 then
    return nil
  end
  local listeners = tell(channel, take_back(there, out, ids))
  forget_clients(out, clients)
  return listeners, #ids
end

-- Makes all permits of an owner last until then, if they would end sooner and it has all of them. How many it has.
local function keep(there, out, shared, permits, till)
  local ids, soonest = owned(out, shared, permits)
  if #ids == tonumber(permits) then
    together(there, out)
    if soonest < till then
      lease_until(out, ids, till, 'XX', 'GT')
    end
  end
  return #ids
end

