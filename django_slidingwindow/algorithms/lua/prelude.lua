-- KEYS      the keys of the windows
-- ARGV[1]   'w' to write or 'r' to read only; in tests, a clock follows and replaces the server's
-- ARGV[2..] one packed argument for each key: see the evaluator, at the end
-- Times are in microseconds.
-- Expiries are rounded up to this step, so that a busy key does not need a new one for every hit.
local EXPIRY_STEP = 500000
local KEYS, ARGV, call, pack, unpack_at, sub = KEYS, ARGV, redis.call, struct.pack, struct.unpack, string.sub
local mode, now = ARGV[1], nil
local writes = mode == 'w'
if writes or mode == 'r' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  writes, now = sub(mode, 1, 1) == 'w', tonumber(sub(mode, 2))
end

--- usual
-- Every call of a script creates its functions and tables again, and each costs as much as a small
-- command. So there are few functions: the code that every check runs is in sections, which are
-- inserted into the evaluator. An algorithm has these sections and functions:
--   usual    only if the script has no other algorithm: a fast path for the most frequent cases,
--            which returns the reply; in all other cases it changes nothing
--   look     sets s, the state of the window `key`: s.count, the number of hits that count now, and
--            s.reset, the time until the oldest of them leaves (without hits: until a hit of now
--            leaves); s stays nil if the stored value is damaged
--   charge   adds s.added hits and drops the s.dropped oldest hits
--   refund   takes back up to `cost` hits that were charged at `stamp`, and sets `taken`
--   leaves[letter](s, n)   returns the time until the n oldest hits have left; if n is larger than
--            s.count, the last of them is a hit of now
--   refused(s, limit, cost, added)   instead of `leaves`, for an algorithm that estimates: it has
--            s.this and drops no hits; returns the time until `cost` is admitted, after `added` more
--            hits
-- Hits in the future mean that the clock has stepped back. look moves them to now and, in a script
-- that writes, stores that. So no hit counts for longer than a window from now.
local floor, leaves, refused = math.floor, {}, nil

-- Returns the milliseconds until a hit with this stamp has left.
local function expiry(stamp, window)
  return floor((stamp - stamp % EXPIRY_STEP + EXPIRY_STEP + window - now) / 1000) + 1
end

-- Returns whether a hit of now needs a later expiry than the one that the hit at `stamp` has set.
local function expiry_moved(stamp)
  return stamp - stamp % EXPIRY_STEP ~= now - now % EXPIRY_STEP
end
