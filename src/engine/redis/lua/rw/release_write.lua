-- Releases the read/write lock as a writer, or lowers the hold count; an owner that does not hold it leaves the waiting
-- writers.
--
-- Needs: rw/holds.lua (clock, expire_with, mode_of, readers)
-- KEYS  1 the lock   2 the waiting writers
-- ARGV  1 owner   2 hold count afterwards, 0 for none   3 the lock's channel   4 prefix of the readers' timeout keys
-- Returns  -1 not held   -2 held by another owner   -3 still held by this owner
--          otherwise released: the number of subscribers that were notified
local writer = ARGV[1] .. ':write'
local mode, _, wrong = mode_of(KEYS[1])
if wrong then
  return wrong
end
local held = mode and redis.call('HGET', KEYS[1], writer)
if held and ARGV[2] ~= '0' then
  if tonumber(held) > tonumber(ARGV[2]) then
    -- A command that frees memory comes first, so that a server short of memory allows the others.
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
    expire_with(KEYS[1], longest)
  end
  return redis.call('PUBLISH', ARGV[3], '1')
end
if ARGV[2] == '0' and redis.call('ZREM', KEYS[2], ARGV[1]) == 1 and mode ~= 'write'
    and redis.call('ZCOUNT', KEYS[2], '(' .. clock(), '+inf') == 0 then
  -- Readers of distlock that waited for this writer alone can stop waiting. Nothing was released, so that the message is one
  -- that Redisson's waiters and monitors do not take for a release.
  redis.call('PUBLISH', ARGV[3], '2')
end
return mode and -2 or -1
