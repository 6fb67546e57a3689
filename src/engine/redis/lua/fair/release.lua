-- Releases the fair lock, or lowers its hold count; an owner that does not hold it leaves the queue.
--
-- Needs: fair/queue.lua (clock, leave, notify)
-- KEYS  1 the lock   2 the queue   3 when Redisson skips each waiter   4 expiry of each distlock waiter
-- ARGV  1 owner   2 hold count afterwards, 0 for none   3 the lock's channel
-- Returns  -1 not held   -2 held by another owner   -3 still held by this owner   0 released
if ARGV[2] ~= '0' then
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
  return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
end
-- The removal of the last field deletes the hash. It needs no memory.
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  notify(KEYS[2], KEYS[3], KEYS[4], clock(), ARGV[3])
  return 0
end
leave(KEYS[1], KEYS[2], KEYS[3], KEYS[4], clock(), ARGV[1], ARGV[3])
return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
