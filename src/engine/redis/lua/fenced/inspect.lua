-- Says who holds a lock, by which grant, and who waits in its line.
--
-- KEYS  1 the lock   2 the last token   3 the line
-- Returns  remaining ms (-1 no end, -2 free), the token or nothing, the first hundred in line, then owner, count,
--          owner, count ...
local answer = redis.call('HGETALL', KEYS[1])
table.insert(answer, 1, redis.call('LRANGE', KEYS[3], 0, 99))
table.insert(answer, 1, redis.call('GET', KEYS[2]) or '')
table.insert(answer, 1, redis.call('PTTL', KEYS[1]))
return answer
