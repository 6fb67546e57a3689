-- Reports the number of a counter.
--
-- KEYS  1 the number
-- Returns  the number, or nil if it is missing
local there, wrong = stored_number(KEYS[1])
return wrong or there
