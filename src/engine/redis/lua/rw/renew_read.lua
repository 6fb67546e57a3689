-- Makes many readers' holds last longer, never shorter.
--
-- KEYS  the locks
-- ARGV  for each lock: owner, lease in ms, what its readers' keys begin with
-- Returns, for each lock  1 renewed   -1 nobody holds it   -2 somebody else does   or its error's text
local answers = {}
for i, lock in ipairs(KEYS) do
  local owner, lease, base = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  -- One bad key must not cost the others their lease.
  local held = redis.pcall('HGET', lock, owner)
  if type(held) == 'table' then
    answers[i] = held.err
  elseif held and left(base, owner, held) > 0 then
    stay(base, owner, held, lease)
    last(lock, lease)
    answers[i] = 1
  else
    if held then
      redis.call('HDEL', lock, owner)
      if redis.call('HGET', lock, 'mode') == 'read' and readers(lock, base) == 0 then
        redis.call('DEL', lock)
      end
    end
    answers[i] = redis.call('EXISTS', lock) == 1 and -2 or -1
  end
end
return answers
