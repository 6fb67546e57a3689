-- Takes the read/write lock from whoever holds it.
--
-- KEYS  1 the lock
-- ARGV  1 its channel   2 what the readers' keys begin with
-- Returns  1 taken   0 it was free
local mode, _, wrong = mode_of(KEYS[1])
if wrong then
  return wrong
end
if not mode then
  return 0
end
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local times = tonumber(fields[i + 1])
  if times and not string.find(fields[i], ':write', 1, true) then
    forget(ARGV[2], fields[i], 1, times)
  end
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[1], '1')
return 1
