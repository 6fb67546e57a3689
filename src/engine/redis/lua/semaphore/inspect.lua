-- Says which permits are out, whose they are and for how long.
--
-- KEYS  1 how many are there   2 those that are out   3 clients   4 the line
-- ARGV  1 the semaphore's channel
-- Returns  nothing if none is out, otherwise four: how many are there; id, remaining ms (-1 no end), id, remaining ms ...;
--          what the ids of a client's begin with, its uuid, ...; and who waits in line, the first hundred
local now = clock()
local there, wrong = reclaim(KEYS[1], KEYS[2], now, ARGV[1])
if wrong then
  return wrong
end
local out = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
if #out == 0 then
  return false
end
for i = 2, #out, 2 do
  local till = tonumber(out[i])
  out[i] = till >= 922337203685477 and -1 or till - now
end
return {there or 0, out, redis.call('HGETALL', KEYS[3]), redis.call('LRANGE', KEYS[4], 0, 99)}
