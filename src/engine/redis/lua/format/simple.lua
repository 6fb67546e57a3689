-- Prelude of the scripts of the simple lock: the format of its value.
--
-- The value is the holder: an owner of distlock, or a short string of any form that another library wrote. A longer string is
-- no lock.
--
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next

-- Returns the holder, or nil if the key is missing; otherwise an error as the second result. A key of another type is an error,
-- too.
local function simple_holder(key)
  -- One byte more than the longest holder: a string of any size costs the same.
  local holder = redis.call('GETRANGE', key, 0, 256)
  if holder == '' and redis.call('EXISTS', key) == 0 then
    return nil
  end
  if #holder > 256 then
    return nil, redis.error_reply('WRONGTYPE a string that is too long for a lock')
  end
  return holder
end

