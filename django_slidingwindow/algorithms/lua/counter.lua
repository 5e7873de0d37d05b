-- counter: the hits of the current window of the clock and of the window before it. The hits of the
-- window before count in proportion to its part that the sliding window still covers.
-- value  packed big-endian: the number of the current window (6 bytes), the hits of the window
--        before (4), the hits of the current window (4), and when the value was created (6), in
--        microseconds from the start of the window before, 0 if that was earlier. A refund of hits
--        from before the creation takes nothing back.

--- functions
local function counter_store(s)
  local windows = s.this > 0 and 2 or 1
  if s.this + s.before == 0 then
    call('DEL', s.key)
  else
    call('SET', s.key, pack('>I6I4I4I6', s.number, s.before, s.this, s.created),
      'PX', math.ceil((windows * s.window - s.elapsed) / 1000))
  end
end

-- Returns how many hits of the window before still count, rounded up to whole hits.
local function counter_share(before, elapsed, window)
  return before - floor(before * elapsed / window)
end

local function counter_look(key, window)
  local value, elapsed = call('GET', key), now % window
  local s = {key = key, window = window, number = floor(now / window), elapsed = elapsed, before = 0, this = 0,
    created = window + elapsed}
  if value then
    if #value ~= 20 then return nil end
    local number, before, this, created = unpack_at('>I6I4I4I6', value)
    if number == s.number then
      s.before, s.this = before, this
    elseif number == s.number - 1 then
      s.before = this
    elseif number > s.number then
      s.this = before + this
    end
    if s.before + s.this > 0 then
      created = created + (number - s.number) * window
      s.created = math.max(0, math.min(created, s.created))
    end
    if number > s.number and writes then counter_store(s) end
  end
  s.count = counter_share(s.before, elapsed, window) + s.this
  s.reset = (s.before > 0 and 1 or 2) * window - elapsed
  return s
end

-- Returns the time until there is room for `cost`, after `added` more hits and no others.
refused = function(s, limit, cost, added)
  local before, this, elapsed, waited = s.before, s.this + added, s.elapsed, 0
  if this + cost > limit then
    -- There is no room before this window ends and becomes the window before.
    waited = s.window - elapsed
    before, this, elapsed = this, 0, 0
  end
  -- Solve the equation for the time, then find the exact microsecond by trying.
  local room = limit - this - cost
  local at = math.max(elapsed, math.ceil((before - room) * s.window / before))
  while at > elapsed and counter_share(before, at - 1, s.window) <= room do at = at - 1 end
  while counter_share(before, at, s.window) > room do at = at + 1 end
  return waited + at - elapsed
end

--- look
s = counter_look(key, window)

--- charge
s.this = s.this + s.added
counter_store(s)

--- refund
local hit = math.min(stamp, now) - (s.number - 1) * window
if hit < s.created then
  taken = 0
elseif hit >= window then
  taken = math.min(cost, s.this)
  s.this = s.this - taken
else
  taken = math.min(cost, s.before)
  s.before = s.before - taken
end
if taken > 0 then counter_store(s) end
