"""Users and rules without a server: what rules mean, how they are written, what a check costs nothing to say no to."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands.hosts import Host

from streamd.core.spec import ChannelsAt, Command, KeysAfter, KeysAt, KeySpec, keys_of, table
from streamd.digests import sha256_hex
from streamd.engine.glob import Glob
from streamd.errors import AclError, RuleError, UnmatchedError
from streamd.protocol.request import RequestParser, forget_words
from streamd.serve.families import load_all
from streamd.settings.config import Config
from streamd.users import denials
from streamd.users.acl import Acl
from streamd.users.acl_rules import CommandIndex, as_set
from streamd.users.denials import DenialLog, LogEntry, Reason
from streamd.users.permissions import Catalogue, Permissions, Rules
from streamd.users.selectors import merge_selectors
from streamd.users.user import User
from streamd.users.user_lines import FileReader

load_all()
NAMES = [each.full_name for each in table.walk() if each.handler is not None]
INDEX = CommandIndex({name: number for number, name in enumerate(NAMES)})
COMMANDS = {each.full_name: each for each in table.walk()}


def user(*rules: str, name: bytes = b"u") -> User:
    return User(name, INDEX).changed([rule.encode("latin-1") for rule in rules])


def denial(someone: User, line: str) -> tuple[Reason, bytes] | None:
    """Why a request is denied, and what may not be run or touched."""
    args = line.encode().split(b" ")
    found = table.find(args)
    assert found is not None
    denied = someone.permissions.find_denial(INDEX.numbers[found.full_name], args)
    return None if denied is None else (Reason(denied[0]), args[denied[1]])


# --- Rules ---------------------------------------------------------------------------------------------------------------


def test_a_new_user_may_do_nothing() -> None:
    nobody = User(b"u", INDEX)
    assert nobody.text == b"off sanitize-payload resetchannels -@all"
    assert denial(nobody, "PING") == (Reason.COMMAND, b"PING")
    assert not nobody.permissions.allow_everything
    assert not nobody.accepts(b"")


def test_whoever_may_do_everything_need_not_be_asked() -> None:
    assert user("~*", "&*", "+@all").permissions.allow_everything
    assert user("~*", "&*", "+@all", "-get", "+get").permissions.allow_everything
    for rules in (
        ("&*", "+@all"),
        ("~*", "+@all"),
        ("~*", "&*"),
        ("~*", "&*", "+@all", "-get"),
        ("%RW~*", "&*", "+@all"),
    ):
        assert not user(*rules).permissions.allow_everything


@pytest.mark.parametrize("name", ["auth", "hello", "quit", "reset"])
def test_nobody_is_kept_from_logging_in_and_leaving(name: str) -> None:
    assert denial(user("-@all"), f"{name} x") is None


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("", "-@all"),
        ("+get", "-@all +get"),
        ("+GET -get", "-@all -get"),
        ("+@all -get", "+@all -get"),
        ("-get +@all", "+@all"),
        ("+@read -xrange +@read", "-@all -xrange +@read"),
        ("+@read -@read", "-@all -@read"),
        ("+config|get +config|set -config", "-@all -config"),
        ("+config +config|get", "-@all +config +config|get"),
        ("+select|0 +select|1 +select", "-@all +select"),
        ("+xgroup|create +xgroup|setid -xgroup|create", "-@all +xgroup|setid -xgroup|create"),
        ("+lpush -script +script|flush +hset|x", "-@all +lpush -script +script|flush +hset|x"),
        ("+get|A +get|a", "-@all +get|a"),
        ("allcommands nocommands", "-@all"),
    ],
)
def test_the_text_of_command_rules_follows_from_their_history(rules: str, text: str) -> None:
    assert user(*rules.split()).rule_sets[0].command_text == text.encode()


@pytest.mark.parametrize(
    ("rules", "allowed", "denied"),
    [
        ("+@read", ["GET a", "XLEN a"], ["SET a 1", "PING"]),
        ("+@all -@write", ["GET a", "PING"], ["SET a 1", "XADD s * a b"]),
        ("+config|get", ["CONFIG GET x"], ["CONFIG SET x y", "CONFIG RESETSTAT"]),
        ("+config -config|set", ["CONFIG GET x", "CONFIG RESETSTAT"], ["CONFIG SET x y"]),
        ("+@all -config +config|get", ["CONFIG GET x", "PING"], ["CONFIG SET x y"]),
        ("+@slow", ["CONFIG SET x y"], ["GET a"]),
        ("+select|0 +select|1", ["SELECT 0", "select 1"], ["SELECT 2", "SELECT 00"]),
        ("+ping|Hello", ["PING hello", "PING HELLO"], ["PING", "PING x"]),
        ("+select|0 -select", [], ["SELECT 0"]),
        ("+select|0 -@connection", [], ["SELECT 0"]),
        ("+select|0 +select +select|1", ["SELECT 5"], []),
    ],
)
def test_what_command_rules_allow(rules: str, allowed: list[str], denied: list[str]) -> None:
    someone = user("~*", "&*", *rules.split())
    assert [line for line in allowed if denial(someone, line) is not None] == []
    assert [line for line in denied if denial(someone, line) is None] == []


@pytest.mark.parametrize(
    ("rules", "allowed", "denied"),
    [
        ("~a* %R~r %W~w", "GET a1|GET r|SET a1 x|SET w x|XLEN w|TYPE r|COPY r w|COPY a1 a2", "GET w|SET r x|GET b|COPY w r|RENAME a b"),
        ("~a*", "XREAD STREAMS a ab 0 0|XREAD COUNT 1 STREAMS a 0|XREADGROUP GROUP g c STREAMS a >", "XREAD STREAMS a b 0 0"),
        ("%R~a", "GET a|XREAD STREAMS a 0|XREADGROUP GROUP g c STREAMS a >", "SET b x NOSUCH|SET a x|SET a x GET|XADD a * f v"),
        ("%W~a", "SET a x", "SET a x GET|GET a"),
        ("~a ~b", "MGET a b|MSET a 1 b 2|DEL a b", "MGET a c|MSET a 1 c 2|DEL b a c"),
    ],
)  # fmt: skip
def test_what_key_rules_allow(rules: str, allowed: str, denied: str) -> None:
    someone = user("+@all", *rules.split())
    assert [line for line in allowed.split("|") if denial(someone, line) is not None] == []
    assert [line for line in denied.split("|") if (denial(someone, line) or (0,))[0] is not Reason.KEY] == []


def test_what_channel_rules_allow() -> None:
    someone = user("+@all", "&news:*", "&a")
    for line in ("PUBLISH news:1 x", "SUBSCRIBE news:1 a", "PSUBSCRIBE news:* a", "UNSUBSCRIBE b", "PUNSUBSCRIBE b*"):
        assert denial(someone, line) is None
    assert denial(someone, "PUBLISH b x") == (Reason.CHANNEL, b"b")
    assert denial(someone, "SUBSCRIBE a b") == (Reason.CHANNEL, b"b")
    assert denial(someone, "PSUBSCRIBE news:1*") == (Reason.CHANNEL, b"news:1*")
    assert someone.permissions.allow_channel(b"news:x")
    assert not someone.permissions.allow_channel(b"news:x", is_pattern=True)


def test_one_set_of_rules_must_allow_all_of_a_request() -> None:
    someone = user("+get", "~a", "(+set ~b)", "(+@all ~c &x)")
    for line in ("GET a", "SET b 1", "GET c", "SET c 1", "PUBLISH x m"):
        assert denial(someone, line) is None
    assert denial(someone, "GET b") == (Reason.KEY, b"b")
    assert denial(someone, "SET a 1") == (Reason.KEY, b"a")
    assert denial(someone, "MGET c b") == (Reason.KEY, b"b")
    assert denial(someone, "PUBLISH y m") == (Reason.CHANNEL, b"y")
    assert someone.text.endswith(b"-@all +get (~b resetchannels -@all +set) (~c resetchannels &x +@all)")


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("foo", "Syntax error"),
        ("%~x", "Syntax error"),
        ("%RR~x", "Syntax error"),
        ("~a b", "Syntax error"),
        ("+nosuch", "Unknown command or category name in ACL"),
        ("+@nosuch", "Unknown command or category name in ACL"),
        ("+config|nosuch", "Unknown command or category name in ACL"),
        ("-select|0", "Unknown command or category name in ACL"),
        ("+config|get|x", "Allowing first-arg of a subcommand is not supported"),
        ("+get|", "Syntax error"),
        ("(on)", "Syntax error"),
        ("(+nosuch)", "Unknown command or category name in ACL"),
        ("<x", "The password you are trying to remove from the user does not exist"),
    ],
)
def test_a_rule_that_is_wrong_changes_nothing(rule: str, reason: str) -> None:
    someone = user("on", "+get", "~x")
    before = someone.text
    with pytest.raises(RuleError, match=reason) as caught:
        someone.changed([b"off", b"+@all", rule.encode()])
    assert caught.value.at == 2
    assert caught.value.is_unknown == reason.startswith("Unknown")
    assert someone.text == before


def test_a_copy_is_independent() -> None:
    first = user("on", ">x", "+get", "+ping|a", "~x", "&c", "(+set ~y)")
    second = first.changed([b"reset"])
    assert second.text == b"off sanitize-payload resetchannels -@all"
    assert first.text.startswith(b"on sanitize-payload #")
    assert denial(first, "PING a") is None
    assert len(first.rule_sets) == 2


RULE = st.one_of(
    st.sampled_from(
        [
            "on",
            "off",
            "nopass",
            ">p",
            ">q",
            "allkeys",
            "~*",
            "resetkeys",
            "~a",
            "%R~a",
            "%W~b",
            "allchannels",
            "&c",
            "resetchannels",
        ]
    ),
    st.builds(
        str.__add__,
        st.sampled_from("+-"),
        st.sampled_from(["get", "set", "config", "@read", "@all", "@slow", "xgroup|create"]),
    ),
    st.sampled_from(["+ping|a", "+select|0", "(+get ~x)", "(+@read &y)", "skip-sanitize-payload"]),
)


@given(st.lists(RULE, max_size=12))
def test_the_text_of_a_user_makes_the_same_user(rules: list[str]) -> None:
    someone = User(b"u", INDEX)
    for rule in rules:
        with suppress(RuleError):
            someone = someone.changed([rule.encode()])
            someone.check_invariants()
    again = User(b"u", INDEX).changed(merge_selectors(someone.text.split(b" ")))
    assert again.text == someone.text
    for mine, other in zip(someone.rule_sets, again.rule_sets, strict=True):
        assert (mine.commands, mine.first_args, mine.keys, mine.channels) == (
            other.commands,
            {number: words for number, words in other.first_args.items() if words},
            other.keys,
            other.channels,
        )


def test_every_command_has_its_own_number() -> None:
    assert INDEX.count == len(NAMES)
    for category in ("read", "write", "slow", "fast"):
        assert INDEX.members(category) == as_set(
            number for name, number in INDEX.numbers.items() if is_in(COMMANDS[name], category)
        )


def is_in(command: Command, category: str) -> bool:
    parent = table[command.name.split()[0]]
    return category in command.acl_categories or category in parent.acl_categories


# --- Where keys are, against the slow twin ---------------------------------------------------------------------------------


def twin_denial(command: Command, args: list[bytes], patterns: dict[bytes, int]) -> tuple[int, int] | None:
    """As Permissions.find_denial for a user with all commands, in plain words."""
    for use in keys_of(command, args):
        words = set(use.flags.split())
        wanted = (1 if "access" in words else 0) | (2 if words & {"insert", "update", "delete"} else 0)
        key = args[use.position]
        if not any(access & wanted == wanted and Glob(pattern).match(key) for pattern, access in patterns.items()):
            return 2, use.position
    return None


WORD = st.sampled_from([b"a", b"ab", b"b", b"streams", b"STREAMS", b"GET", b"0", b">", b"COUNT", b"1", b"", b"KEYS"])


@given(
    st.sampled_from([each for each in table.walk() if each.handler is not None and each.has_keys]),
    st.lists(WORD, max_size=9),
    st.dictionaries(st.sampled_from([b"a", b"a*", b"?", b"", b"s*"]), st.integers(1, 3), max_size=3),
)
def test_keys_are_found_where_the_specifications_say(
    command: Command, words: list[bytes], patterns: dict[bytes, int]
) -> None:
    args = [*command.name.encode().split(b" "), *words]
    if not command.accepts(len(args)):
        return
    rules = Rules(bytes([1]) * INDEX.count, {}, patterns.items(), False, [], True)
    denied = Permissions(INDEX.catalogue, [rules]).find_denial(INDEX.numbers[command.full_name], args)
    assert denied == twin_denial(command, args, patterns)


SPECS = st.builds(
    KeySpec,
    begin=st.one_of(st.integers(1, 4), st.sampled_from([b"STREAMS", b"KEYS"])),
    start=st.sampled_from([1, 2, -1, -2]),
    last=st.integers(-3, 3),
    step=st.integers(1, 3),
    limit=st.integers(0, 3),
    count_at=st.sampled_from([None, None, 0, 1]),
    flags=st.sampled_from(["RO access", "RW update", "OW insert", "RW access delete", "RO", "RO not_key"]),
)


@given(
    st.lists(SPECS, max_size=3),
    st.lists(WORD, min_size=1, max_size=9),
    st.dictionaries(WORD, st.integers(1, 3), max_size=2),
)
def test_keys_of_any_specification_are_found(
    specs: list[KeySpec], words: list[bytes], patterns: dict[bytes, int]
) -> None:
    command: Any = SimpleNamespace(keys=tuple(specs), key_flags=None, channels=None)
    args = [b"X", *words]
    rules = Rules(b"\1", {}, patterns.items(), False, [], True)
    assert Permissions(Catalogue([(0, command)]), [rules]).find_denial(0, args) == twin_denial(command, args, patterns)


@given(st.integers(1, 4), st.integers(-3, 4), st.lists(WORD, max_size=6), st.lists(WORD, max_size=2), st.booleans())
def test_channels_are_found_where_they_are_declared(
    first: int, last: int, words: list[bytes], granted: list[bytes], are_patterns: bool
) -> None:
    channels = ChannelsAt(first, last, are_patterns)
    command: Any = SimpleNamespace(keys=(KeysAt(1), KeysAfter(b"STREAMS")), key_flags=None, channels=channels)
    args = [b"X", *words]
    denied = Permissions(Catalogue([(0, command)]), [Rules(b"\1", {}, [], True, granted, False)]).find_denial(0, args)
    expected = next((name for name in channels.of(args) if name not in granted), None)
    assert (None if denied is None else args[denied[1]]) == expected


def test_checks_leave_nothing_behind() -> None:
    someone = user("+@all", "-get", "~a", "&b", "(+get ~b)", "+select|0")

    def check() -> None:
        for line in ("GET a", "SET c 1", "XREAD STREAMS a b 0 0", "PUBLISH c x", "SELECT 1", "SET a 1 GET"):
            denial(someone, line)
        someone.changed([b"+get", b"~z", b"(+set ~x)"])

    check()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(100):
        check()
    gc.collect()
    assert len(gc.get_objects()) - before < 50


# --- Passwords ---------------------------------------------------------------------------------------------------------------


def test_any_of_the_passwords_will_do_while_the_user_is_on() -> None:
    someone = user("on", ">one", ">two")
    assert [someone.accepts(word) for word in (b"one", b"two", b"three", b"", b"ONE")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert not someone.changed([b"<one"]).accepts(b"one")
    assert not someone.changed([b"off"]).accepts(b"one")
    assert someone.changed([b"nopass"]).accepts(b"anything")
    assert not someone.changed([b"nopass", b"resetpass"]).accepts(b"one")
    assert someone.changed([b"resetpass", b"#" + sha256_hex(b"three")]).accepts(b"three")
    assert not someone.changed([b"!" + sha256_hex(b"one")]).accepts(b"one")


def test_passwords_are_kept_as_hashes_only() -> None:
    someone = user("on", ">one", ">one", ">two")
    assert list(someone.hashes) == [sha256_hex(b"one"), sha256_hex(b"two")]
    assert b"one" not in someone.text


def test_passwords_are_not_among_the_words_that_the_parser_keeps() -> None:
    parser = RequestParser(authenticated=True)

    def parse() -> list[bytes]:
        parser.feed(b"*2\r\n$4\r\nAUTH\r\n$9\r\ntopsecret\r\n")
        args = parser.next_request()
        assert args is not None
        return args

    first, second = parse(), parse()
    assert first[1] is second[1], "short words are kept"
    forget_words([*first, b"x", b"", b"a word that is too long to be kept"])
    assert parse()[1] is not first[1]


# --- Selectors -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "merged"),
    [
        ("on (+get ~a) off", ["on", "(+get ~a)", "off"]),
        ("(+get) ()", ["(+get)", "()"]),
        ("( +get )", ["( +get )"]),
        ("(a (b) c", ["(a (b)", "c"]),
        (") x", [")", "x"]),
    ],
)
def test_words_between_parentheses_belong_together(words: str, merged: list[str]) -> None:
    assert merge_selectors(words.encode().split(b" ")) == [word.encode() for word in merged]


def test_an_open_parenthesis_is_found() -> None:
    with pytest.raises(UnmatchedError, match="Unmatched parenthesis in selector definition") as caught:
        merge_selectors([b"on", b"(+get", b"~a"])
    assert caught.value.at == 1


# --- The log -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Time for the log: `clock.ms`."""
    held = SimpleNamespace(ms=1_700_000_000_000)
    held.time_ns = lambda: held.ms * 1_000_000
    monkeypatch.setattr(denials, "time", held)
    return held


def seen(log: DenialLog) -> list[tuple[int, bytes, int]]:
    return [(entry.id, entry.subject, entry.count) for entry in log.entries]


def test_denials_that_are_alike_are_one_entry_for_a_minute(clock: SimpleNamespace) -> None:
    log = DenialLog(lambda: 10)
    for subject in (b"a", b"b", b"a"):
        log.add(Reason.KEY, "toplevel", subject, b"u", b"client")
        clock.ms += 1000
    assert seen(log) == [(0, b"a", 2), (1, b"b", 1)]
    clock.ms += 59_000
    log.add(Reason.KEY, "toplevel", b"a", b"u", b"other")
    newest: LogEntry = log.entries[0]
    assert (newest.count, newest.client, newest.updated_ms - newest.created_ms) == (3, b"other", 62_000)
    clock.ms += 60_001
    log.add(Reason.KEY, "toplevel", b"a", b"u", b"client")
    assert seen(log) == [(2, b"a", 1), (0, b"a", 3), (1, b"b", 1)]
    for change in (
        (Reason.COMMAND, "toplevel", b"a", b"u"),
        (Reason.KEY, "multi", b"a", b"u"),
        (Reason.KEY, "toplevel", b"a", b"v"),
    ):
        log.add(*change, b"client")
    assert len(log.entries) == 6
    assert log.totals == {Reason.KEY: 7, Reason.COMMAND: 1, Reason.AUTH: 0, Reason.CHANNEL: 0, Reason.TLS_CERT: 0}


def test_the_log_keeps_the_newest(clock: SimpleNamespace) -> None:
    held = SimpleNamespace(most=3)
    log = DenialLog(lambda: held.most)
    for number in range(5):
        log.add(Reason.KEY, "toplevel", b"%d" % number, b"u", b"client")
    assert seen(log) == [(4, b"4", 1), (3, b"3", 1), (2, b"2", 1)]
    held.most = 0
    log.add(Reason.KEY, "toplevel", b"x", b"u", b"client")
    assert seen(log) == []
    assert log.totals[Reason.KEY] == 6


# --- Files -----------------------------------------------------------------------------------------------------------------------


def read(content: bytes) -> dict[bytes, bytes]:
    users = FileReader("f", lambda name: User(name, INDEX)).read(content)
    return {name: one.text for name, one in users.items()}


def test_a_file_has_a_user_a_line() -> None:
    assert read(b"\nuser a on ~x (+get ~b ~c)\r\n  user b\n") == {
        b"a": b"on sanitize-payload ~x resetchannels -@all (~b ~c resetchannels -@all +get)",
        b"b": b"off sanitize-payload resetchannels -@all",
    }


def test_lines_with_a_number_sign_first_are_comments() -> None:
    assert read(b"# the users\n#\n  # user c\nuser a #%s\n" % (b"0" * 64)) == {
        b"a": b"off sanitize-payload #%s resetchannels -@all" % (b"0" * 64),
    }


def test_comments_are_not_in_the_file_that_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "users.acl"
    path.write_bytes(b"# the users\nuser a on\nuser default off\n")
    saved = b"user a on sanitize-payload resetchannels -@all\nuser default off sanitize-payload resetchannels -@all\n"
    with Host(aclfile=path) as host:
        acl = host.server.get(Acl)
        acl.save_file()
        assert path.read_bytes() == saved
        acl.set_user(b"a", [b"~x"])
        acl.save_file()
    assert path.read_bytes() == saved.replace(b"payload reset", b"payload ~x reset", 1), "a line follows its user"


def test_all_that_is_wrong_in_a_file_is_reported_at_once() -> None:
    with pytest.raises(AclError, match=r"^f:1: Syntax error") as caught:
        read(b"user a foo bar +nosuch\nx\nuser a on\nuser b (x\nuser \tc on\n")
    assert str(caught.value) == (
        "f:1: Syntax error. f:1: Error in applying operation '+nosuch': Unknown command or category name in ACL. f:2 should"
        " start with user keyword followed by the username. WARNING: Duplicate user 'a' found on line 3. f:4: Unmatched"
        " parenthesis in selector definition.'f:5: username '\tc' contains invalid characters. WARNING: ACL errors detected, no"
        " change to the previously active ACL rules was performed"
    )


def test_requirepass_is_the_password_of_the_default_user() -> None:
    with Host(requirepass="secret") as host:
        acl, dispatcher = host.server.get(Acl), host.server.dispatcher
        assert dispatcher.needs_password
        assert dispatcher.default_user is acl.default
        assert acl.default.accepts(b"secret")
        assert str(host.connect().ask("PING")) == "NOAUTH Authentication required."
        host.server.config.set([("requirepass", "")])
        assert not dispatcher.needs_password
        assert host.connect().ask("PING") == b"PONG"
        acl.set_user(b"default", [b"off"])
        assert dispatcher.needs_password
        acl.check_invariants()


def test_users_of_the_configuration_take_the_place_of_the_default_ones() -> None:
    lines = b"requirepass secret\nuser default on +@all\nuser a +get\n"
    with Host(Config.from_arguments(["-"], io.BytesIO(lines))) as host:
        acl = host.server.get(Acl)
        (warning,) = acl.load_at_start()
        assert "'a'" in warning
        assert [one.line for one in acl.in_order()] == [
            b"user a off sanitize-payload resetchannels -@all +get",
            b"user default on sanitize-payload resetchannels +@all",
        ]
        assert acl.config_lines() == [one.line.decode() for one in acl.in_order()]
        acl.check_invariants()


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "users.acl"
    path.write_bytes(b"user a on\n")
    with Host(aclfile=path) as host:
        acl = host.server.get(Acl)
        assert set(acl.users) == {b"a", b"default"}
        acl.check_invariants()
        assert acl.config_lines() == []
        acl.save_file()
        assert path.read_bytes() == b"".join(one.line + b"\n" for one in acl.in_order())
        assert [entry.name for entry in tmp_path.iterdir()] == ["users.acl"]
        host.server.config.aclfile = str(tmp_path / "nosuch" / "users.acl")
        with pytest.raises(OSError, match="nosuch"):
            acl.save_file()
