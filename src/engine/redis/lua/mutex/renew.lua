-- Renews holds of plain locks. A lease never becomes shorter.
--
-- KEYS  the locks
-- ARGV  for each lock: owner, lease in ms
-- Returns, for each lock  1 renewed   -1 not held   -2 held by another owner   or the text of an error
local replies = {}
for i, key in ipairs(KEYS) do
  local owner, lease = ARGV[2 * i - 1], ARGV[2 * i]
  -- An error of one key must not cost the other locks their leases.
  local held = redis.pcall('HEXISTS', key, owner)
  if type(held) == 'table' then
    replies[i] = held.err
  elseif held == 1 then
    local remaining_ttl = redis.call('PTTL', key)
    -- A lock whose expiry another program has removed gets a new one, but not from a check of the lease, which asks for
    -- 1 ms and would end the hold.
    if remaining_ttl ~= -1 or tonumber(lease) > 1 then
      -- Written even if it changes nothing: replica acknowledgements are waited for by the last write.
      redis.call('PEXPIRE', key, math.max(remaining_ttl, tonumber(lease)))
    end
    replies[i] = 1
  else
    replies[i] = redis.call('EXISTS', key) == 1 and -2 or -1
  end
end
return replies
