-- Prelude of the scripts that grant a fenced lock: the token of a grant.
--
-- counter is the key of the last token, which Redisson increments; min_token is the greatest token that the client knows of. A
-- counter that was lost or set back continues with the microseconds of the server's clock. A counter that is no integer, or
-- too great for exact arithmetic in Lua, was set by another program and is an error: no token would be known to be greater
-- than those before. A clock that is that far ahead is an error, too, and nothing is written: once the clock is right, the
-- lock is available again. Errors name no key: a key is a lock's name, and error texts are classified by their beginning.
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
local function new_token(counter, min_token)
  -- One byte more than the longest token: a string of any size costs the same.
  local last = redis.pcall('GETRANGE', counter, 0, 17)
  if type(last) == 'table' then
    return nil, last
  end
  if last == '' and redis.call('EXISTS', counter) == 0 then
    last = '0'
  end
  local plain = last == '0' or #last <= 17 and string.match(last, '^%-?[1-9]%d*$')
  if not plain or math.max(tonumber(last), tonumber(min_token)) >= 9007199254740991 then
    return nil, redis.error_reply('WRONGTYPE its token counter, redisson_lock_token:{NAME}, is no integer below 2^53; '
      .. 'docs/fencing.md says how to reset it')
  end
  local time = redis.call('TIME')
  local least = math.max(time[1] * 1000000 + time[2], tonumber(min_token) + 1)
  if least > 9007199254740991 then
    return nil, redis.error_reply('WRONGTYPE the clock of the server is beyond the year 2255, where tokens end; set it right')
  end
  if tonumber(last) < least then
    -- Written in full: Lua's 1.79e+15 could not be incremented.
    redis.call('SET', counter, string.format('%.0f', least))
    return string.format('%.0f', least)
  end
  local raised = redis.call('INCR', counter)
  -- A MultiLock of Redisson may have set an expiry.
  redis.call('PERSIST', counter)
  return string.format('%.0f', raised)
end

