-- Takes back an acquire whose outcome nobody knows: permits, or that it waits.
--
-- KEYS  1 how many are there   2 those that are out   3 the undone acquires: zset of "<owner>#<attempt>" by expiry in ms
--       4 the line   5 alive   6 clients
-- ARGV  1 owner   2 attempt   3 what its permits' ids begin with   4 how long to remember, in ms   5 the semaphore's channel
--       6 how many it wanted   7 the other name with the same side keys, or nothing
-- Returns  -6 refused if it comes   otherwise given back, and how many listened
local now = clock()
-- Something else may live under that name; then the acquire was refused, but it may still come later.
local there, wrong = nil, type(redis.pcall('GETRANGE', KEYS[1], 0, 0)) == 'table' or type(redis.pcall('ZCARD', KEYS[2])) == 'table'
if not wrong then
  there, wrong = reclaim(KEYS[1], KEYS[2], KEYS[6], now, ARGV[5], ARGV[7])
end
if not wrong and ARGV[2] == '1' then
  local listeners = give_back(KEYS[1], KEYS[2], KEYS[6], ARGV[3], ARGV[6], ARGV[5])
  if listeners then
    -- From zero, and carried out: it cannot come again, so no mark is needed.
    return listeners
  end
end
if ARGV[2] == '1' and leave(KEYS[4], KEYS[5], ARGV[1]) then
  tell(ARGV[5], there)
end
-- What frees comes before what is written, so that a server short of memory lets it through.
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[4]), ARGV[1] .. '#' .. ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return -6
