-- refund: takes hits back that a check has charged.
-- ARGV[3..]  for each key: letter, window, grain, the clock when it was charged, cost
-- reply      for each key: the hits taken back; those that have left are not there any more
local reply = {}
for i = 1, #KEYS do
  local a = 5 * i - 2
  reply[i] = algorithms[ARGV[a]].refund(KEYS[i], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]),
    tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4]))
end
return reply
