-- Before the scripts that grant a fenced lock: gives a grant its token.
--
-- counter is where the last token is, which Redisson raises by one; seen the greatest that the client knows of. A counter that
-- was lost, or set back, goes on with the microseconds of the server's clock; one that is no number, or too great for Lua to
-- count on exactly, has been set by somebody, and is an error: no token would be known to be greater than those before.
--
-- KEYS  those of the script behind it
-- Returns  nothing: it goes on there
local function new_token(counter, seen)
  local last = redis.pcall('GET', counter) or '0'
  if type(last) == 'table' then
    return nil, last
  end
  if not (last == '0' or string.match(last, '^%-?[1-9]%d*$')) or math.max(tonumber(last), tonumber(seen)) >= 9007199254740991 then
    return nil, redis.error_reply('WRONGTYPE its counter of tokens cannot be counted on: ' .. counter)
  end
  local time = redis.call('TIME')
  local least = math.max(time[1] * 1000000 + time[2], tonumber(seen) + 1)
  if tonumber(last) < least then
    -- In full: Lua would write 1.79e+15, which is no number to count on with.
    redis.call('SET', counter, string.format('%.0f', least))
  else
    redis.call('INCR', counter)
    -- A MultiLock of Redisson's may have given it an end.
    redis.call('PERSIST', counter)
  end
  return redis.call('GET', counter)
end

