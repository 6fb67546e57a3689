-- Reports the holders of a name, whatever kind of lock it is; the formats precede it. It only reads, and a bounded amount: a
-- lock with more than 256 readers, or a semaphore with more than 256 permits in use, is reported page by page.
--
-- Needs: format/owner.lua (hold_count, is_owner), format/lock.lua (is_lock), format/read_write.lua (read_write_mode),
--        format/number.lua (stored_number), format/permits.lua (NO_END, are_permits, are_recorded, is_permit)
-- KEYS  the lock and, as far as the user may read them, its auxiliary keys
-- ARGV  1 prefix of the readers' timeout keys   2 the cursor: 0 for the first page   3 a letter for each key: l the lock, t the
--       last token, q the queue, w the waiting writers, o the permits in use, c their clients, n the waiters for several permits
--       4 the other name with the same auxiliary keys, or ''
-- Returns  {'free'}  also for permits without a number whose clients distlock has not recorded, or the user may not read
--          {'number'}  an integer without permits in use
--          {'hash', remaining ms (-1 no expiry), the token or '', the first hundred waiters, owner, count, ...}
--          {'shared', next cursor, remaining ms, the mode, the first hundred waiting writers, field, count, its own ms, ...}
--          {'value', remaining ms, the owner}
--          {'permits', next cursor, available, in use, {id, remaining ms (-1 no expiry), ...}, {client uuids},
--           the first hundred waiters}
-- A key that is none of these is an error, and its content is not reported.
local key, cursor = {}, ARGV[2]
for i, name in ipairs(KEYS) do
  key[string.sub(ARGV[3], i, i)] = name
end
local lock = key.l

local function foreign()
  return redis.error_reply('WRONGTYPE its key holds data of another program')
end

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns whether an auxiliary key exists and has this type. A key of another type belongs to another program.
local function is_there(auxiliary_key, of_type)
  return auxiliary_key and redis.call('TYPE', auxiliary_key)['ok'] == of_type
end

-- Returns the first hundred owners that read(from, to) returns. Other data may be of any length, so that a few entries are read
-- at a time, and none after the first that is no owner.
local function owners_of(read)
  local owners, from = {}, 0
  for _, to in ipairs({1, 9, 19, 39, 59, 79, 99}) do
    for _, owner in ipairs(read(from, to)) do
      if not is_owner(owner) then
        return owners
      end
      owners[#owners + 1] = owner
    end
    from = to + 1
    if #owners < from then
      break
    end
  end
  return owners
end

-- Returns the first hundred owners in a list, or none without a key.
local function waiters(list)
  return is_there(list, 'list') and owners_of(function(from, to)
    return redis.call('LRANGE', list, from, to)
  end) or {}
end

-- Reports a plain, fenced or fair lock: each field is an owner.
local function of_owners(ttl)
  -- One byte more than the longest token: a string of any size costs the same.
  local token = is_there(key.t, 'string') and redis.call('GETRANGE', key.t, 0, 17) or ''
  token = #token <= 17 and token or ''
  local reply = {'hash', ttl, token, waiters(key.q)}
  for _, word in ipairs(redis.call('HGETALL', lock)) do
    reply[#reply + 1] = word
  end
  return reply
end

-- Returns how long a reader still holds the lock. A reader has a key for each of its holds, of which the newest are read.
local function remaining_ttl(reader, count, most)
  local longest = -2
  for number = math.max(1, count - most + 1), count do
    local own = ARGV[1] .. ':' .. reader .. ':rwlock_timeout:' .. number
    longest = math.max(longest, redis.call('PTTL', own))
  end
  return longest
end

-- Reports a read/write lock, or a page of it.
local function of_readers(ttl, mode)
  local page = {'0', {}}
  local size = redis.call('HLEN', lock)
  if size <= 256 then
    -- Another program's value may be of any size: a value that is too long for a count is not read.
    local names = redis.call('HRANDFIELD', lock, size)
    for _, name in ipairs(names) do
      if not is_owner(name) and name ~= 'mode' or redis.call('HSTRLEN', lock, name) > 9 then
        return foreign()
      end
    end
    local values = #names > 0 and redis.call('HMGET', lock, unpack(names)) or {}
    for i, name in ipairs(names) do
      page[2][2 * i - 1], page[2][2 * i] = name, values[i]
    end
  else
    page = redis.call('HSCAN', lock, cursor, 'COUNT', 100)
  end
  local writers = {}
  if key.w and cursor == '0' then
    local now = clock()
    writers = owners_of(function(from, to)
      return redis.call('ZRANGEBYSCORE', key.w, '(' .. now, '+inf', 'LIMIT', from, to - from + 1)
    end)
  end
  local reply, fields = {'shared', page[1], ttl, mode, writers}, page[2]
  -- There are two elements for each reader. At most 640 timeout keys are read, and at least one for each reader.
  local most = math.max(1, math.floor(1280 / #fields))
  for i = 1, #fields, 2 do
    local field, count = fields[i], fields[i + 1]
    local owner, writes = is_owner(field)
    if owner and not hold_count(count) or not owner and field ~= 'mode' then
      return foreign()
    end
    local own = owner and (writes and ttl or remaining_ttl(field, tonumber(count), most))
    if own and ttl >= 0 then
      -- A reader's hold ends with the lock, whose lease Redisson's watchdog may have shortened.
      own = math.min(own, ttl)
    end
    if own and (writes or own > 0) then
      reply[#reply + 1] = field
      reply[#reply + 1] = count
      reply[#reply + 1] = own
    end
  end
  return reply
end

-- Returns the uuids of the clients that have these permits: an id starts with four bytes of its client's id.
local function clients_of(ids)
  local known, clients = {}, {}
  for i = 1, key.c and #ids or 0, 2 do
    local start = string.sub(ids[i], 1, 4)
    if not known[start] then
      known[start] = true
      -- A field that is no uuid belongs to another program, and may be of any size.
      local is_uuid = redis.call('HSTRLEN', key.c, start) == 36
      clients[#clients + 1] = is_uuid and redis.call('HGET', key.c, start) or nil
    end
  end
  return clients
end

-- Reports a semaphore with permits in use. Expired permits count as available: the next acquire reclaims them.
local function of_permits(available)
  local in_use_key, now = key.o, clock()
  if not are_permits(in_use_key) then
    return foreign()
  end
  if not available and not (key.c and are_recorded(in_use_key, key.c)) then
    return {'free'}
  end
  local size, expired = redis.call('ZCARD', in_use_key), redis.call('ZCOUNT', in_use_key, '-inf', now)
  if size == expired then
    return available and {'number'} or {'free'}
  end
  local page = {'0', {}}
  if size <= 256 then
    -- A few at a time: a member may be of any length, and none is read after one that is no permit.
    for from = 0, size - 1, 16 do
      local some = redis.call('ZRANGE', in_use_key, from, from + 15, 'WITHSCORES')
      for i = 1, #some, 2 do
        if not is_permit(some[i], some[i + 1]) then
          return foreign()
        end
        page[2][#page[2] + 1], page[2][#page[2] + 2] = some[i], some[i + 1]
      end
    end
  else
    page = redis.call('ZSCAN', in_use_key, cursor, 'COUNT', 200)
  end
  local ids = {}
  for i = 1, #page[2], 2 do
    local id, score = page[2][i], page[2][i + 1]
    if not is_permit(id, score) then
      return foreign()
    end
    local till = tonumber(score)
    if till > now then
      ids[#ids + 1] = id
      ids[#ids + 1] = till >= NO_END and -1 or till - now
    end
  end
  available = available and string.format('%.0f', available + expired) or '0'
  return {'permits', page[1], available, size - expired, ids, clients_of(ids), waiters(cursor == '0' and key.n)}
end

local kind = redis.call('TYPE', lock)['ok']
if kind == 'hash' then
  local ttl, mode = redis.call('PTTL', lock), read_write_mode(lock)
  if mode then
    return of_readers(ttl, mode)
  end
  return is_lock(lock) and of_owners(ttl) or foreign()
elseif kind == 'string' then
  local value = redis.call('GETRANGE', lock, 0, 127)
  if is_owner(value) then
    return {'value', redis.call('PTTL', lock), value}
  end
  local number, wrong = stored_number(lock)
  if wrong then
    return foreign()
  end
  return is_there(key.o, 'zset') and of_permits(number) or {'number'}
elseif kind ~= 'none' then
  return foreign()
end
-- A semaphore whose number was deleted may still have permits in use. Permits of the other name are not its own.
local alias = ARGV[4] ~= '' and redis.pcall('EXISTS', ARGV[4]) == 1
return not alias and is_there(key.o, 'zset') and of_permits(nil) or {'free'}
