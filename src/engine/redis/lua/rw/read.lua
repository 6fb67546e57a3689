-- Acquires the read/write lock for reading, or re-enters it.
--
-- Needs: format/alias.lua (alias_of), rw/holds.lua (clock, extend_expiry, extend_reader, mode_of, readers, remaining_ttl)
-- KEYS  1 the lock   2 the tombstones: zset of "<owner>#<attempt>"   3 the waiting writers: zset by expiry in ms
-- ARGV  1 owner   2 attempt: 1 for a fresh acquire, more for a reentry   3 hold count after it   4 lease in ms
--       5 prefix of the readers' timeout keys   6 the same caller's write owner, or ''   7 1 to bypass waiting writers
--       8 the other name with the same auxiliary keys, or ''
--       9 if given: granted only if that writer holds the lock
-- Returns  -3 granted   -4 undone before it arrived   -5 no hold to re-enter
--          {TWIN, key} the other name's key exists
--          otherwise the remaining ms, -1 if it has no expiry or a writer is first
local owner, now = ARGV[1], clock()
if redis.call('ZSCORE', KEYS[2], owner .. '#' .. ARGV[2]) then
  return -4
end
local mode, ttl, wrong = mode_of(KEYS[1])
if wrong then
  return wrong
end
local held = mode and redis.call('HGET', KEYS[1], owner)
local own_ttl, each = remaining_ttl(ARGV[5], owner, held)
if held and own_ttl > 0 then
  local count = math.max(tonumber(held), tonumber(ARGV[3]))
  -- A command that frees memory comes first, so that a server short of memory allows the others. No owner has the name ''.
  redis.call('HDEL', KEYS[1], '')
  extend_reader(ARGV[5], owner, count, ARGV[4], each)
  if count > tonumber(held) then
    redis.call('HSET', KEYS[1], owner, count)
  end
  extend_expiry(KEYS[1], ARGV[4])
  return -3
elseif held and mode == 'read' and readers(KEYS[1], ARGV[5], 1) == 0 then
  redis.call('DEL', KEYS[1])
  mode = nil
end
if ARGV[2] ~= '1' then
  -- The hold to re-enter is gone: a grant would invent it.
  return mode and ttl or -5
end
local alias = not mode and alias_of(ARGV[8])
if alias then
  return alias
end
if ARGV[9] and mode ~= 'write' then
  return mode and ttl or -1
end
if mode == 'write' then
  if ARGV[6] == '' or redis.call('HEXISTS', KEYS[1], ARGV[6] .. ':write') == 0 then
    return ttl
  end
elseif ARGV[7] ~= '1' and redis.call('ZCOUNT', KEYS[3], '(' .. now, '+inf') > 0 then
  return -1
end
-- The timeout key comes first: a user without the right to write it must not leave a reader without an expiry.
extend_reader(ARGV[5], owner, 1, ARGV[4])
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
redis.call('HSET', KEYS[1], owner, 1)
extend_expiry(KEYS[1], ARGV[4])
return -3
