"""Requests generated from the declarations of commands: valid and invalid ones, with keywords as keys, values and names."""

from __future__ import annotations

import random
from collections.abc import Sequence

from streamd.core.spec import Arg, Command

__all__ = ["NAMES", "random_request"]

NAMES = (
    b"a",
    b"b",
    b"",
    b"1",
    b"0",
    b">",
    b"$",
    b"STREAMS",
    b"streams",
    b"GROUP",
    b"COUNT",
    b"KEYS",
    b"IDS",
    b"GET",
    b"DB",
)
"""Names of keys, groups and consumers."""

NUMBERS = (b"0", b"1", b"2", b"3", b"10", b"-1", b"x", b"STREAMS", b"1.5", b"99999999999999999999")
WORDS = (*NAMES, b"1-1", b"2-1", b"0-0", b"*", b"+", b"-", b"(1-1", b"NOACK", b"BLOCK", b"CLAIM", b"REPLACE", b"AUTH")


def tokens_of(args: Sequence[Arg]) -> list[bytes]:
    """Every keyword of some arguments."""
    return [
        word
        for arg in args
        for word in ([arg.token.encode()] if arg.token else []) + tokens_of(arg.arguments)
    ]  # fmt: skip


class _Maker:
    def __init__(self, rng: random.Random, command: Command) -> None:
        self.rng = rng
        self.words = (*WORDS, *tokens_of(command.args))
        self.repeats = rng.choice((1, 1, 2, 3))  # the same for all arguments: as many IDs as keys

    def request(self, args: Sequence[Arg]) -> list[bytes]:
        """Arguments as declared; sometimes with keyword arguments in another order."""
        args = list(args)
        if self.rng.random() < 0.6:
            keyed = [at for at, arg in enumerate(args) if arg.optional or arg.token]
            for at, arg in zip(keyed, self.rng.sample([args[at] for at in keyed], len(keyed)), strict=True):
                args[at] = arg
            # The last argument of reads is also a keyword: it usually stays last.
            if self.rng.random() < 0.8:
                args.sort(key=lambda arg: arg.token == "STREAMS")
        return [word for arg in args for word in self.argument(arg)]

    def argument(self, arg: Arg) -> list[bytes]:
        if arg.optional and self.rng.random() < 0.6:
            return []
        times = self.repeats if arg.multiple else 1
        if arg.multiple and self.rng.random() < 0.05:
            times += self.rng.choice((-1, 1))
        made: list[bytes] = []
        for number in range(times):
            if arg.token and arg.type != "pure-token" and (number == 0 or arg.multiple_token):
                made.append(arg.token.encode())
            made += self.value(arg)
        return made

    def value(self, arg: Arg) -> list[bytes]:
        rng = self.rng
        if arg.type == "pure-token":
            assert arg.token is not None
            return [arg.token.encode()]
        if arg.type == "oneof":
            return self.argument(rng.choice(arg.arguments))
        if arg.type == "block":
            return [word for part in arg.arguments for word in self.argument(part)]
        if arg.type == "key":
            return [rng.choice(NAMES)]
        if arg.type in ("integer", "double", "unix-time"):
            # Usually the number of repetitions, as for `numkeys` and `numids`.
            return [b"%d" % self.repeats if rng.random() < 0.6 else rng.choice(NUMBERS)]
        if arg.name in ("id", "start", "end", "lastid", "threshold", "min-id", "id-selector", "last-id"):
            return [rng.choice((b"1-1", b"2-1", b"0", b">", b"$", b"+", b"-", b"3-1"))]
        return [rng.choice(self.words)]

    def mutated(self, args: list[bytes]) -> list[bytes]:
        """With one word added, removed, moved, or changed."""
        at = self.rng.randrange(len(args) + 1)
        word = args[at : at + 1]
        match self.rng.randrange(5):
            case 0:
                return args[:at] + args[at + 1 :]
            case 1:
                return [*args[:at], self.rng.choice(self.words), *args[at:]]
            case 2:
                return [*args[:at], self.rng.choice(self.words), *args[at + 1 :]]
            case 3:
                return [*args[:at], *(part.lower() for part in word), *args[at + 1 :]]
            case _:
                rest = args[:at] + args[at + 1 :]
                to = self.rng.randrange(len(rest) + 1)
                return rest[:to] + word + rest[to:]


def random_request(rng: random.Random, command: Command) -> list[bytes]:
    """A request that calls the command, with as many arguments as it takes; half of them are valid by its declaration."""
    maker = _Maker(rng, command)
    name = command.name.encode().split(b" ")
    while True:
        args = maker.request(command.args)
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            args = maker.mutated(args)
        if command.accepts(len(name) + len(args)):
            return [*name, *args]
