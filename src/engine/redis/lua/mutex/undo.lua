-- Takes back an acquire whose outcome nobody knows.
--
-- KEYS  1 the lock   2 the undone acquires: zset of "<owner>#<attempt>" by expiry in ms
-- ARGV  1 owner   2 attempt   3 count before it   4 how long to remember, in ms
--       5 the lock's channel
-- Returns  -3 lowered, still held, refused if it comes   -6 refused if it comes
--          otherwise released, and how many listened
local left = tonumber(ARGV[3])
-- Something else may live under that name; then the acquire was refused, but it may still come later.
local held = redis.pcall('HGET', KEYS[1], ARGV[1])
local above = type(held) == 'string' and tonumber(held) > left
if above and left == 0 then
  -- From zero, and carried out: it cannot come again, so no mark is needed.
  redis.call('HDEL', KEYS[1], ARGV[1])
  return redis.call('PUBLISH', ARGV[5], '0')
end
-- Above a hold that goes on one cannot tell by the count: others may have left meanwhile. What frees
-- comes before what is written, so that a server short of memory lets it through.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if above then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  return -3
end
return -6
