-- buckets: a hash of sub-windows of length `grain`. The field is the microsecond at which a
-- sub-window ends, the value its hits. All of them count until a window after that end: never
-- more than the limit, and at most one sub-window late. Sub-windows of another length that a
-- changed resolution has left behind follow the same rule.

--- functions
local function buckets_end(stamp, length)
  return (floor(stamp / length) + 1) * length
end

local function buckets_add(s, cost)
  call('HINCRBY', s.key, string.format('%.0f', s.current), cost)
end

local function buckets_expire(key, last, window)
  call('PEXPIRE', key, math.max(1, math.ceil((last + window - now) / 1000)))
end

local function buckets_drop_stale(s)
  if #s.stale > 0 then call('HDEL', s.key, unpack(s.stale)) end
end

local function buckets_look(key, window, length)
  local s = {key = key, window = window, current = buckets_end(now, length), count = 0, stale = {}, ends = {}, hits = {}}
  local fields = call('HGETALL', key)
  local ahead, oldest = 0, nil
  for i = 1, #fields, 2 do
    local last, hits = tonumber(fields[i]), tonumber(fields[i + 1])
    if last > s.current then
      ahead = ahead + hits
      if writes then call('HDEL', key, fields[i]) end
    elseif last + window > now then
      s.ends[#s.ends + 1] = last
      s.hits[last] = hits
      s.count = s.count + hits
      if not oldest or last < oldest then oldest = last end
    else
      s.stale[#s.stale + 1] = fields[i]
    end
  end
  if ahead > 0 then
    s.count = s.count + ahead
    if not s.hits[s.current] then s.ends[#s.ends + 1] = s.current end
    s.hits[s.current] = (s.hits[s.current] or 0) + ahead
    if writes then
      buckets_add(s, ahead)
      buckets_expire(key, s.current, window)
    end
  end
  s.reset = (oldest or s.current) + window - now
  return s
end

leaves[98] = function(s, n)
  if n > s.count then return s.current + s.window - now end
  table.sort(s.ends)
  local last
  for i = 1, #s.ends do
    last = s.ends[i]
    n = n - s.hits[last]
    if n <= 0 then break end
  end
  return last + s.window - now
end

-- Takes the oldest hits away until at most `room` are left.
local function buckets_trim(s, room)
  table.sort(s.ends)
  local excess = s.count - room
  for i = 1, #s.ends do
    if excess <= 0 then break end
    local last = s.ends[i]
    local taken = math.min(excess, s.hits[last])
    local field = string.format('%.0f', last)
    if taken == s.hits[last] then call('HDEL', s.key, field) else call('HINCRBY', s.key, field, -taken) end
    excess = excess - taken
  end
end

--- look
s = buckets_look(key, window, grain)

--- charge
buckets_drop_stale(s)
if s.keep then buckets_trim(s, s.keep - s.added) end
buckets_add(s, s.added)
if s.keep or not s.hits[s.current] then buckets_expire(s.key, s.current, s.window) end

--- refund
local last = buckets_end(math.min(stamp, now), grain)
local hits = s.hits[last]
if hits and cost > 0 then
  taken = math.min(hits, cost)
  buckets_drop_stale(s)
  local field = string.format('%.0f', last)
  if hits > cost then
    call('HINCRBY', key, field, -cost)
  else
    call('HDEL', key, field)
    table.sort(s.ends)
    local newest = s.ends[#s.ends]
    if newest == last then newest = s.ends[#s.ends - 1] end
    if newest then buckets_expire(key, newest, window) end
  end
end
