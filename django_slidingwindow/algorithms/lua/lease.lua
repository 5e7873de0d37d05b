-- lease: sections for a check that takes units ahead. They are inserted at the lines with the same
-- names in the evaluator. `remaining` in the reply includes the units taken ahead.
-- ARGV[#KEYS + 2..]  for each key, packed big-endian: the largest number of units to take ahead (4
--                    bytes), the divisor of the hits that are left, which is another bound (4), the
--                    units to give back first (4), and the clock when those were taken (7)
-- reply              a list: the reply of the evaluator, then for each key the units taken ahead

--- lease_return
local granted = {}
for i = 1, #KEYS do
  local key, s, taken = KEYS[i], nil, 0
  local letter, _, window, _, _, grain = unpack_at('>BI4I7I4BI7', ARGV[i + 1])
  local _, _, cost, stamp = unpack_at('>I4I4I4I7', ARGV[#KEYS + 1 + i])
  granted[i] = 0
  if cost > 0 then
    --- look
    if s then
      --- refund
    end
  end
end

--- lease_grant
if not vetoed and not s.refuses then
  local _, limit = unpack_at('>BI4', ARGV[i + 1])
  local most, share = unpack_at('>I4I4', ARGV[#KEYS + 1 + i])
  granted[i] = math.min(most, floor((limit - s.count - s.added) / share))
  s.added = s.added + granted[i]
end

--- lease_reply
for i = 1, #KEYS do
  -- If the lease was switched on while the key lives, a check without it has set the expiry.
  local grain, lives = unpack_at('>I7', ARGV[i + 1], 18), sub(ARGV[i + 1], 25)
  if granted[i] > 0 then call('PEXPIRE', KEYS[i], lives + floor(grain / 1000)) end
end
do return {reply, unpack(granted)} end
