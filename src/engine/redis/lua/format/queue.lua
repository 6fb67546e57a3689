-- Prelude of the scripts of the fair lock, after format/owner.lua: the format of the lock's queue.
--
-- Redisson's list redisson_lock_queue:{NAME} has the owners that wait; its zset redisson_lock_timeout:{NAME} has the time when
-- each may be skipped. The scores are not checked: Redisson subtracts one waiter's wait from all others', and that may be any
-- number.
--
-- Needs: format/owner.lua (is_owner)
-- KEYS  those of the script that follows
-- Returns  nothing: the script that follows runs next

-- Returns an error if the list or the zset belongs to another program, or nil if each holds owners or is missing. The first and
-- the last eight entries are checked: a queue of any length costs the same. The first two are read alone: an entry may be of
-- any length, and of another program's queue no more are read.
local function foreign_queue(queue, timeout)
  for command, key in pairs({LRANGE = queue, ZRANGE = timeout}) do
    for _, range in ipairs({{0, 1}, {2, 7}, {-8, -1}}) do
      local some = redis.pcall(command, key, range[1], range[2])
      if some.err then
        return some
      end
      for _, entry in ipairs(some) do
        if not is_owner(entry) then
          return redis.error_reply('WRONGTYPE the key of its queue, ' .. key .. ', holds data of another program')
        end
      end
      -- The key was read to its end.
      if #some < range[2] - range[1] + 1 then
        break
      end
    end
  end
end

