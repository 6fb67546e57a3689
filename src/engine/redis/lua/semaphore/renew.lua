-- Makes many owners' permits last longer, never shorter.
--
-- KEYS  for each owner: how many its semaphore has there, those that are out, clients
-- ARGV  for each owner: itself, what its permits' ids begin with, how many it was granted, lease in ms, the semaphore's channel,
--       the other name with the same side keys, or nothing
-- Returns, for each  1 renewed   -1 it has not all   or its error's text
local answers, now = {}, clock()
for i = 1, #KEYS / 3 do
  local there, out, clients = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local owner, shared, permits = ARGV[6 * i - 5], ARGV[6 * i - 4], tonumber(ARGV[6 * i - 3])
  local lease, channel, twin = tonumber(ARGV[6 * i - 2]), ARGV[6 * i - 1], ARGV[6 * i]
  -- One bad key must not cost the others their lease.
  local number, score = redis.pcall('GETRANGE', there, 0, 0), redis.pcall('ZSCORE', out, id(shared, 1))
  local wrong = type(number) == 'table' and number or type(score) == 'table' and score
  if not wrong then
    local _
    _, wrong = reclaim(there, out, clients, now, channel, twin)
  end
  if wrong then
    answers[i] = wrong.err
  elseif keep(there, out, shared, permits, now + lease) == permits then
    -- Of no use to the hold itself.
    pcall(note, clients, shared, owner, lease)
    answers[i] = 1
  else
    answers[i] = -1
  end
end
return answers
