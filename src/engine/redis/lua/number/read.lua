-- Reports the number of a counter.
--
-- Needs: format/number.lua (stored_number)
-- KEYS  1 the number
-- Returns  the number, or nil if it is missing
local number, wrong = stored_number(KEYS[1])
return wrong or number
