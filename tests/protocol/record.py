"""Fill in what a real Redis says: `python tests/protocol/record.py transcripts/new_story.txt ...`

Write the requests of a story (`>`, `>>`, `@...`), run this, and read what has been added: behind each request the
replies as they came (`<`), and `! closed` where the server hung up. Lines that are there already are kept and not checked;
what depends on time is for you to replace by a wildcard.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.compare.transcripts import Conversation, load
from support.servers import start_redis
from support.wire import ConnectionClosed

QUIET_S = 0.2


def record(path: Path) -> None:
    story = load(path)
    server = start_redis(Path(tempfile.mkdtemp()), story.directives)
    conversation = Conversation(story, server, lambda data: iter([data]))
    lines = path.read_text().splitlines()
    try:
        for step, following in zip_longest(story.steps, story.steps[1:]):
            if step.kind in ("<", "!"):
                continue
            conversation.perform(step)
            said = listen(conversation)
            if following is None or following.kind not in ("<", "!"):
                lines[step.number - 1] = "\n".join([lines[step.number - 1], *said])
    finally:
        conversation.close()
        server.stop()
    path.write_text("\n".join(lines) + "\n")


def listen(conversation: Conversation) -> list[str]:
    """What the server says until it has been quiet for a moment, as lines of a transcript."""
    if conversation.current not in conversation.wires:
        return []
    wire, end = conversation.wire, []
    try:
        wire.read_bytes(1 << 40, timeout_s=QUIET_S)
    except TimeoutError:
        pass
    except ConnectionClosed:
        end = ["! closed"]
        del conversation.wires[conversation.current]
    said, wire.reader.buffer = bytes(wire.reader.buffer), bytearray()
    return ["< " + escape(line) for line in said.split(b"\r\n")[:-1]] + end


def escape(line: bytes) -> str:
    return "".join(chr(c) if 32 <= c < 127 and c != 92 else f"\\x{c:02x}" if c != 92 else "\\\\" for c in line)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        record(Path(name))
