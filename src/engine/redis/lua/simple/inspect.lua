-- Says who holds the simple lock.
--
-- KEYS  1 the lock
-- Returns  remaining ms (-1 no end, -2 free), then the owner and 1
-- A value that is no owner of ours is an error, and not told: it may be anything.
local holder = redis.call('GETRANGE', KEYS[1], 0, 63)
local ttl = redis.call('PTTL', KEYS[1])
if ttl == -2 then
  return {ttl}
end
if string.match(holder, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') then
  return {ttl, holder, '1'}
end
return redis.error_reply('WRONGTYPE a value that is no lock of ours')
