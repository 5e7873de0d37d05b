-- slots: requests in flight in a sorted set. Each member is a slot: the token of the call that took
-- it, and a number. The score is the microsecond when the slot was taken. A slot becomes free when
-- its token is given back. If the process has died, it becomes free when its time is up.
-- ARGV[#ARGV]  of a check: a unique token; if the call takes slots, the token is also the end of
--              the reply
-- It is not known when a slot will be given back, so `retry` is 0 in a refusal.

--- functions
local slots_token = ARGV[#ARGV]

local function slots_look(key, window)
  local s = {key = key, window = window, stale = 0, count = call('ZCARD', key), reset = window}
  if s.count == 0 then return s end
  local gone = now - window
  if writes then
    local ahead = call('ZREVRANGEBYSCORE', key, '+inf', string.format('(%.0f', now))
    for i = 1, #ahead do call('ZADD', key, string.format('%.0f', now), ahead[i]) end
    if #ahead > 0 then call('PEXPIRE', key, expiry(now, window)) end
  end
  s.stale = call('ZCOUNT', key, '-inf', gone)
  s.count = s.count - s.stale
  if s.count > 0 then
    local oldest = tonumber(call('ZRANGE', key, s.stale, s.stale, 'WITHSCORES')[2])
    s.reset = math.min(oldest, now) + window - now
  end
  return s
end

local function slots_free(s)
  if s.stale > 0 then call('ZREMRANGEBYSCORE', s.key, '-inf', now - s.window) end
end

leaves[105] = function() return 0 end

--- look
s = slots_look(key, window)

--- charge
slots_free(s)
for number = 1, s.added do
  call('ZADD', s.key, string.format('%.0f', now), slots_token .. '-' .. number)
end
call('PEXPIRE', s.key, expiry(now, s.window))
if not states.named then reply = reply .. slots_token end
states.named = true

--- refund
local token = sub(ARGV[i + 1], 27)
slots_free(s)
for number = 1, cost do
  if token ~= '' then taken = taken + call('ZREM', key, token .. '-' .. number) end
end
