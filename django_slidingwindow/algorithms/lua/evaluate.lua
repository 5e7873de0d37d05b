-- evaluate: looks at every window, and charges all of them if all admit.
-- ARGV[2..]  for each key, packed big-endian: letter of the algorithm (1 byte), limit (4),
--            window (7), cost (4), flags (1: 1 observe, 2 count_rejected), grain (7), and the
--            milliseconds that the key lives after a hit, as text
-- reply      packed big-endian: admitted (1 byte), clock (8), then for each key: admits (1),
--            remaining (4), retry (8, signed; 0 if it admits, -1 for never), reset (8)
--- lease_return
--- penalty_begin
local states, owners, vetoed = {}, {}, false
for i = 1, #KEYS do
  local key, s = KEYS[i], nil
  local letter, limit, window, cost, flags, grain = unpack_at('>BI4I7I4BI7', ARGV[i + 1])
  --- penalty_look
  --- look
  if not s then return redis.error_reply('ERR damaged value in KEYS[' .. i .. ']: reset this window') end
  -- Policies with the same key share its hits, so only the first of them, the owner, stores hits. It
  -- stores the cost if a policy admits the request, else the largest refusal that is counted.
  local owner = owners[key] or s
  owners[key] = owner
  states[i], s.owner, s.cost = s, owner, 0
  s.refuses = cost > 0 and s.count + cost > limit
  --- penalty_judge
  if not s.refuses then
    if owner.cost == 0 then owner.cost = cost end
  else
    if flags % 2 == 0 then vetoed = true end
    if flags > 1 then
      owner.rejected = math.max(owner.rejected or 0, math.min(cost, limit))
      owner.cap = math.max(owner.cap or 0, limit)
    end
  end
end

--- penalty_settle
local reply
for i = 1, #KEYS do
  local s = states[i]
  local letter, limit, window, cost = unpack_at('>BI4I7I4', ARGV[i + 1])
  local owner, admits, count, added, dropped, retry, reset = s.owner, 1, s.count, 0, 0, 0, s.reset
  if not vetoed and owner.cost > 0 then
    added = owner.cost
  elseif owner.rejected then
    -- A refusal raises the count at most to the limit, and never lowers it. If there is no room, it
    -- replaces the oldest hits.
    local room = math.max(0, owner.cap - (s.this or count))
    added = owner.rejected
    if s.this then added = math.min(added, room) else dropped = math.max(0, added - room) end
  end
  s.added, s.dropped = added, dropped
  -- A call without a cost gets the window as it was before this call.
  if cost == 0 then added, dropped = 0, 0 end
  if s.refuses then
    admits = 0
    if cost > limit then
      retry = -1
    elseif leaves[letter] then
      retry = leaves[letter](s, count + added + cost - limit)
    else
      retry = refused(s, limit, cost, added)
    end
  end
  if dropped > 0 then reset = leaves[letter](s, dropped + 1) end
  -- A compact log stores hits in ticks, so a hit may count for up to a tick more than a window.
  if letter == 99 and reset > window then reset = window end
  local remaining = limit - count - added + dropped
  if remaining < 0 then remaining = 0 end
  -- A damaged value may have hits that have left already.
  if reset < 0 or count + added == 0 then reset = 0 end
  --- penalty_row
  if reply then
    reply = reply .. pack('>BI4i8i8', admits, remaining, retry, reset)
  else
    reply = pack('>Bi8BI4i8i8', vetoed and 0 or 1, now, admits, remaining, retry, reset)
  end
end

if writes then
  for i = 1, #KEYS do
    local s = states[i]
    if s.owner == s and s.added > 0 then
      --- lease_grant
      local letter = unpack_at('B', ARGV[i + 1])
      --- charge
    end
  end
  --- penalty_write
end
--- lease_reply
return reply
