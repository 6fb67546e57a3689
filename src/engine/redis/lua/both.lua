-- Before every script where some of those who wait hear only one sort of message: both are sent.
--
-- KEYS  those of the script behind it
-- Returns  nothing: it goes on there
local server = redis
local redis = {
  call = function(command, ...)
    if command ~= 'PUBLISH' then
      return server.call(command, ...)
    end
    -- Ours listen to both; whoever hears one alone is counted by it.
    return math.max(server.call('SPUBLISH', ...), server.call('PUBLISH', ...))
  end,
  pcall = server.pcall,
  error_reply = server.error_reply,
  status_reply = server.status_reply,
}
