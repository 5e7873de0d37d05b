-- refund: takes back hits that a check has charged.
-- ARGV[2..]  for each key, packed big-endian: letter of the algorithm (1 byte), window (7),
--            cost (4), grain (7), the clock when it was charged (7)
-- reply      for each key: the number of hits taken back; hits that have left and hits of a damaged
--            value are not taken back
local function damaged(problem)
  local text = type(problem) == 'table' and problem.err or problem
  return string.find(text, 'WRONGTYPE', 1, true) or string.find(text, 'damaged value', 1, true)
end

local reply = {}
for i = 1, #KEYS do
  local key, s, taken = KEYS[i], nil, 0
  local letter, window, cost, grain, stamp = unpack_at('>BI7I4I7I7', ARGV[i + 1])
  -- A damaged value must not prevent the refund of the other windows.
  local whole, problem = pcall(function()
    --- look
    if s then
      --- refund
    end
  end)
  if not whole then
    if not damaged(problem) then error(problem, 0) end
    taken = 0
  end
  reply[i] = taken
end
return reply
