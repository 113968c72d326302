"""A dead letter on a Redis: what streamd does by itself, as a script, so that it happens in one step.

Files and replicas get it as MULTI, XADD, XACK, EXEC. The fields of a dead letter are those of streamd, see docs/delivery.md.
"""

from __future__ import annotations

__all__ = ["MOVE"]

MOVE = """
-- KEYS: the stream, the dead-letter stream. ARGV: the group, the ID, the least idle time in ms, the reason. Returns whether it was moved.
local row = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)[1]
if not row or (row[3] >= 0 and row[3] < tonumber(ARGV[3])) then
    return 0
end
local time, last = redis.call('TIME'), 0
if row[3] >= 0 then
    last = time[1] * 1000 + math.floor(time[2] / 1000) - row[3]
end
local entry, reason = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1], ARGV[4]
local words = entry and entry[2] or {}
if not entry then
    reason = 'trimmed'
end
for _, word in ipairs({
    'dlq.stream', KEYS[1], 'dlq.id', ARGV[2], 'dlq.group', ARGV[1], 'dlq.consumer', row[2], 'dlq.deliveries', row[4],
    'dlq.first', string.match(ARGV[2], '^%d+'), 'dlq.last', string.format('%.0f', last), 'dlq.reason', reason,
}) do
    words[#words + 1] = word
end
redis.call('XADD', KEYS[2], '*', unpack(words))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
return 1
"""
