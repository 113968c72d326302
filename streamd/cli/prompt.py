"""`streamd cli`, and the program `streamd-cli`: a client for those who have no redis-cli, with its options.

streamd cli -u redis://:secret@localhost:6379/1 XADD readings '*' sensor a
streamd cli --json XRANGE readings - +
streamd cli                       asks for requests, with completion and hints
streamd cli < requests.txt        sends them, a line each
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streamd import REDIS_VERSION, __version__
from streamd.client.client_errors import ServerError
from streamd.client.connection import Connection, dial
from streamd.client.place import Place
from streamd.client.redirection import Redirection
from streamd.client.reply_types import Verbatim
from streamd.errors import StreamdError
from streamd.printable import printable
from streamd.shell.conversation import Conversation
from streamd.shell.showing import as_json, pretty, raw

__all__ = ["converse", "main"]

DESCRIPTION = "Send a request, the lines of standard input, or requests typed at a prompt."
ENDINGS = "$REDISCLI_AUTH is the default password, $STREAMD_URL the default URL."


def main() -> None:
    """The program `streamd-cli`; does not return."""
    sys.exit(converse(sys.argv[1:], program=os.path.basename(sys.argv[0]) or "streamd-cli"))


def make_parser(program: str) -> argparse.ArgumentParser:
    # `-h` is the host, as everyone who knows redis-cli types it.
    parser = argparse.ArgumentParser(
        program, f"{program} [options] [request ...]", DESCRIPTION, ENDINGS, add_help=False, allow_abbrev=False
    )
    add = parser.add_argument
    add("--help", action="help", help="show this and exit")
    add("-v", "--version", action="version", version=f"{program} {__version__} (speaks Redis {REDIS_VERSION})")
    add("-h", dest="host", metavar="HOST", help="name or address of the server (default: 127.0.0.1)")
    add("-p", dest="port", type=int, metavar="PORT", help="its TCP port (default: 6379)")
    add("-s", dest="unix_path", metavar="PATH", help="connect to a Unix socket instead of host and port")
    add("-u", "--url", dest="url", metavar="URL", help="redis://user:password@host:port/db, rediss:// or unix://")
    add("-a", "--pass", "--password", dest="password", metavar="PASSWORD")
    add("--user", dest="username", metavar="NAME")
    add("-n", dest="db", type=int, metavar="DB", help="number of the database (default: 0)")
    add("-c", dest="follows", action="store_true", help="follow MOVED and ASK to other nodes of a cluster")
    add("-2", dest="protocol", action="store_const", const=2, help="speak RESP2")
    add("-3", dest="protocol", action="store_const", const=3, help="speak RESP3")
    add("--tls", dest="is_tls", action="store_true", default=None)
    add("--cacert", dest="ca_file", metavar="FILE")
    add("--cert", dest="cert_file", metavar="FILE")
    add("--key", dest="key_file", metavar="FILE")
    add("--insecure", dest="is_verified", action="store_false", default=None, help="do not check the certificate")
    add("--json", action="store_true", help="print each reply as a line of JSON; implies RESP3")
    add(
        "--raw",
        action="store_true",
        default=None,
        help="print replies as bytes (default when the output is not a terminal)",
    )
    add("--no-raw", dest="raw", action="store_false", help="print replies with their types (default on a terminal)")
    add("-x", dest="reads_last", action="store_true", help="read the last argument from standard input")
    add("-e", dest="fails", action="store_true", help="exit with status 1 when the last reply is an error")
    add("-t", dest="timeout_s", type=float, metavar="SECONDS", help="time limit for connecting (default: 10)")
    add("--no-auth-warning", action="store_true", help=argparse.SUPPRESS)
    add("request", nargs=argparse.REMAINDER)
    return parser


def converse(arguments: Sequence[str], *, program: str) -> int:
    """Send what the arguments ask for; return the exit status."""
    options = make_parser(program).parse_args(list(arguments))
    try:
        place = place_of(options)
    except StreamdError as error:
        print(printable(str(error)), file=sys.stderr)
        return 1
    protocol = options.protocol or (3 if options.json else 2)

    node = place  # the one that a redirection has led to

    def connect() -> Connection:
        connection = dial(node, protocol=protocol, timeout_s=options.timeout_s or 10.0)
        connection.socket.settimeout(None)  # a request may wait as long as it likes
        return connection

    def redirect(to: Redirection) -> Connection:
        nonlocal node
        node = replace(node, host=to.host or node.host, port=to.port, unix_path=None)
        if not options.request:
            print(f"-> Redirected to slot [{to.slot}] located at {printable(node.host)}:{node.port}", flush=True)
        return connect()

    show = shower(options)
    conversation = Conversation(connect, show, redirect if options.follows else None)
    try:
        conversation.connection  # noqa: B018  so that what is wrong with it is said first
        if options.request:
            words = [word.encode("utf-8", "surrogateescape") for word in options.request]
            if options.reads_last:
                words.append(sys.stdin.buffer.read())
            conversation.ask(words)
        elif sys.stdin.isatty():
            conversation.prompt()
        else:
            conversation.read_lines(iter(sys.stdin.buffer))
    except ServerError as error:
        print(printable(f"{place}: {error}"), file=sys.stderr)
        return 1
    except StreamdError as error:
        print(printable(str(error)), file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read it has seen enough
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        conversation.close()
    return 1 if options.fails and conversation.has_failed else 0


def place_of(options: argparse.Namespace) -> Place:
    """Where the options say the server is; raises BadUrlError."""
    url = options.url or os.environ.get("STREAMD_URL")
    place = Place.from_url(url) if url else Place()
    names = (
        "host",
        "port",
        "unix_path",
        "username",
        "password",
        "db",
        "is_tls",
        "ca_file",
        "cert_file",
        "key_file",
        "is_verified",
    )
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if "password" not in given and place.password is None and os.environ.get("REDISCLI_AUTH"):
        given["password"] = os.environ["REDISCLI_AUTH"]
    return replace(place, **given)


def shower(options: argparse.Namespace) -> Any:
    """What writes a reply."""
    is_raw = options.raw if options.raw is not None else not sys.stdout.isatty()

    def show(reply: Any) -> None:
        if options.json:
            data = as_json(reply).encode()
        elif is_raw:
            data = raw(reply)
        else:
            data = pretty(reply).encode("utf-8", "surrogateescape")
        is_text = isinstance(reply, Verbatim) and not options.json  # which ends its last line itself, or is empty
        sys.stdout.buffer.write(data if is_text and data[-1:] in (b"\n", b"") else data + b"\n")
        sys.stdout.buffer.flush()

    return show
