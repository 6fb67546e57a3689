-- Takes back an acquire whose outcome nobody knows: a hold, or a place in the line.
--
-- KEYS  1 the lock   2 the undone acquires: zset of "<owner>#<attempt>" by expiry in ms
--       3 the line   4 when Redisson passes each over   5 until when ours are there
-- ARGV  1 owner   2 attempt   3 count before it   4 how long to remember, in ms
--       5 the lock's channel
-- Returns  -3 lowered, still held, refused if it comes   -6 refused if it comes   0 released, refused if it comes
local left, now = tonumber(ARGV[3]), clock()
-- Something else may live under that name; then the acquire was refused, but it may still come later.
local held = redis.pcall('HGET', KEYS[1], ARGV[1])
local above = type(held) == 'string' and tonumber(held) > left
local released = above and left == 0
if released then
  redis.call('HDEL', KEYS[1], ARGV[1])
  notify(KEYS[3], KEYS[4], KEYS[5], now, ARGV[5])
elseif ARGV[2] == '1' then
  leave(KEYS[1], KEYS[3], KEYS[4], KEYS[5], now, ARGV[1], ARGV[5])
end
-- Though it was carried out, it may come: who waits in line asks many times.
-- What frees comes before what is written, so that a server short of memory lets it through.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if released then
  return 0
end
if above then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  return -3
end
return -6
