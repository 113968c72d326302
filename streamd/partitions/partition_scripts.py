"""What happens at a server in one step, as scripts. Each is a part's own, of whose keys all have its hash tag, or that of the readers.

A reader may read a part only while it holds the part's lease: a key that expires. Reading checks the lease in the same step, so a reader
that was stopped, or cut off, and has lost its lease, gets nothing, whatever it still believes.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1

__all__ = ["ACQUIRE", "JOIN", "LEAVE", "RELEASE", "RENEW", "TAKE", "Script"]


@dataclass(frozen=True)
class Script:
    """A script, and the name under which servers keep it."""

    name: str
    text: str

    @property
    def sha(self) -> str:
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


ACQUIRE = Script(
    "acquire",
    """
-- KEYS: the part, its lease. ARGV: the token, the lease in ms, the group, where a new group starts. Returns whether the lease is ours.
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[3], ARGV[4], 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
    return made
end
return 1
""",
)

TAKE = Script(
    "take",
    """
-- KEYS: the part, its lease. ARGV: the token, the lease in ms, the group, the consumer, how many entries at most, where to go on among
-- pending entries (empty: behind them), and IDs to acknowledge. Returns nothing when the lease is not ours; else the entries, where to go
-- on, and the ID of the last entry that exists.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
    return false
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
if #ARGV > 6 then
    redis.call('XACK', KEYS[1], ARGV[3], unpack(ARGV, 7))
end
local next, entries = ARGV[6], {}
if next ~= '' then
    local claimed = redis.call('XAUTOCLAIM', KEYS[1], ARGV[3], ARGV[4], 0, next, 'COUNT', ARGV[5])
    next, entries = claimed[1], claimed[2]
    if next == '0-0' then
        next = ''
        -- Nothing of other consumers is pending any more: they have held the lease before.
        for _, one in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[3])) do
            if one[2] ~= ARGV[4] then
                redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[3], one[2])
            end
        end
    end
else
    local found = redis.call('XREADGROUP', 'GROUP', ARGV[3], ARGV[4], 'COUNT', ARGV[5], 'STREAMS', KEYS[1], '>')
    entries = found and found[1][2] or {}
end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
return {entries, next, last[1] and last[1][1] or '0-0'}
""",
)

RENEW = Script(
    "renew",
    """
-- KEYS: a lease. ARGV: the token, the lease in ms. Returns whether it is ours.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
""",
)

RELEASE = Script(
    "release",
    """
-- KEYS: the part, its lease. ARGV: the token, the group, and IDs to acknowledge. Returns whether the lease was ours.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
    return 0
end
if #ARGV > 2 then
    redis.call('XACK', KEYS[1], ARGV[2], unpack(ARGV, 3))
end
return redis.call('DEL', KEYS[2])
""",
)

JOIN = Script(
    "join",
    """
-- KEYS: the readers, with the time when each is given up. ARGV: the token, the lease in ms. Returns the readers that live.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], 2 * ARGV[2])
return redis.call('ZRANGE', KEYS[1], 0, -1)
""",
)

LEAVE = Script(
    "leave",
    """
-- KEYS: the readers. ARGV: the token.
return redis.call('ZREM', KEYS[1], ARGV[1])
""",
)
