-- Prelude of the scripts of plain, fenced and fair locks, after format/owner.lua: the format of the lock's hash.
--
-- Redisson's lock is a hash of owner -> hold count. It has one owner; a few more are accepted. A read/write lock has another
-- format (format/read_write.lua), and so has the group of a FasterMultiLock: both are locks of another kind here.
--
-- Needs: format/owner.lua (count_in, is_owner, sample)
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next

-- Returns whether the hash is a lock; a key of another type is an error.
local function is_lock(key)
  local fields = sample(key, function(field)
    local owner, writes = is_owner(field)
    return owner and not writes
  end)
  if not fields or #fields == 0 or #fields > 16 then
    return false
  end
  for _, field in ipairs(fields) do
    if not count_in(key, field) then
      return false
    end
  end
  return true
end

