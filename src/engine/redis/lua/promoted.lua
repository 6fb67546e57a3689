-- Remembers since when a promoted server is known, and under which name of its data.
--
-- KEYS  1 the record
-- ARGV  1 whose data it has   2 how long to remember it, in ms
-- Returns  for how long it has been known, in ms: 0 if it was not
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- More than the longest record: a string of any size costs the same.
local known = redis.pcall('GETRANGE', KEYS[1], 0, 127)
if type(known) == 'table' then
  -- A lock, or another program's data: it stays, and a connection that cannot use the record waits by itself.
  return string.find(known.err, '^WRONGTYPE') and 0 or known
end
local data, since = string.match(known, '^(%x+) (%d+)$')
if not data and redis.call('EXISTS', KEYS[1]) == 1 or #known > 127 then
  return 0
end
if data == ARGV[1] then
  -- Not SET, which a server that is short of memory refuses.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  -- The next millisecond: this one had begun.
  since = now + 1
  redis.call('SET', KEYS[1], string.format('%s %.0f', ARGV[1], since), 'PX', ARGV[2])
end
return math.max(0, now - since)
