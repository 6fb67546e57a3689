-- Remembers since when a promoted server is known, and under which name of its data.
--
-- KEYS  1 the record
-- ARGV  1 whose data it has   2 how long to remember it, in ms
-- Returns  for how long it has been known, in ms: 0 if it was not
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('GET', KEYS[1])
local data, since = string.match(known or '', '^(%x+) (%d+)$')
if data ~= ARGV[1] then
  -- The next millisecond: this one had begun.
  since = now + 1
end
redis.call('SET', KEYS[1], string.format('%s %.0f', ARGV[1], since), 'PX', ARGV[2])
return math.max(0, now - since)
