"""Scripts that run for too long: who is answered what meanwhile, and how they end, as a real Redis has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.compare.observing import same_story
from support.servers import Server, eventually
from support.wire import ConnectionClosed, Wire, show, split_line

pytestmark = pytest.mark.real

StartServer = Callable[..., Server]

ANSWERED = """
    GET k
    INFO
    CONFIG GET save
    CLIENT ID
    SUBSCRIBE c
    AUTH x
    MULTI
    SET a b
    DISCARD
    MULTI
    EXEC
    WATCH k
    UNWATCH
    RESET
    SHUTDOWN
    SHUTDOWN SAVE
    SHUTDOWN ABORT
    SCRIPT EXISTS x
    SCRIPT FOO
    FOO
    GET
    EVAL "return 1" 0
    REPLCONF x y
    FUNCTION KILL
"""


BUSY = "local start = os.clock() while os.clock() < start + 2 do end"
"""Two seconds of the processor, and more of the clock: time enough to ask somebody else meanwhile."""


class Stage:
    """Two connections to a server: one whose scripts run for too long, and one that asks meanwhile."""

    def __init__(self, server: Server) -> None:
        self.caller, self.other = server.connect(), server.connect()
        self.told: list[str] = []
        self.say("FLUSHALL", "SCRIPT FLUSH", "CONFIG SET busy-reply-threshold 50", "CONFIG GET lua-time-limit")

    def say(self, *lines: str) -> None:
        self.told += [show(self.other.call(*split_line(line))) for line in lines]

    def begin(self, script: str) -> None:
        """Send a script, and wait until others are answered BUSY."""
        self.caller.send("EVAL", script, "0")
        eventually(lambda: self.other.call("PING").value.startswith(b"BUSY"), what="the script is slow")

    def hear(self, wire: Wire | None = None, count: int = 1) -> None:
        self.told += [show((wire or self.caller).read(110)) for _ in range(count)]

    def close(self) -> list[str]:
        self.say("CONFIG SET busy-reply-threshold 5000")
        self.caller.close()
        self.other.close()
        return self.told


def everything_else_is_busy(stage: Stage) -> None:
    stage.say("SCRIPT KILL")
    stage.begin("while true do end")
    stage.say(*filter(None, map(str.strip, ANSWERED.splitlines())))
    stage.say("SCRIPT KILL")
    stage.hear()
    stage.say("GET k")


def who_has_written_is_not_killed(stage: Stage) -> None:
    stage.begin(f"redis.call('set','w',1) {BUSY} redis.call('set','x',1) return 'done'")
    stage.say("SCRIPT KILL", "FUNCTION KILL")
    stage.hear()
    stage.say("MGET w x")


def a_kill_cannot_be_caught(stage: Stage) -> None:
    stage.begin("while true do pcall(function() while true do end end) end")
    stage.say("SCRIPT KILL")
    stage.hear()
    stage.begin("local c = coroutine.wrap(function() while true do end end) return {pcall(c), 'after'}")
    stage.say("SCRIPT KILL")
    stage.hear()


def readers_are_served_afterwards(stage: Stage, reader: Wire) -> None:
    stage.say("XADD s 0-1 f v")
    reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
    eventually(lambda: b"blocked_clients:1" in stage.other.call("INFO", "clients").value)
    stage.begin(f"redis.call('xadd','s','1-1','f','v') {BUSY} redis.call('xadd','s','2-1','f','v') return 1")
    stage.hear()
    stage.hear(reader)


def the_caller_may_go(stage: Stage) -> None:
    stage.begin("while true do end")
    stage.caller.close()
    stage.say("SCRIPT KILL")
    eventually(lambda: stage.other.call("PING").value == b"PONG")


def a_script_that_was_quick_before_is_killed(stage: Stage) -> None:
    script = "while redis.call('exists', 'k') == 1 do end return 'done'"
    for _ in range(3):
        stage.told.append(show(stage.caller.call("EVAL", script, "0")))
    stage.say("SET k 1")
    stage.begin(script)
    stage.say("SCRIPT KILL")
    stage.hear()
    short = "return redis.call('incr', 'n')"
    stage.told += [show(stage.caller.call("EVAL", short, "0")) for _ in range(3)]
    stage.begin(script)
    stage.say(f'EVAL "{short}" 0', "SCRIPT KILL")
    stage.hear()
    stage.say("GET n")


@pytest.mark.parametrize(
    "act",
    [
        everything_else_is_busy,
        who_has_written_is_not_killed,
        a_kill_cannot_be_caught,
        the_caller_may_go,
        a_script_that_was_quick_before_is_killed,
    ],
)
def test_story(streamd_server: Server, redis_server: Server, act: Callable[[Stage], None]) -> None:
    def story(server: Server) -> list[str]:
        stage = Stage(server)
        act(stage)
        return stage.close()

    same_story(story, streamd_server, redis_server)


def test_readers_are_served_after_a_long_script(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> list[str]:
        stage = Stage(server)
        with server.connect() as reader:
            readers_are_served_afterwards(stage, reader)
        return stage.close()

    same_story(story, streamd_server, redis_server)


def test_a_transaction_goes_on_behind_a_killed_script(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> list[str]:
        stage = Stage(server)
        for line in ("MULTI", "SET m 1", 'EVAL "while true do end" 0', "SET n 1", "EXEC", "MGET m n"):
            stage.caller.send(*split_line(line))
        eventually(lambda: stage.other.call("PING").value.startswith(b"BUSY"))
        stage.say("SCRIPT KILL")
        stage.hear(count=6)
        return stage.close()

    same_story(story, streamd_server, redis_server)


def test_shutdown_nosave_ends_the_server(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        stage = Stage(server)
        stage.begin("redis.call('set','w',1) while true do end")
        stage.say("SCRIPT KILL")
        stage.other.send("SHUTDOWN", "NOSAVE")
        with pytest.raises((ConnectionClosed, ConnectionError)):
            stage.other.read(110)
        eventually(lambda: not server.is_running)
        stage.caller.close()
        stage.other.close()
        return stage.told

    same_story(story, new_streamd(), new_redis())
