"""LCS: the longest common subsequence of two strings. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

from typing import NamedTuple

from streamd.core.args import integer as read_integer
from streamd.core.context import Context
from streamd.core.spec import KeysAt, command, integer, key, optional, token
from streamd.errors import CommandError, OptionSyntaxError
from streamd.values.strings.lcs import common_length, common_runs

__all__ = ["LcsOptions"]

CELL_BYTES = 4
"""What Redis allocates per pair of positions, one extra in each string: its memory limit is part of the behaviour."""


class LcsOptions(NamedTuple):
    """What LCS replies with.

    only_length     LEN: the length, not the text
    with_positions  IDX: where the matches are, in both strings
    min_length      MINMATCHLEN: matches of fewer bytes are left out; 0: none are
    with_lengths    WITHMATCHLEN: each match with its length
    """

    only_length: bool = False
    with_positions: bool = False
    min_length: int = 0
    with_lengths: bool = False

    @classmethod
    def parse(cls, words: list[bytes]) -> LcsOptions:
        only_length = with_positions = with_lengths = False
        min_length = 0
        rest = iter(words)
        for text in rest:
            word = text.upper()
            if word == b"LEN":
                only_length = True
            elif word == b"IDX":
                with_positions = True
            elif word == b"WITHMATCHLEN":
                with_lengths = True
            elif word == b"MINMATCHLEN" and (operand := next(rest, None)) is not None:
                min_length = max(0, read_integer(operand))
            else:
                raise OptionSyntaxError
        if only_length and with_positions:
            raise CommandError("ERR If you want both the length and indexes, please just use IDX.")
        return cls(only_length, with_positions, min_length, with_lengths)


@command(
    "LCS", arity=-3, group="string", flags="readonly", keys=KeysAt(1, 1), since="7.0.0",
    complexity="O(N*M/64) with N and M being the lengths of the strings",
    summary="Returns the longest common subsequence of two strings, its length, or the positions of its parts.",
    args=(
        key("key1"), key("key2"), optional(token("LEN")), optional(token("IDX")),
        optional(integer("min-match-len", "MINMATCHLEN")), optional(token("WITHMATCHLEN")),
    ),
)  # fmt: skip
def lcs(ctx: Context, args: list[bytes]) -> None:
    a, b = (b"" if value is None else value for value in map(ctx.db.find, args[1:3]))
    if not isinstance(a, bytes) or not isinstance(b, bytes):
        raise CommandError("ERR The specified keys must contain string values")
    options = LcsOptions.parse(args[3:])
    if (len(a) + 1) * (len(b) + 1) * CELL_BYTES > ctx.config.proto_max_bulk_len:
        raise CommandError("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")
    try:
        if options.only_length:
            ctx.reply.integer(common_length(a, b))
            return
        runs = common_runs(a, b)
    except MemoryError:
        raise CommandError("ERR Insufficient memory, failed allocating transient memory for LCS") from None
    if options.with_positions:
        _write_positions(ctx, runs, options)
    else:
        ctx.reply.bulk(b"".join(a[at : at + length] for at, _, length in reversed(runs)))


def _write_positions(ctx: Context, runs: list[tuple[int, int, int]], options: LcsOptions) -> None:
    reply = ctx.reply
    shown = [run for run in runs if run[2] >= options.min_length]
    reply.map(2)
    reply.bulk(b"matches")
    reply.array(len(shown))
    for *starts, length in shown:
        reply.array(3 if options.with_lengths else 2)
        for start in starts:
            reply.array(2)
            reply.integer(start)
            reply.integer(start + length - 1)
        if options.with_lengths:
            reply.integer(length)
    reply.bulk(b"len")
    reply.integer(sum(length for _, _, length in runs))
