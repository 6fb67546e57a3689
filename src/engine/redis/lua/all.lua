-- Takes several locks, in this order, up to the first that cannot be had; then keeps those before it, or none.
--
-- Behind two tables, `take` and `give_back`: for each kind of lock the functions of the keys and arguments of one, and of the
-- `redis` they are to use, made of the texts that take and give back one lock.
--
-- KEYS  for each lock those that taking it needs, then those that giving it back needs
-- ARGV  for each lock the arguments of both; then for each lock its kind, and how many keys and arguments taking it has,
--       and giving it back; then 1 to keep those before one that cannot be had, 0 to give them back; how many locks
-- Returns, for each lock up to the first that cannot be had  what its script returns, or its error's text
local n, keep = tonumber(ARGV[#ARGV]), ARGV[#ARGV - 1] == '1'
local shape = #ARGV - 2 - 5 * n

local function slice(all, from, length)
  local part = {}
  for i = 1, length do
    part[i] = all[from + i]
  end
  return part
end

-- What was never told is not to be taken back aloud: nobody is woken for a lock that was not there for anybody.
local quiet = {
  call = function(command, ...)
    if command == 'PUBLISH' then
      return 0
    end
    return redis.call(command, ...)
  end,
  pcall = redis.pcall,
  error_reply = redis.error_reply,
  status_reply = redis.status_reply,
}

-- What else a lock's script has done to the lock's own key, which is its first: made one, or made it last.
local function restore(lock, ttl)
  local now = redis.call('PTTL', lock)
  if ttl == -2 and now ~= -2 then
    redis.call('DEL', lock)
  elseif ttl >= 0 and now > ttl then
    redis.call('PEXPIRE', lock, ttl)
  end
end

local results, undo, k, a = {}, {}, 0, 0
for i = 1, n do
  local kind = ARGV[shape + 1]
  local taking, with = tonumber(ARGV[shape + 2]), tonumber(ARGV[shape + 3])
  local giving, by = tonumber(ARGV[shape + 4]), tonumber(ARGV[shape + 5])
  local lock = KEYS[k + 1]
  local ttl = not keep and redis.pcall('PTTL', lock)
  local _, result = pcall(take[kind], slice(KEYS, k, taking), slice(ARGV, a, with), redis)
  local granted = result == -3
  if type(result) == 'table' then
    granted = not result.err
    result = result.err or result
  end
  -- At its beginning, or behind the place of the error: a user may be called READONLY.
  if type(result) == 'string' and string.find(': ' .. result, ': %-?READONLY ') then
    return redis.error_reply('READONLY You can\'t write against a read only replica')
  end
  results[i] = result
  undo[i] = {give_back[kind], slice(KEYS, k + taking, giving), slice(ARGV, a + with, by), lock, ttl}
  k, a, shape = k + taking + giving, a + with + by, shape + 5
  if not granted then
    for j = i, keep and i or 1, -1 do
      -- One that failed may have done a part of it.
      if j < i or type(result) == 'string' then
        pcall(undo[j][1], undo[j][2], undo[j][3], quiet)
      end
      if not keep then
        pcall(restore, undo[j][4], undo[j][5])
      end
    end
    break
  end
end
return results
