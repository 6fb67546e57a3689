-- Prelude of every script if some waiters subscribe to one kind of channel only, plain or sharded: both kinds are published to.
--
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next
local server = redis
local redis = {
  call = function(command, ...)
    if command ~= 'PUBLISH' then
      return server.call(command, ...)
    end
    -- A distlock waiter subscribes to both kinds, so that the counts must not be added. The maximum also counts a waiter that
    -- subscribes to one kind.
    return math.max(server.call('SPUBLISH', ...), server.call('PUBLISH', ...))
  end,
  pcall = server.pcall,
  error_reply = server.error_reply,
  status_reply = server.status_reply,
}
