-- Makes many owners' permits last longer, never shorter.
--
-- KEYS  for each owner: how many its semaphore has there, those that are out, clients
-- ARGV  for each owner: itself, what its permits' ids begin with, how many it was granted, lease in ms, the semaphore's channel
-- Returns, for each  1 renewed   -1 it has not all   or its error's text
local answers, now = {}, clock()
for i = 1, #KEYS / 3 do
  local there, out, clients = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local owner, shared, permits = ARGV[5 * i - 4], ARGV[5 * i - 3], tonumber(ARGV[5 * i - 2])
  local lease, channel = tonumber(ARGV[5 * i - 1]), ARGV[5 * i]
  -- One bad key must not cost the others their lease.
  local number, score = redis.pcall('GET', there), redis.pcall('ZSCORE', out, id(shared, 1))
  local wrong = type(number) == 'table' and number or type(score) == 'table' and score
  if not wrong then
    local _
    _, wrong = reclaim(there, out, now, channel)
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
