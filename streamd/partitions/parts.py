"""The parts of a stream: their names, which part a key belongs to, and the count that everybody has to use.

A part is a stream of its own, `orders:{17-a4c}`, whose hash tag is made for its slot. A cluster gives each primary a range of slots, or
a few, so tags whose slots lie at equal distances are spread evenly over any number of primaries:

    slot     0              4096             8192            12288           16384
             |---------------|----------------|----------------|----------------|
    4 parts  |       0       |        1       |        2       |        3       |
    64 parts |.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:.:|

A key belongs to the part in which its CRC-32 falls when the range of CRCs is cut into equal pieces. Neither the tags nor this rule may
ever change: entries of a key would go to another part, ahead of those that are still unread.
"""

from __future__ import annotations

from binascii import crc32, crc_hqx
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

from streamd.partitions.partition_error import PartitionError

if TYPE_CHECKING:
    import redis
    import redis.asyncio

__all__ = ["MAX_COUNT", "Parts"]

MAX_COUNT = 1024
SLOT_COUNT = 16384
LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"
ENDING = 3
"""How many of them a tag ends with."""


@cache
def endings() -> dict[int, bytes]:
    """The first three letters for each remainder of a CRC; 15 of 16 remainders have some."""
    found: dict[int, bytes] = {}
    for letters in map(bytes, product(LETTERS, repeat=ENDING)):
        found.setdefault(crc_hqx(letters, 0) % SLOT_COUNT, letters)
    return found


@cache
def tag_of(number: int, count: int) -> str:
    """The hash tag of a part: its number, and three letters with which its slot is the nearest to the middle of its share."""
    start = f"{number}-".encode()
    # A CRC is linear: that of both is that of the start, followed by zeros, combined with that of the letters.
    before = crc_hqx(start + bytes(ENDING), 0)
    middle = (2 * number + 1) * SLOT_COUNT // (2 * count)
    slots = (middle + sign * distance for distance in range(SLOT_COUNT // (2 * MAX_COUNT)) for sign in (1, -1))
    found = endings()
    return (start + next(found[key] for slot in slots if (key := (slot ^ before) % SLOT_COUNT) in found)).decode()


class Parts:
    """The parts of a stream. Producers and readers have to use the same count: `open` records it, or checks it.

    name   of the whole; no braces
    count  1 to 1024. Choose it once, several times the number of primaries and readers that there will ever be: with another count
           keys would be in other parts
    Raises PartitionError.
    """

    def __init__(self, name: str, count: int) -> None:
        if not name or "{" in name or "}" in name:
            raise PartitionError(f"A partitioned stream cannot be named {name!r}: use a name without braces")
        if not 1 <= count <= MAX_COUNT:
            raise PartitionError(f"{name} cannot have {count} parts: use 1 to {MAX_COUNT}")
        self.name = name
        self.count = count

    def __repr__(self) -> str:
        return f"Parts({self.name!r}, {self.count})"

    # --- Names -----------------------------------------------------------------------------------------------------

    def stream(self, number: int) -> str:
        """The key of a part."""
        if not 0 <= number < self.count:
            raise PartitionError(f"{self.name} has no part {number}: use 0 to {self.count - 1}")
        return f"{self.name}:{{{tag_of(number, self.count)}}}"

    @property
    def streams(self) -> list[str]:
        """The keys of all parts, in order."""
        return [self.stream(number) for number in range(self.count)]

    def number_of(self, key: str | bytes) -> int:
        """The part of a key, such as that of a customer."""
        return crc32(key.encode() if isinstance(key, str) else key) * self.count >> 32

    def stream_of(self, key: str | bytes) -> str:
        """The stream to which the entries of a key are added, and in which they stay in order."""
        return self.stream(self.number_of(key))

    # --- The recorded count ----------------------------------------------------------------------------------------

    @classmethod
    def open(cls, client: redis.RedisCluster | redis.Redis, name: str, count: int | None = None) -> Parts:
        """The parts of a stream. The first call records the count in the key `NAME:parts`.

        count  None: as recorded
        Raises PartitionError when the recorded count is another one, or none is recorded.
        """
        key, read = cls._opening(name, count)
        return read(client.get(key) if count is None else client.set(key, count, nx=True, get=True))

    @classmethod
    async def open_async(
        cls, client: redis.asyncio.RedisCluster | redis.asyncio.Redis, name: str, count: int | None = None
    ) -> Parts:
        """The same for asyncio."""
        key, read = cls._opening(name, count)
        return read(await (client.get(key) if count is None else client.set(key, count, nx=True, get=True)))

    @classmethod
    def _opening(cls, name: str, count: int | None) -> tuple[str, Callable[[Any], Parts]]:
        """The key of the count, and what the value means that it had."""
        wanted = cls(name, 1 if count is None else count)
        key = f"{name}:parts"

        def read(value: Any) -> Parts:
            text = value.decode(errors="replace") if isinstance(value, bytes) else value
            if text is None and count is None:
                raise PartitionError(f"{name} has no parts yet: give their number")
            if text is not None and not (text.isascii() and text.isdigit()):
                raise PartitionError(f"The key {key} does not hold a number of parts: use another name")
            if text is not None and count not in (None, int(text)):
                raise PartitionError(
                    f"{name} has {text} parts, not {count}: use {text}, or another name; keys would be in other parts"
                )
            return wanted if text is None else cls(name, int(text))

        return key, read
