-- Changes the number of permits, and returns it.
--
-- Needs: format/alias.lua (alias_of), format/number.lua (stored_number), semaphore/queue.lua (clock), semaphore/permits.lua
--        (UNPROVEN, delete_clients, is_unproven, notify, reclaim, release_permits)
-- KEYS  1 number of available permits   2 permits in use   3 clients
-- ARGV  1 once (total N, if the number is missing), set (total N, permits in use included), return (a permit), or
--       forget (delete everything)
--       2 N, or the permit's id   3 the semaphore's channel
--       4 the other name with the same auxiliary keys, or ''
-- Returns  {TWIN, key}  the other name's key exists
--          {1 if it changed anything, or 0; number of available permits, or nil if it is missing; number of permits in use}

-- The permits in use may belong to the other name: none is forgotten or returned.
local alias = alias_of(ARGV[4])
if alias then
  return alias
end
local available, wrong = reclaim(KEYS[1], KEYS[2], KEYS[3], clock(), ARGV[3], '')
if not wrong and is_unproven(available, KEYS[2], KEYS[3]) then
  wrong = redis.error_reply(UNPROVEN)
end
if wrong then
  return wrong
end
local in_use, done = redis.call('ZCARD', KEYS[2]), 0
if ARGV[1] == 'once' and not available then
  -- Permits may be in use even if the number was deleted.
  redis.call('SET', KEYS[1], string.format('%.0f', tonumber(ARGV[2]) - in_use))
  done = 1
elseif ARGV[1] == 'set' then
  -- An existing number is moved, not written anew: it may have an expiry.
  redis.call('INCRBY', KEYS[1], tonumber(ARGV[2]) - in_use - (available or 0))
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
  delete_clients(KEYS[2], KEYS[3])
  return {(available or in_use > 0) and 1 or 0, false, 0}
end
if done == 1 then
  available, in_use = stored_number(KEYS[1]), redis.call('ZCARD', KEYS[2])
  notify(ARGV[3], available)
end
return {done, available and string.format('%.0f', available) or false, in_use}
