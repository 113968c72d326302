"""Dialogues: several connections to one server, and everything that each of them receives, in order.

A dialogue is a text. Each line is a connection and its action; requests separated by ` ; ` are sent in one piece:

    a: CLIENT TRACKING ON ; GET k      `a` sends this; it speaks RESP3, as all do whose names do not end in 2
    b2: SET k 1                        `b2` speaks RESP2
    a> MULTI ; GET k                   answered, but `a` is not read until it sends something with a colon
    a& XREAD BLOCK 0 STREAMS s $       `a` blocks: the server counts one more blocked client; not read ...
    a.                                 ... until here, when it has been served
    a~ EXEC                            sent, and not read either
    a!                                 `a` hangs up
    a?                                 the server closes the connection of `a`, after what is recorded here
    c2+                                `c2` connects

After each line all connections are read: each sends a PING of its own, and what comes before the answer is
recorded. `{a}` stands for the ID of a connection in what is sent, `{addr a}` for its address; where a reply
contains an ID, the name of that connection is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..servers import Server, eventually
from ..wire import ConnectionClosed, Reply, Wire, encode_request, show, split_line
from .mask import mask
from .side_by_side import on_each

__all__ = ["Dialogue", "compare_dialogue", "compare_records"]

MARKER = b"<heard>"
LINE = re.compile(r"(?P<who>\w+)(?P<act>[:>&.~!?+]) *(?P<text>.*)")
TELLS_IDS = (b"CLIENT TRACKINGINFO", b"CLIENT GETREDIR")


class Dialogue:
    """One server, emptied, and the record of a dialogue."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.record: list[str] = []
        self.wires: dict[str, Wire] = {}
        self.ids: dict[str, int] = {}
        self.silent: set[str] = set()
        self.observer = server.connect()
        assert self.observer.call("FLUSHALL") == Reply("+", b"OK")
        eventually(lambda: self._count_blocked() == 0, what="the end of clients that others left blocked")

    def close(self) -> None:
        for wire in (*self.wires.values(), self.observer):
            wire.close()

    def play(self, text: str) -> list[str]:
        for line in filter(None, map(str.strip, text.splitlines())):
            if line.startswith("#"):
                continue
            match = LINE.fullmatch(line)
            assert match is not None, f"cannot read {line!r}"
            self.record.append(line)
            self._act(match["who"], match["act"], match["text"])
            self._listen(match["who"])
        return self.record

    def _wire(self, who: str) -> Wire:
        if who not in self.wires:
            self.wires[who] = self.server.connect(2 if who.endswith("2") else 3)
            self.ids[who] = self.wires[who].client_id()
        return self.wires[who]

    def _act(self, who: str, act: str, text: str) -> None:
        if act == "!":
            self.wires.pop(who).close()
            wanted = f"id={self.ids[who]} ".encode()
            eventually(lambda: wanted not in self.observer.call("CLIENT", "LIST").value, what=f"{who} is gone")
            return
        wire = self._wire(who)
        requests = [split_line(self._fill(part)) for part in text.split(" ; ")] if text else []
        data = b"".join(map(encode_request, requests))
        if act in "&>~":
            self.silent.add(who)
        else:
            self.silent.discard(who)
        if act == ":":
            wire.send_bytes(data + encode_request(["PING", MARKER]))
            self._write_down(f"{who} is told", self._until_marker(who, requests))
        elif act == ">":
            wire.send_bytes(data)
            self._write_down(f"{who} is told", [self._show(request, wire.read()) for request in requests])
        elif act == "&":
            blocked = self._count_blocked()
            wire.send_bytes(data)
            eventually(lambda: self._count_blocked() > blocked, what=f"{who} is blocked")
        elif act == "~":
            wire.send_bytes(data)
        elif act == "?":
            wire.send_bytes(data)
            self.record.append(f"    {who} is told {wire.read_to_end()!r}, and the connection is closed")
            self.wires.pop(who).close()

    def _until_marker(self, who: str, requests: Sequence[list[bytes]] = ()) -> list[str]:
        """Everything `who` receives before the answer to the marker; replies are matched with the requests in order."""
        told = []
        left = list(requests)
        while not self._is_marker(reply := self.wires[who].read()):
            told.append(self._show(left.pop(0) if left and reply.kind != ">" else [], reply))
        return told

    def _write_down(self, what: str, told: list[str]) -> None:
        if told:
            self.record.append(f"    {what} {'  '.join(told)}")

    def _count_blocked(self) -> int:
        text = self.observer.call("INFO", "clients").value
        match = re.search(rb"blocked_clients:(\d+)", text)
        assert match is not None
        return int(match[1])

    def _fill(self, text: str) -> str:
        for who, number in self.ids.items():
            text = text.replace("{" + who + "}", str(number))
            if who in self.wires:
                host, port = self.wires[who].socket.getsockname()
                text = text.replace("{addr " + who + "}", f"{host}:{port}")
        return text

    def _listen(self, speaker: str) -> None:
        """Record what all connections received; the one that acted first."""
        for who in sorted(self.wires, key=lambda who: (who != speaker, who)):
            if who in self.silent:
                continue
            self.wires[who].send("PING", MARKER)
            self._write_down(f"{who} hears", self._until_marker(who))

    @staticmethod
    def _is_marker(reply: Reply) -> bool:
        return reply == Reply("$", MARKER) or reply == Reply("*", (Reply("$", b"pong"), Reply("$", MARKER)))

    def _show(self, request: list[bytes], reply: Reply) -> str:
        names_ids = b" ".join(request[:2]).upper() in TELLS_IDS or (
            reply.kind == ">" and reply.value[0].value == b"tracking-redir-broken"
        )
        return show(mask(request, self._name_ids(reply) if names_ids else reply))

    def _name_ids(self, reply: Reply) -> Reply:
        if reply.kind in "*~%>":
            return Reply(reply.kind, tuple(map(self._name_ids, reply.value)))
        for who, number in self.ids.items():
            if reply == Reply(":", number):
                return Reply("+", f"<{who}>".encode())
        return reply


def compare_dialogue(ours: Server, theirs: Server, text: str) -> None:
    """Play the dialogue on both servers; AssertionError where the records differ."""

    def play(server: Server) -> list[str]:
        dialogue = Dialogue(server)
        try:
            return dialogue.play(text)
        except (ConnectionClosed, TimeoutError) as error:
            raise AssertionError(f"{server.name}, after:\n" + "\n".join(dialogue.record) + f"\n{error}") from error
        finally:
            dialogue.close()

    compare_records(ours, theirs, on_each((ours, theirs), play))


def compare_records(ours: Server, theirs: Server, records: Sequence[list[str]]) -> None:
    """Compare the records of two servers; AssertionError where the records differ."""
    if records[0] != records[1]:
        at = next(
            (at for at, (mine, its) in enumerate(zip(*records, strict=False)) if mine != its), min(map(len, records))
        )
        before = "\n".join(records[1][:at])
        parts = ["\n".join(record[at : at + 2]) for record in records]
        raise AssertionError(
            f"the dialogues differ after:\n{before}\n--- {ours.name}:\n{parts[0]}\n--- {theirs.name}:\n{parts[1]}"
        )
