-- Renews holds of readers. A lease never becomes shorter.
--
-- Needs: rw/holds.lua (budget, extend_expiry, extend_reader, readers, remaining_ttl)
-- KEYS  the locks
-- ARGV  for each lock: owner, lease in ms, prefix of its readers' timeout keys
-- Returns, for each lock  1 renewed   -1 not held   -2 held by another owner   or the text of an error
local replies, expired, spent = {}, {}, 0
for i, lock in ipairs(KEYS) do
  local owner, lease, reader_timeout_prefix = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  -- An error of one key must not cost the other locks their leases.
  local held = redis.pcall('HGET', lock, owner)
  if type(held) == 'table' then
    replies[i] = held.err
  else
    local own_ttl, each = remaining_ttl(reader_timeout_prefix, owner, held)
    -- Counts the commands for this lock here and below, except those that readers() counts itself.
    spent = spent + #each + (own_ttl > 0 and #each + 4 or 9)
    if own_ttl > 0 then
      extend_reader(reader_timeout_prefix, owner, held, lease, each)
      extend_expiry(lock, lease)
      replies[i] = 1
    elseif held then
      redis.call('HDEL', lock, owner)
      expired[#expired + 1] = i
    else
      -- Nothing is removed from a hash without this owner: it may belong to another program.
      replies[i] = redis.call('EXISTS', lock) == 1 and -2 or -1
    end
  end
end
-- Crashed readers are removed as far as the budget allows. Without a budget, the lock counts as held by another owner.
budget = math.min(budget, 950 - spent)
for _, i in ipairs(expired) do
  local lock, reader_timeout_prefix = KEYS[i], ARGV[3 * i]
  -- A hash with a mode and no owner would count as another program's data.
  if redis.call('HGET', lock, 'mode') == 'read'
      and (redis.call('HLEN', lock) == 1 or budget > 0 and readers(lock, reader_timeout_prefix, 1) == 0) then
    redis.call('DEL', lock)
  end
  replies[i] = redis.call('EXISTS', lock) == 1 and -2 or -1
end
return replies
