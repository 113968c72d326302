r"""Transcripts: conversations with a server, raw bytes both ways, one text file per story.

Each line of a file is one step:

    # text                a comment
    @server NAME VALUE    the story needs a server of its own, started with this directive (may repeat)
    @since 7.0            the oldest real Redis for which the story holds; 8.6 when absent
    @redis whole          a real Redis gets each request only in one piece: Redis 8.6.3 does not answer an error in the header of a
                          bulk, and never answers again, when it had to wait for bytes after the header of the array
    @connect [NAME]       open a named connection and use it from here on; the file starts with one open
    @use NAME             switch to that connection
    @blocked N            wait until N clients are blocked
    > BYTES               send these bytes; nothing is added to them
    >> COMMAND            send this command, as redis-cli would send it: split into arguments, as an array of bulks
    < LINE                expect this line; its end, \r\n, is implied
    ! closed              expect the end of the connection

Escapes in BYTES and LINE: `\r \n \t \a \b \\ \" \xHH`; `{"TEXT"*N}` stands for N times TEXT. In LINE, what depends on
time, randomness or the build is written `{int}` (decimal digits), `{text}` (anything up to the line's end) or
`{element}` (a whole reply of any type and length, which is all there is in its line of the transcript); nothing else
may vary.

At the end of a story, no open connection may have anything left to read: each is sent an ECHO and must answer only that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..servers import Server, eventually
from ..wire import ConnectionClosed, Wire, encode_request, split_line, unescape

__all__ = ["Conversation", "Story", "TranscriptError", "load", "play"]

LAST_WORD = b"nothing more to say"
MAIN = "main"

_REPEAT = re.compile(r'\{"((?:[^"\\]|\\.)*)"\*(\d+)\}')
_WILDCARD = re.compile(r"\{(int|text|element)\}")


class TranscriptError(AssertionError):
    """The server sent something other than the transcript."""


@dataclass(frozen=True)
class Step:
    """One line: its number in the file, what kind it is (`>`, `>>`, `<`, `!`, `@name`), and the rest of it."""

    number: int
    kind: str
    text: str

    def sent(self) -> bytes:
        if self.kind == ">>":
            return encode_request(split_line(self.text))
        return unescape(expand(self.text))


def expand(text: str) -> str:
    """The text with each `{"TEXT"*N}` written out."""
    return _REPEAT.sub(lambda match: match[1] * int(match[2]), text)


@dataclass
class Story:
    """One transcript file, parsed."""

    path: Path
    steps: list[Step]
    since: str = "8.6"
    redis_needs_whole: bool = False
    directives: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.stem


def load(path: Path) -> Story:
    story = Story(path, [])
    for number, line in enumerate(path.read_text().splitlines(), 1):
        kind, _, text = line.partition(" ")
        if not line.strip() or kind == "#":
            continue
        if kind == "@since":
            story.since = text
        elif line == "@redis whole":
            story.redis_needs_whole = True
        elif kind == "@server":
            name, _, value = text.partition(" ")
            story.directives[name] = value
        elif kind in (">", ">>", "<", "!", "@connect", "@use", "@blocked"):
            story.steps.append(Step(number, kind, text))
        else:
            raise ValueError(f"{path.name}:{number}: not a step of a transcript: {line!r}")
    return story


Cut = Callable[[bytes], Iterator[bytes]]


class Conversation:
    """Plays the steps of one story against a server.

    cut   cuts what is sent into pieces, each sent separately
    """

    def __init__(self, story: Story, server: Server, cut: Cut) -> None:
        self.story = story
        self.server = server
        self.cut = cut
        self.wires: dict[str, Wire] = {}
        self.current = MAIN
        self.connect(MAIN)

    def close(self) -> None:
        for wire in self.wires.values():
            wire.close()

    @property
    def wire(self) -> Wire:
        return self.wires[self.current]

    def connect(self, name: str) -> None:
        if name in self.wires:
            self.wires.pop(name).close()
        self.wires[name] = self.server.connect(timeout_s=60.0)
        self.current = name

    def play(self) -> None:
        for step in self.story.steps:
            try:
                self.perform(step)
            except (TimeoutError, ConnectionClosed, TranscriptError) as error:
                where = f"{self.story.path.name}:{step.number}: {step.kind} {step.text}"
                raise TranscriptError(f"{where}\n{type(error).__name__}: {error}") from None
        for name, wire in self.wires.items():
            wire.send("ECHO", LAST_WORD)
            said = wire.read_bytes(len(LAST_WORD) + len(b"$19\r\n\r\n"))
            if said != b"$%d\r\n%s\r\n" % (len(LAST_WORD), LAST_WORD):
                raise TranscriptError(f"{self.story.path.name}: connection {name} had more to read: {said!r}")

    def perform(self, step: Step) -> None:
        if step.kind in (">", ">>"):
            self.send(step.sent())
        elif step.kind == "<":
            self.expect(step.text)
        elif step.kind == "!":
            self.expect_end()
        elif step.kind == "@connect":
            self.connect(step.text or MAIN)
        elif step.kind == "@use":
            self.current = step.text
        else:
            self.wait_until_blocked(int(step.text))

    def send(self, data: bytes) -> None:
        wire = self.wire
        for piece in self.cut(data):
            wire.drain()  # what a server sent before it closed the connection would be lost with the next bytes sent
            try:
                wire.send_bytes(piece)
            except OSError:  # it closed the connection in the middle of a request; the next step says whether it should
                return

    def expect(self, line: str) -> None:
        if line == "{element}":
            self.wire.read()
            return
        line, at = expand(line), 0
        for match in _WILDCARD.finditer(line):
            self.expect_bytes(unescape(line[at : match.start()]))
            self.take(match[1])
            at = match.end()
        self.expect_bytes(unescape(line[at:]) + b"\r\n")

    def expect_bytes(self, wanted: bytes) -> None:
        try:
            said = self.wire.read_bytes(len(wanted))
        except (TimeoutError, ConnectionClosed):
            said = bytes(self.wire.reader.buffer)
            if said == wanted[: len(said)]:
                raise
        if said != wanted:
            more = self.rest_of_line()
            raise TranscriptError(f"expected {wanted!r}\n     got {said + more!r}")

    def rest_of_line(self) -> bytes:
        self.wire.drain()
        return bytes(self.wire.reader.buffer[:300])

    def take(self, what: str) -> None:
        """Take digits or the rest of the line from the input."""
        wire = self.wire
        line = wire.read_raw_line()
        match = re.match(rb"\d+" if what == "int" else rb"[^\r]+", line)
        if match is None:
            raise TranscriptError(f"expected {what}, got {line!r}")
        wire.reader.buffer[:0] = line[match.end() :]

    def expect_end(self) -> None:
        said = self.wire.read_to_end()
        if said:
            raise TranscriptError(f"expected the end of the connection, got {said[:300]!r}")
        self.wires.pop(self.current).close()

    def wait_until_blocked(self, count: int) -> None:
        with self.server.connect() as observer:
            field_ = b"blocked_clients:%d\r\n" % count
            eventually(lambda: field_ in observer.call("INFO", "clients").value, what=f"{count} blocked clients")


def play(story: Story, server: Server, cut: Cut) -> None:
    """Play a story on an emptied server."""
    conversation = Conversation(story, server, cut)
    try:
        conversation.play()
    finally:
        conversation.close()
