"""Lines about users: those of an ACL file, and those of a configuration file.

In both a line is `user <name> <rules>`. An ACL file is read as a whole, and all that is wrong with it is reported at once
(FileReader). A line of a configuration file is checked when it is read, but for unknown names of commands, which are
reported when the server starts (declare_user). Texts: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from streamd.errors import AclError, ConfigError, RuleError, UnmatchedError, printable
from streamd.settings.config import Config, directive
from streamd.users.acl_rules import CommandIndex, has_blanks
from streamd.users.selectors import merge_selectors
from streamd.users.user import User

__all__ = ["FileReader"]


@directive("user")
def declare_user(config: Config, args: list[str]) -> None:
    """A line about a user in a configuration file. Unknown names of commands are reported at start: see
    `Acl.load_at_start`.
    """
    name, *words = (arg.encode("utf-8", "surrogateescape") for arg in args)
    if any(name == other for other, _ in config.users):
        reason = "Duplicate user found. A user can only be defined once in config files"
        raise ConfigError("user", f"Error in user declaration '{args[0]}': {reason}")
    try:
        rules = merge_selectors(words)
    except UnmatchedError as error:
        raise ConfigError("user", "Error in user declaration 'user': Wrong format") from error
    user = User(name, CommandIndex({}))
    for at, rule in enumerate(rules):
        try:
            user.take(user.changed([rule]))
        except RuleError as error:
            if not error.is_unknown:
                # Redis names the word of the line at the rule's index.
                named = ["user", *args][at]
                raise ConfigError("user", f"Error in user declaration '{named}': {error}") from error
    config.users.append((name, rules))


class FileReader:
    """Reads an ACL file: a line `user <name> <rules>` for each user; blank lines, and those that start with `#`, are ignored."""

    def __init__(self, path: str, new_user: Callable[[bytes], User]) -> None:
        self._path = path
        self._new_user = new_user
        self._users: dict[bytes, User] = {}

    def read(self, content: bytes) -> dict[bytes, User]:
        """All users by name; raises AclError with everything that is wrong."""
        errors = [
            text
            for number, line in enumerate(content.split(b"\n"), 1)
            for text in self._read_line(number, line.strip(b" \t\r\n"))
        ]
        if errors:
            outcome = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
            raise AclError("".join([*errors, outcome]))
        return self._users

    def _read_line(self, number: int, line: bytes) -> Iterator[str]:
        """Read one line; yields its errors, each text ending with the separator to the next."""
        place = f"{self._path}:{number}"
        if not line or line[:1] == b"#":
            return
        words = line.split(b" ")
        if words[0] != b"user" or len(words) < 2:
            yield f"{place} should start with user keyword followed by the username. "
            return
        name = words[1]
        if has_blanks(name):
            yield f"'{place}: username '{printable(name)}' contains invalid characters. "
            return
        if name in self._users:
            yield f"WARNING: Duplicate user '{printable(name)}' found on line {number}. "
            return
        user = self._users[name] = self._new_user(name)
        try:
            rules = merge_selectors(words[2:])
        except UnmatchedError as error:
            yield f"{place}: {error}"
            return
        try:
            user.take(user.changed(rules))
            return
        except RuleError:
            pass  # one by one, to report what is wrong with each
        is_reported = False
        for rule in rules:
            try:
                user.take(user.changed([rule]))
            except RuleError as error:
                if error.is_unknown:
                    yield f"{place}: Error in applying operation '{printable(rule)}': {error}. "
                elif not is_reported:
                    is_reported = True
                    yield f"{place}: {error}. "
