-- Says who holds the fenced lock, and by which grant.
--
-- KEYS  1 the lock   2 the last token
-- Returns  remaining ms (-1 no end, -2 free), the token or nothing, then owner, count, owner, count ...
local answer = redis.call('HGETALL', KEYS[1])
table.insert(answer, 1, redis.call('GET', KEYS[2]) or '')
table.insert(answer, 1, redis.call('PTTL', KEYS[1]))
return answer
