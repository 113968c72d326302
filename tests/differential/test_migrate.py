"""MIGRATE from streamd and from a real Redis: the same answers, the same effects, the same requests to the target. `real`.

Each source has a target of its own, a real Redis, and one that wants a password; where something must go wrong on the way,
the target is a socket that answers what the case says.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from support.commands.observed import OBSERVING, Effect, ServerObserver
from support.compare.differential import parse_script
from support.servers import Server, eventually, free_port
from support.wire import Reply, Wire, join_line

pytestmark = pytest.mark.real

StartServer = Callable[..., Server]


class Puppet:
    """A server that answers each piece that it receives with the next of some texts; None: it hangs up."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = answers
        self.received = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                answers = iter(self.answers)
                while data := connection.recv(1 << 20):
                    self.received += data
                    answer = next(answers, b"")
                    if answer is None:
                        break
                    connection.sendall(answer)

    def close(self) -> None:
        self._listener.close()


PUPPETS: dict[str, tuple[bytes | None, ...]] = {
    "@silent": (b"",),
    "@closes": (None,),
    "@partial": (b"+OK\r\n+OK\r\n",),
    "@odd": (b"hello\r\n:2\r\n",),
    "@errors": (b"+OK\r\n-FOO bar\r\n+OK\r\n",),
    "@select": (b"-ERR not that one\r\n+OK\r\n",),
}


class Source:
    """A server that keys are taken from, with everything that they may be given to."""

    def __init__(self, server: Server, target: Server, locked: Server) -> None:
        self.observer = ServerObserver(server)
        self.wire = server.connect()
        self.target = target.connect()
        self.puppets = {name: Puppet(*answers) for name, answers in PUPPETS.items()}
        ports = {"@target": target.port, "@locked": locked.port, "@nobody": free_port()}
        ports |= {name: puppet.port for name, puppet in self.puppets.items()}
        self.ports = {name.encode(): b"%d" % port for name, port in ports.items()}

    def run(self, script: str) -> list[tuple[str, Reply, list[Effect]]]:
        """Each line with its reply, and each MIGRATE with its effects; lines with `>` go to the target."""
        self.observer.read_log()
        told = []
        for line in script.strip().splitlines():
            wire: Wire = self.target if line.strip().startswith(">") else self.wire
            (request,) = parse_script(line.strip().removeprefix(">"))
            reply = wire.call(*(self.ports.get(word, word) for word in request))
            if request[0] == b"TTL":  # whole seconds may pass on a busy machine
                assert 900 < reply.value <= 1000
                reply = Reply("+", b"most of 1000 s")
            effects = self.observer.read_log()
            told.append((join_line(request), reply, effects if request[0] == b"MIGRATE" else []))
        return told

    def close(self) -> None:
        self.observer.close()
        self.wire.close()
        self.target.close()
        for puppet in self.puppets.values():
            puppet.close()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Source]]:
    from support.servers import start_redis, start_streamd

    made, servers = [], []
    for start in (start_streamd, start_redis):
        server = start(tmp_path_factory.mktemp("source"), OBSERVING)
        target = start_redis(tmp_path_factory.mktemp("target"), {}, "target")
        locked = start_redis(tmp_path_factory.mktemp("locked"), {"requirepass": "pw"}, "locked")
        servers += [server, target, locked]
        made.append(Source(server, target, locked))
    yield made
    for source in made:
        source.close()
    for server in servers:
        server.stop()


STORIES = {
    "one key": """
        MIGRATE 127.0.0.1 @target none 0 60000
        SET a 1
        MIGRATE 127.0.0.1 @target a 0 60000 COPY
        EXISTS a
        MIGRATE 127.0.0.1 @target a 0 60000
        EXISTS a
        MIGRATE 127.0.0.1 @target a 0 60000 REPLACE
        EXISTS a
        > GET a
        SET a 1
        MIGRATE 127.0.0.1 @target a 5 0
        MIGRATE 127.0.0.1 @target a 5 60000
        SET a 1
        MULTI
        MIGRATE 127.0.0.1 @target a 7 60000
        EXEC
    """,
    "several keys": """
        SET a 1
        SET b 2 EX 1000
        XADD s 1-1 f v
        XGROUP CREATE s g 0
        XREADGROUP GROUP g c STREAMS s >
        > SET a mine
        MIGRATE 127.0.0.1 @target "" 0 60000 KEYS a b none s
        EXISTS a b s
        > TTL b
        > XPENDING s g
        MIGRATE 127.0.0.1 @target "" 0 60000 replace KEYS a b none s
        > GET a
        MIGRATE 127.0.0.1 @target "" 0 60000 KEYS a b
        SET a 1
        MIGRATE 127.0.0.1 @target "" 3 60000 COPY KEYS a a
        MIGRATE 127.0.0.1 @target "" 4 60000 KEYS a a
    """,
    "requests of the wrong form": """
        SET a 1
        MIGRATE 127.0.0.1 @target a x 60000
        MIGRATE 127.0.0.1 @target a 0 x
        MIGRATE 127.0.0.1 @target none x 60000
        MIGRATE 127.0.0.1 @target a 0 60000 FOO
        MIGRATE 127.0.0.1 @target a 0 60000 AUTH
        MIGRATE 127.0.0.1 @target a 0 60000 AUTH2 x
        MIGRATE 127.0.0.1 @target a 0 60000 KEYS
        MIGRATE 127.0.0.1 @target a 0 60000 KEYS b
        MIGRATE 127.0.0.1 @target a 0 60000 FOO KEYS b
        MIGRATE 127.0.0.1 @target "" 0 60000 KEYS
        MIGRATE 127.0.0.1 @target "" 0 60000
        MIGRATE 127.0.0.1 @target "" 0 60000 KEYS COPY
        MIGRATE 127.0.0.1 @target a 0
    """,
    "targets that are not there": """
        SET a 1
        MIGRATE 127.0.0.1 @nobody a 0 60000
        MIGRATE 127.0.0.1 x a 0 60000
        MIGRATE 127.0.0.1 70000 a 0 60000
        EXISTS a
    """,
    "databases that are not there": """
        SET a 1
        MIGRATE 127.0.0.1 @target a 99 60000
        MIGRATE 127.0.0.1 @target a -1 60000 REPLACE COPY
        MIGRATE 127.0.0.1 @target a 0 60000 REPLACE
        EXISTS a
    """,
    "passwords": """
        SET a 1
        MIGRATE 127.0.0.1 @locked a 0 60000
        MIGRATE 127.0.0.1 @locked a 0 60000 AUTH bad
        MIGRATE 127.0.0.1 @locked a 0 60000 AUTH pw
        SET a 1
        MIGRATE 127.0.0.1 @locked a 0 60000 AUTH2 default pw
        MIGRATE 127.0.0.1 @locked a 0 60000 AUTH2 default pw REPLACE COPY
        MIGRATE 127.0.0.1 @locked a 0 60000 AUTH bad AUTH2 default pw REPLACE
    """,
    "targets that misbehave": """
        SET a 1
        SET b 1
        MIGRATE 127.0.0.1 @silent a 0 50
        MIGRATE 127.0.0.1 @closes a 0 60000
        MIGRATE 127.0.0.1 @partial "" 0 1500 KEYS a b
        EXISTS a b
        MIGRATE 127.0.0.1 @odd b 0 60000
        SET a 1
        SET b 1
        MIGRATE 127.0.0.1 @errors "" 0 60000 KEYS a b
        EXISTS a b
        MIGRATE 127.0.0.1 @select a 0 60000
        EXISTS a
    """,
    "keys that have expired": """
        DEBUG SET-ACTIVE-EXPIRE 0
        SET a 1 PX 1
        DEBUG SLEEP 0.003
        MIGRATE 127.0.0.1 @target a 0 60000
        DEBUG SET-ACTIVE-EXPIRE 1
    """,
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_keys_are_given_away_as_by_redis(sources: list[Source], story: str) -> None:
    told = []
    for source in sources:
        for wire in (source.wire, source.target):
            assert wire.call("FLUSHALL") == Reply("+", b"OK")
        told.append(source.run(STORIES[story]))
    assert told[0] == told[1]
    assert [puppet.received for puppet in sources[0].puppets.values()] == [
        puppet.received for puppet in sources[1].puppets.values()
    ]


@pytest.mark.slow
def test_connections_are_kept_for_a_while(sources: list[Source]) -> None:
    def kept(source: Source) -> int:
        return int(source.wire.call("INFO", "stats").value.split(b"migrate_cached_sockets:")[1].split(b"\r")[0])

    for source in sources:
        source.wire.call("SET", "a", "1")
        source.run("MIGRATE 127.0.0.1 @target a 0 60000 REPLACE COPY\nMIGRATE 127.0.0.1 @target a 0 60000 REPLACE")
        assert kept(source) >= 1
    for source in sources:
        eventually(lambda source=source: kept(source) == 0, timeout_s=30, what="the end of unused connections")


def test_a_closed_connection_is_opened_again(sources: list[Source]) -> None:
    answers = []
    for source in sources:
        source.wire.call("MSET", "a", "1", "b", "2")
        answers += source.run("MIGRATE 127.0.0.1 @target a 0 60000 REPLACE")
        source.target.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        answers += source.run("MIGRATE 127.0.0.1 @target b 0 60000 REPLACE")
    assert [reply for _, reply, _ in answers] == [Reply("+", b"OK")] * 4


def test_redis_gives_keys_to_streamd(sources: list[Source], streamd_server: Server) -> None:
    _, redis = sources
    redis.ports[b"@ours"] = b"%d" % streamd_server.port
    told = redis.run("""
        SET a 1
        SET b 2 EX 1000
        XADD s 1-1 f v
        MIGRATE 127.0.0.1 @ours "" 9 60000 REPLACE KEYS a b s
    """)
    assert told[-1][1] == Reply("+", b"OK")
    with streamd_server.connect() as wire:
        wire.call("SELECT", "9")
        assert (wire.call("GET", "b").value, wire.call("XLEN", "s").value) == (b"2", 1)
        assert 900 < wire.call("TTL", "b").value <= 1000
        wire.call("FLUSHDB")


def test_passwords_are_not_shown(sources: list[Source]) -> None:
    shown = []
    for source in sources:
        source.wire.call("CONFIG", "SET", "slowlog-log-slower-than", "0")
        source.run(
            'MIGRATE h 1 "" 0 1 COPY AUTH secret AUTH2 user secret KEYS auth me\nCONFIG SET slowlog-log-slower-than -1'
        )
        entries = source.wire.call("SLOWLOG", "GET", "-1").plain()
        shown.append(next(entry[3] for entry in entries if entry[3][0] == b"MIGRATE"))
    assert shown[0] == shown[1]
    assert b"secret" not in shown[0]
