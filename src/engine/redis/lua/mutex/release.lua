-- Gives the plain lock back, wholly or in part.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 count to hold afterwards, 0 for none   3 the lock's channel
-- Returns  -1 nobody holds it   -2 somebody else does   -3 still held by the owner
--          otherwise released, and how many listened
if ARGV[2] == '0' then
  -- The last field takes the hash with it. Needs no memory.
  if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
    return redis.call('PUBLISH', ARGV[3], '0')
  end
else
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
end
return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
