-- Takes back a writer's acquire whose outcome nobody knows: a hold, or that it waits.
--
-- KEYS  1 the lock   2 the undone acquires: zset of "<owner>#<attempt>" by expiry in ms   3 the writers that wait
-- ARGV  1 owner   2 attempt   3 count before it   4 how long to remember, in ms
--       5 the lock's channel   6 what the readers' keys begin with
-- Returns  -3 lowered, still held, refused if it comes   -6 refused if it comes
--          otherwise released, and how many listened
local writer, now = ARGV[1] .. ':write', clock()
-- Something else may live under that name; then the acquire was refused, but it may still come later.
local held = redis.pcall('HGET', KEYS[1], writer)
held = type(held) == 'string' and held or nil
if ARGV[2] == '1' and held then
  -- From zero, and carried out: it cannot come again, so no mark is needed.
  redis.call('HDEL', KEYS[1], writer)
  local count, _, longest = readers(KEYS[1], ARGV[6])
  if count == 0 then
    redis.call('DEL', KEYS[1])
  else
    redis.call('HSET', KEYS[1], 'mode', 'read')
    last_with(KEYS[1], longest)
  end
  return redis.call('PUBLISH', ARGV[5], '1')
end
if ARGV[2] == '1' and redis.call('ZREM', KEYS[3], ARGV[1]) == 1
    and redis.call('ZCOUNT', KEYS[3], '(' .. now, '+inf') == 0
    and redis.pcall('HGET', KEYS[1], 'mode') ~= 'write' then
  -- Readers of ours that waited behind this one alone need not any longer. Nothing was freed: Redisson's, and who only
  -- watches, are not told so.
  redis.call('PUBLISH', ARGV[5], '2')
end
-- What frees comes before what is written, so that a server short of memory lets it through.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if held and tonumber(held) > tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[1], writer, ARGV[3])
  return -3
end
return -6
