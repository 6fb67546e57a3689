-- Changes the number of permits, and returns it.
--
-- KEYS  1 number of available permits   2 permits in use   3 clients
-- ARGV  1 once (total N, if the number is missing), set (total N, permits in use included), return (a permit), or
--       forget (delete everything)
--       2 N, or the permit's id   3 the semaphore's channel
--       4 the other name with the same side keys, or ''
-- Returns  {TWIN, key}  the other name's key exists
--          {1 if it changed anything, or 0; number of available permits, or nil if it is missing; number of permits in use}

-- The permits in use may belong to the other name: none is forgotten or returned.
local alias = alias_of(ARGV[4])
if alias then
  return alias
end
local there, wrong = reclaim(KEYS[1], KEYS[2], KEYS[3], clock(), ARGV[3], '')
if not wrong and is_unproven(there, KEYS[2], KEYS[3]) then
  wrong = redis.error_reply(UNPROVEN)
end
if wrong then
  return wrong
end
local out, done = redis.call('ZCARD', KEYS[2]), 0
if ARGV[1] == 'once' and not there then
  -- Permits may be in use even if the number was deleted.
  redis.call('SET', KEYS[1], string.format('%.0f', tonumber(ARGV[2]) - out))
  done = 1
elseif ARGV[1] == 'set' then
  -- An existing number is moved, not written anew: it may have an expiry.
  redis.call('INCRBY', KEYS[1], tonumber(ARGV[2]) - out - (there or 0))
  done = 1
elseif ARGV[1] == 'return' then
  local permit = ARGV[2]
  if not redis.call('ZSCORE', KEYS[2], permit) then
    -- Redisson before 3.17 stores the id as hexadecimal digits.
    permit = string.gsub(permit, '.', function(byte)
      return string.format('%02x', string.byte(byte))
    end)
  end
  if redis.call('ZSCORE', KEYS[2], permit) then
    release_permits(KEYS[1], KEYS[2], {permit})
    done = 1
  end
elseif ARGV[1] == 'forget' then
  redis.call('DEL', KEYS[1], KEYS[2])
  forget_clients(KEYS[2], KEYS[3])
  return {(there or out > 0) and 1 or 0, false, 0}
end
if done == 1 then
  there, out = stored_number(KEYS[1]), redis.call('ZCARD', KEYS[2])
  notify(ARGV[3], there)
end
return {done, there and string.format('%.0f', there) or false, out}
