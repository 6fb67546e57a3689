-- Acquires the plain lock, or re-enters it.
--
-- Needs: format/lock.lua (is_lock)
-- KEYS  1 the lock: hash of owner -> hold count
--       2 the tombstones of this lock: zset of "<owner>#<attempt>"
-- ARGV  1 owner   2 attempt: 1 for a fresh acquire, more for a reentry   3 hold count after it   4 lease in ms
-- Returns  -3 granted   -4 undone before it arrived   -5 no hold to re-enter
--          otherwise the holder's remaining ms, -1 if it has no expiry
-- A key of another type, or a hash that is no lock, is an error.
local owner = ARGV[1]

if redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then
  if redis.call('ZSCORE', KEYS[2], owner .. '#' .. ARGV[2]) then
    return -4
  end
  local held = redis.call('HGET', KEYS[1], owner)
  if held then
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[4])
    end
    if tonumber(held) < tonumber(ARGV[3]) then
      -- A server short of memory refuses HSET as the first write of a script, but allows it after a command that frees memory.
      -- No owner has the name ''.
      redis.call('HDEL', KEYS[1], '')
      redis.call('HSET', KEYS[1], owner, ARGV[3])
    end
    return -3
  end
  local ttl = redis.call('PTTL', KEYS[1])
  if ttl ~= -2 then
    return is_lock(KEYS[1]) and ttl or redis.error_reply('WRONGTYPE a hash that is no lock')
  end
end

-- The hold to re-enter is gone: a grant would invent it.
if ARGV[2] ~= '1' then
  return -5
end
redis.call('HSET', KEYS[1], owner, ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return -3
