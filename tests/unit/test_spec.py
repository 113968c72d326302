"""The command table: declarations, what is derived from them, look-up, keys of requests, renaming."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamd.core.spec import (
    Arg,
    Command,
    CommandTable,
    KeysAfter,
    KeysAt,
    KeysCounted,
    KeySpec,
    KeyUse,
    block,
    command,
    double,
    integer,
    key,
    keys_of,
    multiple,
    oneof,
    optional,
    pattern,
    string,
    table,
    token,
    unix_time,
)


def handler(ctx: Any, args: list[bytes]) -> None:
    raise NotImplementedError


def declaration(name: str = "XLEN", **changes: Any) -> Command:
    """A declared command; `flags` and `categories` as words."""
    for field in ("flags", "categories"):
        if isinstance(changes.get(field), str):
            changes[field] = frozenset(changes[field].split())
    plain = Command(
        name=name, handler=handler, arity=2, group="stream", flags=frozenset({"readonly", "fast"}), keys=(KeysAt(1),),
        since="5.0.0", summary="", complexity="O(1)", args=(), categories=frozenset(), tips=(), history=(),
    )  # fmt: skip
    return replace(plain, **changes)


def words(line: str) -> list[bytes]:
    return line.encode().split()


@pytest.fixture
def commands() -> CommandTable:
    """A small table of its own."""
    small = CommandTable()
    small.declare(declaration())
    small.declare(declaration("XGROUP", handler=None, arity=-2, flags="", keys=()))
    small.declare(declaration("XGROUP CREATE", arity=-5, flags="write denyoom", keys=(KeysAt(2, flags="RW insert"),)))
    small.declare(declaration("COMMAND", arity=-1, group="server", flags="loading stale", keys=()))
    small.declare(declaration("COMMAND COUNT", group="server", flags="loading stale", keys=()))
    return small


# --- Declaring -------------------------------------------------------------------------------------------------------


def test_a_name_is_declared_once(commands: CommandTable) -> None:
    with pytest.raises(ValueError, match="XLEN is declared twice"):
        commands.declare(declaration())
    with pytest.raises(ValueError, match="XGROUP CREATE is declared twice"):
        commands.declare(declaration("XGROUP CREATE"))


def test_the_decorator_declares_in_the_common_table(monkeypatch: pytest.MonkeyPatch) -> None:
    own = CommandTable()
    monkeypatch.setattr("streamd.core.spec.table", own)
    declare = command("NOSUCH", arity=2, group="stream", flags="readonly", keys=KeysAt(1), since="1.0.0", summary="")
    assert declare(handler) is handler
    assert own["NOSUCH"].handler is handler
    assert own["NOSUCH"].keys == (KeysAt(1),)
    assert "NOSUCH" not in table


def test_a_subcommand_may_come_before_its_container() -> None:
    small = CommandTable()
    small.declare(declaration("XINFO STREAM"))
    with pytest.raises(ValueError, match="without a declared container: XINFO"):
        small.check()
    small.declare(declaration("XINFO", handler=None, flags="", keys=()))
    small.check()
    assert list(small["XINFO"].subcommands) == ["STREAM"]


def test_a_container_has_a_subcommand() -> None:
    small = CommandTable()
    small.declare(declaration("XINFO", handler=None, flags="", keys=()))
    with pytest.raises(ValueError, match="without a declared subcommand: XINFO"):
        small.check()


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("xlen", {}, "upper case"),
        ("XGROUP CREATE NOW", {}, "one word or two"),
        ("XLEN", {"group": "streams"}, "unknown group"),
        ("XLEN", {"arity": 0}, "the name itself counts"),
        ("XLEN", {"flags": "readonly write"}, "readonly and write"),
        ("XLEN", {"keys": (KeysAt(1, flags="access"),)}, "says one of RO"),
        ("XLEN", {"keys": (KeysAt(1, flags="RO RW"),)}, "says one of RO"),
        ("XLEN", {"keys": (KeysAt(1, flags="RO reading"),)}, "unknown key flag reading"),
        ("XLEN", {"keys": (KeysAt(1, flags="RW variable_flags"),)}, "need key_flags"),
        ("XLEN", {"keys": (KeysAfter(b"K", find=lambda args: None),)}, "incomplete"),
        ("XLEN", {"args": (key(spec=1),)}, "has no key specification 1"),
        ("XLEN", {"args": (block("b", oneof("o", key(spec=2))),)}, "has no key specification 2"),
        ("XLEN", {"args": (oneof("o"),)}, "has no parts"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(name: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        CommandTable().declare(declaration(name, **changes))


@pytest.mark.parametrize("wrong", [{"flags": "readonly quick"}, {"flags": "movablekeys"}, {"categories": "streams"}])
def test_unknown_words_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"unknown (flag|ACL category)"):
        command("NOSUCH", arity=1, group="stream", since="1.0.0", summary="", **wrong)  # type: ignore[arg-type]


# --- What follows from a declaration ---------------------------------------------------------------------------------


def test_full_names_are_those_of_error_texts() -> None:
    assert declaration("XLEN").full_name == "xlen"
    assert declaration("XGROUP CREATE").full_name == "xgroup|create"


@pytest.mark.parametrize(("arity", "accepted"), [(2, [2]), (-2, [2, 3, 4]), (1, [1]), (-1, [1, 2, 3, 4])])
def test_the_arity_counts_the_name(arity: int, accepted: list[int]) -> None:
    assert [argc for argc in range(1, 5) if declaration(arity=arity).accepts(argc)] == accepted


@pytest.mark.parametrize(
    ("changes", "categories"),
    [
        ({}, "read fast stream"),
        ({"flags": "write denyoom"}, "write slow stream"),
        ({"flags": "readonly blocking"}, "read slow blocking stream"),
        ({"flags": "admin noscript", "group": "connection"}, "admin dangerous slow connection"),
        ({"flags": "pubsub fast", "group": "pubsub"}, "pubsub fast"),
        ({"flags": "readonly", "group": "generic", "categories": "dangerous"}, "keyspace read slow dangerous"),
        ({"flags": "blocking", "group": "generic", "categories": "connection -keyspace"}, "blocking connection slow"),
        ({"flags": "readonly", "group": "scripting", "categories": "scripting"}, "scripting slow"),
        ({"flags": "", "group": "server"}, "slow"),
        ({"flags": "fast", "group": "transactions"}, "transaction fast"),
        ({"flags": "write", "group": "sorted-set"}, "write sortedset slow"),
        ({"flags": "", "handler": None, "keys": ()}, "slow"),
    ],
)
def test_acl_categories_follow_from_flags_and_group(changes: dict[str, Any], categories: str) -> None:
    assert sorted(declaration(**changes).acl_categories) == sorted(categories.split())


@pytest.mark.parametrize(
    ("keys", "legacy", "is_movable"),
    [
        ((), (0, 0, 0), False),
        ((KeysAt(1),), (1, 1, 1), False),
        ((KeysAt(2),), (2, 2, 1), False),
        ((KeysAt(1, -1),), (1, -1, 1), False),
        ((KeysAt(1, 2),), (1, 3, 1), False),
        ((KeysAt(1, -1, 2),), (1, -1, 2), False),
        ((KeysAt(1), KeysAt(2)), (1, 2, 1), False),
        ((KeysAt(1), KeysAt(3)), (1, 1, 1), True),
        ((KeysAt(1), KeysAt(2, -1)), (1, -1, 1), False),
        ((KeysAt(1), KeysAt(2, -1, 2)), (1, 1, 1), True),
        ((KeysAfter(b"STREAMS"),), (0, 0, 0), True),
        ((KeysAt(1), KeysAfter(b"STORE")), (1, 1, 1), True),
        ((KeysAt(1, flags="RO access incomplete"),), (1, 1, 1), True),
    ],
)
def test_legacy_key_positions(keys: tuple[KeySpec, ...], legacy: tuple[int, int, int], is_movable: bool) -> None:
    declared = declaration(keys=keys)
    assert declared.legacy_keys == legacy
    assert declared.has_movable_keys is is_movable
    assert ("movablekeys" in declared.info_flags) is is_movable


def test_info_flags_leave_out_what_redis_does_not_show() -> None:
    declared = declaration(flags="fast write may_replicate", keys=(KeysAfter(b"STREAMS"),))
    assert declared.info_flags == ("write", "movablekeys", "fast")


# --- Look-up -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_line", "found"),
    [
        ("xlen k", "XLEN"),
        ("XLEN", "XLEN"),
        ("xLeN create", "XLEN"),
        ("xgroup", "XGROUP"),
        ("xgroup Create k g $", "XGROUP CREATE"),
        ("xgroup nosuch", None),
        ("xgroup|create k", None),
        ("command", "COMMAND"),
        ("command count", "COMMAND COUNT"),
        ("command nosuch", None),
        ("nosuch", None),
        ("\xe9", None),
    ],
)
def test_find(commands: CommandTable, request_line: str, found: str | None) -> None:
    declared = commands.find(words(request_line))
    assert (declared and declared.name) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (b"xlen", "XLEN"),
        (b"XGroup|CREATE", "XGROUP CREATE"),
        (b"xgroup", "XGROUP"),
        (b"xgroup|", None),
        (b"xgroup|create|x", None),
        (b"xlen|create", None),
        (b"|create", None),
        (b"", None),
    ],
)
def test_find_named(commands: CommandTable, name: bytes, found: str | None) -> None:
    declared = commands.find_named(name)
    assert (declared and declared.name) == found


def test_walk_goes_through_commands_and_subcommands(commands: CommandTable) -> None:
    assert [each.name for each in commands.walk()] == ["XLEN", "XGROUP", "XGROUP CREATE", "COMMAND", "COMMAND COUNT"]
    assert len(commands) == 3


# --- Renaming ----------------------------------------------------------------------------------------------------------


def test_a_renamed_command_has_only_its_new_name_but_keeps_its_own(commands: CommandTable) -> None:
    own = commands.copy()
    own.rename("xgroup", "xg")
    assert own.find(words("xgroup create k g $")) is None
    found = own.find(words("XG create k g $"))
    assert found is not None
    assert found.full_name == "xgroup|create"
    assert commands.find(words("xgroup")) is not None


def test_a_command_renamed_to_nothing_is_gone(commands: CommandTable) -> None:
    own = commands.copy()
    own.rename("XLEN", "")
    assert own.find(words("xlen k")) is None
    assert len(own) == len(commands) - 1


def test_renaming_says_what_is_wrong(commands: CommandTable) -> None:
    with pytest.raises(ValueError, match=r"^No such command in rename-command$"):
        commands.rename("nosuch", "x")
    with pytest.raises(ValueError, match=r"^Target command name already exists$"):
        commands.rename("xlen", "Xgroup")
    assert commands.find(words("xlen k")) is not None
    commands.rename("xlen", "XLen")
    assert commands.find(words("xlen k")) is not None


def test_only_a_complete_table_can_be_copied() -> None:
    small = CommandTable()
    small.declare(declaration("XINFO STREAM"))
    with pytest.raises(ValueError, match="without a declared container"):
        small.copy()


# --- Keys of a request -------------------------------------------------------------------------------------------------

STREAMS = KeysAfter(b"STREAMS")


def find_after_keys(args: list[bytes]) -> range | None:
    """The argument after the first `keys`, no argument in a request of three, and no request otherwise."""
    return range(3, 4) if args[2:3] == [b"keys"] else range(0) if len(args) == 3 else None


FOUND = KeysAfter(b"KEYS", flags="RO access incomplete", find=find_after_keys)


@pytest.mark.parametrize(
    ("keys", "request_line", "positions"),
    [
        ((KeysAt(1),), "c a b", [1]),
        ((KeysAt(1),), "c", []),
        ((KeysAt(2),), "c a b", [2]),
        ((KeysAt(1, -1),), "c a b d", [1, 2, 3]),
        ((KeysAt(1, -2),), "c a b d", [1, 2]),
        ((KeysAt(1, 1),), "c a b d", [1, 2]),
        ((KeysAt(1, 3),), "c a b", []),
        ((KeysAt(1, -1, 2),), "c a b d e", [1, 3]),
        ((KeysAt(1), KeysAt(2)), "c a b", [1, 2]),
        ((KeysAt(1), KeysAt(2)), "c a", []),
        ((KeysAt(1, flags="RO not_key"), KeysAt(2)), "c a b", [2]),
        ((STREAMS,), "c streams a b 0 0", [2, 3]),
        ((STREAMS,), "c COUNT 1 Streams a 0", [4]),
        ((STREAMS,), "c streams a b d", [2]),
        ((STREAMS,), "c streams a", []),
        ((STREAMS,), "c streams", []),
        ((STREAMS,), "c a b", []),
        ((KeysAfter(b"STREAMS", start=4),), "c streams streams d streams a 0", [5]),
        ((KeysAfter(b"KEYS", start=-2, limit=0),), "c keys a keys b", [4]),
        ((KeysAfter(b"KEYS", start=-2, limit=0),), "c a KEYS b d", [3, 4]),
        ((KeysAfter(b"KEYS", start=-2, limit=0),), "c a b", []),
        ((KeysCounted(1),), "c 2 a b d", [2, 3]),
        ((KeysCounted(2),), "c x 1 a", [3]),
        ((KeysCounted(1, 2),), "c 2 a v b v", [2, 4]),
        *(((KeysCounted(1),), f"c {number} a b", []) for number in ("0", "-1", "01", "+1", "x", "3", "99999999999")),
        ((KeysCounted(2),), "c x", []),
        ((FOUND,), "c a keys b keys", [3]),
        ((FOUND,), "c keys", []),
        ((KeysAt(1), FOUND), "c a b", [1]),
        ((KeysAt(1), FOUND), "c a b d", []),
        ((), "c a", []),
    ],
)
def test_positions_of_keys(keys: tuple[KeySpec, ...], request_line: str, positions: list[int]) -> None:
    assert [use.position for use in keys_of(declaration(keys=keys), words(request_line))] == positions


def test_key_flags_may_depend_on_the_request() -> None:
    declared = declaration(
        keys=(KeysAt(1, flags="RW access update variable_flags"), KeysAt(2, flags="OW update")),
        key_flags=lambda args: "OW update" if len(args) == 3 else "RW access update",
    )
    assert keys_of(declared, words("c a b")) == [KeyUse(1, "OW update"), KeyUse(2, "OW update")]
    assert keys_of(declared, words("c a b GET")) == [KeyUse(1, "RW access update"), KeyUse(2, "OW update")]


@pytest.mark.parametrize(
    ("keys", "has_keys"), [((), False), ((KeysAt(1, flags="RO not_key"),), False), ((KeysAt(1),), True)]
)
def test_has_keys(keys: tuple[KeySpec, ...], has_keys: bool) -> None:
    assert declaration(keys=keys).has_keys is has_keys


# --- The words for arguments -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (key(), Arg("key", "key", key_spec_index=0)),
        (string("name", "SETNAME"), Arg("name", "string", "SETNAME")),
        (integer("n"), Arg("n", "integer")),
        (double("f"), Arg("f", "double")),
        (pattern("p"), Arg("p", "pattern")),
        (unix_time("t", "AT"), Arg("t", "unix-time", "AT")),
        (token("ON"), Arg("on", "pure-token", "ON")),
        (token("*", "auto-id"), Arg("auto-id", "pure-token", "*")),
        (oneof("o", token("ON"), token="X"), Arg("o", "oneof", "X", arguments=(token("ON"),))),
        (block("b", string("s")), Arg("b", "block", arguments=(string("s"),))),
        (optional(string("s"), since="6.2.0"), Arg("s", "string", since="6.2.0", optional=True)),
        (optional(string("s", since="6.0.0")), Arg("s", "string", since="6.0.0", optional=True)),
        (multiple(string("s", "S"), with_token=True), Arg("s", "string", "S", multiple=True, multiple_token=True)),
    ],
)
def test_arguments(made: Arg, want: Arg) -> None:
    assert made == want
