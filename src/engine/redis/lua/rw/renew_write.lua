-- Renews holds of writers. A lease never becomes shorter.
--
-- Needs: rw/holds.lua (extend_expiry)
-- KEYS  the locks
-- ARGV  for each lock: owner, lease in ms
-- Returns, for each lock  1 renewed   -1 not held   -2 held by another owner   or the text of an error
local replies = {}
for i, lock in ipairs(KEYS) do
  local writer, lease = ARGV[2 * i - 1] .. ':write', ARGV[2 * i]
  -- An error of one key must not cost the other locks their leases.
  local held = redis.pcall('HEXISTS', lock, writer)
  if type(held) == 'table' then
    replies[i] = held.err
  elseif held == 1 then
    extend_expiry(lock, lease)
    replies[i] = 1
  else
    replies[i] = redis.call('EXISTS', lock) == 1 and -2 or -1
  end
end
return replies
