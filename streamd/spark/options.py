"""The options of `format("streamd")`: each is one field, declared once with name, default, parser and meaning.

    ConnectionOptions   where the server is and how to get in; part of both others, as `.connection`
    SourceOptions       what to read: batch and streaming
    SinkOptions         how to write: batch and streaming

`X.parse(mapping)` reads Spark's options, whose keys have no case; every complaint names its option (OptionError). The
results are frozen, can be pickled, and never show a secret in `repr`. Passwords from `...Env` and `...File` are not even in
them: each process that connects looks them up itself (`ConnectionOptions.find_password`).

An option that is not known raises, with the nearest name that is; what Spark itself puts among the options is let through.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from streamd.spark.errors import OptionError
from streamd.spark.ids import first_id_of, parse_duration_ms, parse_point, parse_timestamp_ms

__all__ = ["Address", "Bound", "ConnectionOptions", "SinkOptions", "SourceOptions", "option_rows", "set_option_rows"]

Options = Mapping[str, str]
T = TypeVar("T")

OPTIONS_OF_SPARK = frozenset(
    {"path", "checkpointlocation", "queryname", "outputmode", "mergeschema", "partitionoverwritemode", "provider"}
)
"""What Spark, not the user, may put among the options of a source or sink."""

# --- Parsers of single values; they raise ValueError, and whoever calls them adds the option's name ----------------------


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
            raise ValueError(f"{value!r} is no whole number {bound}")
        return number

    return parse


_SIZES = {"b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


def size(value: str) -> int:
    """Bytes: `1048576`, `512k`, `64m`, `1g`, powers of 1024 as everywhere in Spark."""
    word = value.strip().lower()
    digits = word.rstrip("bkmg")
    unit = word[len(digits) :] or "b"
    if not (digits.isascii() and digits.isdigit()) or unit not in _SIZES or int(digits) == 0:
        raise ValueError(f"{value!r} is no size; one is written 1048576, 512k, 64m, 1g")
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
    """Names with commas between, or a JSON array of them (for names that hold commas or blanks at their ends)."""
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
        for each in names(value):
            try:
                parts = urlsplit(f"//{each}")
                host, port = parts.hostname, parts.port
            except ValueError:
                host, port = None, None
            if not host:
                raise ValueError(f"{each!r} is no address; one is written host:port")
            found.append(Address(host, port or default_port))
        return tuple(found)

    return parse


@dataclass(frozen=True)
class Bound:
    """Where reading starts or ends, as it was written: resolved when it is used, since `-1h` depends on the clock.

    kind   `id` or `time`
    text   a point or a timestamp, see streamd.spark.ids
    """

    kind: Literal["id", "time"]
    text: str

    @property
    def is_latest(self) -> bool:
        """What is newest when one looks: as a start, only what comes later."""
        return self.kind == "id" and self.text.strip().lower() in ("latest", "+", "$")

    @property
    def is_earliest(self) -> bool:
        return self.kind == "id" and self.text.strip().lower() in ("earliest", "-")

    def resolve(self, now_ms: int, *, is_end: bool = False) -> int:
        """The bound as an inclusive ID. A time as an end is exclusive: entries from before it. Latest is the last ID."""
        if self.kind == "id":
            return parse_point(self.text, is_end=is_end)
        first = first_id_of(parse_timestamp_ms(self.text, now_ms))
        # The end before the first ID of all is no ID: -1 makes every range empty.
        return first - 1 if is_end else first


Bounds = Bound | Mapping[str, Bound]
"""One bound for all streams, or one for each by its name (`*`: all others)."""


def bounds(kind: Literal["id", "time"], *, is_end: bool) -> Callable[[str], Bounds]:
    """A point or timestamp, or a JSON object of them by stream. Checked at once, resolved later."""

    def one(value: Any) -> Bound:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError(f"{value!r} is neither a text nor a number")
        bound = Bound(kind, str(value))
        bound.resolve(2**50, is_end=is_end)
        return bound

    def parse(value: str) -> Bounds:
        if not value.lstrip().startswith("{"):
            return one(value)
        found = json.loads(value)
        return {name: one(each) for name, each in found.items()}

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
        raise OptionError(name, f"this is no JSON: {error}") from None
    except ValueError as error:
        raise OptionError(name, "cannot be taken" if is_secret else str(error)) from None


def lowered(options: Options) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in options.items() if value is not None}


def refuse_unknown(options: Options, *classes: type[Any]) -> None:
    known = {each.metadata["name"].lower(): each.metadata["name"] for cls in classes for each in option_rows(cls)}
    for name in options:
        if name in known or name in OPTIONS_OF_SPARK or name.startswith(("spark.", "__")):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        raise OptionError(
            name, f"there is no such option; did you mean {known[near[0]]}?" if near else "there is no such option"
        )


def only_one_of(options: Options, *group: str) -> None:
    given = [name for name in group if name.lower() in options]
    if len(given) > 1:
        raise OptionError(given[1], f"cannot be combined with {given[0]}")


def set_option_rows(options: Any) -> dict[str, Any]:
    """The options that differ from their defaults, by name and without secrets: what may be logged."""
    return {
        each.metadata["name"]: getattr(options, each.name)
        for each in option_rows(type(options))
        if not each.metadata["is_secret"] and getattr(options, each.name) != each.default
    }


# --- Connection -----------------------------------------------------------------------------------------------------------

_SCHEMES = {"redis": False, "valkey": False, "streamd": False, "rediss": True, "valkeys": True, "streamds": True}


def url_text(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in (*_SCHEMES, "unix"):
        raise ValueError(f"must begin with one of {', '.join(f'{scheme}://' for scheme in _SCHEMES)} or unix://")
    return value


@dataclass(frozen=True)
class ConnectionOptions:
    """Where the server is, and how to get in."""

    url: str | None = option(
        "url",
        url_text,
        None,
        "`redis://user:password@host:port/db`, `rediss://` for TLS, `unix:///path?db=0`; single options win over its parts",
        is_secret=True,
    )
    host: str = option("host", text, "127.0.0.1", "name or address of the server")
    port: int = option("port", whole_number(1, 65535), 6379, "its TCP port")
    db: int = option("db", whole_number(0), 0, "number of the database")
    unix_socket_path: str | None = option(
        "unixSocketPath", text, None, "socket file of the server, instead of host and port"
    )
    username: str | None = option(
        "username", text, None, "user of the access control list; `default` when only a password is given"
    )
    password: str | None = option(
        "password", text, None, "password; better given by one of the next two", is_secret=True
    )
    password_env: str | None = option(
        "passwordEnv", text, None, "environment variable that holds the password, in each process that connects"
    )
    password_file: str | None = option(
        "passwordFile", text, None, "file whose first line is the password, on each machine that connects"
    )
    tls: bool = option("tls", boolean, False, "speak TLS")
    tls_ca_file: str | None = option(
        "tlsCaFile", text, None, "certificates of the authorities to trust; the system's when not given"
    )
    tls_cert_file: str | None = option("tlsCertFile", text, None, "certificate of this client")
    tls_key_file: str | None = option("tlsKeyFile", text, None, "its key, when it is not in the same file")
    tls_key_password: str | None = option("tlsKeyPassword", text, None, "password of the key", is_secret=True)
    tls_verify: bool = option("tlsVerify", boolean, True, "whether the server's certificate must be valid")
    tls_check_hostname: bool = option("tlsCheckHostname", boolean, True, "whether it must be for the host asked for")
    tls_server_name: str | None = option(
        "tlsServerName", text, None, "host to check the certificate for, when it is not `host`"
    )
    sentinels: tuple[Address, ...] = option(
        "sentinels", addresses(26379), (), "`host:port` of Sentinels, with commas between, to ask for the primary"
    )
    sentinel_master: str | None = option("sentinelMaster", text, None, "the name under which they watch it")
    sentinel_username: str | None = option("sentinelUsername", text, None, "user for the Sentinels themselves")
    sentinel_password: str | None = option(
        "sentinelPassword", text, None, "password for the Sentinels themselves", is_secret=True
    )
    sentinel_password_env: str | None = option("sentinelPasswordEnv", text, None, "environment variable that holds it")
    sentinel_password_file: str | None = option("sentinelPasswordFile", text, None, "file whose first line it is")
    connect_timeout_ms: int = option("connectTimeout", parse_duration_ms, 5_000, "longest wait for a connection")
    read_timeout_ms: int = option("readTimeout", parse_duration_ms, 60_000, "longest wait for a reply")
    retries: int = option(
        "retries",
        whole_number(0),
        5,
        "further attempts when a connection breaks, or the server is loading or fails over",
    )
    retry_backoff_ms: int = option(
        "retryBackoff", parse_duration_ms, 100, "wait before the first of them; each next one waits twice as long"
    )
    retry_max_backoff_ms: int = option("retryMaxBackoff", parse_duration_ms, 5_000, "longest such wait")
    client_name: str = option("clientName", text, "streamd-spark", "name of the connections in CLIENT LIST")

    @classmethod
    def parse(cls, options: Options) -> ConnectionOptions:
        """Read the options of the connection, and of nothing else, out of a mapping."""
        given = lowered(options)
        only_one_of(given, "password", "passwordEnv", "passwordFile")
        only_one_of(given, "sentinelPassword", "sentinelPasswordEnv", "sentinelPasswordFile")
        only_one_of(given, "unixSocketPath", "host")
        only_one_of(given, "unixSocketPath", "sentinels")
        found = read_fields(cls, given)
        if "url" in found:
            found = {**url_fields(found["url"]), **found}
            if {"password_env", "password_file"} & found.keys() and "password" not in given:
                found.pop("password", None)
        made = cls(**found)
        if bool(made.sentinels) != bool(made.sentinel_master):
            missing = "sentinelMaster" if made.sentinels else "sentinels"
            raise OptionError(missing, "sentinels and sentinelMaster are given together")
        if not made.tls and any(name.startswith("tls_") for name in found):
            name = next(
                row.metadata["name"] for row in option_rows(cls) if row.name in found and row.name.startswith("tls_")
            )
            raise OptionError(name, "needs tls=true, or a rediss:// url")
        return made

    def find_password(self) -> str | None:
        """The password, from where the options say. Raises OptionError when it is not there."""
        return find_secret("password", self.password, self.password_env, self.password_file)

    def find_sentinel_password(self) -> str | None:
        return find_secret(
            "sentinelPassword", self.sentinel_password, self.sentinel_password_env, self.sentinel_password_file
        )

    @property
    def place(self) -> str:
        """Where the server is, for messages: no user, no password."""
        if self.unix_socket_path is not None:
            return self.unix_socket_path
        if self.sentinels:
            return f"{self.sentinel_master} by the Sentinels {', '.join(map(str, self.sentinels))}"
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
    """What a URL says, by attribute of ConnectionOptions. Complaints never repeat the URL: it may hold a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise OptionError("url", "its port is no number from 0 to 65535") from None
    found: dict[str, Any] = {}
    if parts.username:
        found["username"] = unquote(parts.username)
    if parts.password:
        found["password"] = unquote(parts.password)
    query = parse_qs(parts.query)
    if unknown := query.keys() - {"db"}:
        raise OptionError("url", f"knows no parameter {min(unknown)}; there are options for all but db")
    db = query["db"][0] if "db" in query else ""
    if parts.scheme == "unix":
        found["unix_socket_path"] = unquote(parts.path)
    else:
        found["tls"] = _SCHEMES[parts.scheme]
        if parts.hostname:
            found["host"] = unquote(parts.hostname)
        if port:
            found["port"] = port
        db = db or parts.path.strip("/")
    if db:
        found["db"] = read_value("url", whole_number(0), db)
    return found


# --- Source ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceOptions:
    """What to read. At least one of stream, streams, streamPattern, or an archive."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    stream: str | None = option("stream", text, None, "key of the stream to read")
    streams: tuple[str, ...] = option(
        "streams", names, (), "keys of several streams, with commas between or as a JSON array"
    )
    stream_pattern: str | None = option("streamPattern", text, None, "pattern of keys, as SCAN MATCH takes it")
    pattern_interval_ms: int = option(
        "patternInterval", parse_duration_ms, 10_000, "how often a query looks for new streams of the pattern"
    )
    starting: Bounds | None = option(
        "startingId",
        bounds("id", is_end=False),
        None,
        "`earliest`, `latest`, or an ID, itself included (`(ID`: excluded); or JSON by stream: "
        '`{"a": "latest", "*": "earliest"}`. Default: `earliest`',
    )
    ending: Bounds | None = option(
        "endingId",
        bounds("id", is_end=True),
        None,
        "the same for the end, itself included; batch only. Default: `latest`",
    )
    starting_timestamp: Bounds | None = option(
        "startingTimestamp",
        bounds("time", is_end=False),
        None,
        "entries from this time on: Unix time in ms, ISO 8601, or before now like `-1h`; or JSON by stream",
    )
    ending_timestamp: Bounds | None = option(
        "endingTimestamp", bounds("time", is_end=True), None, "entries from before this time; batch only"
    )
    min_partitions: int | None = option(
        "minPartitions",
        whole_number(1),
        None,
        "how many partitions there are to be at least, entries permitting. Default: the session's parallelism",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        whole_number(1),
        None,
        "how many entries a partition may hold; servers other than streamd have the range scanned for it when planning",
    )
    fetch_size: int = option(
        "fetchSize",
        whole_number(1, 1_000_000),
        2_000,
        "COUNT of each XRANGE; more keeps other clients of the server waiting longer",
    )
    batch_size: int = option("batchSize", whole_number(1, 1_000_000), 10_000, "rows of an Arrow record batch")
    pushdown: bool | None = option(
        "pushdown",
        boolean,
        None,
        "whether filters on id, ms, time and stream narrow what is read (as `register(spark, pushdown=True)` does for all reads); "
        "needs spark.sql.python.filterPushdown.enabled, and a DataFrame loaded anew for each use: PySpark 4.3 keeps the "
        "filters of the first one",
    )
    metadata_prefix: str = option(
        "metadataPrefix",
        str,
        "",
        "put before the names id, ms, seq, time, stream and fields, for entries with fields of these names",
    )
    mode: str = option(
        "mode",
        choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
        "PERMISSIVE",
        "what to do with a value that its column's type cannot take: null, drop the row, or fail",
    )
    corrupt_record_column: str | None = option(
        "columnNameOfCorruptRecord",
        text,
        None,
        "string column of the schema that gets the whole entry as JSON when a value could not be taken. Default: `_corrupt_record` when the schema has it",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        boolean,
        True,
        "fail when entries are gone that were to be read (trimmed, deleted with their stream, stream made anew); otherwise go on with what is there",
    )
    max_entries_per_trigger: int | None = option(
        "maxEntriesPerTrigger", whole_number(1), None, "most entries of a micro-batch"
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        size,
        None,
        "most bytes of a micro-batch, as replies on the wire; at least one entry is read",
    )
    min_entries_per_trigger: int | None = option(
        "minEntriesPerTrigger", whole_number(1), None, "wait for so many entries before a micro-batch"
    )
    max_trigger_delay_ms: int = option("maxTriggerDelay", parse_duration_ms, 900_000, "longest such wait")
    group: str | None = option(
        "group",
        text,
        None,
        "consumer group that mirrors the query's progress, for XINFO GROUPS and ACKED trims; nothing is read through it",
    )
    archive: str | None = option(
        "archive", text, None, "folder of an archive, to read what it holds together with what the server holds"
    )
    archive_lease_ms: int = option(
        "archiveLease",
        parse_duration_ms,
        600_000,
        "how long archivers leave on the server what a read of an archive takes from there; 0: they are not asked to",
    )

    @classmethod
    def parse(cls, options: Options) -> SourceOptions:
        """Read the options of a source. Raises OptionError."""
        given = lowered(options)
        refuse_unknown(given, cls, ConnectionOptions)
        only_one_of(given, "stream", "streams", "streamPattern")
        only_one_of(given, "startingId", "startingTimestamp")
        only_one_of(given, "endingId", "endingTimestamp")
        made = cls(connection=ConnectionOptions.parse(given), **read_fields(cls, given))
        if made.stream is None and not made.streams and made.stream_pattern is None and made.archive is None:
            raise OptionError("stream", "name what to read: stream, streams or streamPattern")
        if (
            made.min_entries_per_trigger
            and made.max_entries_per_trigger
            and (made.min_entries_per_trigger > made.max_entries_per_trigger)
        ):
            raise OptionError("minEntriesPerTrigger", "is above maxEntriesPerTrigger")
        return made

    @property
    def named_streams(self) -> tuple[str, ...]:
        """The streams that are named, in the order given; those of a pattern are found by asking the server."""
        return (self.stream,) if self.stream is not None else self.streams

    def start_of(self, stream: str) -> Bound:
        """Where reading of a stream starts."""
        return _bound_of(stream, self.starting_timestamp or self.starting, Bound("id", "earliest"))

    def end_of(self, stream: str) -> Bound:
        """Where a batch read of a stream ends."""
        return _bound_of(stream, self.ending_timestamp or self.ending, Bound("id", "latest"))


def _bound_of(stream: str, given: Bounds | None, default: Bound) -> Bound:
    if given is None or isinstance(given, Bound):
        return given or default
    return given.get(stream) or given.get("*") or default


# --- Sink -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SinkOptions:
    """How to write. The target is `stream`, or each row's `stream` column."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    stream: str | None = option(
        "stream", text, None, "key of the stream to write to; without it each row names its own in `streamColumn`"
    )
    stream_column: str = option(
        "streamColumn", text, "stream", "column that names the stream of a row; not a field of the entry"
    )
    id_column: str | None = option(
        "idColumn",
        text,
        None,
        "column with the entry's ID (`ms-seq`, `ms-*`, `*`); not a field of the entry. Default: the server makes the IDs",
    )
    fields_column: str = option(
        "fieldsColumn",
        text,
        "fields",
        "column whose array of field and value, or map, is the entry; without such a column each remaining one is a field",
    )
    null_values: str = option(
        "nullValues",
        choice("omit", "empty", "fail"),
        "omit",
        "what a null becomes: no field, an empty value, or an error",
    )
    maxlen: int | None = option("maxLen", whole_number(0), None, "trim the stream to so many entries while writing")
    minid: str | None = option(
        "minId", text, None, "trim what is below this ID, or older than a time like `-7d`, while writing"
    )
    trim_exactly: bool = option("trimExactly", boolean, False, "trim to the entry, not to a node's bounds")
    trim_limit: int | None = option(
        "trimLimit", whole_number(0), None, "most entries to trim at a time (LIMIT), when not trimming exactly"
    )
    trim_policy: str | None = option(
        "trimPolicy",
        choice("KEEPREF", "DELREF", "ACKED"),
        None,
        "what trimming does to pending references; ACKED: only what every group has acknowledged",
    )
    create: bool = option(
        "createStream",
        boolean,
        True,
        "whether a stream that is not there is made (otherwise NOMKSTREAM, and its rows are an error)",
    )
    delivery: str = option(
        "delivery",
        choice("at-least-once", "exactly-once"),
        "at-least-once",
        "exactly-once writes each chunk in a transaction with a marker, and skips on replay what the marker says is there",
    )
    idempotency_key: str | None = option(
        "idempotencyKey",
        text,
        None,
        "column whose value makes a repeated XADD a no-op (IDMP; Redis 8.6, streamd); independent of order",
    )
    idmp_duration_s: int | None = option(
        "idempotencyDuration",
        lambda value: max(1, parse_duration_ms(value) // 1000),
        None,
        "how long keys are remembered (XCFGSET); at most a day",
    )
    idmp_maxsize: int | None = option(
        "idempotencyMaxSize", whole_number(1, 10_000), None, "how many keys are remembered for each producer (XCFGSET)"
    )
    idmp_producers: int = option(
        "idempotencyProducers",
        whole_number(1, 65_536),
        256,
        "how many producers the keys of a query are spread over: this times idempotencyMaxSize keys are remembered; "
        "not to be changed while a batch is unfinished",
    )
    run_id: str | None = option(
        "runId",
        text,
        None,
        "name of a batch write, for exactly-once: the same name again is the same write; without it only the tasks of one "
        "write are told apart. A streaming query brings its own",
    )
    marker_prefix: str = option(
        "markerPrefix", text, "streamd:sink:", "beginning of the keys that hold the markers of exactly-once"
    )
    marker_ttl_ms: int | None = option(
        "markerTtl", parse_duration_ms, None, "how long a marker is kept after the last write; default: for good"
    )
    verify_replay: bool = option(
        "verifyReplay",
        boolean,
        True,
        "whether rows that are skipped, since the marker says they are there, are compared with those that were written",
    )
    chunk_size: int = option(
        "chunkSize", whole_number(1, 100_000), 1_000, "rows of a transaction, or of one round trip"
    )

    @classmethod
    def parse(cls, options: Options) -> SinkOptions:
        """Read the options of a sink. Raises OptionError."""
        given = lowered(options)
        refuse_unknown(given, cls, ConnectionOptions)
        only_one_of(given, "maxLen", "minId")
        only_one_of(given, "idempotencyKey", "idColumn")
        made = cls(connection=ConnectionOptions.parse(given), **read_fields(cls, given))
        if made.trim_exactly and made.trim_limit is not None:
            raise OptionError("trimLimit", "cannot be combined with trimExactly")
        for name, value in (
            ("trimExactly", made.trim_exactly),
            ("trimLimit", made.trim_limit),
            ("trimPolicy", made.trim_policy),
        ):
            if value not in (None, False) and made.maxlen is None and made.minid is None and name != "trimPolicy":
                raise OptionError(name, "needs maxLen or minId")
        return made
