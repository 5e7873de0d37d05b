-- compact: the exact log, packed into a string. Stamps are whole ticks (`grain`). A hit counts
-- until one window after the last microsecond of its tick, so it never leaves early.
--   few hits  byte 1, newest (7 bytes), then the older ones, oldest first (4 bytes each)
--   many      byte 2, newest (7), oldest (4), capacity (4), tail (4), size (4), and a ring of
--             4-byte slots; the oldest hit is at slot `tail`
-- Four bytes hold the lower half of a stamp. Every write drops the hits that have left, so all
-- stored hits are within 2^31 ticks of the newest, which gives the upper half.

--- usual
-- One hit on each window. All windows have room for it, or there is one window and it refuses.
if writes then
  -- What to write: the value, the offset of the new slot if the value is the head of a ring, and
  -- whether the expiry stays. Several windows need tables for that; one window does not.
  local value, place, stays, reply
  local seen, values, places, stay
  if KEYS[2] then seen, values, places, stay = {}, {}, {}, {} end
  for i = 1, #KEYS do
    local key = KEYS[i]
    local limit, window, cost, flags, grain = unpack_at('>I4I7I4BI7', ARGV[i + 1], 2)
    local stored, life = call('GETRANGE', key, '0', '259'), window + grain - 1
    -- The stamps up to `gone` have left. It may be a fraction.
    local ticks, gone = (now - now % grain) / grain, (now - life) / grain
    local length, form, newest, oldest, size, capacity, tail = #stored, 1, gone, ticks, 0
    if length % 4 > 0 or length == 4 then reply = nil break end
    if length == 260 then form, newest, oldest, capacity, tail, size = unpack_at('>BI7I4I4I4I4', stored)
    elseif length > 0 then form, newest = unpack_at('>BI7', stored) end
    if cost ~= 1 or newest > ticks or seen and seen[key] then reply = nil break end
    -- The expiry stays if the last hit, which has set it, was in the same step.
    place, stays = false, newest * grain >= now - now % EXPIRY_STEP
    if newest <= gone then
      value, stays, oldest, size = pack('>BI7', 1, ticks), false, ticks, 0
    elseif form == 1 then
      local from = 9
      size, oldest = length / 4 - 1, newest
      while size > 1 do
        oldest = newest - (newest - unpack_at('>I4', stored, from)) % 4294967296
        if oldest > gone then break end
        from, size, oldest = from + 4, size - 1, newest
      end
      if size > 63 then reply = nil break end
      value = pack('>BI7c0I4', 1, ticks, sub(stored, from), newest)
    else
      local chunk
      if form ~= 2 or length < 260 then reply = nil break end
      local sound = tail < capacity and size > 0 and size <= capacity and call('STRLEN', key) == 24 + 4 * capacity
      if not sound then reply = nil break end
      oldest = newest - (newest - oldest) % 4294967296
      if oldest <= gone then
        -- Under steady traffic few hits have left: search from the tail on. After a pause few hits
        -- are left: search back from the head.
        local left, at = size, 24 + 4 * tail + 4
        chunk = call('GETRANGE', key, at, at + 63)
        for slot = 1, #chunk, 4 do
          left, oldest = left - 1, newest - (newest - unpack_at('>I4', chunk, slot)) % 4294967296
          if oldest > gone then break end
        end
        if oldest > gone then
          chunk = nil
          tail, size = (tail + size - left) % capacity, left
        else
          at = 24 + 4 * ((tail + size) % capacity)
          if at < 24 + 64 then reply = nil break end
          chunk, left, oldest = call('GETRANGE', key, at - 64, at - 1), 1, newest
          for slot = 57, 1, -4 do
            local stamp = newest - (newest - unpack_at('>I4', chunk, slot)) % 4294967296
            if stamp <= gone then break end
            left, oldest = left + 1, stamp
          end
          if left == 16 then reply = nil break end
          size = left
        end
      end
      if chunk then
        value, stays = pack('>BI7', 1, ticks) .. sub(chunk, -4 * size), false
      elseif size < capacity and size >= 32 and size >= capacity / 4 then
        place = 24 + 4 * ((tail + size) % capacity)
        value = pack('>BI7I4I4I4I4', 2, ticks, oldest, capacity, tail, size + 1)
      else reply = nil break end
    end
    local wait = oldest * grain + life - now
    local reset = wait > window and window or wait
    if size < limit then
      if reply then
        reply = reply .. pack('>BI4i8i8', 1, limit - size - 1, 0, reset)
      else
        reply = pack('>Bi8BI4i8i8', 1, now, 1, limit - size - 1, 0, reset)
      end
    elseif size == limit and size > 0 and flags == 0 and not KEYS[2] then
      return pack('>Bi8BI4i8i8', 0, now, 0, 0, wait, reset)
    else reply = nil break end
    if seen then seen[key], values[i], places[i], stay[i] = true, value, place, stays end
  end
  if reply then
    for i = 1, #KEYS do
      local key = KEYS[i]
      if seen then value, place, stays = values[i], places[i], stay[i] end
      if place then
        call('SETRANGE', key, place, sub(value, 5, 8))
        call('SETRANGE', key, '0', value)
        if not stays then call('PEXPIRE', key, sub(ARGV[i + 1], 25)) end
      elseif stays then
        -- This takes half the time of a SET with an expiry.
        call('SET', key, value, 'KEEPTTL')
      else
        call('SET', key, value, 'PX', sub(ARGV[i + 1], 25))
      end
    end
    return reply
  end
end

--- functions
-- Functions for the less frequent cases: rings, growth, a clock that stepped back, and refunds.
local function compact_rest(s)
  local FEW, RING, CHUNK, WRAP = 64, 24, 64, 4294967296
  local call, floor, min, max = redis.call, math.floor, math.min, math.max
  local sub, pack, unpack_at = string.sub, struct.pack, struct.unpack
  local rest = {}
  if s.capacity == 0 and not s.slots then s.slots = sub(s.value, 9) .. pack('>I4', s.newest) end

  -- Returns the i-th oldest stored hit.
  function rest.at(i)
    if i == s.size then return s.newest end
    local slot
    if s.slots then
      slot = unpack_at('>I4', s.slots, 4 * i - 3)
    else
      local at = (s.tail + i - 1) % s.capacity
      if not s.chunk or at < s.from or at >= s.upto then
        s.chunk = call('GETRANGE', s.key, RING + 4 * at, RING + 4 * (at + CHUNK) - 1)
        s.from, s.upto = at, at + #s.chunk / 4
      end
      slot = unpack_at('>I4', s.chunk, 4 * (at - s.from) + 1)
    end
    return s.newest - (s.newest - slot) % WRAP
  end

  -- Returns how many stored hits are not later than `stamp`. The first `low` hits must not be later,
  -- and the hits from `high` on must be.
  function rest.search(stamp, low, high)
    while high - low > 1 do
      local middle = floor((low + high) / 2)
      if rest.at(middle) > stamp then high = middle else low = middle end
    end
    return low
  end

  -- Returns how many stored hits have left. The oldest must have left, and the newest must not.
  function rest.expired(gone)
    local low, high = 1, s.size
    if not s.slots then
      -- Under steady traffic few hits have left: look at the tail. After a pause few are left.
      local near = min(CHUNK, high)
      rest.at(1)
      if rest.at(near) > gone then
        high = near
      else
        low = near
        local last = max(low, high - CHUNK + 1)
        if rest.at(last) > gone then high = last else low = last end
      end
    end
    return rest.search(gone, low, high)
  end

  -- Returns the stored hits from the i-th oldest on, as one string of slots.
  function rest.slots(i)
    if s.slots then return sub(s.slots, 4 * i - 3) end
    local count = s.size - i + 1
    if count == 0 then return '' end
    local first = (s.tail + i - 1) % s.capacity
    local wrapped = max(0, first + count - s.capacity)
    local slots = call('GETRANGE', s.key, RING + 4 * first, RING + 4 * (first + count - wrapped) - 1)
    if wrapped > 0 then slots = slots .. call('GETRANGE', s.key, RING, RING + 4 * wrapped - 1) end
    return slots
  end

  function rest.store(slots, newest)
    local count = #slots / 4
    if count == 0 then
      call('DEL', s.key)
      return
    end
    local value
    if count <= FEW then
      value = pack('>BI7', 1, newest) .. sub(slots, 1, -5)
    else
      -- As many slots as fill the allocator's next size class (there are four in each doubling).
      -- So a ring grows by about a fifth each time, and wastes no memory.
      local bytes = RING + 4 * count + 10
      local _, exponent = math.frexp(bytes - 1)
      local step = 2 ^ (exponent - 3)
      local capacity = floor((math.ceil(bytes / step) * step - RING - 10) / 4)
      value = pack('>BI7', 2, newest) .. sub(slots, 1, 4) .. pack('>I4I4I4', capacity, 0, count)
        .. slots .. string.rep('\0', 4 * (capacity - count))
    end
    call('SET', s.key, value, 'PX', expiry(newest * s.tick, s.life))
  end

  -- Returns the slots, with future hits moved to now.
  function rest.clamped()
    s.slots = rest.slots(1)
    local kept = s.oldest > s.now and 0 or rest.search(s.now, 1, s.size)
    return sub(s.slots, 1, 4 * kept) .. string.rep(pack('>I4', s.now), s.size - kept)
  end

  return rest
end

leaves[99] = function(s, n)
  local stamp, i = s.now, s.expired + n
  if n <= s.count then
    stamp = i == 1 and s.oldest or compact_rest(s).at(i)
  end
  return stamp * s.tick + s.life - now
end

--- look
local value, life = call('GETRANGE', key, '0', '259'), window + grain - 1
local ticks, gone = floor(now / grain), floor((now - life) / grain)   -- the latest stamp that has left
local form, newest, oldest, size, expired, capacity, tail = 1, gone, ticks, 0, 0, 0, 0
local sound = #value % 4 == 0 and #value ~= 4
if sound and value ~= '' then form, newest = unpack_at('>BI7', value) end
if newest <= gone then
  value, newest = '', ticks
elseif form == 1 then
  size = #value / 4 - 1
  oldest = size > 1 and unpack_at('>I4', value, 9) or newest
  sound = size < 64 or call('STRLEN', key) == 260
elseif form == 2 and #value > 24 then
  oldest, capacity, tail, size = unpack_at('>I4I4I4I4', value, 9)
  sound = tail < capacity and size > 0 and size <= capacity and call('STRLEN', key) == 24 + 4 * capacity
else
  sound = false
end
if sound then
  oldest = newest - (newest - oldest) % 4294967296
  s = {key = key, life = life, tick = grain, now = ticks, value = value, newest = newest,
    oldest = oldest, size = size, capacity = capacity, tail = tail, expired = 0, count = 0, reset = 0}
  if newest > ticks then
    local rest = compact_rest(s)
    s.slots, s.clamped = rest.clamped(), true
    newest, oldest = ticks, math.min(oldest, ticks)
    s.newest, s.oldest = newest, oldest
    if writes then rest.store(s.slots, ticks) end
  end
  if oldest <= gone then
    local rest = compact_rest(s)
    expired = rest.expired(gone)
    oldest = rest.at(expired + 1)
  end
  s.expired, s.count = expired, size - expired
  s.reset = oldest * grain + life - now
end

--- charge
local cost, size, dropped, ticks = s.added, s.size, s.expired + s.dropped, s.now
local total, capacity = size - dropped + cost, s.capacity
if capacity == 0 and total <= 64 and not s.clamped then
  local value = pack('>BI7', 1, ticks)
  if dropped < size then value = value .. sub(s.value, 9 + 4 * dropped) .. pack('>I4', s.newest) end
  if cost > 1 then value = value .. string.rep(pack('>I4', ticks), cost - 1) end
  call('SET', s.key, value, 'PX', expiry(ticks * s.tick, s.life))
else
  local hits = string.rep(pack('>I4', ticks), cost)
  if s.clamped or total > capacity or total <= 32 or total < capacity / 4 then
    local rest = compact_rest(s)
    rest.store((size > 0 and rest.slots(dropped + 1) or '') .. hits, ticks)
  else
    local oldest = s.oldest
    if dropped == size then oldest = ticks elseif dropped > 0 then oldest = compact_rest(s).at(dropped + 1) end
    local head = (s.tail + size) % capacity
    local room = 4 * (capacity - head)
    call('SETRANGE', s.key, 24 + 4 * head, cost == 1 and hits or sub(hits, 1, room))
    if #hits > room then call('SETRANGE', s.key, '24', sub(hits, room + 1)) end
    call('SETRANGE', s.key, '0',
      pack('>BI7I4I4I4I4', 2, ticks, oldest, capacity, (s.tail + dropped) % capacity, total))
    if expiry_moved(s.newest * s.tick) then
      call('PEXPIRE', s.key, expiry(ticks * s.tick, s.life))
    end
  end
end

--- refund
if s.count > 0 then
  local rest = compact_rest(s)
  local hit = math.min(floor(stamp / grain), s.now)
  local upto = s.newest <= hit and s.size or rest.search(hit, s.expired, s.size)
  local below = s.newest < hit and s.size or rest.search(hit - 1, s.expired, s.size)
  taken = math.min(cost, upto - below)
  if taken > 0 then
    local newest = s.newest
    if upto == s.size and s.count > taken then newest = rest.at(s.size - taken) end
    local slots = rest.slots(s.expired + 1)
    local cut = 4 * (upto - s.expired)
    rest.store(sub(slots, 1, cut - 4 * taken) .. sub(slots, cut + 1), newest)
  end
end
