-- Takes back an acquire of the simple lock whose outcome nobody knows.
--
-- KEYS  1 the lock   2 the undone acquires: zset of "<owner>#<attempt>" by expiry in ms
-- ARGV  1 owner   2 attempt   3 how long to remember, in ms   4 the lock's channel
-- Returns  -6 refused if it comes   otherwise released, and how many listened
-- Something else may live under that name; then the acquire was refused, but it may still come later.
if ARGV[2] == '1' and redis.pcall('GETRANGE', KEYS[1], 0, 63) == ARGV[1] then
  -- From zero, and carried out: it cannot come again, so no mark is needed.
  redis.call('DEL', KEYS[1])
  return redis.call('PUBLISH', ARGV[4], '0')
end
-- What frees comes before what is written, so that a server short of memory lets it through.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[3]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return -6
