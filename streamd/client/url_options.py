"""How options are declared and read, and the options for connecting to a server.

Each option is one field of a class, declared once with name, default, parser and meaning:

    ConnectionOptions                           part of both others, as `.connection`
    SourceOptions  (transfer/read_options.py)   what to read: batch and streaming
    SinkOptions    (transfer/write_options.py)  how to write: batch and streaming

`X.parse(mapping)` reads Spark's options, whose keys are case-insensitive; every error names its option (OptionError). The
results are frozen, can be pickled, and never show a secret in `repr`. Passwords from `...Env` and `...File` are not even
stored in them: each process that connects looks them up itself (`ConnectionOptions.find_password`).

An unknown option raises, with the nearest name that is known; options that Spark itself adds are ignored.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from streamd.client.client_errors import OptionError
from streamd.client.key_names import stream_key
from streamd.client.place import BadUrlError, Place, parse_url
from streamd.client.points import parse_duration_ms

__all__ = ["Address", "ConnectionOptions", "option_rows"]

Options = Mapping[str, str]
T = TypeVar("T")

OPTIONS_OF_SPARK = frozenset(
    {"checkpointlocation", "queryname", "outputmode", "mergeschema", "partitionoverwritemode", "provider"}
)
"""Options that Spark, not the user, may add to those of a source or sink."""

# --- Parsers of single values; they raise ValueError, and the caller adds the option's name -------------------------------


def text(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    return value


def boolean(value: str) -> bool:
    word = value.strip().lower()
    if word in ("true", "yes", "1", "on"):
        return True
    if word in ("false", "no", "0", "off"):
        return False
    raise ValueError(f"{value!r} is neither true nor false")


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    def parse(value: str) -> int:
        word = value.strip().replace("_", "")
        number = int(word) if word.isascii() and word.isdigit() else None
        if number is None or number < low or (high is not None and number > high):
            bound = f"of at least {low}" if high is None else f"from {low} to {high}"
            raise ValueError(f"{value!r} is not a whole number {bound}")
        return number

    return parse


_SIZES = {"b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


def size(value: str) -> int:
    """Bytes: `1048576`, `512k`, `64m`, `1g`, powers of 1024 as usual in Spark."""
    word = value.strip().lower()
    digits = word.rstrip("bkmg")
    unit = word[len(digits) :] or "b"
    if not (digits.isascii() and digits.isdigit()) or unit not in _SIZES or int(digits) == 0:
        raise ValueError(f"{value!r} is not a size; write 1048576, 512k, 64m or 1g")
    return int(digits) * _SIZES[unit]


def choice(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        word = value.strip().lower()
        for each in words:
            if each.lower() == word:
                return each
        raise ValueError(f"{value!r} is none of {', '.join(words)}")

    return parse


def names(value: str) -> tuple[str, ...]:
    """Names separated by commas, or a JSON array of them (for names with commas, or with blanks at their ends)."""
    if value.lstrip().startswith("["):
        found = json.loads(value)
        if not all(isinstance(each, str) for each in found):
            raise ValueError("the JSON array must hold strings")
    else:
        found = [each.strip() for each in value.split(",")]
    found = list(dict.fromkeys(each for each in found if each))
    if not found:
        raise ValueError("names nothing")
    return tuple(found)


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def addresses(default_port: int) -> Callable[[str], tuple[Address, ...]]:
    def parse(value: str) -> tuple[Address, ...]:
        found = []
        # An address in brackets is no JSON array.
        is_json = value.lstrip()[:1] == "[" and value.lstrip()[1:].lstrip()[:1] in ('"', "]")
        for each in names(value) if is_json else names(f",{value}"):
            try:
                parts = urlsplit(f"//{each}")
                host, port = parts.hostname, parts.port
            except ValueError:
                host, port = None, None
            if not host:
                raise ValueError(f"{each!r} is not an address; write host:port")
            found.append(Address(host, port or default_port))
        return tuple(found)

    return parse


# --- Fields ---------------------------------------------------------------------------------------------------------------


def option(name: str, parse: Callable[[str], object], default: object, doc: str, *, is_secret: bool = False) -> Any:
    """A field of an options class: the option's name, its parser, its default and what it means."""
    metadata = {"name": name, "parse": parse, "doc": doc, "is_secret": is_secret}
    return field(default=default, repr=not is_secret, metadata=metadata)


def option_rows(cls: type[Any]) -> Iterable[dataclasses.Field[Any]]:
    """The fields of an options class that are options; `metadata` has name, parse, doc, is_secret."""
    return [each for each in dataclasses.fields(cls) if "name" in each.metadata]


def read_fields(cls: type[Any], options: Options) -> dict[str, Any]:
    """The values given for the options of a class, parsed, by attribute."""
    found = {}
    for each in option_rows(cls):
        name = each.metadata["name"]
        value = options.get(name.lower())
        if value is not None:
            found[each.name] = read_value(name, each.metadata["parse"], value, is_secret=each.metadata["is_secret"])
    return found


def read_value(name: str, parse: Callable[[str], T], value: str, *, is_secret: bool = False) -> T:
    try:
        return parse(value)
    except json.JSONDecodeError as error:
        raise OptionError(name, f"invalid JSON: {error}") from None
    except ValueError as error:
        raise OptionError(name, "invalid value" if is_secret else str(error)) from None


def lowered(options: Options) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in options.items() if value is not None}


def named_by_path(options: Options, others: Iterable[str]) -> dict[str, str]:
    """Options with lowered names, in which what `load`, `save` and `start` call a path is the stream."""
    found = lowered(options)
    only_one_of(found, "path", "paths", *others)
    for name, meant in (("path", "stream"), ("paths", "streams")):
        if name in found:
            found[meant] = found.pop(name)
    return found


def refuse_unknown(options: Options, *classes: type[Any]) -> None:
    known = {each.metadata["name"].lower(): each.metadata["name"] for cls in classes for each in option_rows(cls)}
    for name in options:
        if name in known or name in OPTIONS_OF_SPARK or name.startswith(("spark.", "__")):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        raise OptionError(name, f"unknown option; did you mean {known[near[0]]}?" if near else "unknown option")


def only_one_of(options: Options, *group: str) -> None:
    given = [name for name in group if name.lower() in options]
    if len(given) > 1:
        raise OptionError(given[1], f"cannot be combined with {given[0]}")


def needs(options: Options, names: Iterable[str], other: str, *, has: bool) -> None:
    """Raise OptionError for the first of some options that is given, unless `has`: without `other` it would do nothing."""
    for name in names:
        if name.lower() in options and not has:
            raise OptionError(name, f"needs {other}")


# --- Connection -----------------------------------------------------------------------------------------------------------

_SENTINEL_PORT = 26379

_OF_PLACE = {
    "unix_path": "unix_socket_path",
    "is_tls": "tls",
    "ca_file": "tls_ca_file",
    "cert_file": "tls_cert_file",
    "key_file": "tls_key_file",
    "key_password": "tls_key_password",
    "is_verified": "tls_verify",
    "checks_host": "tls_check_hostname",
}
"""What fields of Place are called here, where their names differ."""


@dataclass(frozen=True)
class ConnectionOptions:
    """Where the server is, and how to log in."""

    url: str | None = option(
        "url",
        text,
        None,
        "`redis://user:password@host:port/db`, `rediss://` for TLS, `unix:///path?db=0`,"
        " `redis+sentinel://user:password@host:port,host:port/master/db`, or `redis+cluster://user:password@host:port,host:port`;"
        " single options override its parts",
        is_secret=True,
    )
    host: str = option("host", text, "127.0.0.1", "name or address of the server")
    port: int = option("port", whole_number(1, 65535), 6379, "its TCP port")
    db: int = option("db", whole_number(0), 0, "number of the database")
    unix_socket_path: str | None = option(
        "unixSocketPath", text, None, "socket file of the server, instead of host and port"
    )
    username: str | None = option("username", text, None, "ACL user; `default` when only a password is given")
    password: str | None = option(
        "password", text, None, "password; one of the next two options is safer", is_secret=True
    )
    password_env: str | None = option(
        "passwordEnv", text, None, "environment variable that holds the password, in each process that connects"
    )
    password_file: str | None = option(
        "passwordFile", text, None, "file whose first line is the password, on each machine that connects"
    )
    tls: bool = option("tls", boolean, False, "speak TLS")
    tls_ca_file: str | None = option(
        "tlsCaFile", text, None, "certificates of the authorities to trust. Default: those of the system"
    )
    tls_cert_file: str | None = option("tlsCertFile", text, None, "certificate of this client")
    tls_key_file: str | None = option(
        "tlsKeyFile", text, None, "private key of that certificate, if it is in another file"
    )
    tls_key_password: str | None = option("tlsKeyPassword", text, None, "password of the key", is_secret=True)
    tls_verify: bool = option("tlsVerify", boolean, True, "whether the server's certificate must be valid")
    tls_check_hostname: bool = option("tlsCheckHostname", boolean, True, "whether it must be valid for the host name")
    tls_server_name: str | None = option(
        "tlsServerName", text, None, "host name in the certificate, if it differs from `host`"
    )
    sentinels: tuple[Address, ...] = option(
        "sentinels",
        addresses(_SENTINEL_PORT),
        (),
        "`host:port` of Sentinels, separated by commas, to ask for the primary",
    )
    sentinel_master: str | None = option("sentinelMaster", text, None, "the name under which they monitor it")
    sentinel_username: str | None = option("sentinelUsername", text, None, "user for the Sentinels themselves")
    sentinel_password: str | None = option(
        "sentinelPassword", text, None, "password for the Sentinels themselves", is_secret=True
    )
    sentinel_password_env: str | None = option("sentinelPasswordEnv", text, None, "environment variable that holds it")
    sentinel_password_file: str | None = option(
        "sentinelPasswordFile", text, None, "file whose first line is that password"
    )
    cluster_nodes: tuple[Address, ...] = option(
        "clusterNodes",
        addresses(6379),
        (),
        "`host:port` of nodes of a cluster, separated by commas; the others are found by them",
    )
    connect_timeout_ms: int = option("connectTimeout", parse_duration_ms, 5_000, "longest wait for a connection")
    read_timeout_ms: int = option("readTimeout", parse_duration_ms, 60_000, "longest wait for a reply")
    retries: int = option(
        "retries",
        whole_number(0),
        5,
        "further attempts when a connection breaks, or the server is loading or failing over",
    )
    retry_backoff_ms: int = option(
        "retryBackoff",
        parse_duration_ms,
        80,
        "wait before the first of these attempts; each further wait is twice as long",
    )
    retry_max_backoff_ms: int = option("retryMaxBackoff", parse_duration_ms, 5_000, "longest such wait")
    failover_timeout_ms: int = option(
        "failoverTimeout",
        parse_duration_ms,
        60_000,
        "with Sentinels or a cluster: attempts continue for at least this time, until a new primary is found",
    )
    client_name: str = option("clientName", text, "streamd-spark", "name of the connections in CLIENT LIST")
    key: bytes | None = None
    """Of a cluster: connections are made to the primary that serves this key; None: to all primaries."""
    is_live_only: bool = False
    """Reads are answered from the server's memory, not from an archive that it reads itself."""

    def live_only(self) -> ConnectionOptions:
        """The same, for programs that compare an archive with what the server holds."""
        return dataclasses.replace(self, is_live_only=True)

    def at(self, name: str) -> ConnectionOptions:
        """The options for work on one stream. They differ only where the server is a cluster."""
        return self.at_key(stream_key(name))

    def at_key(self, key: bytes) -> ConnectionOptions:
        """As `at`."""
        return dataclasses.replace(self, key=key) if self.cluster_nodes else self

    @classmethod
    def parse(cls, options: Options) -> ConnectionOptions:
        """Read the options of the connection, and no others, from a mapping."""
        given = lowered(options)
        only_one_of(given, "password", "passwordEnv", "passwordFile")
        only_one_of(given, "sentinelPassword", "sentinelPasswordEnv", "sentinelPasswordFile")
        only_one_of(given, "unixSocketPath", "host")
        only_one_of(given, "unixSocketPath", "sentinels")
        only_one_of(given, "clusterNodes", "sentinels", "unixSocketPath")
        found = read_fields(cls, given)
        if "url" in found:
            found = {**url_fields(found["url"]), **found}
            if {"password_env", "password_file"} & found.keys() and "password" not in given:
                found.pop("password", None)
        made = cls(**found)
        if bool(made.sentinels) != bool(made.sentinel_master):
            missing = "sentinelMaster" if made.sentinels else "sentinels"
            raise OptionError(missing, "sentinels and sentinelMaster are given together")
        only_one_of(given, "unixSocketPath", "port")
        if made.sentinels:
            for name in ("host", "port"):
                if name in given:
                    raise OptionError(name, "cannot be combined with Sentinels, which name the primary")
        if made.cluster_nodes:
            for name in ("host", "port", "db"):
                if name in given:
                    raise OptionError(name, "cannot be combined with the nodes of a cluster")
        sentinel_options = ("sentinelUsername", "sentinelPassword", "sentinelPasswordEnv", "sentinelPasswordFile")
        needs(given, sentinel_options, "sentinels", has=bool(made.sentinels))
        needs(given, ["failoverTimeout"], "sentinels, or clusterNodes", has=bool(made.sentinels or made.cluster_nodes))
        if made.username not in (None, "default") and made.lacks_password:
            raise OptionError("username", "needs a password: password, passwordEnv or passwordFile")
        if not made.tls and any(name.startswith("tls_") for name in found):
            name = next(
                row.metadata["name"] for row in option_rows(cls) if row.name in found and row.name.startswith("tls_")
            )
            raise OptionError(name, "needs tls=true, or a rediss:// url")
        return made

    @property
    def lacks_password(self) -> bool:
        """Whether no option says what the password is."""
        return self.password is None and self.password_env is None and self.password_file is None

    def find_password(self) -> str | None:
        """The password, from where the options say. Raises OptionError when it is missing."""
        return find_secret("password", self.password, self.password_env, self.password_file)

    def find_sentinel_password(self) -> str | None:
        return find_secret(
            "sentinelPassword", self.sentinel_password, self.sentinel_password_env, self.sentinel_password_file
        )

    def place_at(self, address: Address | None) -> Place:
        """What a socket is opened to: the address, or the server of the options."""
        of_place = {name: getattr(self, attribute) for name, attribute in _OF_PLACE.items()}
        host, port = (self.host, self.port) if address is None else (address.host, address.port)
        return Place(host, port, **of_place, server_name=self.tls_server_name)

    @property
    def place(self) -> str:
        """Where the server is, for messages: no user, no password."""
        if self.unix_socket_path is not None:
            return self.unix_socket_path
        if self.sentinels:
            return f"{self.sentinel_master} by the Sentinels {', '.join(map(str, self.sentinels))}"
        if self.cluster_nodes:
            return f"the cluster of {', '.join(map(str, self.cluster_nodes))}"
        return str(Address(self.host, self.port))


def find_secret(name: str, value: str | None, variable: str | None, file: str | None) -> str | None:
    if variable is not None:
        try:
            return os.environ[variable]
        except KeyError:
            raise OptionError(f"{name}Env", f"there is no environment variable {variable} in this process") from None
    if file is not None:
        try:
            with open(file, encoding="utf-8") as lines:
                return lines.readline().rstrip("\r\n")
        except OSError as error:
            raise OptionError(f"{name}File", str(error)) from None
    return value


def url_fields(url: str) -> dict[str, Any]:
    """What a URL says, by attribute of ConnectionOptions. Errors never repeat the URL: it may contain a password."""
    try:
        parts = parse_url(url)
    except BadUrlError as error:
        raise OptionError("url", str(error)) from None
    if parts.unknown:
        raise OptionError("url", f"unknown parameter {min(parts.unknown)}")
    found = {_OF_PLACE.get(name, name): value for name, value in parts.fields.items()}
    if parts.sentinels is not None:
        found["sentinels"] = read_value("url", addresses(_SENTINEL_PORT), parts.sentinels)
        if parts.master:
            found["sentinel_master"] = parts.master
    if parts.nodes is not None:
        found["cluster_nodes"] = read_value("url", addresses(6379), parts.nodes)
    return found
