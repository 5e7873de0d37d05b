-- log: the exact log in a sorted set. The score of a hit is its microsecond. So is the member, with
-- a number appended from the second hit of a microsecond on.

--- functions
local LOG_BATCH = 1000   -- members in one ZADD or ZREM: Lua's stack is limited
local LOG_FEW = 32       -- if no more hits are left than this, log_drop may write them again

local function log_add(s, cost)
  local number, stamp = 0, string.format('%.0f', now)
  if s.newest == now then number = (tonumber(string.match(s.member, '-(%d+)$')) or 0) + 1 end
  while cost > 0 do
    local batch = {}
    for i = 1, math.min(cost, LOG_BATCH) do
      batch[2 * i - 1] = stamp
      batch[2 * i] = number == 0 and stamp or string.format('%s-%08d', stamp, number)
      number = number + 1
    end
    call('ZADD', s.key, unpack(batch))
    cost = cost - LOG_BATCH
  end
end

local function log_newest(s)
  local last = call('ZREVRANGE', s.key, '0', '0', 'WITHSCORES')
  s.member, s.newest = last[1], tonumber(last[2])
end

local function log_look(key, window)
  local s = {key = key, window = window, stale = 0, count = call('ZCARD', key), reset = window}
  if s.count == 0 then return s end
  log_newest(s)
  if s.newest > now and writes then
    local above = string.format('(%.0f', now)
    local ahead = call('ZREMRANGEBYSCORE', key, above, '+inf')
    if ahead < s.count then log_newest(s) else s.newest = nil end
    log_add(s, ahead)
    log_newest(s)
    call('PEXPIRE', key, expiry(now, window))
  end
  local gone = now - window
  local oldest = tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
  if oldest <= gone then
    s.stale = call('ZCOUNT', key, '-inf', gone)
    s.count = s.count - s.stale
    if s.count > 0 then s.reset = leaves[108](s, 1) end
  else
    s.reset = math.min(oldest, now) + window - now
  end
  return s
end

leaves[108] = function(s, n)
  if n > s.count then return s.window end
  local at = s.stale + n - 1
  local stamp = tonumber(call('ZRANGE', s.key, at, at, 'WITHSCORES')[2])
  return math.min(stamp, now) + s.window - now
end

-- Drops the oldest hits, and returns whether the key needs a new expiry. If few of many hits are
-- left, it deletes the key and writes them again, because removing many hits takes longer.
local function log_drop(key, dropped, left)
  if dropped == 0 then return false end
  if left > LOG_FEW or left > 0 and dropped <= LOG_FEW then
    call('ZREMRANGEBYRANK', key, 0, dropped - 1)
    return false
  end
  local kept = left > 0 and call('ZRANGE', key, dropped, -1, 'WITHSCORES') or {}
  for i = 1, #kept, 2 do kept[i], kept[i + 1] = kept[i + 1], kept[i] end
  call('UNLINK', key)
  if left > 0 then call('ZADD', key, unpack(kept)) end
  return true
end

--- look
s = log_look(key, window)

--- charge
local dropped = s.stale + s.dropped
local anew = log_drop(s.key, dropped, s.stale + s.count - dropped)
log_add(s, s.added)
if anew or not s.newest or expiry_moved(s.newest) then
  call('PEXPIRE', s.key, expiry(now, s.window))
end

--- refund
local hit = math.min(stamp, now)
while taken < cost and hit > now - window do
  local members = call('ZREVRANGEBYSCORE', key, hit, hit, 'LIMIT', 0, math.min(cost - taken, LOG_BATCH))
  if #members == 0 then break end
  taken = taken + call('ZREM', key, unpack(members))
end
if taken > 0 then
  if s.stale > 0 then call('ZREMRANGEBYRANK', key, 0, s.stale - 1) end
  log_newest(s)
  if s.newest then call('PEXPIRE', key, expiry(s.newest, window)) end
end
