"""MIGRATE: move or copy keys to another server.

As in Redis, the server does nothing else until the other one has answered or timed out: meanwhile no client can
change the keys in transit, or see them in both places. Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamd.core.args import integer as read_integer
from streamd.core.context import Context
from streamd.core.spec import (
    KeysAfter,
    KeySpec,
    block,
    command,
    integer,
    key,
    multiple,
    oneof,
    optional,
    string,
    token,
)
from streamd.errors import CommandError, OptionSyntaxError, one_line
from streamd.keyspace.commands.migration import MigrationTarget, MigrationTargets, TargetIOError
from streamd.persistence.payloads import Payloads

__all__ = ["MigrateOptions", "find_keys"]

KEY_AT, DB_AT, TIMEOUT_AT, OPTIONS_AT = 3, 4, 5, 6
DEFAULT_TIMEOUT_MS = 1000
USE = "RW access delete"


# --- The request ------------------------------------------------------------------------------------------------------


def find_keys(args: list[bytes]) -> range | None:
    """Where the keys of a MIGRATE are; None when it names keys in both ways."""
    at = OPTIONS_AT
    while at < len(args):
        word = args[at].upper()
        if word == b"KEYS":
            return None if args[KEY_AT] else range(at + 1, len(args))
        at += {b"AUTH": 2, b"AUTH2": 3}.get(word, 1)
    return range(KEY_AT, KEY_AT + 1)


def _find_named(args: list[bytes]) -> range | None:
    """The keys that permissions and slots concern: as for Redis, a KEYS that only ends the request names none."""
    if any(arg.upper() == b"KEYS" for arg in args[2:-1]):
        return find_keys(args)
    return range(KEY_AT, KEY_AT + 1)


def _find_key(args: list[bytes]) -> range | None:
    """The key in its usual position, when there is no KEYS."""
    found = _find_named(args)
    return found if found is None or found.start == KEY_AT else range(0)


def _find_more(args: list[bytes]) -> range | None:
    """The keys after KEYS."""
    found = _find_named(args)
    return found if found is None or found.start != KEY_AT else range(0)


class MigrateOptions(NamedTuple):
    """The options after the timeout of a MIGRATE.

    copies    COPY: the keys stay here
    replaces  REPLACE: existing keys of the same names are replaced there
    auth      the request that authenticates, or None
    """

    copies: bool = False
    replaces: bool = False
    auth: tuple[bytes, ...] | None = None

    @classmethod
    def parse(cls, words: list[bytes]) -> MigrateOptions:
        """Read the options up to KEYS; OptionSyntaxError."""
        copies = replaces = False
        auth: tuple[bytes, ...] | None = None
        at = 0
        while at < len(words):
            word = words[at].upper()
            operands = {b"AUTH": 1, b"AUTH2": 2}.get(word, 0)
            if word == b"KEYS":
                break
            if word == b"COPY":
                copies = True
            elif word == b"REPLACE":
                replaces = True
            elif operands and at + operands < len(words):
                auth = (b"AUTH", *words[at + 1 : at + 1 + operands])
            else:
                raise OptionSyntaxError
            at += 1 + operands
        return cls(copies, replaces, auth)


# --- The command ------------------------------------------------------------------------------------------------------


@command(
    "MIGRATE", arity=-6, group="generic", flags="write", categories="dangerous", since="2.6.0",
    keys=(
        KeySpec(KEY_AT, flags=USE, find=_find_key),
        KeysAfter(b"KEYS", start=-2, limit=0, flags=f"{USE} incomplete", find=_find_more),
    ),
    complexity="O(N) with N being the bytes of the values, and what the other server takes",
    tips=("nondeterministic_output",),
    summary="Moves keys to another server, or copies them.",
    history=(("3.0.0", "`COPY` and `REPLACE`."), ("3.0.6", "`KEYS`."), ("4.0.7", "`AUTH`."), ("6.0.0", "`AUTH2`.")),
    args=(
        string("host"), integer("port"), oneof("key-selector", key(), token("", "empty-string")),
        integer("destination-db"), integer("timeout"),
        optional(token("COPY"), since="3.0.0"), optional(token("REPLACE"), since="3.0.0"),
        optional(oneof(
            "authentication", string("auth", "AUTH", since="4.0.7", display="password"),
            block("auth2", string("username"), string("password"), token="AUTH2", since="6.0.0"),
        )),
        optional(multiple(key("keys", 1, token="KEYS", since="3.0.6", display="key"))),
    ),
)  # fmt: skip
def migrate(ctx: Context, args: list[bytes]) -> None:
    options = MigrateOptions.parse(args[OPTIONS_AT:])
    places = find_keys(args)
    if places is None:
        raise CommandError("ERR When using MIGRATE KEYS option, the key argument must be set to the empty string")
    timeout_ms, db_index = read_integer(args[TIMEOUT_AT]), read_integer(args[DB_AT])
    found = [(args[at], value) for at in places if (value := ctx.db.find(args[at])) is not None]
    if not found:
        ctx.reply.simple("NOKEY")
        return
    restores = [_restore_request(ctx, name, value, options) for name, value in found]
    timeout_s = (timeout_ms if timeout_ms > 0 else DEFAULT_TIMEOUT_MS) / 1000
    moved: list[bytes] = []
    try:
        refusal = _hand_over(ctx, args, restores, options.auth, db_index, timeout_s, moved)
    except TargetIOError as error:
        place = "to the client" if error.doing == "connecting" else "to target instance"
        raise CommandError(f"IOERR error or timeout {error.doing} {place}") from None
    finally:
        if not options.copies:
            _delete(ctx, moved)
    if refusal is not None:
        raise CommandError(f"ERR Target instance replied with error: {one_line(refusal)}")
    ctx.reply.ok()


def _restore_request(ctx: Context, name: bytes, value: Any, options: MigrateOptions) -> list[bytes]:
    expire_at_ms = ctx.db.expiry(name)
    ttl_ms = 0 if expire_at_ms < 0 else max(1, expire_at_ms - ctx.now_ms)
    # The other node of a cluster owns the slot only when all keys are there.
    restoring = b"RESTORE-ASKING" if ctx.config.cluster_enabled else b"RESTORE"
    request = [restoring, name, b"%d" % ttl_ms, ctx.get(Payloads).dump(value)]
    return [*request, b"REPLACE"] if options.replaces else request


def _hand_over(
    ctx: Context, args: list[bytes], restores: list[list[bytes]], auth: tuple[bytes, ...] | None, db_index: int,
    timeout_s: float, moved: list[bytes],
) -> bytes | None:  # fmt: skip
    """Send the keys and read the result for each; add those accepted to `moved`, even if a later step fails.

    Returns the first error that the other server answered, or None. A connection that turns out to be closed is
    reopened once. Raises TargetIOError.
    """
    targets = ctx.get(MigrationTargets)
    for is_last in (False, True):
        target = targets.connect(args[1], args[2], timeout_s)
        try:
            return _exchange(target, restores, auth, db_index, timeout_s, moved)
        except TargetIOError as error:
            targets.drop(target)
            if is_last or moved or error.is_timeout:
                raise
    return None


def _exchange(
    target: MigrationTarget, restores: list[list[bytes]], auth: tuple[bytes, ...] | None, db_index: int, timeout_s: float,
    moved: list[bytes],
) -> bytes | None:  # fmt: skip
    preparing = [list(auth)] if auth is not None else []
    selects = target.db != db_index
    if selects:
        preparing.append([b"SELECT", b"%d" % db_index])
    target.send(preparing + restores, timeout_s)
    # An error of AUTH or SELECT takes precedence over the errors that follow from it.
    errors = [line[1:] for line in (target.read_line() for _ in preparing) if line.startswith(b"-")]
    target.db = -1 if errors else db_index
    for request in restores:
        line = target.read_line()
        if line.startswith(b"-"):
            errors.append(line[1:])
        elif target.db == db_index:
            moved.append(request[1])
    return errors[0] if errors else None


def _delete(ctx: Context, names: list[bytes]) -> None:
    deleted = [name for name in names if ctx.db.delete(name, True)]
    ctx.dirty += len(deleted)
    if deleted and ctx.is_propagating:
        ctx.propagate([b"DEL", *deleted])
