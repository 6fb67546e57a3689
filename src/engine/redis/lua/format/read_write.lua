-- Prelude of the scripts of the read/write lock, after format/owner.lua: the format of the lock's hash.
--
-- Redisson's read/write lock is a hash with the field `mode`, which is `read` or `write`, and an owner -> hold count for each
-- reader and for the writer. Each hold of a reader has a key of its own, so that a reader's count is limited.
--
-- Needs: format/owner.lua (count_in, hold_count, is_owner, sample)
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
local MOST_READS = 300

-- Returns the hold count of a reader, or nil.
local function read_count(text)
  local count = hold_count(text)
  return count and count <= MOST_READS and count or nil
end

-- Returns the mode of the lock, `read` or `write`, or nil if the hash is no read/write lock; a key of another type is an error.
-- Of a hash with more than 16 owners a random sample is checked.
local function read_write_mode(key)
  local length = redis.call('HSTRLEN', key, 'mode')
  local mode = (length == 4 or length == 5) and redis.call('HGET', key, 'mode')
  if mode ~= 'read' and mode ~= 'write' then
    return nil
  end
  local function is_field(field)
    return field == 'mode' or is_owner(field)
  end
  local fields = sample(key, is_field)
  -- No lock leaves a mode without an owner behind.
  if not fields or #fields < 2 then
    return nil
  end
  for _, field in ipairs(fields) do
    local count = field ~= 'mode' and count_in(key, field)
    local _, writes = is_owner(field)
    if field ~= 'mode' and not (count and (writes or count <= MOST_READS)) then
      return nil
    end
  end
  return mode
end

