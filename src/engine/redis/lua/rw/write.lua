-- Takes the read/write lock for writing, takes it once more, or says that a writer waits.
--
-- KEYS  1 the lock   2 the undone acquires: zset of "<owner>#<attempt>"   3 the writers that wait: zset by when they go
-- ARGV  1 owner   2 attempt: 1 from zero, more into a hold of its own   3 count to hold   4 lease in ms
--       5 what the readers' keys begin with   6 the same user's reader, or nothing
--       7 how long it waits if it does not ask again, in ms; 0 if it does not wait
--       8 the other name with the same side keys, or nothing
--       9 if given: only if that reader holds it
-- Returns  -3 granted   -4 undone before it came   -5 nothing to re-enter
--          {TWIN, key} the other name's key exists
--          otherwise the remaining ms, -1 if it has no end
local owner, writer = ARGV[1], ARGV[1] .. ':write'
if redis.call('ZSCORE', KEYS[2], owner .. '#' .. ARGV[2]) then
  return -4
end
local mode, ttl, wrong = mode_of(KEYS[1])
if wrong then
  return wrong
end
-- Read before anything is written: a key of another type is an error.
local waits = redis.call('ZSCORE', KEYS[3], owner)
local held = mode and redis.call('HGET', KEYS[1], writer)
if held then
  if tonumber(held) < tonumber(ARGV[3]) then
    -- A server short of memory refuses HSET as a script's first write, but lets it through behind
    -- one that frees. Nobody is called ''.
    redis.call('HDEL', KEYS[1], '')
    redis.call('HSET', KEYS[1], writer, ARGV[3])
  end
  last(KEYS[1], ARGV[4])
  return -3
end
local alone = false
if mode == 'read' then
  local count, one = readers(KEYS[1], ARGV[5], 2)
  if count == 0 then
    redis.call('DEL', KEYS[1])
    mode = nil
  end
  -- Nobody else reads.
  alone = count == 1 and one == ARGV[6]
end
local free = alone or (not mode and not ARGV[9])
if ARGV[2] ~= '1' then
  -- Into a hold that is gone: granting it would make that hold up.
  return mode and ttl or -5
end
local twin = not mode and twin_of(ARGV[8])
if twin then
  return twin
end
if free then
  redis.call('HSET', KEYS[1], 'mode', 'write', writer, 1)
  last(KEYS[1], ARGV[4])
  if waits then
    redis.call('ZREM', KEYS[3], owner)
  end
  return -3
end
if ARGV[7] ~= '0' then
  local now = clock()
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
  redis.call('ZADD', KEYS[3], now + tonumber(ARGV[7]), owner)
  last(KEYS[3], ARGV[7])
end
return mode and ttl or -1
