-- Says who holds the plain lock.
--
-- KEYS  1 the lock
-- Returns  remaining ms (-1 no end, -2 free), then owner, count, owner, count ...
local answer = redis.call('HGETALL', KEYS[1])
table.insert(answer, 1, redis.call('PTTL', KEYS[1]))
return answer
