"""The keys that a request names against those that its handler touches, for every command.

What COMMAND GETKEYS answers, what permissions are asked for, and what the handler looks at must be the same keys. Requests
are made up from the declarations (support.commands.requests) and run in a server of this process, whose databases report what is
touched: a key whose time has come is removed when anything looks at it, and the listener is told. So a request is run with
all keys there and some of them overdue:

    all that it does not name     none of them may be removed, whether it succeeds or not
    each key that it names        it must be removed, unless the request failed, or came to an end before

Keys that are reported as changed must be named as such.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from support.commands.requests import NAMES, random_request

from streamd.core.client import Client
from streamd.core.spec import Command, KeyUse, keys_of, table
from streamd.delivery.rules import key_of_rules
from streamd.errors import CommandError
from streamd.keyspace.database import Database
from streamd.keyspace.listener import KeyspaceListener
from streamd.serve.app import Server
from streamd.serve.families import load_all
from streamd.settings.config import Config
from streamd.users.acl import Acl
from streamd.users.permissions import Permissions, Rules
from streamd.values.streams.group import Group
from streamd.values.streams.stream import Stream

pytestmark = pytest.mark.long

load_all()

NOT_RUN = {
    "SHUTDOWN",
    "DEBUG",
    "SAVE",
    "BGSAVE",
    "BGREWRITEAOF",
    "EXEC",
    "CONFIG SET",
    "CONFIG REWRITE",
    "ACL SAVE",
    "ACL LOAD",
}
"""What ends this process, writes files, forks or changes settings. None of them has keys."""
WHOLE_DATABASE = {"KEYS", "SCAN", "RANDOMKEY", "DBSIZE", "FLUSHDB", "FLUSHALL", "SWAPDB"}
"""What looks at keys that nobody names: permission is asked for the command."""
RULES = {f"STREAMD.{kind} {action}" for kind in ("GROUP", "STREAM") for action in ("SET", "GET", "UNSET")}
TOUCHES_NOTHING = {"MEMORY USAGE", *RULES}
"""An overdue key takes memory too, and stays. Rules belong to a name, whether there is such a key or not."""
FAST, LONG = 4, 200
"""Requests for each command; of those whose keys are not always in the same place, more."""
MOVABLE = 30
SCRIPTS = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"})
"""What their keys are used for, or whether they are used, is up to the script."""
COMMANDS = [
    each for each in table.walk() if each.handler is not None and each.name not in NOT_RUN | WHOLE_DATABASE | SCRIPTS
]


NOW_MS = 1_700_000_000_000


class Listener(KeyspaceListener):
    """Notes which keys were found to be overdue, and which were changed."""

    def __init__(self) -> None:
        self.wants_touched = True
        self.removed: set[bytes] = set()
        self.changed: set[bytes] = set()

    def key_removed(self, db: Database, key: bytes) -> int:
        self.removed.add(key)
        return 0

    def key_touched(self, db: Database, key: bytes) -> int:
        self.changed.add(key)
        return 0


class Bench:
    """A server that does not listen to anybody, and handlers called on behalf of a client of it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = Server(Config.for_embedding({"databases": 3}), any_port=True)
        self.loop.run_until_complete(self.server.start())
        self.numbers = self.server.get(Acl).index.numbers
        self.catalogue = self.server.get(Acl).index.catalogue
        self.count = Counter[str]()
        self.server.dispatcher.context.now_ms = NOW_MS

    def close(self) -> None:
        self.server.request_shutdown(force=True)
        self.loop.run_until_complete(self.server.wait_closed())
        self.loop.close()

    def run(
        self, command: Command, args: list[bytes], present: dict[bytes, str], overdue: set[bytes]
    ) -> tuple[bool, Listener]:
        """Call the handler with those keys; whether it succeeded, and what it touched."""
        listener = Listener()
        context = self.server.dispatcher.context
        client = Client(self.server.dispatcher)
        client.reply.resp = 2
        for db in self.server.databases:
            db.listener = KeyspaceListener()
            db.keeps_expired = False
            db.flush()
            db.now_ms = NOW_MS
            for key, kind in present.items():
                db.add(key, b"10" if kind == "string" else make_stream())
                if key in overdue:
                    db.set_expiry(key, NOW_MS - 1)
            db.listener = listener
        context.client, context.db, context.reply = client, self.server.databases[0], client.reply
        context.in_transaction = True
        try:
            assert command.handler is not None
            command.handler(context, list(args))
        except CommandError:
            return False, listener
        finally:
            context.in_transaction = False
            # To watch a key that is overdue does not remove it.
            listener.removed |= {key for _, key in client.watched or ()} & overdue
            for db in self.server.databases:
                db.listener = KeyspaceListener()
            for capability in self.server.dispatcher.capabilities:
                capability.client_gone(client)
        return True, listener

    def check(self, command: Command, args: list[bytes], rng: random.Random) -> None:
        uses = keys_of(command, args)
        if command.name == "PFMERGE" and not uses:
            return  # as for Redis: where the range of its sources is empty, its target is not found either
        named = {args[use.position] for use in uses}
        words = {*NAMES, *args[1:]}
        present = dict.fromkeys(words, "string" if rng.random() < 0.3 or command.group == "string" else "stream")
        self.count["requests"] += 1
        said = f"{args} names {sorted(named)}"

        succeeded, touched = self.run(command, args, present, words - named)
        assert touched.removed <= named, f"{said}, and touches {sorted(touched.removed)}"
        changed = touched.changed - {key_of_rules(key) for key in named}  # where the rules of a name lie
        assert changed <= keys_to_change(args, uses), f"{said}, and changes {sorted(changed)}"
        self.count["succeeded"] += succeeded
        if succeeded and named and command.name not in TOUCHES_NOTHING:
            _, touched = self.run(command, args, present, words)
            assert touched.removed <= named, f"{said}, and touches {sorted(touched.removed)} when none is there"
            missed = named - touched.removed
            for key in sorted(missed):
                assert key in self.run(command, args, present, {key})[1].removed, f"{said}, and does not touch {key!r}"
        self.check_permissions(command, args, named, said)

    def check_permissions(self, command: Command, args: list[bytes], named: set[bytes], said: str) -> None:
        """A user who may touch all words but one is refused if and only if that is named."""
        number = self.numbers[command.full_name]
        for key in sorted({*args[1:]}):
            patterns = [(escaped(word), 3) for word in {*args[1:], b"other"} if word != key]
            rules = Rules(bytes([1]) * len(self.numbers), {}, patterns, False, [], True)
            denial = Permissions(self.catalogue, [rules]).find_denial(number, args)
            assert (denial is not None) == (key in named), f"{said}, and {denial} is denied without {key!r}"
            self.count["permissions"] += 1


def keys_to_change(args: list[bytes], uses: list[KeyUse]) -> set[bytes]:
    return {args[use.position] for use in uses if {"insert", "update", "delete"} & set(use.flags.split())}


def escaped(word: bytes) -> bytes:
    """A pattern that matches one key only."""
    return b"".join(b"\\" + bytes([char]) if char in b"*?[]\\^-" else bytes([char]) for char in word)


def make_stream() -> Stream:
    """Three entries, and groups of all names, with one entry pending."""
    stream = Stream()
    for number in (1, 2, 3):
        stream.append([(b"f", b"v")], id=(number, 1))
    for name in (b"a", b"b", b"STREAMS", b"GROUP"):
        group = Group(name, (1, 1))
        group.create_consumer(b"a", now_ms=1)
        group.restore_pending((1, 1), b"a", delivery_ms=1, delivery_count=1)
        stream.groups[name] = group
    return stream


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()
    print(f"\n{len(COMMANDS)} commands: {dict(bench.count)}")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name.lower())
def test_the_keys_named_are_those_touched(command: Command, bench: Bench) -> None:
    rng = random.Random(command.name)
    for _ in range(FAST * (MOVABLE if command.has_movable_keys else 1)):
        bench.check(command, random_request(rng, command), rng)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name.lower())
def test_the_keys_named_are_those_touched_at_length(command: Command, bench: Bench) -> None:
    rng = random.Random(f"{command.name} at length")
    for _ in range(LONG * (MOVABLE if command.has_movable_keys else 1)):
        bench.check(command, random_request(rng, command), rng)
