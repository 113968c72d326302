"""Nodes that replicate: streamd and real Redis servers, the link between them, and the comparison of what they hold.

    kind         what runs
    streamd      the streamd of the tests; with STREAMD_TEST_TARGET=redis a real Redis, to prove the tests, which is a
                 7.0 if the form of snapshots is that of 7.0
    redis        the real Redis of the tests (`find_oracle`)
    redis-7.0    the system's redis-server, if it is a 7.0; otherwise the test is skipped

The fixture `new_node(kind, **settings)` starts one. `wait_in_sync` waits until a replica has everything, and
`assert_same_state` compares all databases. A `Proxy` between two nodes cuts, holds, drops or delays what they say.
"""

from __future__ import annotations

import collections
import itertools
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from ..compare.mask import NEWER_FIELDS
from ..files.real_files import all_oracles
from ..servers import (
    STOP_TIMEOUT_S,
    Oracle,
    Server,
    directive_arguments,
    eventually,
    find_oracle,
    free_port,
    python_environment,
    server_arguments,
    target_is_redis,
    wait_for_start,
)
from ..wire import Argument, ConnectionClosed, Reply, Wire

__all__ = [
    "DEADLINE_S",
    "Node",
    "Proxy",
    "assert_same_state",
    "hash_state",
    "hidden_between",
    "start_node",
    "state_of",
    "wait_in_sync",
    "wait_until",
]

DEADLINE_S = 60.0
"""For everything that is waited for here: the machine may be busy, and a replica tries to connect once a second."""

NODE_SETTINGS: Mapping[str, str] = {"repl-diskless-sync-delay": "0"}


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until `condition()` is true; fail, saying `what` was waited for, when the deadline passes first."""
    eventually(condition, deadline_s, what)


# --- Nodes ----------------------------------------------------------------------------------------------------------


class Node(Server):
    """A server that takes part in replication. It keeps one connection for `call` and `info`."""

    kind: str
    wire: Wire | None = None
    credentials: tuple[str, ...] = ()
    """What AUTH needs on new connections; empty: nothing."""

    def connect(self, protocol: int = 2, timeout_s: float = DEADLINE_S) -> Wire:
        wire = super().connect(protocol, timeout_s)
        if self.credentials:
            reply = wire.call("AUTH", *self.credentials)
            assert reply.value == b"OK", reply
        return wire

    def call(self, *args: Argument) -> Reply:
        """One command, over a connection that is kept and made again after it was lost."""
        if self.wire is None:
            self.wire = self.connect(timeout_s=DEADLINE_S)
        try:
            return self.wire.call(*args)
        except (OSError, ConnectionClosed):
            self.hang_up()
            raise

    def line(self, text: str) -> Reply:
        """A command as typed into redis-cli, which must not be answered with an error."""
        return self.must(*text.split())

    def must(self, *args: Argument) -> Reply:
        """One command that must not be answered with an error."""
        reply = self.call(*args)
        assert not reply.is_error, f"{self.name} answered {args} with {reply}"
        return reply

    def hang_up(self) -> None:
        """Close the connection that is kept."""
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    def info(self, section: str = "replication") -> dict[str, str]:
        """The fields of a section of INFO, in their order."""
        text = self.must("INFO", section).value.decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    @property
    def offset(self) -> int:
        """How many bytes of the replication stream this node has written, as a primary, or executed, as a replica."""
        return int(self.info()["master_repl_offset"])

    def follow(self, primary: Node | Proxy | None) -> None:
        """REPLICAOF; None is NO ONE."""
        target = ("NO", "ONE") if primary is None else ("127.0.0.1", str(primary.port))
        assert self.must("REPLICAOF", *target).value.startswith(b"OK")

    def has_link(self) -> bool:
        return self.info().get("master_link_status") == "up"

    def is_cut_off(self) -> bool:
        """Whether it has no link, and loads nothing of what it has received: while it does, it may refuse to be read.

        It is asked several times, in which it reads what has still arrived.
        """
        infos = [self.info() for _ in range(5)]
        return all(
            (each.get("master_link_status"), each.get("master_sync_in_progress")) == ("down", "0") for each in infos
        )

    def traceback(self) -> str:
        """The first traceback in its log, and what follows; empty when there is none."""
        _, found, rest = self.log().partition("Traceback (most recent call last)")
        return found + rest[:3000]

    def kill(self) -> None:
        """SIGKILL."""
        self.hang_up()
        super().kill()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        self.hang_up()
        self.thaw()
        return super().stop(timeout_s)

    def start(self) -> None:
        """Start it again, after `kill` or `stop`, on the same port, in the same directory, with the same settings."""
        assert not self.is_running
        self._start()
        self.wait_until_ready()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing is read or answered until `thaw`."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # until it has stopped

    def thaw(self) -> None:
        if self.is_running:
            self.process.send_signal(signal.SIGCONT)


def start_node(folder: Path, kind: str, settings: Mapping[str, str], name: str | None = None) -> Node:
    """Start a node of a kind (see the head of the module) and wait until it answers; skip when there is none."""
    port = free_port()
    merged = {**NODE_SETTINGS, **{key.replace("_", "-"): value for key, value in settings.items()}}
    if kind == "streamd" and not target_is_redis():
        node = Node(name or kind, server_arguments(port, merged), port, folder, python_environment())
    else:
        program = _program("redis-7.0" if merged.pop("rdb-form", None) == "7.0" else kind)
        argv = [program.server, "--port", str(port), *directive_arguments(merged)]
        node = Node(name or kind, argv, port, folder, python_environment())
    node.kind = kind
    wait_for_start(node)
    return node


def _program(kind: str) -> Oracle:
    if kind == "redis-7.0":
        found = [oracle for oracle in all_oracles() if oracle.version[:2] == (7, 0)]
        if not found:
            pytest.skip("the system's redis-server is not a Redis 7.0")
        return found[0]
    oracle = find_oracle()
    assert oracle is not None, "the caller must be marked `real`"
    return oracle


def wait_in_sync(primary: Node, *replicas: Node, deadline_s: float = DEADLINE_S) -> None:
    """Wait until the link of each replica is up and it has executed all that the primary has written so far."""

    def is_in_sync(replica: Node) -> bool:
        offset = primary.offset
        info = replica.info()
        return info.get("master_link_status") == "up" and int(info["slave_repl_offset"]) == offset

    for replica in replicas:
        try:
            wait_until(lambda replica=replica: is_in_sync(replica), "the same offset", deadline_s)
        except AssertionError as error:
            raise AssertionError(
                f"{replica.name} is not in sync with {primary.name} within {deadline_s} s:\n"
                f"{primary.info()}\n{replica.info()}\n{replica.log()[-3000:]}"
            ) from error


# --- The state of a node --------------------------------------------------------------------------------------------

NOT_REPLICATED = frozenset({b"seen-time", b"active-time", b"radix-tree-keys", b"radix-tree-nodes"}) | NEWER_FIELDS
"""Fields of XINFO STREAM FULL that a replica need not share: what it does not learn, and how it cuts its nodes."""

SINCE_7_2 = frozenset({b"entries-read", b"lag"})
"""What a primary before 7.2 does not tell about groups that have read."""

SINCE_8_6 = frozenset(
    {b"idmp-duration", b"idmp-maxsize", b"pids-tracked", b"iids-tracked", b"iids-added", b"iids-duplicates"}
)

State = dict[tuple[int, bytes], Any]


def state_of(node: Node, *, without: frozenset[bytes] = frozenset()) -> State:
    """All that replicas must have in common with their primary, by database and key.

    A string is its value; a hash, its fields with values and expiries; a stream is XINFO STREAM FULL, but for consumers without pending entries, which Redis does
    not always replicate, and the fields in NOT_REPLICATED and `without`. MEMORY USAGE of each key must be positive.
    """
    hidden = NOT_REPLICATED | without
    found: State = {}
    with node.connect(timeout_s=DEADLINE_S) as wire:
        for database in _databases(wire):
            assert wire.call("SELECT", database).value == b"OK"
            keys = wire.call("KEYS", "*")
            assert not keys.is_error, keys
            for key in sorted(keys.plain()):
                state = _key_state(wire, key, hidden)
                if state is not None:
                    found[database, key] = state
    return found


def _databases(wire: Wire) -> list[int]:
    text = wire.call("INFO", "keyspace").value.decode()
    return [int(line[2:].split(":")[0]) for line in text.splitlines() if line.startswith("db")]


def _key_state(wire: Wire, key: bytes, hidden: frozenset[bytes]) -> Any:
    """None when the key is no longer there, or has just expired."""
    kind, expiry, memory = (
        reply.value for reply in wire.pipeline([("TYPE", key), ("PEXPIRETIME", key), ("MEMORY", "USAGE", key)])
    )
    if kind == b"none":
        return None
    assert memory is None or memory > 0, (key, memory)
    if kind == b"string":
        return kind, expiry, wire.call("GET", key).plain()
    if kind == b"hash":
        return kind, expiry, hash_state(wire, key)
    if kind != b"stream":
        return kind, expiry, wire.call("DUMP", key).plain()
    shown = wire.call("XINFO", "STREAM", key, "FULL", "COUNT", "0")
    if shown.is_error:
        return None
    full = _visible(shown.plain(), hidden)
    for group in full[b"groups"]:
        reply = wire.call("XPENDING", key, group[b"name"], "-", "+", "1000000")
        if reply.is_error:
            return None
        pending = reply.plain()
        assert [(each, who, count) for each, who, _, count in pending] == [
            (each, who, count) for each, who, _, count in group[b"pending"]
        ]
    return kind, expiry, full


def hash_state(wire: Wire, key: bytes) -> dict[bytes, tuple[bytes, int]]:
    """The fields of a hash with values and expiries, without those whose time has come; a 7.0 knows no expiries."""
    flat = wire.call("HGETALL", key).plain()
    names = flat[::2]
    times = wire.call("HPEXPIRETIME", key, "FIELDS", str(len(names)), *names) if names else None
    if times is None or times.is_error:
        return {name: (value, -1) for name, value in zip(names, flat[1::2], strict=True)}
    shown = zip(names, flat[1::2], times.plain(), strict=True)
    return {name: (value, time) for name, value, time in shown if time != -2}


def _visible(flat: list[Any], hidden: frozenset[bytes]) -> dict[bytes, Any]:
    """A flat map as a dict, without some fields, and so are those inside it."""
    seen: dict[bytes, Any] = {}
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        if name in hidden:
            continue
        if name in (b"groups", b"consumers") and isinstance(value, list):
            value = [_visible(each, hidden) for each in value]
            if name == b"consumers":
                value = [consumer for consumer in value if consumer[b"pel-count"]]
        seen[name] = value
    return seen


def hidden_between(kinds: Iterable[str]) -> frozenset[bytes]:
    """Fields that nodes of these kinds cannot have in common."""
    return SINCE_7_2 | SINCE_8_6 if "redis-7.0" in kinds else frozenset()


def assert_same_state(primary: Node, *replicas: Node, without: frozenset[bytes] = frozenset()) -> State:
    """Wait until the replicas have everything; the state of all, but for some fields, must be the same. Return it.

    A key may expire between two looks, so only a difference that stays for a second, and three looks, counts.
    """
    hidden = without | hidden_between(node.kind for node in (primary, *replicas))
    start = time.monotonic()
    for looks in itertools.count(1):
        wait_in_sync(primary, *replicas)
        wanted = state_of(primary, without=hidden)
        found = [state_of(replica, without=hidden) for replica in replicas]
        if all(state == wanted for state in found):
            return wanted
        if looks >= 3 and time.monotonic() - start > 1:
            break
    for replica, state in zip(replicas, found, strict=True):
        assert not (difference := _difference(wanted, state)), (
            f"{replica.name} (second) is not as {primary.name} (first):\n{difference}"
        )
    return wanted


def _difference(wanted: State, found: State) -> str:
    lines = []
    for at in sorted(wanted.keys() | found.keys()):
        ours, theirs = wanted.get(at), found.get(at)
        if ours == theirs:
            continue
        if ours and theirs and ours[0] == theirs[0] == b"stream" and ours[1] == theirs[1]:
            names = [name for name in ours[2] if ours[2][name] != theirs[2].get(name)]
            lines += [f"{at} {name!r}:\n  {ours[2][name]}\n  {theirs[2].get(name)}" for name in names]
        else:
            lines.append(f"{at}:\n  {ours}\n  {theirs}")
    return "\n".join(lines)


# --- A link that breaks ---------------------------------------------------------------------------------------------

CHUNK = 1 << 16


@dataclass(eq=False)
class _Pipe:
    """One direction of a connection."""

    source: socket.socket
    sink: socket.socket
    is_down: bool
    queue: collections.deque[tuple[float, bytes]] = field(default_factory=collections.deque)
    """What has been read and not yet been written, each with the time, monotonic, from when it may be."""
    is_ended: bool = False


class Proxy:
    """A TCP proxy in a thread: replicas follow `proxy.port`, and it connects to `target`.

    Down is what the primary says, up what the replica says. Unless told otherwise it passes everything.

        cut_after(n, down=True)   pass exactly n more bytes in that direction, over all connections, then close all, and
                                  refuse new ones
        cut()                     close all connections now
        refuse = True             close new connections at once
        hold()                    read nothing more: both ends see a peer that is silent; `heal` goes on
        swallow()                 read everything and drop it; `heal` closes connections that have lost something
        delay_s = 0.05            pass everything that much later
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.delay_s = 0.0
        self.refuse = False
        self.passed = {True: 0, False: 0}
        """Bytes that were passed so far: down under True, up under False."""
        self.connections = 0
        self.cuts = 0
        """How often `cut_after` has come to its end."""
        self._budget: tuple[int, bool] | None = None
        self._mode = "pass"
        self._lock = threading.RLock()
        self._pipes: list[_Pipe] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._waker, self._wake_end = socket.socketpair()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._is_closed = True
        self._wake()
        self._thread.join()
        for each in (self._listener, self._waker, self._wake_end):
            each.close()

    def cut_after(self, count: int, *, down: bool = True) -> None:
        with self._lock:
            if count == 0:
                self._cut_now()
            else:
                self._budget = count, down

    def cut(self) -> None:
        with self._lock:
            self._close_all()
        self._wake()

    def hold(self) -> None:
        self._change("hold")

    def swallow(self) -> None:
        self._change("swallow")

    def heal(self) -> None:
        """Pass again."""
        with self._lock:
            if self._mode == "swallow":
                self._close_all()
        self._change("pass")

    def _change(self, mode: str) -> None:
        with self._lock:
            self._mode = mode
        self._wake()

    def _wake(self) -> None:
        self._wake_end.send(b"x")

    # --- The thread

    def _run(self) -> None:
        while not self._is_closed:
            with self._lock:
                readers, writers, wait_s = self._wanted()
            ready_to_read, ready_to_write = _wait(readers, writers, wait_s)
            with self._lock:
                self._turn(ready_to_read, ready_to_write)
        with self._lock:
            self._close_all()

    def _wanted(self) -> tuple[set[socket.socket], set[socket.socket], float | None]:
        """The sockets to wait for, and for how many seconds at most."""
        now = time.monotonic()
        readers, writers = {self._listener, self._waker}, set()
        wait_s: float | None = None
        for pipe in self._pipes:
            if self._mode != "hold" and not pipe.is_ended and len(pipe.queue) < 64:
                readers.add(pipe.source)
            if pipe.queue and self._mode != "hold":
                due_s = pipe.queue[0][0] - now
                if due_s <= 0:
                    writers.add(pipe.sink)
                else:
                    wait_s = due_s if wait_s is None else min(wait_s, due_s)
        return readers, writers, wait_s

    def _turn(self, ready_to_read: set[socket.socket], ready_to_write: set[socket.socket]) -> None:
        if self._waker in ready_to_read:
            self._waker.recv(CHUNK)
        if self._listener in ready_to_read:
            self._accept()
        for pipe in list(self._pipes):
            if pipe in self._pipes and pipe.source in ready_to_read and pipe.source.fileno() >= 0:
                self._read(pipe)
            if pipe in self._pipes and pipe.sink in ready_to_write and pipe.sink.fileno() >= 0:
                self._write(pipe)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self.connections += 1
        if self.refuse:
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=60)
        except OSError:
            client.close()
            return
        for each in (client, server):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pipes += [_Pipe(server, client, is_down=True), _Pipe(client, server, is_down=False)]

    def _read(self, pipe: _Pipe) -> None:
        try:
            data = pipe.source.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            pipe.is_ended = True
            if not pipe.queue:
                self._close(pipe)
        elif self._mode == "pass":
            pipe.queue.append((time.monotonic() + self.delay_s, data))
            if not self.delay_s:
                self._write(pipe)

    def _write(self, pipe: _Pipe) -> None:
        while pipe.queue and pipe.queue[0][0] <= time.monotonic():
            data = pipe.queue[0][1]
            if self._budget is not None and self._budget[1] == pipe.is_down:
                data = data[: self._budget[0]]
            try:
                sent = pipe.sink.send(data)
            except BlockingIOError:
                return
            except OSError:
                self._close(pipe)
                return
            self.passed[pipe.is_down] += sent
            rest = pipe.queue[0][1][sent:]
            if rest:
                pipe.queue[0] = (pipe.queue[0][0], rest)
            else:
                pipe.queue.popleft()
            if self._budget is not None and self._budget[1] == pipe.is_down:
                self._budget = self._budget[0] - sent, pipe.is_down
                if self._budget[0] == 0:
                    self._cut_now()
                    return
        if pipe.is_ended and not pipe.queue:
            self._close(pipe)

    def _cut_now(self) -> None:
        self._budget = None
        self.cuts += 1
        self.refuse = True
        self._close_all()

    def _close(self, pipe: _Pipe) -> None:
        """Close the connection that the pipe belongs to."""
        for each in (pipe.source, pipe.sink):
            each.close()
        self._pipes = [other for other in self._pipes if other.source.fileno() >= 0]

    def _close_all(self) -> None:
        for pipe in self._pipes:
            pipe.source.close()
        self._pipes = []


def _wait(
    readers: set[socket.socket], writers: set[socket.socket], wait_s: float | None
) -> tuple[set[socket.socket], set[socket.socket]]:
    with selectors.DefaultSelector() as selector:
        for each in readers | writers:
            events = selectors.EVENT_READ * (each in readers) | selectors.EVENT_WRITE * (each in writers)
            with suppress(ValueError, KeyError, OSError):  # another thread has just closed it
                selector.register(each, events)
        ready = selector.select(wait_s)
    found: tuple[set[socket.socket], set[socket.socket]] = (set(), set())
    for key, events in ready:
        if events & selectors.EVENT_READ:
            found[0].add(key.fileobj)  # type: ignore[arg-type]
        if events & selectors.EVENT_WRITE:
            found[1].add(key.fileobj)  # type: ignore[arg-type]
    return found
