-- Releases the read/write lock, whichever owners hold it.
--
-- Needs: format/owner.lua (is_owner), format/read_write.lua (read_count), rw/holds.lua (is_part, mode_of, short_values,
--        some_fields, timeout_key)
-- KEYS  1 the lock
-- ARGV  1 its channel   2 prefix of the readers' timeout keys
-- Returns  1 released   0 it was free
-- A hash with a field that is no owner, or with more fields than a call can check, is an error.
local MOST_OWNERS = 50000
local mode, _, wrong = mode_of(KEYS[1])
if wrong then
  return wrong
end
if not mode then
  return 0
end
-- The timeout keys of the readers expire by themselves; a limited number of them is deleted now.
local fields, all = some_fields(KEYS[1])
local counts = short_values(KEYS[1], fields)
local keys = {KEYS[1]}
for i, field in ipairs(fields) do
  -- Of a hash with more than 16 fields only a sample was checked before.
  if not is_part(field, counts[i]) then
    return redis.error_reply('WRONGTYPE no read/write lock')
  end
  local owner, writes = is_owner(field)
  for number = 1, owner and not writes and #keys < 1000 and read_count(counts[i]) or 0 do
    keys[#keys + 1] = timeout_key(ARGV[2], field, number)
  end
end
-- The names of the other fields are checked, too: another program's data is never deleted.
if not all then
  local size = redis.call('HLEN', KEYS[1])
  for _, field in ipairs(size <= MOST_OWNERS and redis.call('HRANDFIELD', KEYS[1], size) or {''}) do
    if field ~= 'mode' and not is_owner(field) then
      return redis.error_reply('WRONGTYPE no read/write lock, or one with more than ' .. MOST_OWNERS .. ' owners')
    end
  end
end
redis.call('DEL', unpack(keys))
redis.call('PUBLISH', ARGV[1], '1')
return 1
