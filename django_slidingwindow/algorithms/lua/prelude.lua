-- KEYS      one window each
-- ARGV[1]   'w' to write, 'r' to look only; behind it, in tests, a clock instead of the server's
-- ARGV[2..] one packed argument a key: see the evaluator, at the end
-- Times are in microseconds.
-- Expiries are rounded up to this step, so that a busy key need not renew its own at each hit.
local EXPIRY_STEP = 500000
local call, floor, pack, unpack_at, sub = redis.call, math.floor, struct.pack, struct.unpack, string.sub
local mode, writes, now = ARGV[1], true, nil
if mode == 'w' or mode == 'r' then
  writes = mode == 'w'
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  writes = sub(mode, 1, 1) == 'w'
  now = tonumber(sub(mode, 2))
end

--- usual
-- A script builds its functions and tables anew on every call, and each costs as much as a
-- small command. So what every check does stands in blocks, which the evaluator holds in line,
-- and the functions are few. An algorithm has
--   usual    if the script has this algorithm alone: answers and returns where nothing out of
--            the ordinary happens, before anything is built; else it leaves all as it was
--   look     sets s, the state of the window `key`: s.count, the hits that count now, and
--            s.reset, how long until the oldest of them leaves (a hit that comes now, if none);
--            leaves s nil if the stored value is damaged
--   charge   adds s.added hits and drops the s.dropped oldest
--   refund   takes back up to `cost` hits that came at `stamp`; sets `taken`
--   leaves[letter](s, n)   how long until the n oldest have left; beyond s.count, a hit of now
--   refused(s, limit, cost, added)   instead, for an estimate, which has s.this and drops
--            nothing: how long until `cost` passes, with `added` hits more
-- Where hits lie ahead of the clock, it has stepped back: look sets them to the clock and,
-- if it may, writes that, so nobody is kept out longer than a window from now on.
local leaves, refused = {}, nil

-- Milliseconds until a hit that came at `stamp` has left.
local function expiry(stamp, window)
  return floor((stamp - stamp % EXPIRY_STEP + EXPIRY_STEP + window - now) / 1000) + 1
end

-- Whether a hit now needs another expiry than the one at `stamp` has set.
local function expiry_moved(stamp)
  return stamp - stamp % EXPIRY_STEP ~= now - now % EXPIRY_STEP
end
