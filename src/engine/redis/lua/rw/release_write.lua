-- Gives the read/write lock back as a writer, wholly or in part; one that does not hold it waits no longer.
--
-- KEYS  1 the lock   2 the writers that wait
-- ARGV  1 owner   2 count to hold afterwards, 0 for none   3 the lock's channel   4 what the readers' keys begin with
-- Returns  -1 nobody holds it   -2 somebody else does   -3 still held by the owner
--          otherwise released, and how many listened
local writer = ARGV[1] .. ':write'
local mode, _, wrong = mode_of(KEYS[1])
if wrong then
  return wrong
end
local held = mode and redis.call('HGET', KEYS[1], writer)
if held and ARGV[2] ~= '0' then
  if tonumber(held) > tonumber(ARGV[2]) then
    -- What frees comes first, so that a server short of memory lets the rest through.
    redis.call('HDEL', KEYS[1], '')
    redis.call('HSET', KEYS[1], writer, ARGV[2])
  end
  return -3
end
if held then
  redis.call('HDEL', KEYS[1], writer)
  local count, _, longest = readers(KEYS[1], ARGV[4])
  if count == 0 then
    redis.call('DEL', KEYS[1])
  else
    redis.call('HSET', KEYS[1], 'mode', 'read')
    last_with(KEYS[1], longest)
  end
  return redis.call('PUBLISH', ARGV[3], '1')
end
if ARGV[2] == '0' and redis.call('ZREM', KEYS[2], ARGV[1]) == 1 and mode ~= 'write'
    and redis.call('ZCOUNT', KEYS[2], '(' .. clock(), '+inf') == 0 then
  -- Readers of ours that waited behind this one alone need not any longer. Nothing was freed: Redisson's, and who only
  -- watches, are not told so.
  redis.call('PUBLISH', ARGV[3], '2')
end
return mode and -2 or -1
