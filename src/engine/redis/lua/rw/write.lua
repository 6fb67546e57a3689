-- Acquires the read/write lock for writing, re-enters it, or registers a waiting writer.
--
-- Needs: format/alias.lua (alias_of), rw/holds.lua (clock, extend_expiry, mode_of, readers)
-- KEYS  1 the lock   2 the tombstones: zset of "<owner>#<attempt>"   3 the waiting writers: zset by expiry in ms
-- ARGV  1 owner   2 attempt: 1 for a fresh acquire, more for a reentry   3 hold count after it   4 lease in ms
--       5 prefix of the readers' timeout keys   6 the same caller's read owner, or ''
--       7 how long the writer stays registered without another request, in ms; 0 if it does not wait
--       8 the other name with the same auxiliary keys, or ''
--       9 if given: granted only if that reader holds the lock
-- Returns  -3 granted   -4 undone before it arrived   -5 no hold to re-enter
--          {TWIN, key} the other name's key exists
--          otherwise the remaining ms, -1 if it has no expiry
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
    -- A server short of memory refuses HSET as the first write of a script, but allows it after a command that frees memory. No
    -- owner has the name ''.
    redis.call('HDEL', KEYS[1], '')
    redis.call('HSET', KEYS[1], writer, ARGV[3])
  end
  extend_expiry(KEYS[1], ARGV[4])
  return -3
end
local alone = false
if mode == 'read' then
  local count, one = readers(KEYS[1], ARGV[5], 2)
  if count == 0 then
    redis.call('DEL', KEYS[1])
    mode = nil
  end
  -- No other reader holds the lock.
  alone = count == 1 and one == ARGV[6]
end
local free = alone or (not mode and not ARGV[9])
if ARGV[2] ~= '1' then
  -- The hold to re-enter is gone: a grant would invent it.
  return mode and ttl or -5
end
local alias = not mode and alias_of(ARGV[8])
if alias then
  return alias
end
if free then
  redis.call('HSET', KEYS[1], 'mode', 'write', writer, 1)
  extend_expiry(KEYS[1], ARGV[4])
  if waits then
    redis.call('ZREM', KEYS[3], owner)
  end
  return -3
end
if ARGV[7] ~= '0' then
  local now = clock()
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
  redis.call('ZADD', KEYS[3], now + tonumber(ARGV[7]), owner)
  extend_expiry(KEYS[3], ARGV[7])
end
return mode and ttl or -1
