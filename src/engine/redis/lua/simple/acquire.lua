-- Acquires the simple lock, or re-enters it.
--
-- Needs: format/simple.lua (simple_holder)
-- KEYS  1 the lock: string, the owner
--       2 the tombstones of this lock: zset of "<owner>#<attempt>"
-- ARGV  1 owner   2 attempt: 1 for a fresh acquire, more for a reentry   3 lease in ms
-- Returns  -3 granted   -4 undone before it arrived   -5 no hold to re-enter
--          otherwise the holder's remaining ms, -1 if it has no expiry
-- A key of another type, or a string too long for a lock, is an error.
if redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then
  if redis.call('ZSCORE', KEYS[2], ARGV[1] .. '#' .. ARGV[2]) then
    return -4
  end
  local holder, wrong = simple_holder(KEYS[1])
  if wrong then
    return wrong
  end
  if holder then
    local ttl = redis.call('PTTL', KEYS[1])
    if holder ~= ARGV[1] then
      return ttl
    end
    -- Written even if the lease does not grow: replica acknowledgements are waited for by the last write.
    redis.call('PEXPIRE', KEYS[1], math.max(ttl, tonumber(ARGV[3])))
    return -3
  end
end

-- The hold to re-enter is gone: a grant would invent it.
if ARGV[2] ~= '1' then
  return -5
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return -3
