-- Prelude of the scripts of the semaphore: its permits.
--
-- there is Redisson's number of available permits; out is its zset of the permits in use, each an id of 16 bytes with its
-- expiry in ms of the server's clock as score. clients is private to distlock: the id prefix of each client's permits, and its
-- uuid. It identifies the client of a permit, and proves that the zset holds permits if the number is missing.
--
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
--
-- Returns the id of an owner's permit by its number; shared is the prefix of all of them.
local function id(shared, number)
  return shared .. struct.pack('>I4', number)
end

-- Returns the ids of all permits of an owner that was granted this many.
local function ids(shared, permits)
  local all = {}
  for number = 1, permits do
    all[number] = id(shared, number)
  end
  return all
end

-- Splits a list into portions that fit into one command: a call for each id would take too long for thousands of them.
local function portions(list, size)
  local all = {}
  for from = 1, #list, size do
    all[#all + 1] = {unpack(list, from, math.min(from + size - 1, #list))}
  end
  return all
end

-- Sets the expiry of these permits; the further arguments are options of ZADD.
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

-- Gives the permits in use the same expiry as the number, if that has one: Redisson sets one, and removes it again.
local function sync_expiry(there, out)
  local ends, now = redis.call('PTTL', there), redis.call('PTTL', out)
  if ends > 0 and now ~= ends then
    redis.call('PEXPIRE', out, ends)
  elseif ends == -1 and now > 0 then
    redis.call('PERSIST', out)
  end
end

-- Adds returned permits to the number, unless it is missing: it is not created. This comes before the permits are removed from
-- those in use, and the removal of nothing is tried before it: whichever of both the user may not do, no permit is lost or
-- created.
local function add(there, many)
  return stored_number(there) and redis.call('INCRBY', there, many)
end

-- Publishes the number of available permits. Returns the number of subscribers that were notified.
local function notify(channel, number)
  return number and number > 0 and redis.call('PUBLISH', channel, number) or 0
end

-- Forgets the clients that had permits, once no permit is in use. A key of another type is another program's.
local function forget_clients(out, clients)
  if redis.call('EXISTS', out) == 0 and redis.pcall('HGET', clients, '') == false then
    redis.call('DEL', clients)
  end
end

-- Returns the number of available permits, or nil if it is missing. The second result is an error, if either key is foreign.
-- The error names the key, since the user knows only that of the number.
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

-- Returns whether the zset may belong to another program: its format is that of permits, but the number is missing, and
-- distlock has not recorded the clients.
local function is_unproven(number, out, clients)
  return not number and not are_recorded(out, clients)
end

-- Removes nothing. A server without memory allows the next write after it.
local function reclaim(there, out, clients, now, channel, alias)
  local number, wrong = available(there, out)
  if wrong or alias_of(alias) or is_unproven(number, out, clients) then
    return number, wrong
  end
  -- Removes nothing. A server without memory allows the next write after it.
  redis.call('ZREMRANGEBYSCORE', out, 1, 0)
  local late = redis.call('ZCOUNT', out, '-inf', now)
  if late > 0 then
    number = add(there, late)
    redis.call('ZREMRANGEBYSCORE', out, '-inf', now)
    notify(channel, number)
    forget_clients(out, clients)
  end
  return number
end

-- Returns these permits to the number, and returns the number of available permits afterwards.
local function release_permits(there, out, ids)
  -- Removes nothing: a user without the right is stopped before the number is raised.
  redis.call('ZREM', out, '')
  local number = add(there, #ids)
  for _, some in ipairs(portions(ids, 1000)) do
    redis.call('ZREM', out, unpack(some))
  end
  return number
end

-- Records the client whose permit ids have this prefix, until a day after their expiry: the record proves that the zset holds
-- permits, even if they have expired and their number is lost.
local function record_client(clients, shared, owner, lease)
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

-- Releases all permits of an owner. Returns the number of subscribers that were notified and the number of permits, or nil if
-- it had none.
local function release_owned(there, out, clients, shared, permits, channel)
  local ids = owned(out, shared, permits)
  if #ids == 0 then
    return nil
  end
  local subscribers = notify(channel, release_permits(there, out, ids))
  forget_clients(out, clients)
  return subscribers, #ids
end

-- Extends all permits of an owner until this time, if they would expire sooner and it has all of them. Returns how many it has.
local function extend(there, out, shared, permits, till)
  local ids, soonest = owned(out, shared, permits)
  if #ids == tonumber(permits) then
    sync_expiry(there, out)
    if soonest < till then
      lease_until(out, ids, till, 'XX', 'GT')
    end
  end
  return #ids
end

