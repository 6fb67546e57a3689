-- Makes many holds of simple locks last longer, never shorter.
--
-- KEYS  the locks
-- ARGV  for each lock: owner, lease in ms
-- Returns, for each lock  1 renewed   -1 nobody holds it   -2 somebody else does   or its error's text
local answers = {}
for i, key in ipairs(KEYS) do
  local owner, lease = ARGV[2 * i - 1], ARGV[2 * i]
  -- One bad key must not cost the others their lease. No owner of ours is longer.
  local holder = redis.pcall('GETRANGE', key, 0, 63)
  if type(holder) == 'table' then
    answers[i] = holder.err
  elseif holder == owner then
    local left = redis.call('PTTL', key)
    -- Whose end somebody has taken gets a new one, but not from a mere look (1 ms): that would be the end of it.
    if left ~= -1 or tonumber(lease) > 1 then
      -- Written also where it changes nothing: replicas acknowledge what was written before.
      redis.call('PEXPIRE', key, math.max(left, tonumber(lease)))
    end
    answers[i] = 1
  else
    answers[i] = redis.call('EXISTS', key) == 1 and -2 or -1
  end
end
return answers
