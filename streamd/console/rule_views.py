"""What the console shows of the rules of streams and groups: what is set, what waits and until when, dead letters; and what it changes.

Only a server of our own answers: it has the commands. Costs are bounded: entries that wait, and dead letters, are looked for among
LOOKED_AT entries.
"""

from __future__ import annotations

from typing import Any

from streamd.client.client_errors import ServerError
from streamd.client.replies import as_text, text_map
from streamd.console.asked import Asked, answers
from streamd.console.guard import RefusedError
from streamd.console.json_bytes import shown, shown_start
from streamd.console.streams import VALUE_SHOWN, allowed, entry_json, may_json, page_size
from streamd.core.slices import Slices
from streamd.delivery.rule_options import Flag, Rule, options_of, parse_changes, quoted
from streamd.delivery.rules import GroupRule, StreamRule
from streamd.errors import CommandError
from streamd.protocol.inline import split_line

__all__: list[str] = []

LOOKED_AT = 2000
SHOWN = 100
GROUPS_SHOWN = 100
"""Groups of a stream whose rules are shown."""
REDRIVEN_AT_ONCE = 1000

Options = dict[str, bool]
"""The options of a kind of rule, as GET names them: whether each has no value."""


def options_by_name(kind: type[Rule]) -> Options:
    return {name.decode().lower(): isinstance(each.kind, Flag) for name, (_, each) in options_of(kind).items()}


OF_STREAM = options_by_name(StreamRule)
OF_GROUP = options_by_name(GroupRule)


def rule_json(reply: Any, options: Options) -> dict[str, Any] | None:
    """A rule as STREAMD.STREAM GET or STREAMD.GROUP GET returns it; None if it cannot be known."""
    if reply is None:
        return None
    told = text_map(reply)
    set_ = {name: value for name, value in told.items() if name in options}
    words = [
        name.upper()
        if options[name]
        else f"{name.upper()} {quoted(str(value).encode() if isinstance(value, int) else value).decode()}"
        for name, value in set_.items()
    ]
    return {
        "options": " ".join(words),
        "is_default": "from" in told,
        "error": as_text(told[name]) if (name := "parse-error") in told or (name := "last-error") in told else None,
        "values": {name: value if isinstance(value, int) else shown(value) for name, value in set_.items()},
        "figures": [
            [name.replace("-", " "), value]
            for name, value in told.items()
            if name not in options and isinstance(value, int)
        ],
    }


# --- What is set ---------------------------------------------------------------------------------------------------------


@answers("GET", "rules")
async def rules(asked: Asked) -> dict[str, Any]:
    """The rules of a stream and of its first groups; or of one group."""
    key = asked.name("key")
    if "group" in asked.query:
        return await _rule_of_group(asked, key, asked.name("group"))
    of_stream, groups = await allowed(asked, ("STREAMD.STREAM", "GET", key), ("XINFO", "GROUPS", key))
    names = [text_map(each)["name"] for each in (groups or [])[:GROUPS_SHOWN]]
    of_groups = await allowed(asked, *(("STREAMD.GROUP", "GET", key, name) for name in names))
    return {
        "rule": rule_json(of_stream, OF_STREAM),
        "groups": [
            {"name": shown(name), "rule": rule_json(reply, OF_GROUP)}
            for name, reply in zip(names, of_groups, strict=True)
        ],
        "may": may_json(asked, {"set": ("STREAMD.STREAM", "SET", key, "RETAIN", "LENGTH", 1)}),
    }


async def _rule_of_group(asked: Asked, key: bytes, name: bytes) -> dict[str, Any]:
    reply, lag = await allowed(asked, ("STREAMD.GROUP", "GET", key, name), ("STREAMD.LAG", key, name))
    told, figures = text_map(reply or []), text_map(lag or [])
    return {
        "rule": rule_json(reply, OF_GROUP),
        "held_back": figures.get("held-back"),
        "dead_lettered": figures.get("dead-lettered"),
        "may": may_json(
            asked,
            {
                "set": ("STREAMD.GROUP", "SET", key, name, "BACKOFF", 1),
                "redrive": ("STREAMD.REDRIVE", key, name, told.get("deadletter", key)),
            },
        ),
    }


@answers("POST", "set-rule")
async def set_rule(asked: Asked) -> dict[str, Any]:
    """Replace the rule of a stream, or of a group, by these options; by none: remove it.

    What is set is set first, in one command: when the server refuses it, nothing has changed.
    """
    given = asked.body.get("options")
    if not isinstance(given, str):
        raise RefusedError(400, "options must be a text: the options of a rule and their values.")
    try:
        words = split_line(given.encode())
    except ValueError:
        raise RefusedError(400, "A quote in the options is not closed.") from None
    place: tuple[bytes, ...] = (asked.name("key"),)
    kind: type[Rule] = StreamRule
    command = "STREAMD.STREAM"
    if "group" in asked.body:
        place, kind, command = (*place, asked.name("group")), GroupRule, "STREAMD.GROUP"
    try:
        changes = parse_changes(kind, words)
    except CommandError as error:
        raise RefusedError(400, str(error).removeprefix("ERR ")) from None
    if not words:
        await asked.connection.call(command, "UNSET", *place, db=asked.db)
        return {"done": 1}
    told = text_map(await asked.connection.call(command, "GET", *place, db=asked.db))
    await asked.connection.call(command, "SET", *place, *words, db=asked.db)
    old = [
        name
        for name, (field, _) in options_of(kind).items()
        if as_text(name).lower() in told and field.name not in changes
    ]
    if old and "from" not in told:
        await asked.connection.call(command, "UNSET", *place, *old, db=asked.db)
    return {"done": 1}


# --- What waits, and what was given up -----------------------------------------------------------------------------------


@answers("GET", "waiting")
async def waiting(asked: Asked) -> dict[str, Any]:
    """Entries of a stream that feeds another, those that are due first among the oldest ones; `due_ms` is null without a time."""
    key, field = asked.name("key"), asked.name("field")
    most = await page_size(asked, key, LOOKED_AT)
    reply = await asked.connection.call("XRANGE", key, "-", "+", "COUNT", most, db=asked.db)
    slices = Slices()
    found: list[tuple[int | None, bytes, list[bytes]]] = []
    for entry_id, fields in reply:
        value = dict(zip(fields[::2], fields[1::2], strict=True)).get(field, b"0")
        found.append((int(value) if value.isdigit() and len(value) < 19 else None, entry_id, fields))
        await slices.breathe()
    found.sort(key=lambda each: (each[0] is None, each[0] or 0))
    return {
        "waiting": [{"due_ms": due, **entry_json(entry_id, fields)} for due, entry_id, fields in found[:SHOWN]],
        "looked": len(reply),
        "is_whole": len(reply) < most,
    }


@answers("GET", "letters")
async def letters(asked: Asked) -> dict[str, Any]:
    """Dead letters of a group, the newest first, among the newest of the stream `dead`."""
    key, group, dead = asked.name("key"), asked.name("group"), asked.name("dead")
    most = await page_size(asked, dead, LOOKED_AT)
    try:
        reply = await asked.connection.call("XREVRANGE", dead, "+", "-", "COUNT", most, db=asked.db)
    except ServerError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        reply = []
    slices = Slices()
    found: list[dict[str, Any]] = []
    for letter_id, fields in reply:
        told = dict(zip(fields[::2], fields[1::2], strict=True))
        if told.get(b"dlq.stream") == key and told.get(b"dlq.group") == group and len(found) < SHOWN:
            found.append(
                {
                    "id": as_text(letter_id),
                    "entry": as_text(told.get(b"dlq.id", b"")),
                    "reason": shown_start(told.get(b"dlq.reason", b""), VALUE_SHOWN),
                    "consumer": shown(told.get(b"dlq.consumer", b"")),
                    "deliveries": as_text(told.get(b"dlq.deliveries", b"")),
                }
            )
        await slices.breathe()
    return {"letters": found, "looked": len(reply), "is_whole": len(reply) < most}


@answers("POST", "redrive")
async def redrive(asked: Asked) -> dict[str, Any]:
    """STREAMD.REDRIVE: dead letters are pending in their group again; those with `ids`, or the oldest ones.

    With `adds`, entries that no longer exist are added to the stream again.
    """
    words: list[bytes | str | int] = [asked.name("key"), asked.name("group"), asked.name("dead")]
    words += ["TO", asked.name("key")] if asked.body.get("adds") is True else []
    words += ["ID", *asked.ids()] if "ids" in asked.body else ["COUNT", REDRIVEN_AT_ONCE]
    return {"done": await asked.connection.call("STREAMD.REDRIVE", *words, db=asked.db)}
