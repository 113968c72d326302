"""A type of value in one file: bags of strings, with commands, its forms in files and a blocking read. No other file names it."""

from __future__ import annotations

from typing import Any

from streamd.core.args import parse_timeout
from streamd.core.context import BlockRequest, Context
from streamd.core.question import Question
from streamd.core.spec import KeysAt, command, integer, key, string
from streamd.digests import add, chain
from streamd.errors import WrongTypeError
from streamd.keyspace.value_type import ValueType
from streamd.persistence.rdb.value_loader import ValueLoader

__all__ = ["Bag", "BagType"]

RDB_TYPE = 128
"""A type byte that Redis does not use."""


class Bag(tuple[bytes, ...]):
    """Strings in the order in which they were put in. It never changes: a database gets another one."""


class BagType(ValueType):
    def __init__(self) -> None:
        super().__init__(b"bag", Bag, sizes_name="bags_items", rdb_types=(RDB_TYPE,))

    def weight(self, value: Any) -> int:
        return 64 + sum(len(each) + 48 for each in value)

    def size(self, value: Any) -> int:
        return len(value)

    def encoding(self, key: bytes, value: Any, hint: int) -> bytes:
        return b"small" if len(value) < 3 else b"large"

    def save(self, writer: Any, value: Any) -> int:
        writer.put_length(len(value))
        for each in value:
            writer.put_bytes(each)
        return 0

    def loader(self, window: Any, options: Any) -> BagLoader:
        return BagLoader(self, window)

    def rewrite(self, writer: Any, key: bytes, value: Any) -> int:
        writer.begin(2 + len(value))
        for word in (b"STREAMD.PUT", key, *value):
            writer.word(word)
        return 0

    def digest(self, value: Any, digest: bytes) -> bytes:
        digest = chain(digest, b"bag")
        for each in value:
            digest = add(digest, each)
        return digest


class BagLoader(ValueLoader):
    def begin(self, rdb_type: int) -> None:
        self.value = Bag([self.window.get_bytes() for _ in range(self.window.get_count())])


def find_bag(ctx: Context, name: bytes) -> Bag | None:
    value = ctx.db.find_for_write(name)
    if value is not None and type(value) is not Bag:
        raise WrongTypeError
    return value


@command(
    "STREAMD.PUT", arity=-3, group="generic", flags="write denyoom", keys=KeysAt(1, flags="RW insert"), since="0.3.0",
    summary="Puts strings into a bag.", args=(key(), string("item")),
)  # fmt: skip
def put(ctx: Context, args: list[bytes]) -> None:
    bag = Bag((*(find_bag(ctx, args[1]) or ()), *args[2:]))
    ctx.db.set(args[1], bag, True)
    ctx.dirty += 1
    ctx.reply.integer(len(bag))


@command(
    "STREAMD.TAKE", arity=3, group="generic", flags="write blocking", keys=KeysAt(1, flags="RW access delete"), since="0.3.0",
    summary="Takes the first string from a bag, or waits for one.", args=(key(), integer("timeout")),
)  # fmt: skip
def take(ctx: Context, args: list[bytes]) -> None:
    bag = find_bag(ctx, args[1])
    if bag is None:
        if ctx.in_transaction:
            ctx.reply.null()
            return
        timeout_ms = parse_timeout(args[2], ctx.now_ms)
        ctx.block_on(BlockRequest([args[1]], args, timeout_ms, Question(Bag, line=b"takers")))
        return
    if len(bag) == 1:
        ctx.db.delete(args[1], True)
    else:
        ctx.db.set(args[1], Bag(bag[1:]), True)
    ctx.dirty += 1
    ctx.reply.bulk(bag[0])
