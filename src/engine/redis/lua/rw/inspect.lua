-- Says who holds a read/write lock, and which writers wait.
--
-- KEYS  1 the lock   2 the writers that wait
-- ARGV  1 what the readers' keys begin with
-- Returns  remaining ms (-1 no end, -2 free), its mode, the first hundred writers that wait, then owner, count and its own
--          remaining ms of each who is there; a writer's owner ends in :write
local mode, ttl, wrong = mode_of(KEYS[1])
if wrong then
  return wrong
end
local writers = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. clock(), '+inf', 'LIMIT', 0, 100)
local answer = {ttl, mode or '', writers}
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local field, times = fields[i], tonumber(fields[i + 1])
  local writes = string.find(field, ':write', 1, true)
  local own = times and (writes and ttl or left(ARGV[1], field, times))
  if own and ttl >= 0 then
    -- It ends with the lock, which Redisson's watchdog may have cut short.
    own = math.min(own, ttl)
  end
  if own and (writes or own > 0) then
    answer[#answer + 1] = field
    answer[#answer + 1] = fields[i + 1]
    answer[#answer + 1] = own
  end
end
return answer
