-- Makes many readers' holds last longer, never shorter.
--
-- KEYS  the locks
-- ARGV  for each lock: owner, lease in ms, what its readers' keys begin with
-- Returns, for each lock  1 renewed   -1 nobody holds it   -2 somebody else does   or its error's text
local answers, gone, spent = {}, {}, 0
for i, lock in ipairs(KEYS) do
  local owner, lease, base = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  -- One bad key must not cost the others their lease.
  local held = redis.pcall('HGET', lock, owner)
  if type(held) == 'table' then
    answers[i] = held.err
  else
    local there, each = left(base, owner, held)
    -- The commands for this lock here and below, but for those that readers() counts itself.
    spent = spent + #each + (there > 0 and #each + 4 or 9)
    if there > 0 then
      master_epoch(base, owner, held, lease, each)
      last(lock, lease)
      answers[i] = 1
    elseif held then
      redis.call('HDEL', lock, owner)
      gone[#gone + 1] = i
    else
      -- Nothing is removed from a hash that the owner is not in: it may be another program's.
      answers[i] = redis.call('EXISTS', lock) == 1 and -2 or -1
    end
  end
end
-- Crashed readers are removed as far as the renewals have left room; where there is none, somebody else counts as the holder.
room = math.min(room, 950 - spent)
for _, i in ipairs(gone) do
  local lock, base = KEYS[i], ARGV[3 * i]
  -- A mode without an owner would be another program's to everybody else.
  if redis.call('HGET', lock, 'mode') == 'read'
      and (redis.call('HLEN', lock) == 1 or room > 0 and readers(lock, base, 1) == 0) then
    redis.call('DEL', lock)
  end
  answers[i] = redis.call('EXISTS', lock) == 1 and -2 or -1
end
return answers
