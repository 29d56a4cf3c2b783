"""What the store has Redis do in one go: nobody sees half of it."""

from __future__ import annotations

# A tag is a sorted set of keys by the time they expire, so that expired ones can be swept out; it lives as long as the
# last of them. All times are the server's. The first write must be one that a full server refuses: it lets a script go
# on that has written. KEYS: the entry, its vector, its notes, the stream, its tags. ARGV: value, milliseconds to live,
# key, the vector's record or nothing, records the stream keeps, how many seconds ago it was asked for or nothing.
# Beside a tag is when it was purged. Gives 0 where a purge came after the asking.
PUT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ms = tonumber(ARGV[2])
if ARGV[6] ~= '' then
  local asked = time[1] + time[2] / 1000000 - ARGV[6]
  for i = 5, #KEYS do
    local purged = redis.call('GET', KEYS[i] .. ':purged')
    if purged and tonumber(purged) >= asked then return 0 end
  end
end
for i = 5, #KEYS do
  redis.call('ZADD', KEYS[i], now + ms, ARGV[3])
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now)
  if redis.call('PTTL', KEYS[i]) < ms then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('DEL', KEYS[3])
if ARGV[4] ~= '' then
  redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[2])
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[5], '*', 'put', ARGV[4])
elseif redis.call('DEL', KEYS[2]) == 1 then
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[5], '*', 'gone', cmsgpack.pack({ARGV[3]}))
end
return 1
"""

# Deletions also give the stream's last record, or nothing where it has none: what follows it happened later.
# KEYS: the entry, its vector, its notes, the stream. ARGV: key, records the stream keeps. Gives whether there was an
# entry.
DELETE = """
local gone = redis.call('DEL', KEYS[1])
redis.call('DEL', KEYS[3])
if redis.call('DEL', KEYS[2]) == 1 then
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[2], '*', 'gone', cmsgpack.pack({ARGV[1]}))
end
return {gone, redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)}
"""

# KEYS: a tag, the stream. ARGV: what precedes an entry's key, a vector's, and notes'; records the stream keeps; keys to
# take; for how many milliseconds the time is remembered. Gives the keys it dropped, whether the tag has more,
# and the last record.
DELETE_TAGGED = """
local gone, told = {}, {}
local keys = redis.call('ZRANGE', KEYS[1], 0, ARGV[5] - 1)
for _, key in ipairs(keys) do
  if redis.call('DEL', ARGV[1] .. key) == 1 then gone[#gone + 1] = key end
  if redis.call('DEL', ARGV[2] .. key) == 1 then told[#told + 1] = key end
  redis.call('DEL', ARGV[3] .. key)
end
if #told > 0 then redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', 'gone', cmsgpack.pack(told)) end
if #keys > 0 then redis.call('ZREM', KEYS[1], unpack(keys)) end
local time = redis.call('TIME')
redis.pcall('SET', KEYS[1] .. ':purged', string.format('%d.%06d', time[1], time[2]), 'PX', ARGV[6])
return {gone, redis.call('EXISTS', KEYS[1]), redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)}
"""

PASSING = b"-"
LASTING = b"+"
"""What a note begins with."""

# KEYS: the entry, its notes. ARGV: a note, notes to keep, passing ones among them. Gives 0 where there is no entry, or
# one that never expires, which is none of ours.
NOTE = """
local ms = redis.call('PTTL', KEYS[1])
if ms <= 0 then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[1])
if string.sub(ARGV[1], 1, 1) == '-' then
  local passing = {}
  for _, note in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if string.sub(note, 1, 1) == '-' then passing[#passing + 1] = note end
  end
  if #passing > tonumber(ARGV[3]) then redis.call('LREM', KEYS[2], 1, passing[1]) end
end
redis.call('LTRIM', KEYS[2], -ARGV[2], -1)
redis.call('PEXPIRE', KEYS[2], ms)
return 1
"""
