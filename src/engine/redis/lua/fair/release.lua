-- Gives the fair lock back, wholly or in part; an owner that does not hold it leaves its line.
--
-- KEYS  1 the lock   2 the line   3 when Redisson passes each over   4 until when ours are there
-- ARGV  1 owner   2 count to hold afterwards, 0 for none   3 the lock's channel
-- Returns  -1 nobody holds it   -2 somebody else does   -3 still held by the owner   0 released
if ARGV[2] ~= '0' then
  local held = redis.call('HGET', KEYS[1], ARGV[1])
  if held then
    if tonumber(held) > tonumber(ARGV[2]) then
      -- A server short of memory refuses HSET as a script's first write, but lets it through behind
      -- one that frees. Nobody is called ''.
      redis.call('HDEL', KEYS[1], '')
      redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
    end
    return -3
  end
  return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
end
-- The last field takes the hash with it. Needs no memory.
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  notify(KEYS[2], KEYS[3], KEYS[4], clock(), ARGV[3])
  return 0
end
leave(KEYS[1], KEYS[2], KEYS[3], KEYS[4], clock(), ARGV[1], ARGV[3])
return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
