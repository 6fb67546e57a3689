-- Releases the read/write lock as a reader, or lowers the hold count.
--
-- Needs: rw/holds.lua (delete_timeouts, expire_with, extend_reader, mode_of, readers, remaining_ttl)
-- KEYS  1 the lock
-- ARGV  1 owner   2 hold count afterwards, 0 for none   3 the lock's channel   4 prefix of the readers' timeout keys
-- Returns  -1 not held   -2 held by another owner   -3 still held by this owner
--          otherwise released: the number of subscribers that were notified
local _, _, wrong = mode_of(KEYS[1])
if wrong then
  return wrong
end
local held = redis.call('HGET', KEYS[1], ARGV[1])
local own_ttl, each = remaining_ttl(ARGV[4], ARGV[1], held)
if held and own_ttl > 0 and ARGV[2] ~= '0' then
  local count = tonumber(ARGV[2])
  if tonumber(held) > count then
    -- A command that frees memory comes first, so that a server short of memory allows the others.
    delete_timeouts(ARGV[4], ARGV[1], count + 1, held)
    extend_reader(ARGV[4], ARGV[1], count, own_ttl, each)
    redis.call('HDEL', KEYS[1], '')
    redis.call('HSET', KEYS[1], ARGV[1], count)
  end
  return -3
end
if held then
  redis.call('HDEL', KEYS[1], ARGV[1])
  delete_timeouts(ARGV[4], ARGV[1], 1, held)
end
local expired = not held or own_ttl <= 0
if held and redis.call('HGET', KEYS[1], 'mode') == 'read' then
  local count, _, longest = readers(KEYS[1], ARGV[4])
  if count == 0 then
    redis.call('DEL', KEYS[1])
    if not expired then
      return redis.call('PUBLISH', ARGV[3], '0')
    end
  else
    expire_with(KEYS[1], longest)
  end
end
if expired then
  return redis.call('EXISTS', KEYS[1]) == 1 and -2 or -1
end
return 0
