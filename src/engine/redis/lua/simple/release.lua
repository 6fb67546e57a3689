-- Gives the simple lock back. In part there is nothing to do: nobody but its owner counts.
--
-- KEYS  1 the lock
-- ARGV  1 owner   2 count to hold afterwards, 0 for none   3 the lock's channel
-- Returns  -1 nobody holds it   -2 somebody else does   -3 still held by the owner
--          otherwise released, and how many listened
-- Longer than any owner of ours.
if redis.call('GETRANGE', KEYS[1], 0, 63) == ARGV[1] then
  if ARGV[2] ~= '0' then
    return -3
  end
  redis.call('DEL', KEYS[1])
  return redis.call('PUBLISH', ARGV[3], '0')
end
return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
