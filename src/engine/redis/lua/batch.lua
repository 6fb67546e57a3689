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
  local done, result = pcall(script[1], k, a)
  local wrong = type(result) == 'table' and result.err
  if not (done or wrong) then
    wrong = tostring(result)
  end
  if wrong then
    result = wrong
    -- The code is at the beginning; servers before 7.0 put the place of the call before it. Anywhere else it may be part
    -- of a name.
    local said = string.gsub(wrong, '^@user_script: ?%d+: ', '')
    if string.find(said, '^%-?READONLY ') then
      -- So is everything else here; who asked is to look for another server.
      return redis.error_reply('READONLY You can\'t write against a read only replica')
    end
  end
  n = n + 1
  results[n] = result
  k, a = k + script[2], a + script[3] + 1
end
return results
