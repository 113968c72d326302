"""Commands about the connection itself: HELLO, AUTH, PING, SELECT, CLIENT and others.

They know more of the server than others do; what, is written down as `Client`, `Server` and `ServerContext`.
Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import Any, NamedTuple

from streamd import REDIS_VERSION
from streamd.clients.connections import Connections
from streamd.clients.pause import Pause
from streamd.core.args import database_index, parse_timeout
from streamd.core.args import integer as read_integer
from streamd.core.client import Client
from streamd.core.client_line import describe, describe_all
from streamd.core.dispatch import Dispatcher, ServerContext
from streamd.core.help import declare_help
from streamd.core.host import Host
from streamd.core.spec import block, command, container, integer, multiple, oneof, optional, string, token
from streamd.errors import NO_SUCH_DATABASE, CommandError, NotIntegerError, OptionSyntaxError, printable
from streamd.protocol.request import forget_words
from streamd.users.acl import Acl

__all__ = ["HelloOptions", "KillFilter"]

DEFAULT_USER = b"default"


# --- The server, as used here -------------------------------------------------------------------------------------


# --- Texts and checks that several commands share --------------------------------------------------------------------


def _read_integer(text: bytes, error: str) -> int:
    """An integer argument; raises CommandError with the given text when it is not one."""
    try:
        return int(read_integer(text))
    except NotIntegerError:
        raise CommandError(error) from None


def _check_printable(value: bytes, what: str) -> None:
    """Raise CommandError when a name that CLIENT LIST shows would break its lines."""
    if any(not 0x21 <= byte <= 0x7E for byte in value):
        raise CommandError(f"ERR {what} cannot contain spaces, newlines or special characters.")


def _read_switch(word: bytes, on: bytes, off: bytes) -> bool:
    word = word.upper()
    if word not in (on, off):
        raise OptionSyntaxError
    return word == on


def _refuse_more(args: list[bytes], most: int) -> None:
    """Raise CommandError when a subcommand of CLIENT has more than `most` arguments."""
    if len(args) > most:
        raise CommandError(
            f"ERR unknown subcommand or wrong number of arguments for '{printable(args[1][:128])}'. Try CLIENT HELP."
        )


# --- HELLO, AUTH: user and protocol ------------------------------------------------------------------------------------


class HelloOptions(NamedTuple):
    """The request of a HELLO.

    protocol     2 or 3, or None: unchanged
    credentials  user and password, or None
    name         the new name of the connection, or None
    """

    protocol: int | None = None
    credentials: tuple[bytes, bytes] | None = None
    name: bytes | None = None

    @classmethod
    def parse(cls, args: list[bytes]) -> HelloOptions:
        """Read a request; CommandError when it is wrong."""
        if len(args) == 1:
            return cls()
        protocol = _read_integer(args[1], "ERR Protocol version is not an integer or out of range")
        if protocol not in (2, 3):
            raise CommandError("NOPROTO unsupported protocol version")
        credentials = name = None
        at = 2
        while at < len(args):
            word = args[at].upper()
            if word == b"AUTH" and at + 2 < len(args):
                credentials = args[at + 1], args[at + 2]
                at += 3
            elif word == b"SETNAME" and at + 1 < len(args):
                name = args[at + 1]
                _check_printable(name, "Client names")
                at += 2
            else:
                raise CommandError(f"ERR Syntax error in HELLO option '{printable(args[at])}'")
        return cls(protocol, credentials, name)


NODE_USER = b"internal connection"
"""The user that another node of the cluster is."""


def _authenticate(ctx: ServerContext, user: bytes, password: bytes, args: list[bytes]) -> None:
    """Log the client in; CommandError when the credentials are wrong."""
    forget_words(args[1:])
    if user == NODE_USER:
        ctx.get(Connections).log_in_node(ctx.client, password)
        return
    ctx.get(Acl).authenticate(ctx.client, user, password, args[0])


@command(
    "HELLO", arity=-1, group="connection", flags="noscript loading stale fast no_auth allow_busy", since="6.0.0",
    summary="Chooses the protocol, authenticates and names the connection.",
    history=(("6.2.0", "Without arguments it reports the current protocol."),),
    args=(
        optional(
            block(
                "arguments",
                integer("protover"),
                optional(block("auth", string("username"), string("password"), token="AUTH")),
                optional(string("clientname", "SETNAME")),
            )
        ),
    ),
)  # fmt: skip
def hello(ctx: ServerContext, args: list[bytes]) -> None:
    options = HelloOptions.parse(args)
    client = ctx.client
    if options.credentials is not None:
        _authenticate(ctx, *options.credentials, args)
    if not client.authenticated:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user>"
            " <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
        )
    if options.name is not None:
        client.name = options.name
    if options.protocol is not None:
        client.reply.resp = options.protocol
    reply = ctx.reply
    reply.map(7)
    for field, value in ((b"server", b"redis"), (b"version", REDIS_VERSION.encode())):
        reply.bulk(field)
        reply.bulk(value)
    for field, number in ((b"proto", reply.resp), (b"id", client.id)):
        reply.bulk(field)
        reply.integer(number)
    role = b"replica" if ctx.get(Dispatcher).is_replica else b"master"
    mode = b"cluster" if ctx.config.cluster_enabled else b"standalone"
    for field, value in ((b"mode", mode), (b"role", role)):
        reply.bulk(field)
        reply.bulk(value)
    reply.bulk(b"modules")
    reply.array(0)


@command(
    "AUTH", arity=-2, group="connection", flags="noscript loading stale fast no_auth allow_busy", since="1.0.0",
    summary="Authenticates the connection.", history=(("6.0.0", "A user name may be given."),),
    complexity="O(N) with N being the number of passwords of the user",
    args=(optional(string("username"), since="6.0.0"), string("password")),
)  # fmt: skip
def auth(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) > 3:
        raise OptionSyntaxError
    if len(args) == 2 and ctx.get(Acl).default.is_nopass:
        raise CommandError(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your"
            " configuration is correct?"
        )
    _authenticate(ctx, DEFAULT_USER if len(args) == 2 else args[1], args[-1], args)
    ctx.reply.ok()


# --- SELECT, QUIT, RESET -------------------------------------------------------------------------------------------------


@command(
    "SELECT", arity=2, group="connection", flags="loading stale fast", since="1.0.0",
    summary="Selects the database of the connection.", args=(integer("index"),),
)  # fmt: skip
def select(ctx: ServerContext, args: list[bytes]) -> None:
    index = database_index(args[1])
    if index and ctx.config.cluster_enabled:
        raise CommandError("ERR SELECT is not allowed in cluster mode")
    if not 0 <= index < len(ctx.databases):
        raise CommandError(NO_SUCH_DATABASE)
    ctx.get(Host).select(ctx.client, index)
    ctx.reply.ok()


@command(
    "QUIT", arity=-1, group="connection", flags="noscript loading stale fast no_auth allow_busy", since="1.0.0",
    summary="Closes the connection after the reply.", deprecated_since="7.2.0",
    replaced_by="just closing the connection",
)  # fmt: skip
def quit_(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.ok()
    ctx.client.close_after_reply = True


@command(
    "RESET", arity=1, group="connection", flags="noscript loading stale fast no_auth allow_busy", since="6.2.0",
    summary="Resets the connection to its initial state.",
)  # fmt: skip
def reset(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Host).reset(ctx.client)
    ctx.reply.simple(b"RESET")


# --- CLIENT: this connection ----------------------------------------------------------------------------------------------

container("CLIENT", group="connection", since="2.4.0", summary="Groups the commands about connections.")

_TO_ALL_NODES = ("request_policy:all_nodes", "response_policy:all_succeeded")


@command(
    "CLIENT ID", arity=2, group="connection", flags="noscript loading stale", since="5.0.0",
    summary="Returns the ID of the connection, which is never reused.",
)  # fmt: skip
def client_id(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.integer(ctx.client.id)


@command(
    "CLIENT GETNAME", arity=2, group="connection", flags="noscript loading stale", since="2.6.9",
    summary="Returns the name of the connection.",
)  # fmt: skip
def client_getname(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.bulk(ctx.client.name or None)


@command(
    "CLIENT SETNAME", arity=3, group="connection", flags="noscript loading stale", since="2.6.9", tips=_TO_ALL_NODES,
    summary="Sets the name of the connection; an empty one removes it.", args=(string("connection-name"),),
)  # fmt: skip
def client_setname(ctx: ServerContext, args: list[bytes]) -> None:
    _check_printable(args[2], "Client names")
    ctx.client.name = args[2]
    ctx.reply.ok()


@command(
    "CLIENT SETINFO", arity=4, group="connection", flags="noscript loading stale", since="7.2.0", tips=_TO_ALL_NODES,
    summary="Sets the name or version of the client's library.",
    args=(oneof("attr", string("libname", "LIB-NAME"), string("libver", "LIB-VER")),),
)  # fmt: skip
def client_setinfo(ctx: ServerContext, args: list[bytes]) -> None:
    word = args[2].upper()
    if word not in (b"LIB-NAME", b"LIB-VER"):
        raise CommandError(f"ERR Unrecognized option '{printable(args[2])}'")
    _check_printable(args[3], printable(args[2]))
    if word == b"LIB-NAME":
        ctx.client.lib_name = args[3]
    else:
        ctx.client.lib_ver = args[3]
    ctx.reply.ok()


@command(
    "CLIENT REPLY", arity=3, group="connection", flags="noscript loading stale", since="3.2.0",
    summary="Turns the replies to this connection off and on, or off for one command.",
    args=(oneof("action", token("ON"), token("OFF"), token("SKIP")),),
)  # fmt: skip
def client_reply(ctx: ServerContext, args: list[bytes]) -> None:
    mode = args[2].upper()
    if mode not in (b"ON", b"OFF", b"SKIP"):
        raise OptionSyntaxError
    ctx.client.set_reply_mode(mode)
    if mode == b"ON":
        ctx.reply.ok()


@command(
    "CLIENT NO-EVICT", arity=3, group="connection", flags="admin noscript loading stale", since="7.0.0",
    summary="Exempts the connection from the eviction of clients.",
    args=(oneof("enabled", token("ON"), token("OFF")),),
)  # fmt: skip
def client_no_evict(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.client.no_evict = _read_switch(args[2], b"ON", b"OFF")
    ctx.reply.ok()


@command(
    "CLIENT NO-TOUCH", arity=3, group="connection", flags="noscript loading stale", since="7.2.0",
    summary="Keeps this connection's commands from updating the access time of keys.",
    args=(oneof("enabled", token("ON"), token("OFF")),),
)  # fmt: skip
def client_no_touch(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.client.no_touch = _read_switch(args[2], b"ON", b"OFF")
    ctx.reply.ok()


# --- CLIENT LIST, INFO: connections in one line each -----------------------------------------------------------------------

CLIENT_TYPES = {
    b"NORMAL": "normal",
    b"MASTER": "master",
    b"REPLICA": "replica",
    b"SLAVE": "replica",
    b"PUBSUB": "pubsub",
}


OUTPUT_CLASSES = ("normal", "replica", "pubsub")
"""The types by their numbers in the server."""


def _now() -> float:
    """The clock of Client.created_at and last_interaction."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def _read_type(word: bytes) -> str:
    kind = CLIENT_TYPES.get(word.upper())
    if kind is None:
        raise CommandError(f"ERR Unknown client type '{printable(word)}'")
    return kind


def _type_of(client: Client) -> str:
    """The type for CLIENT LIST TYPE and CLIENT KILL TYPE."""
    if client.is_primary:
        return "master"
    return OUTPUT_CLASSES[client.output_class]


def _listed(ctx: ServerContext, args: list[bytes]) -> list[Client]:
    """The clients that a CLIENT LIST selects."""
    clients = ctx.get(Host).clients
    if len(args) == 2:
        return list(clients.values())
    word = args[2].upper()
    if word == b"TYPE" and len(args) == 4:
        kind = _read_type(args[3])
        return [client for client in clients.values() if _type_of(client) == kind]
    if word == b"ID" and len(args) > 3:
        ids = [_read_integer(text, "ERR Invalid client ID") for text in args[3:]]
        return [clients[number] for number in ids if number in clients]
    raise OptionSyntaxError


@command(
    "CLIENT LIST", arity=-2, group="connection", flags="admin noscript loading stale", since="2.4.0",
    complexity="O(N) with N being the number of connections", tips=("nondeterministic_output",),
    summary="Describes connections, one per line.",
    args=(
        optional(
            oneof("client-type", token("NORMAL"), token("MASTER"), token("REPLICA"), token("PUBSUB"), token="TYPE"),
            since="5.0.0",
        ),
        optional(multiple(integer("client-id", "ID")), since="6.2.0"),
    ),
)  # fmt: skip
def client_list(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.verbatim("txt", describe_all(_listed(ctx, args), _now(), ctx.client, args))


@command(
    "CLIENT INFO", arity=2, group="connection", flags="noscript loading stale", since="6.2.0",
    tips=("nondeterministic_output",), summary="Describes this connection, as CLIENT LIST does.",
)  # fmt: skip
def client_info(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.verbatim("txt", describe(ctx.client, _now(), args) + b"\n")


# --- CLIENT KILL, UNBLOCK, PAUSE: other connections ---------------------------------------------------------------------------


class KillFilter(NamedTuple):
    """Which connections a CLIENT KILL selects: those that match all fields that are not None.

    max_age_s  minimum age of connections, in seconds
    skip_me    whether the calling connection is exempt
    """

    id: int | None = None
    type: str | None = None
    user: bytes | None = None
    address: bytes | None = None
    local_address: bytes | None = None
    max_age_s: int | None = None
    skip_me: bool = True

    @classmethod
    def parse(cls, args: list[bytes], users: Container[bytes]) -> KillFilter:
        """Read the options of a CLIENT KILL, of repeated ones the last; CommandError when they are wrong.

        users  names of all users
        """
        found: dict[str, Any] = {}
        for at in range(2, len(args), 2):
            reader = _KILL_OPTIONS.get(args[at].upper())
            if reader is None or at + 1 == len(args):
                raise OptionSyntaxError
            name, read = reader
            found[name] = read(args[at + 1])
            if name == "user" and args[at + 1] not in users:
                raise CommandError(f"ERR No such user '{printable(args[at + 1])}'")
        return cls(**found)

    def fits(self, client: Client, now: float) -> bool:
        """Whether a connection matches; `skip_me` is not considered."""
        return (
            (self.id is None or client.id == self.id)
            and (self.type is None or _type_of(client) == self.type)
            and (self.user is None or (client.user is not None and client.user.name == self.user))
            and (self.address is None or client.address.encode("utf-8", "surrogateescape") == self.address)
            and (
                self.local_address is None
                or client.local_address.encode("utf-8", "surrogateescape") == self.local_address
            )
            and (self.max_age_s is None or int(now - client.created_at) >= self.max_age_s)
        )


def _read_positive(text: bytes, error: str, too_low: str) -> int:
    number = _read_integer(text, error)
    if number <= 0:
        raise CommandError(too_low)
    return number


def _read_client_id(text: bytes) -> int:
    error = "ERR client-id should be greater than 0"
    return _read_positive(text, error, error)


def _read_max_age(text: bytes) -> int:
    return _read_positive(text, "ERR maxage is not an integer or out of range", "ERR maxage should be greater than 0")


_KILL_OPTIONS: dict[bytes, tuple[str, Callable[[bytes], Any]]] = {
    b"ID": ("id", _read_client_id),
    b"TYPE": ("type", _read_type),
    b"USER": ("user", bytes),
    b"ADDR": ("address", bytes),
    b"LADDR": ("local_address", bytes),
    b"SKIPME": ("skip_me", lambda word: _read_switch(word, b"YES", b"NO")),
    b"MAXAGE": ("max_age_s", _read_max_age),
}


@command(
    "CLIENT KILL", arity=-3, group="connection", flags="admin noscript loading stale", since="2.4.0",
    complexity="O(N) with N being the number of connections", summary="Closes connections.",
    history=(
        ("2.8.12", "Options, with the number of closed connections as the reply."),
        ("3.2.0", "Type `master`."),
        ("5.0.0", "Type `replica`; `slave` stays."),
        ("6.2.0", "The local address."),
        ("7.4.0", "The age."),
    ),
    args=(
        oneof(
            "filter",
            string("old-format", display="ip:port", deprecated_since="2.8.12"),
            multiple(
                oneof(
                    "new-format",
                    optional(integer("client-id", "ID"), since="2.8.12"),
                    optional(
                        oneof(
                            "client-type", token("NORMAL"), token("MASTER", since="3.2.0"), token("SLAVE"),
                            token("REPLICA", since="5.0.0"), token("PUBSUB"), token="TYPE",
                        ),
                        since="2.8.12",
                    ),
                    optional(string("username", "USER")),
                    optional(string("addr", "ADDR", display="ip:port")),
                    optional(string("laddr", "LADDR", display="ip:port"), since="6.2.0"),
                    optional(oneof("skipme", token("YES"), token("NO"), token="SKIPME")),
                    optional(integer("maxage", "MAXAGE"), since="7.4.0"),
                )
            ),
        ),
    ),
)  # fmt: skip
def client_kill(ctx: ServerContext, args: list[bytes]) -> None:
    # With one argument it is an address, at most one connection is closed, and that may be this one.
    is_old_form = len(args) == 3
    users = ctx.get(Acl).users
    wanted = KillFilter(address=args[2], skip_me=False) if is_old_form else KillFilter.parse(args, users)
    now = _now()
    found = [
        client
        for client in ctx.get(Host).clients.values()
        if wanted.fits(client, now) and not (wanted.skip_me and client is ctx.client)
    ]
    if is_old_form:
        if not found:
            raise CommandError("ERR No such client")
        del found[1:]
    for client in found:
        ctx.get(Host).kill(client)
    if is_old_form:
        ctx.reply.ok()
    else:
        ctx.reply.integer(len(found))


def _unblock(ctx: ServerContext, client: Client, error: str | None) -> bool:
    """End a client's wait for keys, with the null array or an error; False when it does not wait, or must not be woken."""
    if client.blocked is None or not client.blocked.request.can_unblock:
        return False
    if error is None:
        ctx.get(Host).blocked.time_out(client.blocked)
    else:
        ctx.get(Host).blocked.fail(client.blocked, error)
    return True


@command(
    "CLIENT UNBLOCK", arity=-3, group="connection", flags="admin noscript loading stale", since="5.0.0",
    complexity="O(log N) with N being the number of connections", summary="Ends a connection's wait for keys.",
    args=(integer("client-id"), optional(oneof("unblock-type", token("TIMEOUT"), token("ERROR")))),
)  # fmt: skip
def client_unblock(ctx: ServerContext, args: list[bytes]) -> None:
    _refuse_more(args, 4)
    reason = args[3].upper() if len(args) == 4 else b"TIMEOUT"
    if reason not in (b"TIMEOUT", b"ERROR"):
        raise CommandError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    target = ctx.get(Host).clients.get(read_integer(args[2]))
    error = "UNBLOCKED client unblocked via CLIENT UNBLOCK" if reason == b"ERROR" else None
    ctx.reply.integer(1 if target is not None and _unblock(ctx, target, error) else 0)


@command(
    "CLIENT PAUSE", arity=-3, group="connection", flags="admin noscript loading stale", since="3.0.0",
    summary="Suspends all requests, or all writes, for a while.", history=(("6.2.0", "The mode `WRITE`."),),
    args=(integer("timeout"), optional(oneof("mode", token("WRITE"), token("ALL")), since="6.2.0")),
)  # fmt: skip
def client_pause(ctx: ServerContext, args: list[bytes]) -> None:
    _refuse_more(args, 4)
    mode = args[3].upper() if len(args) == 4 else b"ALL"
    if mode not in (b"WRITE", b"ALL"):
        raise CommandError("ERR CLIENT PAUSE mode must be WRITE or ALL")
    timeout_ms = parse_timeout(args[2], ctx.now_ms)
    ctx.get(Pause).begin(time.monotonic() + timeout_ms / 1000, writes_only=mode == b"WRITE")
    ctx.reply.ok()


@command(
    "CLIENT UNPAUSE", arity=2, group="connection", flags="admin noscript loading stale", since="6.2.0",
    complexity="O(N) with N being the number of connections that wait", summary="Ends a CLIENT PAUSE.",
)  # fmt: skip
def client_unpause(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Pause).end()
    ctx.reply.ok()


declare_help(
    "CLIENT", "connection", "5.0.0",
    "CACHING (YES|NO)",
    "    Set whether keys read by the next command are tracked, in the modes OPTIN and OPTOUT.",
    "GETREDIR",
    "    Show the ID of the connection that is notified of changes instead of this one.",
    "GETNAME",
    "    Show the name of this connection.",
    "ID",
    "    Show the ID of this connection.",
    "INFO",
    "    Describe this connection.",
    "KILL <ip:port>",
    "    Close the connection from that address.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Close every connection that matches all of:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      the address it comes from",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      the address it came to",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      its type",
    "    * USER <username>",
    "      its user",
    "    * SKIPME (YES|NO)",
    "      not this connection (the default), or this one too",
    "    * ID <client-id>",
    "      its number",
    "    * MAXAGE <maxage>",
    "      at least this many seconds old",
    "LIST [options ...]",
    "    Describe connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      those of one type",
    "    * ID <client-id> [<client-id> [...]]",
    "      those with these numbers",
    "UNPAUSE",
    "    End a pause.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all requests, or only writes, for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Send replies to this connection or not; SKIP: not to the next command.",
    "SETNAME <name>",
    "    Name this connection.",
    "SETINFO <option> <value>",
    "    Describe the client's program. Options:",
    "    * LIB-NAME: the name of its library",
    "    * LIB-VER: the version of its library",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    End the wait of a blocked connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Notify of changes of keys that this connection has read.",
    "TRACKINGINFO",
    "    Show the tracking options of this connection.",
    "MAINT_NOTIFICATIONS (ON|OFF) [moving-endpoint-type <type>]",
    "    Announce planned switches to this connection.",
    "NO-EVICT (ON|OFF)",
    "    Exempt this connection from the eviction of clients.",
    "NO-TOUCH (ON|OFF)",
    "    Do not update the access time of keys.",
)  # fmt: skip
