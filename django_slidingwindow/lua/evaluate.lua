-- evaluate: look at every window, and only if all of them admit, charge all.
-- ARGV[2..]  for each key, packed big-endian: letter of the algorithm (1 byte), limit (4),
--            window (7), cost (4), flags (1: 1 observe, 2 count_rejected), grain (7), and as
--            text, the milliseconds that a key lives from a hit on
-- reply      packed big-endian: admitted (1 byte), clock (8), then for each key: admits (1),
--            remaining (4), retry (8, signed; 0 if it admits, -1 for never), reset (8)
local states, vetoed = {}, false
for i = 1, #KEYS do
  local key, s = KEYS[i], nil
  local letter, limit, window, cost, flags, grain = unpack_at('>BI4I7I4BI7', ARGV[i + 1])
  --- look
  states[i] = s
  if cost > 0 and s.count + cost > limit and flags % 2 == 0 then vetoed = true end
end

local reply
for i = 1, #KEYS do
  local s = states[i]
  local letter, limit, _, cost, flags = unpack_at('>BI4I7I4B', ARGV[i + 1])
  local admits, count, added, retry, reset = 1, s.count, 0, 0, s.reset
  if cost > 0 and count + cost > limit then
    admits = 0
    local first = 1
    if flags > 1 and limit > 0 then
      -- The refusal itself is stored, and only the newest hits are kept.
      added = math.min(cost, limit)
      s.keep = limit
      first = math.max(0, count + added - limit) + 1
    end
    if leaves[letter] then
      retry = leaves[letter](s, count + added + cost - limit)
      if first > 1 then reset = leaves[letter](s, first) end
    else
      retry, reset = refused(s, limit, cost, added)
    end
    if cost > limit then retry = -1 end
  elseif not vetoed then
    added = cost
  end
  s.added = added
  local remaining = limit - count - added
  if remaining < 0 then remaining = 0 end
  if count + added == 0 then reset = 0 end
  if reply then
    reply = reply .. pack('>BI4i8i8', admits, remaining, retry, reset)
  else
    reply = pack('>Bi8BI4i8i8', vetoed and 0 or 1, now, admits, remaining, retry, reset)
  end
end

if writes then
  local charged = #KEYS > 1 and {}
  for i = 1, #KEYS do
    local s = states[i]
    -- Policies with an equal key share their hits: a request is charged once there.
    if s.added > 0 and not (charged and charged[s.key]) then
      if charged then charged[s.key] = true end
      local letter = unpack_at('B', ARGV[i + 1])
      --- charge
    end
  end
end
return reply
