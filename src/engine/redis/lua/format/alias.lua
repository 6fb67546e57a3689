-- Prelude of the scripts that may create the key of a kind with auxiliary keys, or reclaim its permits: the alias, which is the
-- one other name with the same auxiliary keys. 'TWIN' is the word for it in the reply.
--
-- Redisson derives the same auxiliary keys from `x` and from `{x}`, although their own keys differ: both names would share the
-- queue, the readers' timeouts and the permits in use.
--
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next

-- Returns the result of the script if the key of the other name exists; false if it does not, or if there is no such name ('').
local function alias_of(alias)
  -- A user without the right to read that key cannot compare the names.
  return alias ~= '' and redis.pcall('EXISTS', alias) == 1 and {'TWIN', alias}
end

