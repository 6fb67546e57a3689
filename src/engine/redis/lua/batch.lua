-- Carries out the requests that several callers sent at the same moment, each as if it had arrived alone.
--
-- The table `scripts` precedes this text. It has, for each script that a batch may run, a function of the offsets of its keys
-- (k) and arguments (a), and the number of its keys and arguments.
--
-- KEYS  those of the items, one after the other
-- ARGV  for each item: the number of its script, then its arguments
-- Returns, for each item  the result of its script, or the text of its error
local results, n, k, a, last = {}, 0, 0, 1, #ARGV
while a <= last do
  local script = scripts[ARGV[a]]
  -- An error of one key must not cost the other items their replies.
  local done, result = pcall(script[1], k, a)
  local wrong = type(result) == 'table' and result.err
  if not (done or wrong) then
    wrong = tostring(result)
  end
  if wrong then
    result = wrong
    -- The error code is at the beginning; servers before 7.0 put the position of the call before it. Anywhere else the word may
    -- be part of a name.
    local said = string.gsub(wrong, '^@user_script: ?%d+: ', '')
    if string.find(said, '^%-?READONLY ') then
      -- A read-only server refuses all other items, too; the client has to find another server.
      return redis.error_reply('READONLY You can\'t write against a read only replica')
    end
  end
  n = n + 1
  results[n] = result
  k, a = k + script[2], a + script[3] + 1
end
return results
