-- Time is in microseconds. A clock that a test passes in takes the place of the server's.
-- KEYS     one window each
-- ARGV[1]  the clock, or '' for the server's
-- ARGV[2]  '1' to write, '0' to look only
-- The rest, and the reply, is the evaluator's (see the end). All replies are integers.
local call, floor, ceil, min, max = redis.call, math.floor, math.ceil, math.min, math.max
local pack, unpack_at = struct.pack, struct.unpack

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local writes = ARGV[2] == '1'

-- Expiries are rounded up to this step, so that a busy key need not renew its own at each hit.
local EXPIRY_STEP = 500000

-- Milliseconds until a hit that came at `stamp` has left.
local function expiry(stamp, window)
  return ceil(((floor(stamp / EXPIRY_STEP) + 1) * EXPIRY_STEP + window - now) / 1000)
end

-- Whether a hit now needs another expiry than the one at `stamp` has set.
local function expiry_moved(stamp)
  return floor(stamp / EXPIRY_STEP) ~= floor(now / EXPIRY_STEP)
end

-- By the letter in a policy's arguments. Each algorithm has
--   look(key, window, grain)     the state s, with s.count: the hits that count now
--   lasts(window, grain)         how long a hit that comes now counts
--   leaves(s, n)                 how long until the n oldest counted hits have left
--   refused(s, limit, cost, added)  for an estimate: retry and reset of a refusal
--   charge(s, cost, keep)        adds hits, and with `keep` drops all but the newest so many
--   refund(key, window, grain, stamp, cost)   takes back up to `cost` hits that came at `stamp`
-- Where hits lie ahead of the clock, it has stepped back: look sets them to the clock and,
-- if it may, writes that, so nobody is kept out longer than a window from now on.
local algorithms = {}
