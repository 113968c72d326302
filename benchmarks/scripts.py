"""Scripts: what EVALSHA and FCALL cost, beside the commands that the scripts call, and what a server without scripts takes.

    python -m benchmarks.scripts [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Fifty connections run one script over and over, sixteen requests at a time each. The release of a lock is redis-py's, of a
lock that is held: every second request sets it again, and its cost is in the row. `python -m benchmarks.starting` has the
time that a start takes; the last rows are the resident memory of a server before its first script and after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from benchmarks.cases import Case, Sample, measure, remove
from benchmarks.load import Requests, make_request
from benchmarks.script import command
from benchmarks.servers import Server

DEPTH = 16
TOKEN = "5f0c1a7e-token"

RELEASE = """
local token = redis.call('get', KEYS[1])
if not token or token ~= ARGV[1] then
    return 0
end
redis.call('del', KEYS[1])
return 1
"""
APPEND = "return redis.call('XADD', KEYS[1], 'MAXLEN', '~', '10000', '*', 'sensor-id', ARGV[1], 'temperature', ARGV[2])"
LOOP = "local sum = 0 for i = 1, 100 do sum = sum + redis.call('INCR', KEYS[1]) end return sum"
READ_LOOP = "local value for i = 1, 100 do value = redis.call('GET', KEYS[1]) end return value"
APPEND_LOOP = "for i = 1, 100 do redis.call('XADD', KEYS[1], 'MAXLEN', '~', '10000', '*', 'sensor-id', ARGV[1]) end"
JSON = "local order = cjson.decode(ARGV[1]) order.total = order.price * order.count return cjson.encode(order)"
ORDER = (
    '{"id":12345,"name":"a thing","price":9.99,"count":3,"tags":["new","blue"],"to":{"street":"Road 1","city":"Town"}}'
)
LIBRARY = "#!lua name=bench\nredis.register_function('get_it', function(keys) return redis.call('GET', keys[1]) end)"


def evalsha(server: Server, script: str, key: str, *args: str) -> bytes:
    """A request for a script that the server knows from now on."""
    server.send("SCRIPT", "LOAD", script)
    sha = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
    return make_request("EVALSHA", sha, 1, key, *args)


def run_script(script: str, number: int, *args: str, keeps: str = "") -> Callable[[Server, float], Sample]:
    """One script. `keeps`: a value that the key has at first; empty: none."""

    def run(server: Server, scale: float) -> Sample:
        remove(server, ["bench:key"])
        if keeps:
            server.send("SET", "bench:key", keeps)
        request = evalsha(server, script, "bench:key", *args)
        return measure(server, Requests([request]), int(number * scale), depth=DEPTH)

    return run


def release_locks(number: int) -> Callable[[Server, float], Sample]:
    """SET of a lock and its release, in turn."""

    def run(server: Server, scale: float) -> Sample:
        take = make_request("SET", "bench:lock", TOKEN, "PX", 10_000)
        release = evalsha(server, RELEASE, "bench:lock", TOKEN)
        total = int(number * scale)
        return measure(server, Requests([take, release]), total, depth=DEPTH, operations=total / 2)

    return run


def call_function(number: int) -> Callable[[Server, float], Sample]:
    def run(server: Server, scale: float) -> Sample:
        server.send("FUNCTION", "LOAD", "REPLACE", LIBRARY)
        server.send("SET", "bench:key", "value")
        return measure(
            server, Requests([make_request("FCALL", "get_it", 1, "bench:key")]), int(number * scale), depth=DEPTH
        )

    return run


def resident(*scripts: str) -> Callable[[Server, float], Sample]:
    """The memory of a server that has run some scripts."""

    def run(server: Server, scale: float) -> Sample:
        for script in scripts:
            server.send("EVAL", script, 0)
        return Sample(1, figure=server.rss_bytes())

    return run


CASES = [
    Case("EVALSHA, nothing", run_script("return 1", 400_000), 0.5),
    Case("EVALSHA, GET", run_script("return redis.call('GET', KEYS[1])", 400_000, keeps="value"), 0.5),
    Case("EVALSHA, release of a lock that another holds", run_script(RELEASE, 300_000, TOKEN, keeps="other"), 0.5),
    Case("SET and EVALSHA, release of a lock", release_locks(400_000), 0.5),
    Case("EVALSHA, XADD MAXLEN ~ 10000", run_script(APPEND, 300_000, "1234", "19.8"), 0.5),
    Case("EVALSHA, 100 x INCR", run_script(LOOP, 20_000), 0.67),
    Case("EVALSHA, 100 x GET", run_script(READ_LOOP, 20_000, keeps="value"), 0.67),
    Case("EVALSHA, 100 x XADD", run_script(APPEND_LOOP, 10_000, "1234"), 0.67),
    Case("EVALSHA, cjson of 110 bytes, both ways", run_script(JSON, 60_000, ORDER)),
    Case("FCALL, GET", call_function(400_000), 0.5),
    Case("resident, no script yet", resident(), by="bytes", is_alone=True, rounds=1),
    Case("resident, after a script", resident("return 1"), by="bytes", is_alone=True, rounds=1),
]

main = command(CASES, __doc__, "scripts")

if __name__ == "__main__":
    main()
