-- Prelude of the scripts of semaphores and latches: the format of their number.
--
-- Redisson's number is a decimal integer in a string, as Redis itself writes it. Up to 2^53 - 1 it is exact in Lua; a greater one
-- is refused, because a change could not be computed.
--
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next

-- Returns the number, or nil if the key is missing; otherwise an error as the second result. A key of another type is an error,
-- too.
local function stored_number(key)
  -- One byte more than the longest number: a string of any size costs the same.
  local text = redis.call('GETRANGE', key, 0, 17)
  if text == '' and redis.call('EXISTS', key) == 0 then
    return nil
  end
  local plain = text == '0' or #text <= 17 and string.find(text, '^%-?[1-9]%d*$')
  local number = plain and tonumber(text)
  if not number or math.abs(number) > 9007199254740991 then
    return nil, redis.error_reply('WRONGTYPE a string that is no number of permits and no count')
  end
  return number
end

