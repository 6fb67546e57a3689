-- Prelude of the scripts of the semaphore: the format of its permits in use.
--
-- Redisson's zset NAME:timeout has the permit's id as member and its expiry as score. An id is 16 bytes of any value, or 32
-- hexadecimal digits before Redisson 3.17. The expiry is in ms since 1970, or 922337203685477 if there is none.
--
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
local NO_END = 922337203685477

local function is_permit(id, score)
  local raw = #id == 16 or #id == 32 and string.find(id, '^[0-9a-f]+$')
  -- Scores start in 2001: a time in seconds is less, one in microseconds is more.
  return raw and string.find(score, '^%d+$') and tonumber(score) >= 1000000000000 and tonumber(score) <= NO_END
end

-- Returns whether a function of id and score is true for the eight lowest and the eight highest scores, which limit all others.
-- The two lowest come first: a member may be of any length, and of another program's zset no more are read.
local function all_sampled(in_use_key, is_right)
  for _, range in ipairs({{0, 1}, {2, 7}, {-8, -1}}) do
    local some = redis.call('ZRANGE', in_use_key, range[1], range[2], 'WITHSCORES')
    for i = 1, #some, 2 do
      if not is_right(some[i], some[i + 1]) then
        return false
      end
    end
    -- The zset is short, and was read to its end.
    if #some < 2 * (range[2] - range[1] + 1) then
      break
    end
  end
  return true
end

-- Returns whether the zset holds permits, or is missing; a key of another type is an error.
local function are_permits(in_use_key)
  return all_sampled(in_use_key, is_permit)
end

-- Returns whether distlock has recorded the clients of all sampled permits: an id starts with four bytes of its client's id. If
-- the number is missing, nothing else proves that these are permits. A `clients` key of another type belongs to another program
-- and proves nothing.
local function are_recorded(in_use_key, clients)
  return all_sampled(in_use_key, function(id)
    return redis.pcall('HEXISTS', clients, string.sub(id, 1, 4)) == 1
  end)
end

