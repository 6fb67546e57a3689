-- Before the scripts that may create the key of a kind with side keys, or take back its permits: the one other name with the same
-- side keys.
--
-- Redisson derives the same side keys from `x` and from `{x}`, although their own keys differ: the queue, the readers' times and
-- the permits in use of one would be those of the other.
--
-- KEYS  those of the script behind it
-- Returns  nothing: the script behind it continues

-- What a script returns if the key of the other name exists; false if it does not, or if there is no such name ('').
local function twin_of(twin)
  -- Without the right to read that key the names cannot be compared.
  return twin ~= '' and redis.pcall('EXISTS', twin) == 1 and {'TWIN', twin}
end

