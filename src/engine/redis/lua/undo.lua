-- Takes back an acquire whose outcome nobody knows.
--
-- KEYS  1 the lock   2 its channel   3 the undone acquires: zset of "<owner>#<attempt>" by expiry in ms
-- ARGV  1 owner   2 attempt   3 count before it   4 how long to remember, in ms
-- Returns  -3 lowered, still held   -6 it had not come; it will be refused
--          otherwise released, and how many listened
local left = tonumber(ARGV[3])
-- Something else may live under that name; then the acquire was refused, but it may still come later.
local held = redis.pcall('HGET', KEYS[1], ARGV[1])
if type(held) == 'string' and tonumber(held) > left then
  -- Deleted before it is written: works without memory (see release.lua).
  if redis.call('HDEL', KEYS[1], left == 0 and ARGV[1] or '') == 1 then
    return redis.call('PUBLISH', KEYS[2], '0')
  end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  return -3
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return -6
