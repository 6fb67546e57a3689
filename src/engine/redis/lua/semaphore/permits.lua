-- Prelude of the scripts of the semaphore: its permits.
--
-- available_key is Redisson's number of available permits; in_use_key is its zset of the permits in use, each an id of 16
-- bytes with its expiry in ms of the server's clock as score. clients is private to distlock: the id prefix of each client's
-- permits, and its uuid. It identifies the client of a permit, and proves that the zset holds permits if the number is
-- missing.
-- Needs: format/alias.lua (alias_of), format/number.lua (stored_number), format/permits.lua (are_permits, are_recorded)
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
--
-- Returns the id of an owner's permit by its number; id_prefix is the prefix of all of them.
local function id(id_prefix, number)
  return id_prefix .. struct.pack('>I4', number)
end

-- Returns the ids of all permits of an owner that was granted this many.
local function ids(id_prefix, permits)
  local all = {}
  for number = 1, permits do
    all[number] = id(id_prefix, number)
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
local function lease_until(in_use_key, ids, till, ...)
  local words, score = {...}, string.format('%.0f', till)
  for _, some in ipairs(portions(ids, 1000)) do
    local args = {unpack(words)}
    for _, permit in ipairs(some) do
      args[#args + 1] = score
      args[#args + 1] = permit
    end
    redis.call('ZADD', in_use_key, unpack(args))
  end
end

-- Gives the permits in use the same expiry as the number, if that has one: Redisson sets one, and removes it again.
local function sync_expiry(available_key, in_use_key)
  local ends, now = redis.call('PTTL', available_key), redis.call('PTTL', in_use_key)
  if ends > 0 and now ~= ends then
    redis.call('PEXPIRE', in_use_key, ends)
  elseif ends == -1 and now > 0 then
    redis.call('PERSIST', in_use_key)
  end
end

-- Adds returned permits to the number, unless it is missing: it is not created. This comes before the permits are removed from
-- those in use, and the removal of nothing is tried before it: whichever of both the user may not do, no permit is lost or
-- created.
local function add(available_key, many)
  return stored_number(available_key) and redis.call('INCRBY', available_key, many)
end

-- Publishes the number of available permits. Returns the number of subscribers that were notified.
local function notify(channel, number)
  return number and number > 0 and redis.call('PUBLISH', channel, number) or 0
end

-- Deletes the record of the clients that had permits, once no permit is in use. A key of another type is another program's.
local function delete_clients(in_use_key, clients)
  if redis.call('EXISTS', in_use_key) == 0 and redis.pcall('HGET', clients, '') == false then
    redis.call('DEL', clients)
  end
end

-- Returns the number of available permits, or nil if it is missing. The second result is an error, if either key is foreign.
-- The error names the key, since the user knows only that of the number.
local function read_available(available_key, in_use_key)
  local number, wrong = stored_number(available_key)
  if wrong then
    return number, wrong
  end
  local size = redis.pcall('ZCARD', in_use_key)
  if type(size) == 'table' then
    if string.find(size.err, '^WRONGTYPE') then
      wrong = redis.error_reply('WRONGTYPE the key of its permits in use, {NAME}:timeout, has a value of another type')
    else
      wrong = size
    end
  elseif not are_permits(in_use_key) then
    wrong = redis.error_reply('WRONGTYPE the key of its permits in use, {NAME}:timeout, is a zset that holds no permits')
  end
  return number, wrong
end

local UNPROVEN = 'WRONGTYPE the key of its permits in use, {NAME}:timeout, is a zset that may hold no permits'

-- Returns whether the zset may belong to another program: its format is that of permits, but the number is missing, and
-- distlock has not recorded the clients.
local function is_unproven(number, in_use_key, clients)
  return not number and not are_recorded(in_use_key, clients)
end

-- Returns expired permits to the number. Returns what read_available does, with the number afterwards; nothing changes if the
-- permits may belong to another program or to the other name.
local function reclaim(available_key, in_use_key, clients, now, channel, alias)
  local number, wrong = read_available(available_key, in_use_key)
  if wrong or alias_of(alias) or is_unproven(number, in_use_key, clients) then
    return number, wrong
  end
  -- Removes nothing. A server without memory allows the next write after it.
  redis.call('ZREMRANGEBYSCORE', in_use_key, 1, 0)
  local expired = redis.call('ZCOUNT', in_use_key, '-inf', now)
  if expired > 0 then
    number = add(available_key, expired)
    redis.call('ZREMRANGEBYSCORE', in_use_key, '-inf', now)
    notify(channel, number)
    delete_clients(in_use_key, clients)
  end
  return number
end

-- Returns these permits to the number, and returns the number of available permits afterwards.
local function release_permits(available_key, in_use_key, ids)
  -- Removes nothing: a user without the right is stopped before the number is raised.
  redis.call('ZREM', in_use_key, '')
  local number = add(available_key, #ids)
  for _, some in ipairs(portions(ids, 1000)) do
    redis.call('ZREM', in_use_key, unpack(some))
  end
  return number
end

-- Records the client whose permit ids have this prefix, until a day after their expiry: the record proves that the zset holds
-- permits, even if they have expired and their number is lost.
local function record_client(clients, id_prefix, owner, lease)
  local ms = lease + 86400000
  redis.call('HSET', clients, string.sub(id_prefix, 1, 4), string.match(owner, '^[^:]*'))
  if redis.call('PTTL', clients) < ms then
    redis.call('PEXPIRE', clients, string.format('%.0f', ms))
  end
end

-- Returns which of an owner's N permits are in use, and when the first of them expires.
local function owned(in_use_key, id_prefix, permits)
  local found, soonest = {}, nil
  for _, some in ipairs(portions(ids(id_prefix, tonumber(permits)), 1000)) do
    for i, score in ipairs(redis.call('ZMSCORE', in_use_key, unpack(some))) do
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
local function release_owned(available_key, in_use_key, clients, id_prefix, permits, channel)
  local ids = owned(in_use_key, id_prefix, permits)
  if #ids == 0 then
    return nil
  end
  local subscribers = notify(channel, release_permits(available_key, in_use_key, ids))
  delete_clients(in_use_key, clients)
  return subscribers, #ids
end

-- Extends all permits of an owner until this time, if they would expire sooner and it has all of them. Returns how many it has.
local function extend(available_key, in_use_key, id_prefix, permits, till)
  local ids, soonest = owned(in_use_key, id_prefix, permits)
  if #ids == tonumber(permits) then
    sync_expiry(available_key, in_use_key)
    if soonest < till then
      lease_until(in_use_key, ids, till, 'XX', 'GT')
    end
  end
  return #ids
end

