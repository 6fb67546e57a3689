-- Takes the fenced lock, or takes it once more.
--
-- KEYS  1 the lock: hash of owner -> hold count
--       2 the undone acquires of this lock: zset of "<owner>#<attempt>"
--       3 the last token
-- ARGV  1 owner   2 attempt: 1 from zero, more into a hold of its own   3 count to hold   4 lease in ms
--       5 the greatest token its client has seen
-- Returns  -4 undone before it came   -5 nothing to re-enter   granted: its token, in a list
--          otherwise the holder's remaining ms, -1 if it has no end
-- A key of another type, or a hash without an owner in it, is an error.
local owner = ARGV[1]

if redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then
  if redis.call('ZSCORE', KEYS[2], owner .. '#' .. ARGV[2]) then
    return -4
  end
  local held = redis.call('HGET', KEYS[1], owner)
  if held then
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[4])
    end
    if tonumber(held) < tonumber(ARGV[3]) then
      -- A server short of memory refuses HSET as a script's first write, but lets it through behind
      -- one that frees. Nobody is called ''.
      redis.call('HDEL', KEYS[1], '')
      redis.call('HSET', KEYS[1], owner, ARGV[3])
    end
    -- Nobody can have raised it since it was ours.
    local token, wrong = redis.call('GET', KEYS[3]), nil
    if not token then
      token, wrong = new_token(KEYS[3], ARGV[5])
    end
    return wrong or {token}
  end
  local ttl = redis.call('PTTL', KEYS[1])
  if ttl == -1 then
    -- No lock is without an end, so it may be somebody's data: then nobody must wait for it.
    -- Nobody has that many owners; a great hash is not worth reading.
    local fields = redis.call('HLEN', KEYS[1]) <= 100 and redis.call('HGETALL', KEYS[1]) or {}
    for i = 1, #fields, 2 do
      if string.match(fields[i], '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+') then
        return ttl
      end
    end
    return redis.error_reply('WRONGTYPE a hash that is no lock')
  end
  if ttl ~= -2 then
    return ttl
  end
end

-- Into a hold that is gone: granting it would make that hold up.
if ARGV[2] ~= '1' then
  return -5
end
-- First: where it cannot be had, nothing is held.
local token, wrong = new_token(KEYS[3], ARGV[5])
if wrong then
  return wrong
end
redis.call('HSET', KEYS[1], owner, ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {token}
