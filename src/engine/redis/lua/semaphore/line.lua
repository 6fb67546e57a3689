-- Before the scripts of both semaphores: the time, and who waits for several permits.
--
-- line and alive are ours: who waits, and until when each is believed to, in ms of the server's clock.
--
-- KEYS  those of the script behind it
-- Returns  nothing: it goes on there
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Who is first in line, of those who are there.
local function first(line, alive, now)
  while true do
    local head = redis.call('LINDEX', line, 0)
    local till = head and redis.call('ZSCORE', alive, head)
    if not head or (till and tonumber(till) > now) then
      return head
    end
    redis.call('LPOP', line)
    redis.call('ZREM', alive, head)
  end
end

-- Somebody stands in line for so long; should everybody die, the line ends soon after.
local function stand(line, alive, owner, now, ms)
  if not redis.call('ZSCORE', alive, owner) then
    redis.call('RPUSH', line, owner)
  end
  redis.call('ZADD', alive, string.format('%.0f', now + ms), owner)
  redis.call('PEXPIRE', line, 60000)
  redis.call('PEXPIRE', alive, 60000)
end

-- Whether it stood there.
local function leave(line, alive, owner)
  return redis.call('ZREM', alive, owner) + redis.call('LREM', line, 0, owner) > 0
end

