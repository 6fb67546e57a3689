-- Before everything in a batch: what is used for every item is found once.
local KEYS, ARGV, redis, pcall, type = KEYS, ARGV, redis, pcall, type
