-- Releases the plain lock, or lowers its hold count.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 hold count afterwards, 0 for none   3 the lock's channel
-- Returns  -1 not held   -2 held by another owner   -3 still held by this owner
--          otherwise released: the number of subscribers that were notified
if ARGV[2] == '0' then
  -- The removal of the last field deletes the hash. It needs no memory.
  if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
    return redis.call('PUBLISH', ARGV[3], '0')
  end
else
  local held = redis.call('HGET', KEYS[1], ARGV[1])
  if held then
    if tonumber(held) > tonumber(ARGV[2]) then
      -- A server short of memory refuses HSET as the first write of a script, but allows it after a command that frees memory.
      -- No owner has the name ''.
      redis.call('HDEL', KEYS[1], '')
      redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
    end
    return -3
  end
end
return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
