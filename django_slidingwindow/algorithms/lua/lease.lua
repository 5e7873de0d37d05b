-- lease: what a check does besides if it takes units ahead, at the places of the same names in the
-- evaluator. Its reply counts the units ahead as units that are left.
-- ARGV[#KEYS + 2..]  for each key, packed big-endian: the most units to take ahead (4 bytes), the
--                    part of the room to take at most, as a divisor (4), units to give back first
--                    (4), and the clock when those were taken (7)
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
do return {reply, unpack(granted)} end
