-- Records since when a promoted server is known, and the replication id of its data.
--
-- KEYS  1 the record
-- ARGV  1 replication id of the data   2 TTL of the record in ms
-- Returns  for how long the promotion has been known, in ms: 0 if it was not
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- More than the longest record: a string of any size costs the same.
local known = redis.pcall('GETRANGE', KEYS[1], 0, 127)
if type(known) == 'table' then
  -- The key is a lock, or another program's data: it stays. A connection that cannot use the record waits by itself.
  return string.find(known.err, '^WRONGTYPE') and 0 or known
end
local data, since = string.match(known, '^(%x+) (%d+)$')
if not data and redis.call('EXISTS', KEYS[1]) == 1 or #known > 127 then
  return 0
end
if data == ARGV[1] then
  -- PEXPIRE, not SET, which a server short of memory refuses.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  -- The next millisecond: the current one had already begun.
  since = now + 1
  redis.call('SET', KEYS[1], string.format('%s %.0f', ARGV[1], since), 'PX', ARGV[2])
end
return math.max(0, now - since)
