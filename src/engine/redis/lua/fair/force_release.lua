-- Takes the fair lock from whoever holds it.
--
-- KEYS  1 the lock   2 the line   3 when Redisson passes each over   4 until when ours are there
-- ARGV  1 its channel
-- Returns  1 taken   0 it was free
-- A key of another type, or a hash without an owner in it, is an error: no lock to break.
local size = redis.call('HLEN', KEYS[1])
if size == 0 then
  return 0
end
-- Nobody has that many owners; a great hash is not worth reading.
local fields = size <= 100 and redis.call('HGETALL', KEYS[1]) or {}
-- A read/write lock has keys beside it, and others to be told.
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
  fields = {}
end
for i = 1, #fields, 2 do
  if string.match(fields[i], '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+') then
    redis.call('DEL', KEYS[1])
    local head = first(KEYS[2], KEYS[3], KEYS[4], clock())
    if head then
      lasts(KEYS[2], KEYS[3], KEYS[4])
    end
    redis.call('PUBLISH', head and ARGV[1] .. ':' .. head or ARGV[1], '0')
    return 1
  end
end
return redis.error_reply('WRONGTYPE a hash that is no lock')
