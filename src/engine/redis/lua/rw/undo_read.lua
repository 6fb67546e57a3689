-- Takes back a reader's acquire whose outcome nobody knows.
--
-- KEYS  1 the lock   2 the undone acquires: zset of "<owner>#<attempt>" by expiry in ms
-- ARGV  1 owner   2 attempt   3 count before it   4 how long to remember, in ms
--       5 the lock's channel   6 what the readers' keys begin with
-- Returns  -3 lowered, still held, refused if it comes   -6 refused if it comes
--          otherwise released, and how many listened
-- Something else may live under that name; then the acquire was refused, but it may still come later.
local held = redis.pcall('HGET', KEYS[1], ARGV[1])
held = type(held) == 'string' and held or nil
local there, each = left(ARGV[6], ARGV[1], held)
if ARGV[2] == '1' and there > 0 then
  -- From zero, and carried out: it cannot come again, so no mark is needed.
  redis.call('HDEL', KEYS[1], ARGV[1])
  forget(ARGV[6], ARGV[1], 1, held)
  if redis.call('HGET', KEYS[1], 'mode') ~= 'read' then
    return 0
  end
  local count, _, longest = readers(KEYS[1], ARGV[6])
  if count > 0 then
    last_with(KEYS[1], longest)
    return 0
  end
  redis.call('DEL', KEYS[1])
  return redis.call('PUBLISH', ARGV[5], '0')
end
local now, count = clock(), tonumber(ARGV[3])
local above = there > 0 and tonumber(held) > count
-- What frees comes before what is written, so that a server short of memory lets it through.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if above then
  forget(ARGV[6], ARGV[1], count + 1, held)
end
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
if above then
  master_epoch(ARGV[6], ARGV[1], count, there, each)
  redis.call('HSET', KEYS[1], ARGV[1], count)
  return -3
end
return -6
