-- Takes the read/write lock for reading, or takes it once more.
--
-- KEYS  1 the lock   2 the undone acquires: zset of "<owner>#<attempt>"   3 the writers that wait: zset by when they go
-- ARGV  1 owner   2 attempt: 1 from zero, more into a hold of its own   3 count to hold   4 lease in ms
--       5 what the readers' keys begin with   6 the same user's writer, or nothing   7 1 past writers that wait
--       8 the other name with the same side keys, or nothing
--       9 if given: only if that writer holds it
-- Returns  -3 granted   -4 undone before it came   -5 nothing to re-enter
--          {TWIN, key} the other name's key exists
--          otherwise the remaining ms, -1 if it has no end or a writer is first
local owner, now = ARGV[1], clock()
if redis.call('ZSCORE', KEYS[2], owner .. '#' .. ARGV[2]) then
  return -4
end
local mode, ttl, wrong = mode_of(KEYS[1])
if wrong then
  return wrong
end
local held = mode and redis.call('HGET', KEYS[1], owner)
local there, each = left(ARGV[5], owner, held)
if held and there > 0 then
  local count = math.max(tonumber(held), tonumber(ARGV[3]))
  -- What frees comes first, so that a server short of memory lets the rest through. Nobody is called ''.
  redis.call('HDEL', KEYS[1], '')
  master_epoch(ARGV[5], owner, count, ARGV[4], each)
  if count > tonumber(held) then
    redis.call('HSET', KEYS[1], owner, count)
  end
  last(KEYS[1], ARGV[4])
  return -3
elseif held and mode == 'read' and readers(KEYS[1], ARGV[5], 1) == 0 then
  redis.call('DEL', KEYS[1])
  mode = nil
end
if ARGV[2] ~= '1' then
  -- Into a hold that is gone: granting it would make that hold up.
  return mode and ttl or -5
end
local twin = not mode and twin_of(ARGV[8])
if twin then
  return twin
end
if ARGV[9] and mode ~= 'write' then
  return mode and ttl or -1
end
if mode == 'write' then
  if ARGV[6] == '' or redis.call('HEXISTS', KEYS[1], ARGV[6] .. ':write') == 0 then
    return ttl
  end
elseif ARGV[7] ~= '1' and redis.call('ZCOUNT', KEYS[3], '(' .. now, '+inf') > 0 then
  return -1
end
-- Its time first: a user who may not write that key must not leave a reader without an end.
master_epoch(ARGV[5], owner, 1, ARGV[4])
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
redis.call('HSET', KEYS[1], owner, 1)
last(KEYS[1], ARGV[4])
return -3
