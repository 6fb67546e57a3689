-- Carries out what several callers asked for at the same moment, each as if it had come alone.
--
-- Behind a table `scripts`: for each script that may come in here, its function of where its keys (k) and
-- arguments (a) begin, and how many of both it has.
--
-- KEYS  those of the items, one after the other
-- ARGV  for each item: the number of its script, then its arguments
-- Returns, for each item  what its script returns, or its error's text
local results, n, k, a, last = {}, 0, 0, 1, #ARGV
while a <= last do
  local script = scripts[ARGV[a]]
  -- One bad key must not cost the others their answer.
  local _, result = pcall(script[1], k, a)
  if type(result) == 'table' then
    result = result.err or result
  end
  -- At its beginning, or behind the place of the error: a user may be called READONLY.
  if type(result) == 'string' and string.find(': ' .. result, ': %-?READONLY ') then
    -- So is everything else here; who asked is to look for another server.
    return redis.error_reply('READONLY You can\'t write against a read only replica')
  end
  n = n + 1
  results[n] = result
  k, a = k + script[2], a + script[3] + 1
end
return results
