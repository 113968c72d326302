"""The settings: one row each, with default, bounds, unit, meaning, and what is called when it changes.

A row has everything about a setting. The configuration file, the command line, CONFIG GET, SET and REWRITE, the
commented conf/streamd.conf and the manual's table are read from the rows (see config.py, which holds the values).

    integer("stream-node-max-entries", 100, lo=0, doc="...")

How text becomes a value and a value text is the business of the row's kind (kinds.py). A capability may declare rows of
its own in its own file, with `declare`, when it is imported.

Three sorts of rows: those that this server acts on; `planned` ones, whose value is stored and shown, with a warning, but
has no effect yet; and `foreign` ones, for features that are not supported, which are accepted so that a redis.conf can be
read (absent/absent_settings.py).

Names, defaults, bounds and error texts: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamd.integers import INT32_MAX, INT32_MIN, INT64_MAX, UINT64_MAX
from streamd.settings.kinds import (
    Boolean,
    BufferLimits,
    Choice,
    Clamped,
    Directory,
    Events,
    Integer,
    Kind,
    Memory,
    MemoryOrPercent,
    Octal,
    OomMode,
    OomScores,
    Percentiles,
    PrimaryAddress,
    SavePoint,
    SavePoints,
    ShutdownFlags,
    Text,
    Words,
    only_a_filename,
    only_a_preload,
)

__all__ = [
    "GROUPS",
    "RETIRED",
    "SETTINGS",
    "Setting",
    "Values",
    "boolean",
    "by_name",
    "choice",
    "declare",
    "integer",
    "memory",
    "setting",
    "text",
]

# --- Rows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Setting:
    """One row.

    name          as files and clients write it; the attribute of Config has `_` for `-`
    default       the value without any configuration
    doc           what it is for, in whole sentences
    unit          of a number: ms, seconds, bytes ...
    aliases       older names, which work everywhere
    is_immutable  decided at start, CONFIG SET refuses it
    is_protected  CONFIG SET needs enable-protected-configs
    is_settled    CONFIG SET refuses it while files are being loaded
    is_hidden     patterns of CONFIG GET do not find it, its own name does
    is_secret     never logged
    is_planned    stored and shown, but without effect yet
    is_foreign    belongs to a feature that is not supported: accepted, without effect
    apply         name of the function to call after CONFIG SET; empty: the value is read where it is used
    """

    name: str
    kind: Kind
    default: Any
    doc: str
    unit: str = ""
    aliases: tuple[str, ...] = ()
    is_immutable: bool = False
    is_protected: bool = False
    is_settled: bool = False
    is_hidden: bool = False
    is_secret: bool = False
    is_planned: bool = False
    is_foreign: bool = False
    apply: str = ""

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_")

    @property
    def is_effective(self) -> bool:
        return not (self.is_planned or self.is_foreign)


_FLAGS = frozenset({"immutable", "protected", "settled", "hidden", "secret", "planned", "foreign"})


def setting(
    name: str,
    kind: Kind,
    default: Any,
    doc: str,
    *,
    flags: str = "",
    unit: str = "",
    aliases: str = "",
    apply: str = "",
) -> Setting:
    words = flags.split()
    if unknown := set(words) - _FLAGS:
        raise ValueError(f"setting {name}: unknown flags {unknown}")
    is_what = {f"is_{word}": True for word in words}
    return Setting(name, kind, default, doc, unit, tuple(aliases.split()), apply=apply, **is_what)


def integer(name: str, default: int, *, lo: int = 0, hi: int = INT64_MAX, doc: str, **more: str) -> Setting:
    return setting(name, Integer(lo, hi), default, doc, **more)


def memory(name: str, default: int, *, lo: int = 0, hi: int = INT64_MAX, doc: str, **more: str) -> Setting:
    return setting(name, Memory(lo, hi), default, doc, **more)


def boolean(name: str, default: bool, *, doc: str, **more: str) -> Setting:
    return setting(name, Boolean(), default, doc, **more)


def choice(name: str, default: str, words: Sequence[str], *, doc: str, **more: str) -> Setting:
    return setting(name, Choice(words), default, doc, **more)


def text(
    name: str, default: str = "", *, check: Callable[[str], str | None] | None = None, doc: str, **more: str
) -> Setting:
    return setting(name, Text(check), default, doc, **more)


MB = 1 << 20
NO_YES_LOCAL = ("no", "yes", "local")
SHUTDOWN_WORDS = ("default", "save", "nosave", "now", "force", "failover")

NETWORK = (
    setting(
        "bind", Words(16), ("*", "-::*"), apply="listen",
        doc="Addresses to listen on. `*` is all of IPv4, `::*` all of IPv6; with a leading `-` an address may be missing.",
    ),
    integer("port", 6379, hi=65535, apply="listen", doc="TCP port; 0 listens on none."),
    boolean(
        "protected-mode", True,
        doc="While there is no password, accept connections only from this machine.",
    ),
    text("unixsocket", flags="immutable", doc="Path of a Unix socket to listen on as well; empty for none."),
    setting(
        "unixsocketperm", Octal(0, 0o777), 0, flags="immutable",
        doc="Permissions of the Unix socket; 0 leaves them to the umask.",
    ),
    integer(
        "tcp-backlog", 511, hi=INT32_MAX, flags="immutable",
        doc="Connections that may wait to be accepted; the system may set a lower limit.",
    ),
    boolean(
        "socket-poller", True, flags="immutable",
        doc="Receive plain connections directly from epoll or kqueue; `no`: through the transports of the event loop.",
    ),
    integer(
        "io-threads", 1, lo=1, hi=128, flags="immutable",
        doc="Threads for plain connections: one runs the commands, all others receive requests and send replies.",
    ),
    integer(
        "tcp-keepalive", 300, hi=INT32_MAX, unit="seconds",
        doc="Probe connections that have been silent for this long, to detect dead peers; 0: never.",
    ),
    integer("timeout", 0, hi=INT32_MAX, unit="seconds", doc="Close clients that have been idle for this long; 0: never."),
    text("bind-source-addr", doc="Address from which outgoing connections are made."),
)  # fmt: skip

PROCESS = (
    boolean("daemonize", False, flags="immutable", doc="Run in the background."),
    text("pidfile", flags="immutable", doc="File for the process ID; written when it is set, or when daemonized."),
    setting(
        "dir", Directory(), "", flags="protected settled", apply="directory",
        doc="Directory to work in; relative paths start here.",
    ),
    choice(
        "loglevel", "notice", ("debug", "verbose", "notice", "warning", "nothing"), apply="log",
        doc="The least important messages that are logged.",
    ),
    text("logfile", flags="immutable", doc="File that log lines are appended to; empty for the standard output."),
    integer("databases", 16, lo=1, hi=INT32_MAX, flags="immutable", doc="Number of databases."),
    setting("hz", Clamped(1, 500), 10, "How often background work is done.", unit="times a second"),
    setting(
        "shutdown-on-sigterm", ShutdownFlags(SHUTDOWN_WORDS), (),
        doc="How SIGTERM shuts the server down: options of SHUTDOWN.",
    ),
    setting(
        "shutdown-on-sigint", ShutdownFlags(SHUTDOWN_WORDS), (),
        doc="How SIGINT shuts the server down: options of SHUTDOWN.",
    ),
    integer(
        "shutdown-timeout", 10, hi=INT32_MAX, unit="seconds",
        doc="How long a shutdown waits for replicas to catch up.",
    ),
    boolean("crash-log-enabled", True, apply="crash-log", doc="Write a report to the log when the process dies of a signal."),
    integer(
        "watchdog-period", 0, hi=INT32_MAX, unit="ms", flags="hidden", apply="watchdog",
        doc="Write the stacks to the log when a turn of the event loop takes this long. 0: never.",
    ),
    setting(
        "oom-score-adj", OomMode(("no", "yes", "relative", "absolute")), "no", apply="oom-score",
        doc="Make the system kill this process sooner, or later, than others when memory runs out; `yes` is `relative`.",
    ),
    setting(
        "oom-score-adj-values", OomScores(), (0, 200, 800), apply="oom-score",
        doc="Scores of the server, of a replica and of children that write files; `relative`: added to the initial score.",
    ),
    boolean("syslog-enabled", False, flags="immutable planned", doc="Log to the system's log as well."),
    text("syslog-ident", "redis", flags="immutable planned", doc="Name in the system's log."),
    choice(
        "syslog-facility", "local0", ("user", *(f"local{n}" for n in range(8))), flags="immutable planned",
        doc="Facility of the system's log.",
    ),
    choice(
        "supervised", "no", ("upstart", "systemd", "auto", "no"), flags="immutable",
        doc="Notify the supervisor of the process when the server is ready and when it stops; `auto`: the one that is found.",
    ),
    boolean("hide-user-data-from-log", False, flags="planned", doc="Keep keys and values out of the log."),
)  # fmt: skip

CLIENTS = (
    integer(
        "maxclients", 10000, lo=1, hi=2**32 - 1, apply="open-files",
        doc="Clients that may be connected at a time; lowered at start when the system allows fewer open files.",
    ),
    setting(
        "client-output-buffer-limit", BufferLimits(), BufferLimits.DEFAULT, apply="refresh",
        doc="Close a client that does not read its replies: hard limit, soft limit, and for how many seconds the soft one"
        " may be exceeded. The classes are normal, replica and pubsub.",
    ),
    memory(
        "client-query-buffer-limit", 1 << 30, lo=MB, apply="refresh",
        doc="Close a client whose unfinished request is larger than this.",
    ),
    memory("proto-max-bulk-len", 512 * MB, lo=MB, apply="refresh", doc="The longest single argument of a request."),
    setting(
        "maxmemory-clients", MemoryOrPercent(), 0, apply="refresh",
        doc="Close clients when their buffers together exceed this; 0: never.",
    ),
    integer(
        "tracking-table-max-keys", 1000000, apply="refresh", doc="Keys that client-side caching tracks; 0: no limit."
    ),
)  # fmt: skip

SECURITY = (
    text(
        "requirepass", flags="secret", apply="password",
        doc="Password of the default user, with which clients must authenticate; empty for none.",
    ),
    choice(
        "enable-debug-command", "no", NO_YES_LOCAL, flags="immutable",
        doc="Who may use DEBUG: nobody, everybody, or clients on this machine.",
    ),
    choice(
        "enable-protected-configs", "no", NO_YES_LOCAL, flags="immutable",
        doc="Whether CONFIG SET may change `dir` and `dbfilename`.",
    ),
    text(
        "aclfile", flags="immutable",
        doc="File with the users, one per line; without it they are `user` lines of the configuration.",
    ),
    choice(
        "acl-pubsub-default", "resetchannels", ("allchannels", "resetchannels"),
        doc="Channels that a new user may use by default.",
    ),
    integer("acllog-max-len", 128, doc="Entries that ACL LOG keeps."),
)  # fmt: skip

STREAMS = (
    memory(
        "stream-node-max-bytes", 4096, unit="bytes", apply="refresh",
        doc="Maximum size of a node of a stream; 0 for no limit by size.",
    ),
    integer(
        "stream-node-max-entries", 100, apply="refresh",
        doc="Entries in a node of a stream, deleted ones included; 0 for no limit by count.",
    ),
    boolean(
        "stream-exact-lag", False,
        doc="Whether XINFO counts the lag of a group. By default it is estimated as in Redis, and null where unknown.",
    ),
    integer(
        "stream-idmp-duration", 100, lo=1, hi=86400, unit="seconds", apply="refresh",
        doc="How long a new stream remembers the messages of idempotent producers.",
    ),
    integer(
        "stream-idmp-maxsize", 100, lo=1, hi=10000, apply="refresh",
        doc="How many messages of each idempotent producer a new stream remembers.",
    ),
)  # fmt: skip

MEMORY = (
    memory("maxmemory", 0, hi=UINT64_MAX, apply="refresh", doc="Memory for data, clients and buffers, without the interpreter; above it keys are evicted or writes refused. 0: no limit."),
    choice(
        "maxmemory-policy", "noeviction",
        (
            "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "volatile-lrm",
            "allkeys-lru", "allkeys-lfu", "allkeys-random", "allkeys-lrm", "noeviction",
        ),
        apply="refresh", doc="Which keys are evicted above maxmemory.",
    ),
    integer("maxmemory-samples", 5, lo=1, hi=64, apply="refresh", doc="Keys sampled to find one to evict."),
    integer(
        "maxmemory-eviction-tenacity", 10, hi=100, apply="refresh", doc="How much time eviction may take, 0 to 100."
    ),
    integer("lfu-log-factor", 10, hi=INT32_MAX, apply="refresh", doc="How slowly access counts of keys saturate."),
    integer("lfu-decay-time", 1, hi=INT32_MAX, unit="minutes", apply="refresh", doc="Minutes without access after which the access count of a key falls by one; 0: never."),
    integer("active-expire-effort", 1, lo=1, hi=10, flags="planned", doc="How much effort goes into finding expired keys."),
    boolean("dynamic-hz", True, flags="planned", doc="Do background work more often while there are many clients."),
)  # fmt: skip

EVENTS = (
    setting(
        "notify-keyspace-events", Events(), "", apply="refresh",
        doc="Which changes of keys are published: K, E or both, and letters for the kinds of events.",
    ),
    integer(
        "slowlog-log-slower-than", 10000, lo=-1, unit="us", apply="refresh",
        doc="Log requests that take longer; -1 logs none.",
    ),
    integer("slowlog-max-len", 128, apply="refresh", doc="Requests that the slow log keeps."),
    integer("slowlog-entry-max-argc", 32, lo=2, hi=INT32_MAX, apply="refresh", doc="Arguments of a request that the slow log keeps."),
    integer("slowlog-entry-max-string-len", 128, lo=1, hi=INT32_MAX, apply="refresh", doc="Bytes of each argument that it keeps."),
    integer("latency-monitor-threshold", 0, unit="ms", apply="refresh", doc="Record events that take longer; 0 for none."),
    boolean("latency-tracking", True, apply="refresh", doc="Keep a histogram of the time that each command takes."),
    setting(
        "latency-tracking-info-percentiles", Percentiles(), (50.0, 99.0, 99.9),
        doc="Percentiles of those histograms that INFO shows.",
    ),
)  # fmt: skip

METRICS = (
    integer(
        "metrics-port", 0, hi=65535, apply="listen-metrics",
        doc="HTTP port that serves /metrics to Prometheus; 0: none. Needs the extra `metrics`.",
    ),
    setting(
        "metrics-bind", Words(16), ("127.0.0.1", "-::1"), apply="listen-metrics",
        doc="Addresses of that port. It serves without a password: anyone who can connect can read the names of streams, groups and consumers.",
    ),
    text(
        "metrics-hosts", "",
        doc="Host names with a dot by which clients may address that port, separated by blanks; `*` allows any. Names without a dot and addresses are always allowed.",
    ),
    text("metrics-streams", "*", doc="Pattern of the streams that the metrics report individually."),
    integer("metrics-max-streams", 1000, doc="Maximum number of these streams."),
    integer("metrics-max-consumers", 1000, doc="Maximum number of consumers, of all groups, that the metrics report individually."),
    integer(
        "metrics-max-deliveries", 5,
        doc="Pending entries that were delivered more often than this are counted in the metrics.",
    ),
)  # fmt: skip

CONSOLE = (
    integer(
        "http-port", 0, hi=65535, apply="listen-http",
        doc="HTTP port of the console, a page that shows the server to a browser; 0: none. Needs the extra `console`.",
    ),
    setting(
        "http-bind", Words(16), ("127.0.0.1", "-::1"), apply="listen-http",
        doc="Addresses of that port. Passwords are sent over it in clear text.",
    ),
    text(
        "http-hosts", "",
        doc="Host names by which browsers may address the console, separated by blanks; `*` allows any. `localhost` and addresses are always allowed.",
    ),
    boolean(
        "http-allow-writes", False,
        doc="Let users of the console acknowledge, claim, trim and remove consumers, as far as their permissions go.",
    ),
    integer("http-session-timeout", 1800, unit="s", lo=1, doc="End sessions of the console after this time without a request; an open page sends requests."),
    integer("http-max-streams", 5000, doc="Maximum number of streams that the console lists."),
)  # fmt: skip

PERSISTENCE = (
    setting(
        "save", SavePoints(), (SavePoint(3600, 1), SavePoint(300, 100), SavePoint(60, 10000)), apply="save-points",
        doc="Take a snapshot after this many seconds with at least this many changes. Repeated lines add up.",
    ),
    text(
        "dbfilename", "dump.rdb", flags="protected", apply="refresh", check=only_a_filename("dbfilename"),
        doc="Name of the snapshot.",
    ),
    boolean("rdbcompression", True, apply="refresh", doc="Compress strings in snapshots."),
    boolean("rdbchecksum", True, flags="immutable", doc="Write and verify checksums of snapshots."),
    choice(
        "rdb-form", "8.6", ("8.10", "8.8", "8.6", "7.2", "7.0"), apply="refresh",
        doc="The oldest Redis release that must be able to read snapshots. What its format lacks is omitted, and logged."
        " The append-only file and DUMP follow it from 8.6 on.",
    ),
    boolean(
        "rdb-skip-unsupported", False, apply="refresh",
        doc="Skip, and log, keys of types that this server does not support, instead of refusing a snapshot. The whole file is"
        " kept as NAME.whole-TIME.",
    ),
    boolean("rdb-del-sync-files", False, doc="Remove snapshots that were only made for a replica."),
    boolean("rdb-save-incremental-fsync", True, doc="Flush a snapshot to disk while it is written."),
    integer(
        "rdb-key-save-delay", 0, lo=INT32_MIN, hi=INT32_MAX, flags="hidden",
        doc="For tests: slow down children that write, by microseconds per key, or, if negative, to keys per microsecond.",
    ),
    integer(
        "key-load-delay", 0, lo=INT32_MIN, hi=INT32_MAX, flags="hidden",
        doc="For tests: slow down loading, by microseconds per key, or, if negative, to keys per microsecond.",
    ),
    boolean("stop-writes-on-bgsave-error", True, apply="refresh", doc="Refuse writes while snapshots fail."),
    choice(
        "sanitize-dump-payload", "no", ("no", "yes", "clients"),
        doc="No effect: data from snapshots and RESTORE is always verified completely.",
    ),
    boolean("appendonly", False, apply="append-only", doc="Write every change to a log that survives a crash."),
    choice(
        "appendfsync", "everysec", ("everysec", "always", "no"), apply="refresh",
        doc="When that log is flushed to disk.",
    ),
    text(
        "appendfilename", "appendonly.aof", flags="immutable", check=only_a_filename("appendfilename"),
        doc="Prefix of the names of the log's files.",
    ),
    text(
        "appenddirname", "appendonlydir", flags="immutable", check=only_a_filename("appenddirname"),
        doc="Directory of the log's files.",
    ),
    text(
        "backupdirname", "backupdir", flags="immutable", check=only_a_filename("backupdirname"),
        doc="Directory of the files of BACKUP.",
    ),
    integer(
        "backup-sealed-ttl", 0, hi=INT32_MAX, unit="seconds",
        doc="Delete a sealed backup after this time; 0 keeps it.",
    ),
    text(
        "preload-file", flags="immutable", check=only_a_preload,
        doc="Load `aof:<manifest>` or `rdb:<file>` at the start instead of the server's own files.",
    ),
    boolean("no-appendfsync-on-rewrite", False, apply="refresh", doc="Do not flush while a snapshot or rewrite runs."),
    integer(
        "auto-aof-rewrite-percentage", 100, hi=INT32_MAX, unit="%", apply="refresh",
        doc="Rewrite the log when it has grown by this percentage; 0: never.",
    ),
    memory("auto-aof-rewrite-min-size", 64 * MB, apply="refresh", doc="Do not rewrite a log smaller than this."),
    boolean("aof-use-rdb-preamble", True, apply="refresh", doc="Start a rewritten log with a snapshot."),
    boolean("aof-load-truncated", True, doc="Load a log whose end is missing."),
    integer(
        "aof-load-corrupt-tail-max-size", 0, unit="bytes",
        doc="Load a log with a damaged end of at most this size.",
    ),
    boolean(
        "aof-disable-auto-gc", False, flags="hidden", apply="refresh",
        doc="Keep files that a rewritten log no longer needs.",
    ),
    boolean("aof-timestamp-enabled", False, apply="refresh", doc="Write timestamps to the log."),
    boolean("aof-rewrite-incremental-fsync", True, doc="Flush a rewritten log to disk while it is written."),
)  # fmt: skip

REPLICATION = (
    setting(
        "replicaof", PrimaryAddress(), (), flags="immutable", aliases="slaveof",
        doc="Host and port of the primary to follow.",
    ),
    text("masteruser", apply="refresh", doc="User to log in as at the primary."),
    text("masterauth", flags="secret", apply="refresh", doc="Password for the primary."),
    boolean(
        "replica-serve-stale-data", True, apply="refresh", aliases="slave-serve-stale-data",
        doc="Answer while the link to the primary is down.",
    ),
    boolean(
        "replica-read-only", True, apply="refresh", aliases="slave-read-only", doc="Refuse writes on a replica."
    ),
    boolean(
        "replica-ignore-maxmemory", True, apply="refresh", aliases="slave-ignore-maxmemory",
        doc="Leave eviction to the primary.",
    ),
    boolean("replica-ignore-disk-write-errors", False, doc="Continue when a replica cannot write its files."),
    integer(
        "replica-priority", 100, hi=INT32_MAX, aliases="slave-priority",
        doc="Sentinel promotes the replica with the smallest number, and never one with 0.",
    ),
    boolean("replica-announced", True, doc="Let Sentinel report this replica."),
    text("replica-announce-ip", aliases="slave-announce-ip", doc="Address to report to the primary."),
    integer(
        "replica-announce-port", 0, hi=65535, aliases="slave-announce-port",
        doc="Port to report to the primary.",
    ),
    memory("replica-full-sync-buffer-limit", 0, doc="Memory for changes during a full resync."),
    integer("repl-timeout", 60, lo=1, hi=INT32_MAX, unit="seconds", doc="Drop a link that has been silent for this long."),
    integer(
        "repl-ping-replica-period", 10, lo=1, hi=INT32_MAX, unit="seconds",
        aliases="repl-ping-slave-period", doc="How often replicas are pinged.",
    ),
    memory("repl-backlog-size", MB, lo=1, apply="refresh", doc="Changes that are kept for replicas that reconnect."),
    integer("repl-backlog-ttl", 3600, unit="seconds", doc="Free the backlog when no replica has been connected for this long."),
    boolean("repl-disable-tcp-nodelay", False, doc="Send to replicas in fewer, larger packets."),
    boolean("repl-diskless-sync", True, doc="Send snapshots without writing a file."),
    integer(
        "repl-diskless-sync-delay", 5, hi=INT32_MAX, unit="seconds",
        doc="Wait for more replicas before a snapshot is sent.",
    ),
    integer(
        "repl-diskless-sync-max-replicas", 0, hi=INT32_MAX,
        doc="Do not wait when this many replicas have requested one; 0: always wait.",
    ),
    choice(
        "repl-diskless-load", "disabled", ("disabled", "on-empty-db", "swapdb", "flushdb"),
        doc="Load snapshots of the primary without writing a file.",
    ),
    boolean("repl-rdb-channel", True, flags="hidden", doc="Send a snapshot on a connection of its own."),
    integer(
        "min-replicas-to-write", 0, hi=INT32_MAX, apply="refresh", aliases="min-slaves-to-write",
        doc="Refuse writes while fewer replicas are connected.",
    ),
    integer(
        "min-replicas-max-lag", 10, hi=INT32_MAX, unit="seconds", apply="refresh", aliases="min-slaves-max-lag",
        doc="A replica that has been silent for longer does not count as connected.",
    ),
    choice(
        "propagation-error-behavior", "ignore", ("ignore", "panic", "panic-on-replicas"),
        doc="What to do when a change cannot be propagated.",
    ),
)  # fmt: skip

TLS = (
    integer("tls-port", 0, hi=65535, apply="listen-tls", doc="Port for TLS; 0 for none."),
    *(
        text(name, apply="tls", doc=doc)
        for name, doc in (
            ("tls-cert-file", "Certificate of this server."),
            ("tls-key-file", "Its private key."),
            ("tls-dh-params-file", "Parameters for Diffie-Hellman."),
            ("tls-ca-cert-file", "Certificates of authorities that are trusted."),
            ("tls-ca-cert-dir", "Directory of such certificates."),
            ("tls-protocols", "Versions of TLS that are accepted, such as `TLSv1.2 TLSv1.3`; empty: these two."),
            ("tls-ciphers", "Ciphers up to TLS 1.2; empty: those of OpenSSL."),
            ("tls-ciphersuites", "Ciphers of TLS 1.3; empty: those of OpenSSL."),
        )
    ),
    text("tls-key-file-pass", flags="secret", apply="tls", doc="Password of the private key."),
    text("tls-client-cert-file", doc="Certificate for outgoing connections."),
    text("tls-client-key-file", doc="Its private key."),
    text("tls-client-key-file-pass", flags="secret", doc="Password of the private key for outgoing connections."),
    choice(
        "tls-auth-clients", "yes", ("no", "yes", "optional"), apply="tls",
        doc="Certificates of clients: `yes` requires them, `optional` accepts clients without, `no` does not request them.",
    ),
    choice(
        "tls-auth-clients-user", "off", ("CN", "off"),
        doc="Log clients in as the user that the common name (CN) of their certificate names.",
    ),
    boolean("tls-replication", False, apply="refresh", doc="Use TLS to the primary."),
    boolean("tls-prefer-server-ciphers", False, apply="tls", doc="Prefer this server's order of ciphers."),
    boolean("tls-session-caching", True, apply="tls", doc="Let clients resume sessions."),
    integer("tls-session-cache-size", 20480, hi=INT32_MAX, apply="tls", doc="Number of sessions that are kept; 0: no limit."),
    integer("tls-session-cache-timeout", 300, hi=INT32_MAX, unit="seconds", apply="tls", doc="How long sessions are kept."),
    integer("max-new-tls-connections-per-cycle", 1, lo=1, hi=1000, flags="planned", doc="TLS connections accepted at once."),
)  # fmt: skip


GROUPS: dict[str, list[Setting]] = {}
"""All rows under headings, in the order of the manual."""

SETTINGS: list[Setting] = []
"""All rows."""

by_name: dict[str, Setting] = {}
"""Rows by their names and aliases."""


class Values:
    """The defaults of all settings, by attribute; `-` in a name is `_`."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def declare(heading: str, *rows: Setting) -> None:
    """Add rows under a heading: from here on Config, CONFIG, files and the manual know them. Called while modules are
    imported, by the room that acts on the settings; raises ValueError for a name that there is already.
    """
    for row in rows:
        for name in (row.name, *row.aliases):
            if name in by_name:
                raise ValueError(f"setting {name} is declared twice")
            by_name[name] = row
        GROUPS.setdefault(heading, []).append(row)
        SETTINGS.append(row)
        setattr(Values, row.attribute, row.default)


declare("Network", *NETWORK)
declare("Process", *PROCESS)
declare("Clients", *CLIENTS)
declare("Security", *SECURITY)
declare("Streams", *STREAMS)
# The rooms of these types declare their settings; their place in the manual is here, in whichever order they are imported.
GROUPS.update({heading: [] for heading in ("Lists", "Sets", "Hashes", "Sorted sets", "HyperLogLogs")})
declare("Memory", *MEMORY)
declare("Events and slow requests", *EVENTS)
declare("Metrics", *METRICS)
declare("Console", *CONSOLE)
declare("Persistence", *PERSISTENCE)
declare("Replication", *REPLICATION)
declare("TLS", *TLS)
declare(
    "Scripts",
    integer(
        "busy-reply-threshold", 5000, unit="ms", aliases="lua-time-limit", apply="refresh",
        doc="How long a script may run before other clients are answered `BUSY`. 0: until it ends.",
    ),
    memory(
        "lua-memory-limit", 1 << 30, unit="bytes", apply="refresh",
        doc="Memory limit of all scripts together. Functions have another one, of the same size. 0: no limit, as in Redis.",
    ),
)  # fmt: skip

RETIRED = frozenset(
    {"list-max-ziplist-entries", "list-max-ziplist-value", "lua-replicate-commands", "io-threads-do-reads"}
)
"""Obsolete names; with one value they are ignored in a file, as by Redis, and CONFIG does not know them."""
