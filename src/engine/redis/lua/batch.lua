-- Carries out what several callers asked for at the same moment, each as if it had come alone.
--
-- Behind a table `scripts`: for each script that may come in here, its function, how many keys and how
-- many arguments it takes.
--
-- KEYS  those of the items, one after the other
-- ARGV  for each item: the number of its script, then its arguments
-- Returns, for each item  what its script returns, or its error's text
local results, keys_used, i = {}, 0, 1
while i <= #ARGV do
  local script = scripts[tonumber(ARGV[i])]
  local keys, args = {}, {}
  for n = 1, script[2] do
    keys[n] = KEYS[keys_used + n]
  end
  for n = 1, script[3] do
    args[n] = ARGV[i + n]
  end
  keys_used, i = keys_used + script[2], i + script[3] + 1
  -- One bad key must not cost the others their answer.
  local _, result = pcall(script[1], keys, args)
  if type(result) == 'table' then
    result = result.err
  end
  results[#results + 1] = result
end
return results
