-- Renews permits of several owners. A lease never becomes shorter.
--
-- Needs: semaphore/queue.lua (clock), semaphore/permits.lua (extend, id, reclaim, record_client)
-- KEYS  for each owner: number of available permits, permits in use, clients
-- ARGV  for each owner: the owner, id prefix of its permits, number of permits it was granted, lease in ms, the semaphore's
--       channel, the other name with the same auxiliary keys, or ''
-- Returns, for each owner  1 renewed   -1 some permits are lost   or the text of an error
local replies, now = {}, clock()
for i = 1, #KEYS / 3 do
  local available_key, in_use_key, clients = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local owner, id_prefix, permits = ARGV[6 * i - 5], ARGV[6 * i - 4], tonumber(ARGV[6 * i - 3])
  local lease, channel, alias = tonumber(ARGV[6 * i - 2]), ARGV[6 * i - 1], ARGV[6 * i]
  -- An error of one key must not cost the other owners their leases.
  local number, score = redis.pcall('GETRANGE', available_key, 0, 0), redis.pcall('ZSCORE', in_use_key, id(id_prefix, 1))
  local wrong = type(number) == 'table' and number or type(score) == 'table' and score
  if not wrong then
    local _
    _, wrong = reclaim(available_key, in_use_key, clients, now, channel, alias)
  end
  if wrong then
    replies[i] = wrong.err
  elseif extend(available_key, in_use_key, id_prefix, permits, now + lease) == permits then
    -- An error is ignored, since the hold itself does not need the record.
    pcall(record_client, clients, id_prefix, owner, lease)
    replies[i] = 1
  else
    replies[i] = -1
  end
end
return replies
