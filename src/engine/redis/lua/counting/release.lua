-- Gives back what a request took whose answer nobody has had; one that took nothing waits no longer.
--
-- KEYS  1 how many are there   2 what this client has done   3 the line   4 alive
-- ARGV  1 the request's number, or of who stands in line   2 the same with its client   3 0   4 the semaphore's channel
-- Returns  -1 it took nothing   otherwise given back, and how many listened
if ARGV[3] ~= '0' then
  return -1
end
local listeners = give_back(KEYS[1], KEYS[2], ARGV[1], ARGV[4])
if listeners then
  return listeners
end
local kind = redis.call('TYPE', KEYS[1])['ok']
local there = kind == 'string' and stored_number(KEYS[1])
if leave(KEYS[3], KEYS[4], ARGV[2]) and (there or 0) > 0 then
  redis.call('PUBLISH', ARGV[4], text(there))
end
return -1
