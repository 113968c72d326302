"""The error types and error texts that rooms share.

    StreamdError
     +- ProtocolError       the bytes are not a request: answered once, then the connection is closed
     +- CommandError        answered with `-CODE text`, the connection goes on
     |   +- WrongTypeError, NoSuchKeyError, OptionSyntaxError, NotIntegerError, InvalidIDError,
     |   |  NoGroupError, BusyGroupError, UnknownCommandError
     +- ReplicationError    the link to the primary cannot be used as it is: logged, and tried again
     |   +- StreamLostError the stream cannot be continued
     +- AclError            users that cannot be loaded
     |   +- RuleError       a rule that cannot be applied
     |   +- UnmatchedError  a selector that is not closed
     +- ConfigError         names the setting, and the line when it came from a file
     |   +- UnknownSettingError
     |   +- SettledError
     +- CorruptFileError    names the file, the offset, what was expected and what was there
     |   +- UnsupportedValueError
     +- StartError          the server cannot start: the line to log

Errors that one room alone raises are defined beside the code that raises them, in the modules below;
a test compares this list with the tree:

    archive        archive_errors, service, tier_answers, tier_reader
    client         client_errors, place
    cluster        bus: nodes_conf, packets; migration: target
    clustering     cluster_error
    console        inner_client, sessions
    importing      peers, run
    keyspace       commands: migration
    partitions     partition_error, reading
    persistence    directory_lock, start_loading, aof: file, replay, aof_manifest, reader, tail; rdb: read
    process        http_guard, listening
    replication    primary_connection
    serve          tls
    settings       config, kinds
    spark          spark_errors, source: offsets, planner
    transfer       move_error, partitions
    worker         job, worker

`str(error)` of a ProtocolError or CommandError is the whole line after the `-`, code included.
"""

from __future__ import annotations

__all__ = [
    "COUNT_NOT_POSITIVE",
    "INTERNAL_ERROR",
    "MUST_BE_POSITIVE",
    "NOT_AN_INTEGER",
    "NO_SUCH_DATABASE",
    "OUT_OF_MEMORY",
    "REPLICAS_READ_NO_KEYS",
    "TOO_FEW_REPLICAS",
    "WRONG_PAYLOAD",
    "AclError",
    "BusyGroupError",
    "CommandError",
    "ConfigError",
    "CorruptFileError",
    "InvalidIDError",
    "NoGroupError",
    "NoSuchKeyError",
    "NotIntegerError",
    "OptionSyntaxError",
    "ProtocolError",
    "ReplicationError",
    "RuleError",
    "SettledError",
    "StartError",
    "StreamLostError",
    "StreamdError",
    "UnknownCommandError",
    "UnknownSettingError",
    "UnmatchedError",
    "UnsupportedValueError",
    "WrongTypeError",
    "invalid_expire_time",
    "one_line",
    "printable",
]


COUNT_NOT_POSITIVE = "ERR COUNT must be > 0"
INTERNAL_ERROR = "ERR internal error, see the log of the server"
MUST_BE_POSITIVE = "ERR value is out of range, must be positive"
NO_SUCH_DATABASE = "ERR DB index is out of range"
NOT_AN_INTEGER = "ERR value is not an integer or out of range"
OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."
REPLICAS_READ_NO_KEYS = "ERR Replica can't interact with the keyspace"
TOO_FEW_REPLICAS = "NOREPLICAS Not enough good replicas to write."
WRONG_PAYLOAD = "ERR DUMP payload version or checksum are wrong"


def invalid_expire_time(command_name: str) -> str:
    """The text for a time that is not positive, or does not fit in 63 bits."""
    return f"ERR invalid expire time in '{command_name}' command"


def one_line(text: bytes) -> str:
    """User bytes made safe for a single line: CR and LF become spaces, nothing else changes.

    Latin-1 maps every byte to one character and back, so a line on the wire has the bytes that were received.
    """
    return text.replace(b"\r", b" ").replace(b"\n", b" ").decode("latin-1")


def printable(text: bytes) -> str:
    """Like one_line, in an error text that Redis makes with C's `%s`: a NUL ends what is shown."""
    return one_line(text.partition(b"\0")[0])


class StreamdError(Exception):
    """The root of all errors that streamd raises on purpose."""


class ProtocolError(StreamdError):
    """The bytes received are not a request. Answered once; then the connection is closed."""


class CommandError(StreamdError):
    """A request that cannot be served. Its text, code included, is the error reply."""


class WrongTypeError(CommandError):
    def __init__(self) -> None:
        super().__init__("WRONGTYPE Operation against a key holding the wrong kind of value")


class NoSuchKeyError(CommandError):
    def __init__(self) -> None:
        super().__init__("ERR no such key")


class OptionSyntaxError(CommandError):
    """Redis's plain syntax error, for option lists."""

    def __init__(self) -> None:
        super().__init__("ERR syntax error")


class NotIntegerError(CommandError):
    def __init__(self) -> None:
        super().__init__(NOT_AN_INTEGER)


class InvalidIDError(CommandError):
    def __init__(self) -> None:
        super().__init__("ERR Invalid stream ID specified as stream command argument")


class NoGroupError(CommandError):
    """A consumer group that does not exist; the text differs by command, so it is passed in full."""


class BusyGroupError(CommandError):
    def __init__(self) -> None:
        super().__init__("BUSYGROUP Consumer Group name already exists")


class UnknownCommandError(CommandError):
    """The command does not exist, or not with this many arguments: a file with it cannot be loaded."""


class ReplicationError(StreamdError):
    """The link to the primary cannot be used as it is; str() is the reason, for the log.

    is_lasting  a new attempt will fail too, until somebody changes something
    """

    def __init__(self, reason: str, *, is_lasting: bool = False) -> None:
        super().__init__(reason)
        self.is_lasting = is_lasting


class StreamLostError(ReplicationError):
    """The replication stream cannot be continued from here: all data must be transferred again."""


class AclError(StreamdError):
    """Users that cannot be loaded; str() is what to log or to answer."""


class RuleError(AclError):
    """A rule about a user that cannot be applied; str() is the reason.

    at          its index among the rules that were given
    is_unknown  it names a command or category that does not exist
    """

    def __init__(self, reason: str, *, is_unknown: bool = False) -> None:
        super().__init__(reason)
        self.at = 0
        self.is_unknown = is_unknown


class UnmatchedError(AclError):
    """A selector that is opened but not closed.

    at  index of the word that opens it
    """

    def __init__(self, at: int) -> None:
        super().__init__("Unmatched parenthesis in selector definition.")
        self.at = at


class ConfigError(StreamdError):
    """A setting that cannot be accepted.

    setting  its name
    reason   Redis's reason text, such as "argument must be 'yes' or 'no'"
    line     (number, text) in the configuration file, or None
    """

    def __init__(self, setting: str, reason: str, line: tuple[int, str] | None = None) -> None:
        super().__init__(reason)
        self.setting = setting
        self.reason = reason
        self.line = line


class SettledError(ConfigError):
    """A setting that may not change while files are being loaded."""


class UnknownSettingError(ConfigError):
    """A name that no setting has."""

    def __init__(self, setting: str, reason: str = "Bad directive or wrong number of arguments") -> None:
        super().__init__(setting, reason)


class CorruptFileError(StreamdError):
    """Bytes of a file, or of a payload, that are not what they must be.

    file      its name; empty for bytes from elsewhere
    offset    of the first wrong byte, from the start of the file
    expected  what should be there
    found     what is there
    """

    def __init__(self, file: str, offset: int, expected: str, found: str) -> None:
        where = f"{file}: " if file else ""
        super().__init__(f"{where}at byte {offset}: expected {expected}, found {found}")
        self.file = file
        self.offset = offset
        self.expected = expected
        self.found = found


class StartError(StreamdError):
    """The server cannot start; str() is the line to log."""


class UnsupportedValueError(CorruptFileError):
    """A value of a type that streamd does not support; the file itself may be valid.

    database, key  where it was
    type_name      what it is: `module value`, `array` ...
    """

    def __init__(self, file: str, offset: int, database: int, key: bytes, type_name: str) -> None:
        name = one_line(key)
        article = "an" if type_name[0] in "aeiou" else "a"
        found = f"{article} {type_name} at key '{name}' of database {database}"
        super().__init__(file, offset, "a value of a type that is supported", found)
        self.database = database
        self.key = key
        self.type_name = type_name
