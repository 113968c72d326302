"""Random scripts about client-side caching: three connections in every mode of CLIENT TRACKING, and one that only writes.

`make_script(chance)` generates one; `compare_script` plays it on two servers, and compares everything that each connection
receives, in order, after each line.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from ..compare.dialogues import compare_records
from ..servers import Server
from ..wire import ConnectionClosed, Reply, ReplyReader, Wire, encode_request, show, split_line

__all__ = ["compare_script", "make_script"]

Line = tuple[str, str]
"""Connection and requests; requests separated by ` ; ` are sent in one piece."""

KEYS = ("k", "l", "ka")
STREAMS = ("s", "sa")
WRITER = "w2"
CHANNEL = "__redis__:invalidate"


class Writer:
    """Generates one script."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.connections = [name + chance.choice(["", "", "2"]) for name in "abc"]
        self.entry_id = 0

    # --- Requests ---------------------------------------------------------------------------------------------------

    def key(self) -> str:
        return self.chance.choice(KEYS if self.chance.random() < 0.8 else KEYS + STREAMS)

    def stream(self) -> str:
        return self.chance.choice(STREAMS)

    def next_id(self) -> str:
        self.entry_id += 1
        return str(self.entry_id)

    def tracking(self) -> str:
        chance = self.chance
        if chance.random() < 0.12:
            return "CLIENT TRACKING off"
        words = ["CLIENT TRACKING on"]
        mode = chance.random()
        if mode < 0.15:
            words.append("OPTIN")
        elif mode < 0.3:
            words.append("OPTOUT")
        elif mode < 0.5:
            words.append("BCAST")
            words += [
                f"PREFIX {prefix}" for prefix in chance.sample(["k", "l", "s", "ka"], chance.choice([0, 0, 1, 2]))
            ]
        if chance.random() < 0.4:
            words.append("REDIRECT {" + chance.choice(self.connections) + "}")
        if chance.random() < 0.25:
            words.append("NOLOOP")
        return " ".join(words)

    def reading(self) -> str:
        key, stream = self.key(), self.stream()
        return self.chance.choice([
            f"GET {key}", f"GET {key}", f"GET {key}", f"MGET {key} {self.key()}", f"STRLEN {key}", f"TYPE {key}",
            f"EXISTS {key} {self.key()}", f"TTL {key}", f"XLEN {stream}", f"XLEN {stream}", f"XRANGE {stream} - +",
            f"XREAD STREAMS {stream} 0", "XREAD COUNT 1 STREAMS s sa 0 0", f"XINFO GROUPS {stream}",
            f"XPENDING {stream} g", f"XREADGROUP GROUP g c STREAMS {stream} >", f"XREADGROUP GROUP g c STREAMS {stream} 0",
            "DBSIZE", f"TOUCH {key}", f"OBJECT ENCODING {key}",
        ])  # fmt: skip

    def writing(self) -> str:
        key, stream, other = self.key(), self.stream(), self.key()
        return self.chance.choice([
            f"SET {key} 1", f"SET {key} 2", f"SET {key} 1", f"MSET {key} 1 {other} 2", f"DEL {key} {other}", f"APPEND {key} x",
            f"EXPIRE {key} 1000", f"EXPIRE {key} -1", f"PERSIST {key}", f"RENAME {key} {other}", f"COPY {key} {other} REPLACE",
            f"MOVE {key} 1", f"GETDEL {key}", f"INCR {key}", f"XADD {stream} {self.next_id()} f v",
            f"XADD {stream} {self.next_id()} f v", f"XADD {stream} {self.next_id()} f v", f"XDEL {stream} {self.entry_id}",
            f"XTRIM {stream} MAXLEN 1", f"XGROUP CREATE {stream} g $ MKSTREAM", f"XGROUP CREATE {stream} g 0",
            f"XACK {stream} g {self.entry_id}", f"XSETID {stream} {self.next_id()}", f"DEL {stream}", f"SET {key} 1 NX",
            f"XCLAIM {stream} g d 0 {self.entry_id}", f"XAUTOCLAIM {stream} g d 0 0", f"XGROUP DESTROY {stream} g",
        ])  # fmt: skip

    def flush(self) -> str:
        return self.chance.choice(["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC", "FLUSHDB SYNC"])

    def whole_keyspace(self) -> str:
        # Outside a transaction Redis makes a client that flushes wait for the next turn: the order is random.
        flush = f"MULTI ; {self.writing()} ; {self.flush()} ; {self.reading()} ; EXEC"
        return self.chance.choice([flush, flush, "SWAPDB 0 1", "SELECT 1", "SELECT 0", "SELECT 0"])

    def transaction(self) -> str:
        return self.chance.choice(
            ["MULTI", "MULTI", "EXEC", "EXEC", "EXEC", "DISCARD", f"WATCH {self.key()}", "UNWATCH"]
        )

    def subscription(self) -> str:
        return self.chance.choice([
            f"SUBSCRIBE {CHANNEL}", f"SUBSCRIBE {CHANNEL}", "SUBSCRIBE ch", f"PSUBSCRIBE {CHANNEL}*", "UNSUBSCRIBE ch",
            "PUNSUBSCRIBE", f"PUBLISH {CHANNEL} x", "PUBLISH ch x", f"UNSUBSCRIBE {CHANNEL}",
        ])  # fmt: skip

    def connection(self) -> str:
        return self.chance.choice(["HELLO 2", "HELLO 3", "HELLO 3", "HELLO 3", "RESET", "CLIENT TRACKINGINFO",
            "CLIENT TRACKINGINFO", "NOSUCH", "PING"])  # fmt: skip

    def caching(self) -> str:
        return self.chance.choice(["CLIENT CACHING yes", "CLIENT CACHING no"])

    def silenced(self) -> str:
        return "CLIENT REPLY SKIP ; " + self.chance.choice([self.reading, self.writing])()

    def requests(self) -> str:
        kinds: list[tuple[Callable[[], str], int]] = [
            (self.tracking, 10), (self.reading, 25), (self.writing, 25), (self.whole_keyspace, 4), (self.transaction, 16),
            (self.subscription, 6), (self.connection, 7), (self.caching, 5), (self.silenced, 1),
        ]  # fmt: skip
        makers, weights = zip(*kinds, strict=True)
        return " ; ".join(
            maker() for maker in self.chance.choices(makers, weights, k=self.chance.choice([1, 1, 1, 2, 3, 5]))
        )

    # --- Lines ------------------------------------------------------------------------------------------------------

    def blocking(self) -> str:
        stream = self.stream()
        return self.chance.choice([
            f"XREAD BLOCK 0 STREAMS {stream} $", f"XREAD BLOCK 0 STREAMS {stream} $", "XREAD BLOCK 0 STREAMS s sa $ $",
            f"XREADGROUP GROUP g c BLOCK 0 STREAMS {stream} >",
        ])  # fmt: skip

    def line(self) -> Line:
        chance = self.chance
        who, kind = chance.choice(self.connections), chance.random()
        if kind < 0.02:
            return WRITER, f"CLIENT KILL ID {{{who}}}"
        if kind < 0.05:
            return WRITER, f"CLIENT UNBLOCK {{{who}}}"
        if kind < 0.08:
            return WRITER, self.flush()
        if kind < 0.2:
            return WRITER, self.writing()
        if kind < 0.24:
            return who, " ; ".join([self.requests(), self.blocking(), self.reading()])
        return who, self.requests()

    def script(self) -> list[Line]:
        lines = [(who, self.tracking() if self.chance.random() < 0.8 else "PING") for who in self.connections]
        return [(WRITER, "PING"), *lines, *(self.line() for _ in range(25))]


def make_script(chance: random.Random) -> list[Line]:
    """A script of some 30 lines; the same for the same state of `chance`."""
    return Writer(chance).script()


# --- Playing it -----------------------------------------------------------------------------------------------------


class CountingReader(ReplyReader):
    """Counts the bytes received."""

    count = 0

    def feed(self, data: bytes) -> None:
        self.count += len(data)
        super().feed(data)


class CountingWire(Wire):
    """Counts the bytes sent and received, to be compared with the server's own counts."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.reader: CountingReader = CountingReader()
        self.sent = 0
        self.is_open = True
        self.id = self.client_id()

    def send_bytes(self, data: bytes) -> None:
        self.sent += len(data)
        super().send_bytes(data)

    def listen(self, total: int) -> list[Reply]:
        """All replies of the first `total` bytes that the server has sent."""
        deadline = time.monotonic() + self.timeout_s
        while self.reader.count < total:
            self._receive(deadline)
        return list(iter(self.reader.next_reply, None))


class Play:
    """One server, emptied, and what each connection received after each line of a script.

    Nothing is sent beyond the script: the server's counts for each connection show when nothing more will
    come, also inside a transaction.
    """

    def __init__(self, server: Server) -> None:
        self.observer = server.connect()
        assert self.observer.call("FLUSHALL") == Reply("+", b"OK")
        self.server = server
        self.wires: dict[str, CountingWire] = {}
        self.ids: dict[str, int] = {}
        self.record: list[str] = []

    def close(self) -> None:
        for wire in (*self.wires.values(), self.observer):
            wire.close()

    def run(self, script: Sequence[Line]) -> list[str]:
        for who, _ in script:
            if who not in self.wires:
                self.wires[who] = CountingWire(self.server.port)
                self.ids[who] = self.wires[who].id
        for who in self.wires:
            if not who.endswith("2"):
                self._say(who, "HELLO 3")
        for who, text in script:
            if who in self.wires:
                self._say(who, text)
        return self.record

    def _say(self, who: str, text: str) -> None:
        self.record.append(f"{who}: {text}")
        for name, number in self.ids.items():
            text = text.replace("{" + name + "}", str(number))
        self.wires[who].send_bytes(b"".join(encode_request(split_line(part)) for part in text.split(" ; ")))
        for name, total in self._settle().items():
            wire = self.wires[name]
            told = [show(self._without_ids(reply)) for reply in wire.listen(total)]
            if told:
                self.record.append(f"    {name} hears {'  '.join(told)}")
        for name in [name for name, wire in self.wires.items() if not wire.is_open]:
            self.record.append(f"    {name} is gone")
            self.wires.pop(name).close()

    def _settle(self) -> dict[str, int]:
        """Wait until the server has executed everything and sent all replies; return bytes by name."""
        last: dict[str, int] = {}
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            seen = {}
            for line in self.observer.call("CLIENT", "LIST").value.decode().splitlines():
                fields = dict(word.partition("=")[::2] for word in line.split(" "))
                seen[int(fields["id"])] = fields
            totals = {}
            for name, wire in self.wires.items():
                fields = seen.get(wire.id)
                if fields is None:
                    wire.is_open = False
                    continue
                is_waiting = "b" in fields["flags"]
                if is_waiting and fields["cmd"].startswith("flush"):
                    continue  # Redis has it wait until the memory is free
                is_read = int(fields["tot-net-in"]) == wire.sent and (is_waiting or fields["qbuf"] == "0")
                if is_read and fields["obl"] == fields["oll"] == "0":
                    totals[name] = int(fields["tot-net-out"])
            if len(totals) == sum(wire.is_open for wire in self.wires.values()) and totals == last:
                return totals
            last = totals
        raise TimeoutError(f"{self.server.name} is still busy after:\n" + "\n".join(self.record))

    def _without_ids(self, reply: Reply) -> Reply:
        """Names in place of the IDs of connections; no modules; and a null is a null (docs/differences.md)."""
        if reply.kind not in "*~%>":
            return reply
        names = [item.value for item in reply.value if item.kind == "$"]
        if names[:1] == [b"server"]:
            return Reply("+", b"<hello>")
        if names[:1] in ([b"invalidate"], [b"message"]) and reply.value[-1].value is None:
            return Reply(reply.kind, (*reply.value[:-1], Reply("_", None)))
        shows_id = names[:1] in ([b"flags"], [b"tracking-redir-broken"])
        return Reply(reply.kind, tuple(
            Reply("+", self._name_of(item.value)) if shows_id and item.kind == ":" else self._without_ids(item)
            for item in reply.value
        ))  # fmt: skip

    def _name_of(self, number: int) -> bytes:
        return next((name.encode() for name, its in self.ids.items() if its == number), b"%d" % number)


def compare_script(ours: Server, theirs: Server, script: Sequence[Line]) -> None:
    """Play a script on both servers; AssertionError where the records differ."""
    records = []
    for server in (ours, theirs):
        play = Play(server)
        try:
            records.append(play.run(script))
        except (ConnectionClosed, TimeoutError) as error:
            raise AssertionError(f"{server.name}: {error}, after:\n" + "\n".join(play.record)) from error
        finally:
            play.close()
    compare_records(ours, theirs, records)
