"""LOLWUT: a picture, and the version.

The picture shows a river from above, of random width, running down the page between its banks. No two are alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamd import REDIS_VERSION
from streamd.core.args import integer as read_integer
from streamd.core.context import Context
from streamd.core.spec import command, integer, optional

if TYPE_CHECKING:
    import random

__all__ = ["river"]

PAINTED = frozenset({5, 6, 7, 8})
"""Versions that have a picture; for others only the version is shown."""
COLUMNS, ROWS = 64, 16
MOST_COLUMNS, MOST_ROWS = 1000, 200


def river(columns: int, rows: int, chance: random.Random) -> str:
    """A river of `rows` lines in a landscape of `columns`."""
    narrow, wide = max(1, columns // 16), max(1, columns // 5)
    left = chance.uniform(0, max(0, columns - wide))
    width = chance.uniform(narrow, wide)
    drift = 0.0
    lines = []
    for _ in range(rows):
        drift = max(-3.0, min(3.0, drift + chance.uniform(-1.2, 1.2)))
        width = max(narrow, min(wide, width + chance.uniform(-1.5, 1.5)))
        left += drift
        if not 0 <= left <= columns - width:
            left = max(0.0, min(columns - width, left))
            drift = -drift / 2
        start, end = int(left), int(left + width)
        land = [chance.choices(" .,'\"^", (90, 4, 2, 2, 1, 1))[0] for _ in range(columns)]
        land[start:end] = [chance.choices("~-o>", (80, 14, 3, 3))[0] for _ in range(end - start)]
        lines.append("".join(land).rstrip() + "\n")
    return "".join(lines)


@command(
    "LOLWUT", arity=-1, group="server", flags="readonly fast", since="5.0.0",
    summary="Paints a picture and shows the version.", args=(optional(integer("version", "VERSION")),),
)  # fmt: skip
def lolwut(ctx: Context, args: list[bytes]) -> None:
    """VERSION n chooses the picture of a version of Redis; after it, versions 5 and 6 take columns and rows."""
    import random

    version, sizes = 8, args[1:]
    if len(args) > 2 and args[1].upper() == b"VERSION":
        version, sizes = int(read_integer(args[2])), args[3:]
    columns, rows = COLUMNS, ROWS
    if version in (5, 6):
        numbers = [int(read_integer(size)) for size in sizes[:2]]
        columns = max(1, min(MOST_COLUMNS, numbers[0])) if numbers else columns
        rows = max(1, min(MOST_ROWS, numbers[1])) if len(numbers) > 1 else rows
    picture = river(columns, rows, random.Random()) + "\nA stream." if version in PAINTED else ""
    ctx.reply.verbatim("txt", f"{picture}{' ' if picture else ''}Redis ver. {REDIS_VERSION}\n".encode())
