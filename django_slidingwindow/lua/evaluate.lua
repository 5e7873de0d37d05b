-- evaluate: look at every window, and only if all of them admit, charge all.
-- ARGV[3..]  for each key: letter, limit, window, cost, flags (1 observe, 2 count_rejected), grain
-- reply      admitted (1 or 0), clock, then for each key: admits (1 or 0), remaining,
--            retry (0 if it admits, -1 for never), reset
local states, vetoed = {}, false
for i = 1, #KEYS do
  local a = 6 * i - 3
  local algorithm = algorithms[ARGV[a]]
  local window, grain = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 5])
  local s = algorithm.look(KEYS[i], window, grain)
  local limit, cost, flags = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
  s.algorithm, s.limit, s.cost, s.flags, s.grain = algorithm, limit, cost, flags, grain
  s.admits = cost == 0 or s.count + cost <= limit
  if not s.admits and flags % 2 == 0 then vetoed = true end
  states[i] = s
end

-- How long until the n oldest hits have left, those that this request adds included.
local function leaves(s, n)
  if n > s.count then return s.algorithm.lasts(s.window, s.grain) end
  return s.algorithm.leaves(s, n)
end

local reply = {vetoed and 0 or 1, now}
for i = 1, #KEYS do
  local s = states[i]
  local limit, cost, count = s.limit, s.cost, s.count
  local added, dropped, retry, reset = 0, 0, 0, 0
  if not s.admits then
    if s.flags >= 2 and limit > 0 then
      added = min(cost, limit)
      dropped = max(0, count + added - limit)
      s.keep = limit
    end
    if s.algorithm.refused then
      retry, reset = s.algorithm.refused(s, limit, cost, added)
    else
      retry = leaves(s, count + added + cost - limit)
    end
    if cost > limit then retry = -1 end
  elseif not vetoed then
    added = cost
  end
  if reset == 0 and count + added > 0 then reset = leaves(s, dropped + 1) end
  s.added = added
  local at = 4 * i - 1
  reply[at], reply[at + 1] = s.admits and 1 or 0, max(0, limit - count - added)
  reply[at + 2], reply[at + 3] = retry, reset
end

if writes then
  -- Policies with an equal key share their hits: a request is charged once there.
  local charged = {}
  for i = 1, #KEYS do
    local s = states[i]
    if s.added > 0 and not charged[s.key] then
      charged[s.key] = true
      s.algorithm.charge(s, s.added, s.keep)
    end
  end
end
return reply
