-- counter: hits of this window and of the one before, which counts by the part of it that the
-- sliding window still covers. The value is the text `window number:before:this`.

--- functions
local function counter_store(s)
  local windows = s.this > 0 and 2 or 1
  if s.this + s.before == 0 then
    call('DEL', s.key)
  else
    call('SET', s.key, string.format('%.0f:%.0f:%.0f', s.number, s.before, s.this),
      'PX', math.ceil((windows * s.window - s.elapsed) / 1000))
  end
end

-- How many of the hits before still count, rounded up: all of this algorithm in whole hits.
local function counter_share(before, elapsed, window)
  return before - floor(before * elapsed / window)
end

local function counter_look(key, window)
  local s = {key = key, window = window, number = floor(now / window), elapsed = now % window, before = 0, this = 0}
  local value = call('GET', key)
  if value then
    local number, before, this = string.match(value, '^(%d+):(%d+):(%d+)$')
    number, before, this = tonumber(number), tonumber(before), tonumber(this)
    if number == s.number then
      s.before, s.this = before, this
    elseif number == s.number - 1 then
      s.before = this
    elseif number > s.number then
      s.this = before + this
      if writes then counter_store(s) end
    end
  end
  s.count = counter_share(s.before, s.elapsed, window) + s.this
  s.reset = (s.before > 0 and 1 or 2) * window - s.elapsed
  return s
end

-- Hits before and in this window with `added` more, the oldest dropped until `keep` count.
local function counter_kept(s, added, keep)
  local this = math.min(s.this + added, keep)
  local room = keep - this
  -- The solution of the share for its hits, then the last one by trying: numbers are rounded.
  local before = math.min(s.before, floor(room * s.window / (s.window - s.elapsed)))
  while before < s.before and counter_share(before + 1, s.elapsed, s.window) <= room do before = before + 1 end
  while counter_share(before, s.elapsed, s.window) > room do before = before - 1 end
  return before, this
end

-- How long until the estimate leaves room for `cost`, if nobody else comes, and until the
-- oldest hits leave; both with `added` hits of this refusal stored.
refused = function(s, limit, cost, added)
  local before, this, elapsed, waited = s.before, s.this, s.elapsed, 0
  if added > 0 then before, this = counter_kept(s, added, limit) end
  local reset = (before > 0 and 1 or this > 0 and 2 or 0) * s.window - elapsed
  if cost > limit then return -1, math.max(0, reset) end
  if this + cost > limit then
    -- Not in this window: it becomes the one before.
    waited = s.window - elapsed
    before, this, elapsed = this, 0, 0
  end
  -- The solution of the share for its time, then the last microsecond by trying.
  local room = limit - this - cost
  local at = math.max(elapsed, math.ceil((before - room) * s.window / before))
  while at > elapsed and counter_share(before, at - 1, s.window) <= room do at = at - 1 end
  while counter_share(before, at, s.window) > room do at = at + 1 end
  return waited + at - elapsed, reset
end

--- look
s = counter_look(key, window)

--- charge
if s.keep then
  s.before, s.this = counter_kept(s, s.added, s.keep)
else
  s.this = s.this + s.added
end
counter_store(s)

--- refund
local number = floor(math.min(stamp, now) / window)
if number == s.number then
  taken = math.min(cost, s.this)
  s.this = s.this - taken
elseif number == s.number - 1 then
  taken = math.min(cost, s.before)
  s.before = s.before - taken
end
if taken > 0 then counter_store(s) end
