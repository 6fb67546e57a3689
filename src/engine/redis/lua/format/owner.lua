-- Prelude of the scripts of locks: the format of an owner and of a hold count.
--
-- Redisson writes an owner as <uuid>:<thread>, a writer of a read/write lock as <uuid>:<thread>:write, and both with :<id> behind
-- them for a lock of a transaction. The uuid is in lower case, the thread a decimal number that may be negative, the id 32
-- hexadecimal digits. A hold count is a positive decimal number. Text of any other form belongs to another program.
--
-- These functions only read, and read a bounded amount: sizes before contents, names before values.
--
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
local UUID = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:'

-- Returns whether the text is an owner, and whether that owner is a writer.
local function is_owner(text)
  -- At most the uuid, the longest thread number, `:write` and the id of a transaction.
  if #text > 96 or text ~= string.lower(text) or not string.find(text, UUID) then
    return false
  end
  local thread, suffix = string.match(text, '^([^:]*)(.*)$', 38)
  if thread ~= '0' and not string.find(thread, '^%-?[1-9]%d*$') or #thread > 20 then
    return false
  end
  local writes = string.sub(suffix, 1, 6) == ':write'
  local transaction = writes and string.sub(suffix, 7) or suffix
  if transaction ~= '' and not (#transaction == 33 and string.find(transaction, '^:%x+$')) then
    return false
  end
  return true, writes
end

-- Returns the number in a hold count, or nil. Lua's tonumber would also accept inf, 1e9 and 0xff.
local function hold_count(text)
  return #text <= 9 and string.find(text, '^[1-9]%d*$') and tonumber(text) or nil
end

-- Returns the hold count in a field, or nil. The length is checked first: another program's value may be of any size.
local function count_in(key, field)
  return redis.call('HSTRLEN', key, field) <= 9 and hold_count(redis.call('HGET', key, field)) or nil
end

-- Returns up to 17 fields of a hash, one more than a lock of one owner may have, or nil if a field has the wrong format. The
-- name of a field may be of any length, and no command reports that length: of another program's hash only two are read.
local function sample(key, is_right)
  local fields
  for _, most in ipairs({2, 17}) do
    fields = redis.call('HRANDFIELD', key, most)
    for _, field in ipairs(fields) do
      if not is_right(field) then
        return nil
      end
    end
    -- The hash has no further fields.
    if #fields < most then
      break
    end
  end
  return fields
end
