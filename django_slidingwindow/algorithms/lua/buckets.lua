-- buckets: a hash of sub-windows of length `grain`. All hits of a sub-window count until one window
-- after its end. So never more than the limit is admitted, and a hit leaves at most one sub-window
-- late. After the resolution was changed, sub-windows of the old length follow the same rule.
--   field 0..  six sub-windows each, the oldest first: the microsecond at which it ends (the
--              lower 6 bytes), the hits up to then (4 bytes, modulo 2^32)
--   field p    the same, for the last sub-windows while they are fewer than six
--   field s    the newest sub-window, which is in no other field: its end (7 bytes), the hits
--              up to then (4), and when the value was created (7). If there was another sub-window:
--              the end of the oldest that counts (7), the hits before it (4), its number (5), the
--              number of sub-windows after it (3), and the number of older fields that remain (3)
-- A refund of hits from before the creation takes nothing back: they went with an earlier value.
-- The fields s and p come first, because Redis searches a small hash from its start.
-- Sub-windows are numbered from 0. They store sums of hits, so a check does not read all of them to
-- count the hits, or to find when enough hits have left. All stored sub-windows end within 2^48
-- microseconds before the newest, which gives the upper byte. If the clock steps back, sub-windows
-- after the newest stay until they are overwritten.

--- usual
-- One hit on one window. The window refuses it, or it falls into the newest sub-window or the first.
if writes and not KEYS[2] then
  local key, value = KEYS[1], call('HGET', KEYS[1], 's') or ''
  local _, limit, window, cost, flags, grain = unpack_at('>BI4I7I4BI7', ARGV[2])
  local current = now - now % grain + grain
  local newest, total, created, oldest, base, first = current, 0, now, current, 0, value == ''
  local sound = first or #value == 18 or #value == 40
  if sound and not first then
    newest, total, created = unpack_at('>I7I4I7', value)
    oldest = newest
    if #value > 18 then
      oldest, base = unpack_at('>I7I4', value, 19)
    elseif newest + window <= now then
      newest, total, created, oldest, first = current, 0, now, current, true
    end
  end
  local count, reset = (total - base) % 4294967296, oldest + window - now
  if sound and cost == 1 and reset > 0 and newest <= current and created <= now then
    if count < limit and newest == current then
      call('HSET', key, 's', pack('>I7I4I7', current, total + 1, created) .. sub(value, 19))
      if first then call('PEXPIRE', key, math.floor(reset / 1000) + 1) end
      return pack('>Bi8BI4i8i8', 1, now, 1, limit - count - 1, 0, reset)
    elseif count == limit and count > 0 and flags == 0 then
      return pack('>Bi8BI4i8i8', 0, now, 0, 0, reset, reset)
    end
  end
end

--- functions
local BUCKETS_WRAP, BUCKETS_SPAN = 4294967296, 281474976710656
local buckets_back   -- by key, the state that was written because the clock has stepped back

local function buckets_head(s)
  if not s.many then return pack('>I7I4I7', s.newest, s.total - s.base, s.created) end
  local first = s.first
  return pack('>I7I4I7I7I4I5I3I3', s.newest, s.total, s.created, s.oldest, s.base, first, s.last - first,
    floor(first / 6) - s.lowest)
end

-- If the newest sub-window is now in an earlier field, copies that field to field p.
local function buckets_refill(s)
  local field = floor(s.last / 6)
  if field ~= s.partial then
    local slots = call('HGET', s.key, field)
    if not slots or #slots < s.last % 6 * 10 then error('damaged value: reset this window') end
    call('HSET', s.key, 'p', slots)
    s.partial, s.slots = field, nil
  end
end

-- Finds the first sub-window that ends after `gone` and up to which there are `n` hits. The newest
-- must fulfil both. Returns its number, its end, and the sums of hits before it and up to it. The
-- first guess assumes even traffic, so it is often nearly right; later steps are a binary search.
local function buckets_find(s, gone, n)
  local low, high, field, slots, tries = s.first - 1, s.last, nil, nil, 0
  local found, before, total = s.newest, s.base, s.total
  local part = n > 0 and n / s.count or (gone - s.oldest) / (s.newest - s.oldest)
  local i = s.first + floor(part * (s.last - s.first))
  while high - low > 1 do
    i = math.max(low + 1, math.min(high - 1, i))
    if floor(i / 6) ~= field then
      field = floor(i / 6)
      slots = field == s.partial and s.slots or call('HGET', s.key, field == s.partial and 'p' or field)
      if field == s.partial then s.slots = slots end
    end
    if not slots or #slots < i % 6 * 10 + 10 then error('damaged value: reset this window') end
    local last, hits = unpack_at('>I6I4', slots, i % 6 * 10 + 1)
    last = s.newest - (s.newest - last) % BUCKETS_SPAN
    local beyond = last > gone and (hits - s.base) % BUCKETS_WRAP >= n
    if beyond then high, found, total = i, last, hits else low, before = i, hits end
    if tries < 2 then
      -- Try the rest of this field, then the field next to it.
      i = 6 * field + (beyond and -6 * tries or 6 * tries + 5)
    else
      i = floor((low + high) / 2)
    end
    tries = tries + 1
  end
  return high, found, before, total
end

leaves[98] = function(s, n)
  local last = s.oldest
  if n > s.count then
    last = s.current
  elseif n > 1 then
    local _
    _, last = buckets_find(s, 0, n)
  end
  return last + s.window - now
end

--- look
local value, current, sound, slots = call('HGET', key, 's'), now - now % grain + grain, true, nil
local newest, total, created, oldest, base, first, last, lowest = current, 0, now, current, 0, 0, 0, 0
if value and #value ~= 18 and #value ~= 40 then
  sound = false
elseif value then
  newest, total, created = unpack_at('>I7I4I7', value)
  oldest = newest
  if #value > 18 then
    oldest, base, first, last, lowest = unpack_at('>I7I4I5I3I3', value, 19)
    last, lowest = first + last, floor(first / 6) - lowest
    if newest < current and last % 6 > 0 then
      -- A charge writes this field again. If it is damaged, the call must fail before that.
      slots = call('HGET', key, 'p')
      sound = slots and #slots >= last % 6 * 10
    end
  end
end
if sound then
  s = {key = key, window = window, current = current, many = value and #value > 18, created = math.min(created, now),
    newest = newest, total = total, oldest = oldest, base = base, first = first, last = last, lowest = lowest,
    partial = floor(last / 6), slots = slots}
  if newest > current or created > now then
    if newest > current then
      s.last = buckets_find(s, current - 1, 0)
      newest, oldest = current, math.min(oldest, current)
      s.newest, s.oldest = newest, oldest
    end
    if writes then
      buckets_refill(s)
      buckets_back = buckets_back or {}
      buckets_back[key] = s
      call('HSET', key, 's', buckets_head(s))
      call('PEXPIRE', key, floor((newest + window - now) / 1000) + 1)
    end
  end
  if newest + window <= now then
    base, oldest = total, current
  elseif oldest + window <= now then
    s.first, oldest, base = buckets_find(s, now - window, 0)
    s.oldest, s.base = oldest, base
  end
  s.count, s.reset = (total - base) % BUCKETS_WRAP, oldest + window - now
end

--- charge
local key, current, left = s.key, s.current, s.count
local back = buckets_back and buckets_back[key]
if back then
  -- A policy with another resolution has moved hits of this key to an earlier end.
  s.newest, s.last, s.oldest = back.newest, back.last, math.min(s.oldest, back.newest)
  s.partial, s.slots = back.partial, nil
end
if s.dropped > 0 then
  left = left - s.dropped
  if left > 0 then
    s.first, s.oldest = buckets_find(s, 0, s.dropped + 1)
    s.base = (s.base + s.dropped) % BUCKETS_WRAP
  end
end
local opens = left == 0 or s.newest ~= current
if left == 0 then
  if s.many then call('UNLINK', key) end
  call('HSET', key, 's', pack('>I7I4I7', current, s.added, now))
elseif opens then
  local field, slots = 'p', pack('>I6I4', s.newest, s.total)
  if s.last % 6 > 0 then slots = sub(s.slots or call('HGET', key, 'p'), 1, s.last % 6 * 10) .. slots end
  if s.last % 6 == 5 then field = s.partial end
  if s.lowest < floor(s.first / 6) then
    -- Only one field per call, so that no call takes long if many have left.
    call('HDEL', key, s.lowest)
    s.lowest = s.lowest + 1
  end
  s.many, s.last, s.newest, s.total = true, s.last + 1, current, s.total + s.added
  call('HSET', key, 's', buckets_head(s), field, slots)
else
  s.total = s.total + s.added
  call('HSET', key, 's', buckets_head(s))
end
if opens then call('PEXPIRE', key, floor((current + s.window - now) / 1000) + 1) end

--- refund
local hit = math.min(stamp, now)
hit = hit - hit % grain + grain
if s.count > 0 and hit <= s.newest and math.min(stamp, now) >= s.created then
  local number, found, before, total = buckets_find(s, hit - 1, 0)
  local hits = (total - before) % BUCKETS_WRAP
  if found == hit then taken = math.min(cost, hits) end
  if taken == s.count then
    call('UNLINK', key)
  elseif taken > 0 then
    local function field(i)
      local field = floor(i / 6)
      return call('HGET', key, field == s.partial and 'p' or field)
    end
    local function slot(i)
      local last, upto = unpack_at('>I6I4', field(i), i % 6 * 10 + 1)
      return s.newest - (s.newest - last) % BUCKETS_SPAN, upto
    end
    if number < s.last then
      -- The sums of later sub-windows become smaller. If this one is now empty, they move up.
      local at, slots = number, sub(field(number), 1, number % 6 * 10)
      for i = number, s.last - 1 do
        local last, upto = slot(i)
        if i > number or taken < hits then
          slots = slots .. pack('>I6I4', last, upto - taken)
          at = at + 1
          if at % 6 == 0 then
            call('HSET', key, at / 6 - 1, slots)
            slots = ''
          end
        end
      end
      call('HSET', key, 'p', slots)
      s.partial = floor(at / 6)
    end
    s.total = s.total - taken
    if taken == hits then
      s.last = s.last - 1
      if number > s.last then
        s.newest = slot(s.last)
        call('PEXPIRE', key, floor((s.newest + window - now) / 1000) + 1)
      elseif number == s.first then
        s.oldest = number == s.last and s.newest or slot(number)
      end
    end
    buckets_refill(s)
    call('HSET', key, 's', buckets_head(s))
  end
end
