"""User: a name, passwords, on or off, and sets of rules: its own, and any number of selectors.

Rules are applied one after the other, to a copy of the user, which replaces the user when all of them are valid: nobody
ever runs under half a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streamd.core.identity import Identity
from streamd.digests import sha256_hex
from streamd.errors import RuleError
from streamd.users.acl_rules import CommandIndex, RuleSet
from streamd.users.permissions import Permissions

__all__ = ["User"]

HASH_FORM = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
NOT_A_LOGIN = "The password you are trying to remove from the user does not exist"


class User(Identity):
    """A user; initially off, without passwords, and without permissions.

    name            bytes without blanks
    is_enabled      whether clients can log in as this user
    is_nopass       any password will do
    sanitizes       whether payloads that it RESTOREs are checked thoroughly
    hashes          SHA-256 of its passwords, in hex, in the order in which they were added
    rule_sets       its own rules, then those of its selectors
    permissions     the compiled rules that requests are checked against
    """

    _line: bytes | None  # cache of `line`; only `take` changes a user

    def __init__(self, name: bytes, index: CommandIndex, *, all_channels: bool = False) -> None:
        self.name = name
        self._index = index
        self._all_channels = all_channels
        self.is_enabled = False
        self.is_nopass = False
        self.sanitizes = True
        self.hashes: dict[bytes, None] = {}
        self.rule_sets = [RuleSet(index, all_channels=all_channels)]
        self.permissions: Permissions
        self._compile()

    def __repr__(self) -> str:
        return f"<User {self.text.decode('utf-8', 'backslashreplace')}>"

    @property
    def is_limited(self) -> bool:
        return not self.permissions.allow_everything

    def _compile(self) -> None:
        self._line = None
        self.permissions = Permissions(self._index.catalogue, [rules.compile() for rules in self.rule_sets])

    def copy(self) -> User:
        other = User.__new__(User)
        other.__dict__.update(self.__dict__)
        other.hashes = dict(self.hashes)
        other.rule_sets = [rules.copy() for rules in self.rule_sets]
        return other

    def take(self, other: User) -> None:
        """Take over everything from another user, which is no longer used."""
        self.is_enabled = other.is_enabled
        self.is_nopass = other.is_nopass
        self.sanitizes = other.sanitizes
        self.hashes = other.hashes
        self.rule_sets = other.rule_sets
        self.permissions = other.permissions
        self._line = None

    def changed(self, rules: Iterable[bytes], *, all_channels: bool = False) -> User:
        """This user after applying some rules, as a copy; raises RuleError, whose `at` is the index of the rule.

        all_channels  whether `reset` allows all channels
        """
        other = self.copy()
        other._all_channels = all_channels
        for at, rule in enumerate(rules):
            try:
                other._apply(rule)
            except RuleError as error:
                error.at = at
                raise
        other._compile()
        return other

    # -- Rules

    def _apply(self, rule: bytes) -> None:
        word, sign = rule.lower(), rule[:1]
        if word in _USER_WORDS:
            _USER_WORDS[word](self)
        elif sign == b">":
            self._add_hash(sha256_hex(rule[1:]))
        elif sign == b"#":
            self._add_hash(_checked_hash(rule[1:]))
        elif sign == b"<":
            self._remove_hash(sha256_hex(rule[1:]))
        elif sign == b"!":
            self._remove_hash(_checked_hash(rule[1:]))
        elif sign == b"(" and rule[-1:] == b")":
            selector = RuleSet(self._index)
            for part in rule[1:-1].split(b" "):
                if part:
                    selector.apply(part)
            self.rule_sets.append(selector)
        elif rule:
            self.rule_sets[0].apply(rule)

    def _add_hash(self, digest: bytes) -> None:
        self.is_nopass = False
        self.hashes[digest] = None

    def _remove_hash(self, digest: bytes) -> None:
        if digest not in self.hashes:
            raise RuleError(NOT_A_LOGIN)
        del self.hashes[digest]

    def _set_enabled(self, is_enabled: bool) -> None:
        self.is_enabled = is_enabled

    def _set_sanitizes(self, sanitizes: bool) -> None:
        self.sanitizes = sanitizes

    def _set_nopass(self, is_nopass: bool) -> None:
        self.is_nopass = is_nopass
        self.hashes.clear()

    def _clear_selectors(self) -> None:
        del self.rule_sets[1:]

    def _reset(self) -> None:
        self._set_nopass(False)
        self._set_enabled(False)
        self._set_sanitizes(True)
        self.rule_sets = [RuleSet(self._index, all_channels=self._all_channels)]

    def check_invariants(self) -> None:
        """Assert what must hold; for tests."""
        assert self.rule_sets, "a user has rules of its own"
        assert not (self.is_nopass and self.hashes)
        assert all(len(digest) == 64 for digest in self.hashes)
        for rules in self.rule_sets:
            rules.check_invariants()
        assert self.permissions.allow_everything == self.rule_sets[0].compile().allows_everything

    # -- Questions

    def accepts(self, password: bytes) -> bool:
        """Whether a password is accepted. Takes the same time whichever of the passwords matches."""
        from hmac import compare_digest

        digest = sha256_hex(password)
        is_right = False
        for known in self.hashes:
            is_right |= compare_digest(known, digest)
        return self.is_enabled and (self.is_nopass or is_right)

    @property
    def flags(self) -> list[bytes]:
        """As shown by ACL GETUSER."""
        nopass = [b"nopass"] if self.is_nopass else []
        sanitize = b"sanitize-payload" if self.sanitizes else b"skip-sanitize-payload"
        return [b"on" if self.is_enabled else b"off", *nopass, sanitize]

    @property
    def text(self) -> bytes:
        """The rules of this user, as in ACL LIST and in files, without `user` and the name."""
        own, *selectors = self.rule_sets
        hashes = [b"#" + digest for digest in self.hashes]
        return b" ".join([*self.flags, *hashes, own.text, *(b"(" + rules.text + b")" for rules in selectors)])

    @property
    def line(self) -> bytes:
        """The line about this user in a file."""
        if self._line is None:
            self._line = b"user " + self.name + b" " + self.text
        return self._line


_USER_WORDS: dict[bytes, Callable[[User], None]] = {
    b"on": lambda user: user._set_enabled(True),
    b"off": lambda user: user._set_enabled(False),
    b"nopass": lambda user: user._set_nopass(True),
    b"resetpass": lambda user: user._set_nopass(False),
    b"sanitize-payload": lambda user: user._set_sanitizes(True),
    b"skip-sanitize-payload": lambda user: user._set_sanitizes(False),
    b"clearselectors": lambda user: user._clear_selectors(),
    b"reset": lambda user: user._reset(),
}


def _checked_hash(digest: bytes) -> bytes:
    if len(digest) != 64 or not frozenset(b"0123456789abcdef").issuperset(digest):
        raise RuleError(HASH_FORM)
    return digest
