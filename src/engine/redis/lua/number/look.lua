-- Says what number there is.
--
-- KEYS  1 the number
-- Returns  it, or nil
local there, wrong = stored_number(KEYS[1])
return wrong or there
