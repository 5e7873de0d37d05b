-- compact: the exact log, packed into a string. Stamps are whole ticks (`grain`).
--   few hits  byte 1, newest (7 bytes), then the older ones, oldest first (4 bytes each)
--   many      byte 2, newest (7), oldest (4), capacity (4), tail (4), size (4), and a ring of
--             4-byte slots; the oldest hit is at slot `tail`
-- Four bytes hold the lower half of a stamp. What is stale is dropped on every write, so all
-- stored hits lie within 2^31 ticks of the newest, from which the upper half is known.
local FEW = 64        -- hits in the first form
local FEW_BYTES = 8 + 4 * (FEW - 1)
local RING = 24       -- bytes before the first slot
local CHUNK = 64      -- slots read at once
local WRAP = 4294967296

-- The i-th oldest of the stored hits.
local function compact_at(s, i)
  if i == s.size then return s.newest end
  local slot
  if s.slots then
    slot = unpack_at('>I4', s.slots, 4 * i - 3)
  else
    local at = (s.tail + i - 1) % s.capacity
    if at < s.from or at >= s.upto then
      s.chunk = call('GETRANGE', s.key, RING + 4 * at, RING + 4 * (at + CHUNK) - 1)
      s.from, s.upto = at, at + #s.chunk / 4
    end
    slot = unpack_at('>I4', s.chunk, 4 * (at - s.from) + 1)
  end
  return s.newest - (s.newest - slot) % WRAP
end

-- How many of the stored hits are not later than `stamp`, given that the first `low` are
-- and those from `high` on are not.
local function compact_search(s, stamp, low, high)
  while high - low > 1 do
    local middle = floor((low + high) / 2)
    if compact_at(s, middle) > stamp then high = middle else low = middle end
  end
  return low
end

-- The stored hits from the i-th oldest on, as one string of slots.
local function compact_slots(s, i)
  if s.slots then return string.sub(s.slots, 4 * i - 3) end
  local count = s.size - i + 1
  if count == 0 then return '' end
  local first = (s.tail + i - 1) % s.capacity
  local wrapped = first + count - s.capacity
  local slots = call('GETRANGE', s.key, RING + 4 * first, RING + 4 * (first + min(count, count - wrapped)) - 1)
  if wrapped > 0 then
    slots = slots .. call('GETRANGE', s.key, RING, RING + 4 * wrapped - 1)
  end
  return slots
end

-- Slots that fill the allocator's next size class (four in each doubling), so that a ring
-- grows in steps of a fifth and wastes nothing.
local function compact_capacity(count)
  local bytes = RING + 4 * count + 10
  local _, exponent = math.frexp(bytes - 1)
  local step = 2 ^ (exponent - 3)
  return floor((ceil(bytes / step) * step - RING - 10) / 4)
end

local function compact_store(s, slots, newest)
  local count = #slots / 4
  if count == 0 then
    call('DEL', s.key)
    return
  end
  local value
  if count <= FEW then
    value = pack('>BI7', 1, newest) .. string.sub(slots, 1, -5)
  else
    local capacity = compact_capacity(count)
    value = pack('>BI7', 2, newest) .. string.sub(slots, 1, 4) .. pack('>I4I4I4', capacity, 0, count)
      .. slots .. string.rep('\0', 4 * (capacity - count))
  end
  call('SET', s.key, value, 'PX', expiry(newest * s.tick, s.window))
end

local function compact_look(key, window, tick)
  local s = {key = key, window = window, tick = tick, now = floor(now / tick), size = 0, expired = 0, count = 0}
  local value = call('GETRANGE', key, 0, FEW_BYTES - 1)
  if value == '' then return s end
  local form, newest = unpack_at('>BI7', value)
  local oldest = newest
  s.newest = newest
  if form == 1 then
    s.slots = string.sub(value, 9) .. pack('>I4', newest)
    s.size = #s.slots / 4
    oldest = compact_at(s, 1)
  else
    oldest, s.capacity, s.tail, s.size = unpack_at('>I4I4I4I4', value, 9)
    oldest = newest - (newest - oldest) % WRAP
    s.from, s.upto = 0, 0
  end
  if newest > s.now then
    s.slots = compact_slots(s, 1)
    local kept = oldest > s.now and 0 or compact_search(s, s.now, 1, s.size)
    s.slots = string.sub(s.slots, 1, 4 * kept) .. string.rep(pack('>I4', s.now), s.size - kept)
    s.newest = s.now
    oldest = min(oldest, s.now)
    if writes then compact_store(s, s.slots, s.newest) end
  end
  s.oldest = oldest
  local gone = s.now - window / tick   -- the latest stamp that no longer counts
  if s.newest <= gone then
    s.expired = s.size
  elseif oldest <= gone then
    local low, high = 1, s.size
    if not s.slots then
      -- Under steady traffic few have left: look at the tail. After a pause, few are left.
      local near = min(CHUNK, s.size)
      compact_at(s, 1)
      if compact_at(s, near) > gone then
        high = near
      else
        low = CHUNK
        local last = max(low, high - CHUNK + 1)
        if compact_at(s, last) > gone then high = last else low = last end
      end
    end
    s.expired = compact_search(s, gone, low, high)
  end
  s.count = s.size - s.expired
  return s
end

local function compact_lasts(window, tick)
  return floor(now / tick) * tick + window - now
end

local function compact_leaves(s, n)
  local i = s.expired + n
  local stamp = i == 1 and s.oldest or compact_at(s, i)
  return stamp * s.tick + s.window - now
end

local function compact_charge(s, cost, keep)
  local dropped = s.expired
  if keep then dropped = max(dropped, s.size + cost - keep) end
  local size = s.size - dropped + cost
  local hit = pack('>I4', s.now)
  local hits = cost == 1 and hit or string.rep(hit, cost)
  if s.size == 0 then
    compact_store(s, hits, s.now)
  elseif s.slots or size > s.capacity or size <= FEW / 2 or size < s.capacity / 4 then
    compact_store(s, compact_slots(s, dropped + 1) .. hits, s.now)
  else
    local oldest = s.oldest
    if dropped == s.size then oldest = s.now elseif dropped > 0 then oldest = compact_at(s, dropped + 1) end
    local head = (s.tail + s.size) % s.capacity
    local room = 4 * (s.capacity - head)
    call('SETRANGE', s.key, RING + 4 * head, string.sub(hits, 1, room))
    if #hits > room then call('SETRANGE', s.key, RING, string.sub(hits, room + 1)) end
    local tail = (s.tail + dropped) % s.capacity
    call('SETRANGE', s.key, 0, pack('>BI7I4I4I4I4', 2, s.now, oldest, s.capacity, tail, size))
    if expiry_moved(s.newest * s.tick) then
      call('PEXPIRE', s.key, expiry(s.now * s.tick, s.window))
    end
  end
end

local function compact_refund(key, window, tick, stamp, cost)
  local s = compact_look(key, window, tick)
  if s.count == 0 then return 0 end
  local hit = min(floor(stamp / tick), s.now)
  local upto = s.newest <= hit and s.size or compact_search(s, hit, s.expired, s.size)
  local below = s.newest < hit and s.size or compact_search(s, hit - 1, s.expired, s.size)
  local taken = min(cost, upto - below)
  if taken > 0 then
    local newest = s.newest
    if upto == s.size and s.count > taken then newest = compact_at(s, s.size - taken) end
    local slots = compact_slots(s, s.expired + 1)
    local cut = 4 * (upto - s.expired)
    compact_store(s, string.sub(slots, 1, cut - 4 * taken) .. string.sub(slots, cut + 1), newest)
  end
  return taken
end

algorithms.c = {look = compact_look, lasts = compact_lasts, leaves = compact_leaves, charge = compact_charge, refund = compact_refund}
