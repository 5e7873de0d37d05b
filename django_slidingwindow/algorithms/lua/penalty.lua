-- penalty: counts refusals, and blocks identifiers that have too many. Its sections are inserted at
-- the lines with the same names in the evaluator. The key of a penalty follows the keys of its
-- profile's windows, which it watches.
-- ARGV   for the key of a penalty, packed big-endian: 'p' (1 byte), the number of tolerated refusals
--        (4), the time in which they count (7), cost (4), flags (1), the number of keys just before
--        it that it watches (7), the number of steps (1), each step (7), and the age of each refusal
--        that a process has decided without Redis (7 each)
-- value  byte 1, offences (1), when the last block ends (7), and the refusals that count, oldest
--        first (7 each)
-- reply  for the key of a penalty: admits, 0 if it blocks; the refusals that are left; the time until
--        the block ends; and the time until the block ends or, without one, the oldest refusal leaves
-- Offences are forgotten some time after the last block has ended: the length of the last step plus
-- the time in which refusals count.

--- penalty_begin
local penalties, watched = {}, {}
local function offend(p)
  p.offences = math.min(p.offences + 1, 255)
  p.ends = now + p.steps[math.min(p.offences, #p.steps)]
  p.stamps, p.changed = {}, true
end
for i = 1, #KEYS do
  local key, argument = KEYS[i], ARGV[i + 1]
  if string.byte(argument) == 112 then
    local p = penalties[key]
    if not p then
      local _, limit, window, _, _, _, number = unpack_at('>BI4I7I4BI7B', argument)
      p = {limit = limit, window = window, steps = {}, offences = 0, ends = 0, stamps = {}}
      penalties[key] = p
      for n = 1, number do p.steps[n] = unpack_at('>I7', argument, 19 + 7 * n) end
      p.memory = p.steps[number] + window
      local stored = call('GET', key)
      if stored then
        if #stored < 9 or (#stored - 9) % 7 > 0 or string.byte(stored) ~= 1 then
          return redis.error_reply('ERR damaged value in KEYS[' .. i .. ']: reset this window')
        end
        local _, offences, ends = unpack_at('>BBI7', stored)
        -- If the clock has stepped back, a block ends at most one step from now.
        local latest = now + (p.steps[math.min(offences, number)] or 0)
        if ends > latest then ends, p.changed = latest, true end
        if ends + p.memory > now then p.offences, p.ends = offences, ends end
        for at = 10, #stored, 7 do
          local stamp = unpack_at('>I7', stored, at)
          if stamp > now then stamp, p.changed = now, true end
          if stamp > now - window then p.stamps[#p.stamps + 1] = stamp end
        end
      end
      if p.ends <= now then
        for at = 26 + 7 * number, #argument, 7 do
          local stamp = now - unpack_at('>I7', argument, at)
          if stamp > now - window and stamp >= p.ends then
            p.stamps[#p.stamps + 1], p.changed = stamp, true
          end
        end
        table.sort(p.stamps)
        if #p.stamps > limit then offend(p) end
      end
      p.blocks = p.ends > now
    end
    local _, _, _, _, _, covers = unpack_at('>BI4I7I4BI7', argument)
    for j = i - covers, i - 1 do watched[j] = p end
  end
end

--- penalty_look
if letter == 112 then s = {count = 0, reset = 0, penalty = penalties[key]} end

--- penalty_judge
if s.penalty then
  s.refuses, cost = false, 0
elseif watched[i] and cost > 0 then
  s.enforced = flags % 2 == 0
  if watched[i].blocks then
    -- A blocked window stores nothing, even with count_rejected.
    s.kept, s.refuses, flags = not s.refuses, true, flags % 2
  elseif s.refuses then
    watched[i].refused = true
  end
end

--- penalty_settle
for i = 1, #KEYS do
  -- From here on, s.refuses says whether the window itself refuses, without the penalty.
  if states[i].kept then states[i].refuses = false end
end
for _, p in pairs(penalties) do
  if p.refused then
    if #p.stamps >= p.limit then
      offend(p)
    else
      p.stamps[#p.stamps + 1], p.changed = now, true
    end
  end
end

--- penalty_row
local p = s.penalty or watched[i]
if p then
  local left = p.ends - now
  if s.penalty then
    remaining = math.max(0, p.limit - #p.stamps)
    if left > 0 then
      admits, retry, reset = 0, left, left
    elseif p.stamps[1] then
      reset = p.stamps[1] + p.window - now
    end
  -- A block that begins now concerns windows with room only if the request is refused.
  elseif left > 0 and (vetoed and s.enforced or s.kept or s.refuses) then
    admits, remaining = 0, 0
    if retry >= 0 then retry = math.max(retry, left) end
  end
end

--- penalty_write
for key, p in pairs(penalties) do
  if p.changed then
    local value, last = {pack('>BBI7', 1, p.offences, p.ends)}, p.stamps[#p.stamps] or 0
    for n = 1, #p.stamps do value[n + 1] = pack('>I7', p.stamps[n]) end
    local lives = math.max(last + p.window, p.offences > 0 and p.ends + p.memory or 0) - now
    call('SET', key, table.concat(value), 'PX', floor(lives / 1000) + 1)
  end
end
