"""Rules: the commands, keys and channels that are allowed, changed by rules in text form, one by one.

    CommandIndex  the commands of a server by the names and categories that rules have for them
    RuleSet       one set of rules (`+@read`, `~orders:*`, `resetchannels`)

The text of command rules follows from their history, as in Redis: `-@all +@read -xrange` is kept as given, but a rule
replaces an earlier one with the same name, and earlier ones for subcommands of its command. Names are those of the
declarations; rename-command changes what clients have to send, but not the rules. Rules may name commands of Redis that
this server does not have, so that Redis's files can be read; such rules have no effect.

What requests are checked against is compiled from a RuleSet with each change: see permissions.pyx.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from streamd.absent.commands import FOREIGN_COMMANDS
from streamd.core.spec import ACL_CATEGORIES, Command, table
from streamd.errors import RuleError
from streamd.users.permissions import Catalogue, Rules

__all__ = ["CommandIndex", "RuleSet", "as_set", "has_blanks"]

READ, WRITE = 1, 2
SYNTAX = "Syntax error"
PATTERN_AFTER_ALL = (
    "Adding a pattern after the * pattern (or the '{}' flag) is not valid and does not have any effect. Try '{}' to start"
    " with an empty list of {}"
)


def _unknown() -> RuleError:
    return RuleError("Unknown command or category name in ACL", is_unknown=True)


# --- Commands by the names that rules use ------------------------------------------------------------------------------


class CommandIndex:
    """The commands of a server as rules see them: by declared name, and by category.

    numbers    `xadd`, `xgroup|create` -> Entry.index, for those that can be run
    catalogue  where their keys and channels are
    everything the set of all commands; a set is an integer with a byte, 0 or 1, for each command by number
    free       the set of those that every connection may run, whatever the rules say: AUTH and similar ones
    """

    def __init__(self, numbers: Mapping[str, int], commands: Mapping[str, Command] = table) -> None:
        self.numbers = dict(numbers)
        self._named = {each.full_name: each for found in commands.values() for each in _family(found)}
        self.count = max(self.numbers.values(), default=-1) + 1
        self.catalogue = Catalogue((number, self._named[name]) for name, number in self.numbers.items())
        self.everything = as_set(range(self.count))
        self.free = as_set(number for name, number in self.numbers.items() if "no_auth" in self._named[name].flags)
        self._families = {name: as_set(self.numbers_of(each)) for name, each in self._named.items()}
        self._members = {category: as_set(self._find_members(category)) for category in ACL_CATEGORIES}

    def find(self, name: str) -> Command | None:
        """The command of that name, or None."""
        return self._named.get(name)

    @staticmethod
    def is_foreign(name: str) -> bool:
        """Whether Redis has such a command, which this server may lack."""
        return name in FOREIGN_COMMANDS

    def numbers_of(self, command: Command) -> list[int]:
        """The numbers of a command and of its subcommands."""
        return [self.numbers[each.full_name] for each in _family(command) if each.full_name in self.numbers]

    def names_in(self, category: str) -> list[str]:
        """Names of the commands in a category, as ACL CAT lists them."""
        return [each.full_name for each in self._named.values() if category in each.acl_categories]

    def family(self, command: Command) -> int:
        """The set of a command and its subcommands."""
        return self._families[command.full_name]

    def members(self, category: str) -> int:
        """The set of commands that a rule about a category covers: a container includes its subcommands."""
        return self._members[category]

    def _find_members(self, category: str) -> set[int]:
        found = [each for each in self._named.values() if category in each.acl_categories]
        return {number for each in found for number in self.numbers_of(each)}


def as_set(numbers: Iterable[int]) -> int:
    """A set of commands, from their numbers, each given once."""
    return sum(1 << 8 * number for number in numbers)


def _family(command: Command) -> list[Command]:
    return [command, *command.subcommands.values()]


# --- One set of rules ------------------------------------------------------------------------------------------------------


class RuleSet:
    """The commands, keys and channels that are allowed; initially none.

    commands      the set of those that are allowed
    first_args    command's number -> first arguments with which it is allowed anyway
    command_rules rules about commands since the last `+@all` or `-@all`: name -> `+` or `-`, in order
    keys          pattern -> READ, WRITE or both
    channels      patterns of channels, in order
    """

    def __init__(self, index: CommandIndex, *, all_channels: bool = False) -> None:
        self._index = index
        self.commands = 0
        self.first_args: dict[int, set[bytes]] = {}
        self.begins_with_all = False
        self.command_rules: dict[str, str] = {}
        self.keys: dict[bytes, int] = {}
        self.all_keys = False
        self.channels: dict[bytes, None] = {}
        self.all_channels = all_channels

    def copy(self) -> RuleSet:
        other = RuleSet.__new__(RuleSet)
        other.__dict__.update(self.__dict__)
        other.first_args = {number: set(words) for number, words in self.first_args.items()}
        other.command_rules = dict(self.command_rules)
        other.keys = dict(self.keys)
        other.channels = dict(self.channels)
        return other

    def compile(self) -> Rules:
        """The compiled rules that requests are checked against."""
        commands = (self.commands | self._index.free).to_bytes(self._index.count, "little")
        return Rules(commands, self.first_args, self.keys.items(), self.all_keys, self.channels, self.all_channels)

    # -- Changing it

    def apply(self, rule: bytes) -> None:
        """Apply one rule in text form; raises RuleError."""
        word = rule.lower()
        if word in _WORDS:
            _WORDS[word](self)
        elif word in (b"+@all", b"-@all"):
            self.set_all_commands(word[:1] == b"+")
        elif rule[:2] in (b"+@", b"-@"):
            self._apply_category(word[:1].decode(), word[2:])
        elif rule[:1] == b"+" and b"|" in rule:
            self._apply_part(word[1:])
        elif rule[:1] in (b"+", b"-"):
            self._apply_command(word[:1].decode(), word[1:])
        elif rule[:1] in (b"~", b"%"):
            self._apply_key_pattern(rule)
        elif rule[:1] == b"&":
            self._apply_channel(rule[1:])
        else:
            raise RuleError(SYNTAX)

    def set_all_keys(self, allowed: bool) -> None:
        self.all_keys = allowed
        self.keys.clear()

    def set_all_channels(self, allowed: bool) -> None:
        self.all_channels = allowed
        self.channels.clear()

    def set_all_commands(self, allowed: bool) -> None:
        self.begins_with_all = allowed
        self.commands = self._index.everything if allowed else 0
        self.first_args.clear()
        self.command_rules.clear()

    def _apply_category(self, sign: str, name: bytes) -> None:
        category = name.decode("latin-1")
        if category not in ACL_CATEGORIES:
            raise _unknown()
        self._set_commands(self._index.members(category), sign)
        self._remember(sign, f"@{category}")

    def _apply_command(self, sign: str, word: bytes) -> None:
        name = word.decode("latin-1")
        found = self._index.find(name)
        if found is not None:
            self._set_commands(self._index.family(found), sign)
        elif not self._index.is_foreign(name):
            raise _unknown()
        self._remember(sign, name)

    def _apply_part(self, word: bytes) -> None:
        """`+command|subcommand`, or `+command|argument` for a command without subcommands."""
        name, _, part = word.decode("latin-1").rpartition("|")
        found = self._index.find(name)
        if found is None and not self._index.is_foreign(name):
            raise _unknown()
        if "|" in name:
            raise RuleError("Allowing first-arg of a subcommand is not supported")
        if not part:
            raise RuleError(SYNTAX)
        if found is not None and found.subcommands:
            self._apply_command("+", word)
            return
        for number in [] if found is None else self._index.numbers_of(found):
            if not self._allows(number):
                self.first_args.setdefault(number, set()).add(part.encode("latin-1"))
        self._remember("+", f"{name}|{part}")

    def _set_commands(self, commands: int, sign: str) -> None:
        self.commands = self.commands | commands if sign == "+" else self.commands & ~commands
        for number in [number for number in self.first_args if commands >> 8 * number & 1]:
            del self.first_args[number]

    def _allows(self, number: int) -> bool:
        return bool(self.commands >> 8 * number & 1)

    def _remember(self, sign: str, name: str) -> None:
        """Add a rule to the text, replacing those that it overrides."""
        for old in [old for old in self.command_rules if old == name or old.startswith(f"{name}|")]:
            del self.command_rules[old]
        self.command_rules[name] = sign

    def _apply_key_pattern(self, rule: bytes) -> None:
        if self.all_keys:
            raise RuleError(PATTERN_AFTER_ALL.format("allkeys", "resetkeys", "patterns"))
        access, pattern = READ | WRITE, rule[1:]
        if rule[:1] == b"%":
            letters, _, pattern = rule[1:].partition(b"~")
            letters = letters.upper()
            if letters not in (b"R", b"W", b"RW", b"WR"):
                raise RuleError(SYNTAX)
            access = (READ if b"R" in letters else 0) | (WRITE if b"W" in letters else 0)
        if has_blanks(pattern):
            raise RuleError(SYNTAX)
        self.keys[pattern] = self.keys.get(pattern, 0) | access

    def _apply_channel(self, pattern: bytes) -> None:
        if self.all_channels:
            raise RuleError(PATTERN_AFTER_ALL.format("allchannels", "resetchannels", "channels"))
        if has_blanks(pattern):
            raise RuleError(SYNTAX)
        self.channels[pattern] = None

    def check_invariants(self) -> None:
        """Assert what must hold; for tests."""
        assert self.commands & ~self._index.everything == 0
        assert not any(map(self._allows, self.first_args)), "allowed with any argument, and with some"
        assert not (self.all_keys and self.keys)
        assert not (self.all_channels and self.channels)
        assert all(access in _KEY_SIGNS for access in self.keys.values())
        parents = {name.rpartition("|")[0] for name in self.command_rules}
        for name in parents & self.command_rules.keys():
            assert all(
                list(self.command_rules).index(name) < at
                for at, part in enumerate(self.command_rules)
                if part.startswith(f"{name}|")
            ), "a rule precedes the one that overrides it"

    # -- Writing it down

    @property
    def command_text(self) -> bytes:
        """Such as `-@all +@read -xrange`."""
        rules = [f"{sign}{name}" for name, sign in self.command_rules.items()]
        return " ".join(["+@all" if self.begins_with_all else "-@all", *rules]).encode("latin-1")

    @property
    def key_text(self) -> bytes:
        """Such as `~orders:* %R~stock:*`."""
        if self.all_keys:
            return b"~*"
        return b" ".join(_KEY_SIGNS[access] + pattern for pattern, access in self.keys.items())

    @property
    def channel_text(self) -> bytes:
        """Such as `&news:*`."""
        return b"&*" if self.all_channels else b" ".join(b"&" + pattern for pattern in self.channels)

    @property
    def text(self) -> bytes:
        """All of it, as rules that produce it when applied to an empty set."""
        channels = self.channel_text if self.all_channels else b"resetchannels " + self.channel_text
        return b" ".join(filter(None, (self.key_text, channels.rstrip(b" "), self.command_text)))


_KEY_SIGNS = {READ: b"%R~", WRITE: b"%W~", READ | WRITE: b"~"}

_WORDS: dict[bytes, Callable[[RuleSet], None]] = {
    b"allkeys": lambda rules: rules.set_all_keys(True),
    b"~*": lambda rules: rules.set_all_keys(True),
    b"resetkeys": lambda rules: rules.set_all_keys(False),
    b"allchannels": lambda rules: rules.set_all_channels(True),
    b"&*": lambda rules: rules.set_all_channels(True),
    b"resetchannels": lambda rules: rules.set_all_channels(False),
    b"allcommands": lambda rules: rules.set_all_commands(True),
    b"nocommands": lambda rules: rules.set_all_commands(False),
}
"""Rules that are words."""


def has_blanks(text: bytes) -> bool:
    return len(text.translate(None, b" \t\n\v\f\r\0")) != len(text)
