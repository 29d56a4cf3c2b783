"""What `RedisLimits` has Redis do, each as one script there. A call of one of them takes all of it or nothing."""

from __future__ import annotations

# Of each scope: a list of slots `first:last:amount` in milliseconds with their sum, for requests (r) and tokens (t),
# and sorted sets of what is set aside (h, `id:tokens`) and of who runs (c), by when their lease ends. The server's
# clock may be set back; the scope's own goes on from where it was, and is ahead of it from then on. The first write
# changes nothing, and is one that a full server takes: it lets a script go on that has written.
_HEAD = """
redis.call('HDEL', KEYS[1], '')
local span, grain, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = clock
for i = 1, #KEYS do
  local last, ahead = unpack(redis.call('HMGET', KEYS[i], 'now', 'ahead'))
  now = math.max(now, tonumber(last or 0), clock + tonumber(ahead or 0))
end
local function keep(base)
  redis.call('HSET', base, 'now', now, 'ahead', now - clock)
  for _, key in ipairs({'', ':r', ':t', ':h', ':c'}) do redis.call('PEXPIRE', base .. key, lease + span) end
end
if now > clock then
  for i = 1, #KEYS do keep(KEYS[i]) end
end
local function used(base, kind)
  local sum = tonumber(redis.call('HGET', base, kind) or 0)
  while true do
    local slot = redis.call('LINDEX', base .. ':' .. kind, 0)
    if not slot then return sum end
    local first, last, amount = string.match(slot, '(%d+):(%d+):(%d+)')
    if tonumber(last) + span > now then return sum end
    redis.call('LPOP', base .. ':' .. kind)
    sum = redis.call('HINCRBY', base, kind, -amount)
  end
end
local function add(base, kind, count)
  if count == 0 then return end
  local slot = redis.call('LINDEX', base .. ':' .. kind, -1)
  local first, last, amount = string.match(slot or '', '(%d+):(%d+):(%d+)')
  if first and now - first < grain then
    redis.call('LSET', base .. ':' .. kind, -1, first .. ':' .. now .. ':' .. (amount + count))
  else
    redis.call('RPUSH', base .. ':' .. kind, now .. ':' .. now .. ':' .. count)
  end
  redis.call('HINCRBY', base, kind, count)
end
local function frees(base, kind, count)
  for _, slot in ipairs(redis.call('LRANGE', base .. ':' .. kind, 0, -1)) do
    local first, last, amount = string.match(slot, '(%d+):(%d+):(%d+)')
    count = count - amount
    if count <= 0 then return last + span - now end
  end
  return -1
end
local function reserved(base)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', base .. ':h', '-inf', now)) do
    redis.call('ZREM', base .. ':h', member)
    redis.call('HINCRBY', base, 'h', -string.match(member, ':(%d+)$'))
  end
  return tonumber(redis.call('HGET', base, 'h') or 0)
end
local function running(base)
  redis.call('ZREMRANGEBYSCORE', base .. ':c', '-inf', now)
  return redis.call('ZCARD', base .. ':c')
end
local function stand()
  local found = {}
  for i = 1, #KEYS do
    keep(KEYS[i])
    found[#found + 1] = used(KEYS[i], 'r')
    found[#found + 1] = used(KEYS[i], 't') + reserved(KEYS[i])
  end
  return found
end
"""

# ARGV: span, grain, lease, id, then rpm and concurrency of each scope, -1 for none. Gives 0 and how the scopes stand,
# or which scope refuses, 1 for requests or 2 for concurrency, what is used, and after how many milliseconds.
ENTER = (
    _HEAD
    + """
for i = 1, #KEYS do
  local rpm, most = tonumber(ARGV[3 + 2 * i]), tonumber(ARGV[4 + 2 * i])
  local count = used(KEYS[i], 'r')
  if rpm >= 0 and count >= rpm then return {i, 1, count, frees(KEYS[i], 'r', count + 1 - rpm)} end
  local places = running(KEYS[i])
  if most >= 0 and places >= most then return {i, 2, places, 1000} end
end
for i = 1, #KEYS do
  add(KEYS[i], 'r', 1)
  redis.call('ZADD', KEYS[i] .. ':c', now + lease, ARGV[4])
end
return {0, stand()}
"""
)

# ARGV: span, grain, lease, id, tokens, then tpm of each scope, -1 for none. Gives as ENTER does.
RESERVE = (
    _HEAD
    + """
local tokens = tonumber(ARGV[5])
for i = 1, #KEYS do
  local tpm = tonumber(ARGV[5 + i])
  local count = used(KEYS[i], 't') + reserved(KEYS[i])
  if tpm >= 0 and count + tokens > tpm then
    return {i, 3, count, frees(KEYS[i], 't', count + tokens - tpm)}
  end
end
for i = 1, #KEYS do
  redis.call('ZADD', KEYS[i] .. ':h', now + lease, ARGV[4] .. ':' .. tokens)
  redis.call('HINCRBY', KEYS[i], 'h', tokens)
end
return {0, stand()}
"""
)

# ARGV: span, grain, lease, a place to leave or nothing, a reservation to end or nothing, what it set aside, and used; a
# mark or nothing, and whether this was told before, maybe. What was used counts once: the reservation is there for the
# first call only, and where none was made here a mark (e) is for the later ones.
END = (
    _HEAD
    + """
local used_now = tonumber(ARGV[7])
if ARGV[8] ~= '' then
  local marks = KEYS[1] .. ':e'
  redis.call('ZREMRANGEBYSCORE', marks, '-inf', now)
  if redis.call('ZADD', marks, 'NX', now + lease, ARGV[8]) == 0 then used_now = 0 end
  redis.call('PEXPIRE', marks, lease + span)
end
for i = 1, #KEYS do
  reserved(KEYS[i])
  if ARGV[4] ~= '' then redis.call('ZREM', KEYS[i] .. ':c', ARGV[4]) end
  local told = ARGV[9] == '1'
  if ARGV[5] ~= '' and redis.call('ZREM', KEYS[i] .. ':h', ARGV[5] .. ':' .. ARGV[6]) == 1 then
    redis.call('HINCRBY', KEYS[i], 'h', -ARGV[6])
    told = false
  end
  if ARGV[5] == '' or not told then add(KEYS[i], 't', used_now) end
end
return {0, stand()}
"""
)
