"""ACL: users, and what each may do.

The commands read and write; what a rule means is decided in acl_rules.py, and what follows from a change in acl.py.
Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

import os
import time

from streamd.core.args import integer as read_integer
from streamd.core.dispatch import ServerContext
from streamd.core.help import declare_help
from streamd.core.host import Host
from streamd.core.spec import (
    ACL_CATEGORIES,
    command,
    container,
    integer,
    multiple,
    oneof,
    optional,
    string,
    token,
)
from streamd.errors import AclError, CommandError, RuleError, UnmatchedError, printable
from streamd.protocol.reply import ReplyWriter
from streamd.protocol.request import forget_words
from streamd.users.acl import Acl
from streamd.users.acl_rules import RuleSet
from streamd.users.denials import LogEntry
from streamd.users.selectors import merge_selectors

__all__: list[str] = []

DEFAULT_USER = b"default"
MOST_BITS = 4096
USUAL_BITS = 256
LOG_ENTRIES = 10
"""Entries that ACL LOG shows by default."""


NO_FILE = (
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command"
    " and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis"
    " configuration."
)


def _refuse_more(args: list[bytes], most: int) -> None:
    """Raise CommandError when a subcommand has more than `most` arguments."""
    if len(args) > most:
        raise CommandError(
            f"ERR unknown subcommand or wrong number of arguments for '{printable(args[1][:128])}'. Try ACL HELP."
        )


# --- Users -----------------------------------------------------------------------------------------------------------------

container("ACL", group="server", since="6.0.0", summary="Groups the commands about users and their permissions.")

_ADMIN = "admin noscript loading stale"
_OPEN = "noscript loading stale"
_TO_ALL_NODES = ("request_policy:all_nodes", "response_policy:all_succeeded")


@command(
    "ACL SETUSER", arity=-3, group="server", flags=_ADMIN, since="6.0.0", tips=_TO_ALL_NODES,
    complexity="O(N) with N being the number of rules", summary="Creates a user, or changes one by rules.",
    history=(("6.2.0", "Rules about channels."), ("7.0.0", "Selectors, and rules about how keys are accessed.")),
    args=(string("username"), optional(multiple(string("rule")))),
)  # fmt: skip
def acl_setuser(ctx: ServerContext, args: list[bytes]) -> None:
    forget_words(args[3:])
    name = args[2]
    if any(byte in b" \t\n\v\f\r\0" for byte in name):
        raise CommandError("ERR Usernames can't contain spaces or null characters")
    try:
        rules = merge_selectors(args[3:])
    except UnmatchedError as error:
        opened = printable(args[3 + error.at])
        raise CommandError(f"ERR Unmatched parenthesis in acl selector starting at '{opened}'.") from error
    try:
        ctx.get(Acl).set_user(name, rules)
    except RuleError as error:
        shown = printable(rules[error.at])
        raise CommandError(f"ERR Error in ACL SETUSER modifier '{shown}': {error}") from error
    ctx.reply.ok()


@command(
    "ACL DELUSER", arity=-3, group="server", flags=_ADMIN, since="6.0.0", tips=_TO_ALL_NODES,
    summary="Deletes users and closes their connections.", args=(multiple(string("username")),),
)  # fmt: skip
def acl_deluser(ctx: ServerContext, args: list[bytes]) -> None:
    if DEFAULT_USER in args[2:]:
        raise CommandError("ERR The 'default' user cannot be removed")
    ctx.reply.integer(sum(ctx.get(Acl).delete_user(name) for name in args[2:]))


@command(
    "ACL GETUSER", arity=3, group="server", flags=_ADMIN, since="6.0.0",
    complexity="O(N) with N being the number of rules of the user", summary="Describes a user.",
    history=(
        ("6.2.0", "Channels."),
        ("7.0.0", "Selectors; keys and channels as the text of rules."),
    ),
    args=(string("username"),),
)  # fmt: skip
def acl_getuser(ctx: ServerContext, args: list[bytes]) -> None:
    user = ctx.get(Acl).users.get(args[2])
    reply = ctx.reply
    if user is None:
        reply.null()
        return
    reply.map(6)
    reply.bulk(b"flags")
    reply.set(len(user.flags))
    for flag in user.flags:
        reply.bulk(flag)
    reply.bulk(b"passwords")
    reply.bulk_array(list(user.hashes))
    own, *selectors = user.rule_sets
    _write_rules(reply, own)
    reply.bulk(b"selectors")
    reply.array(len(selectors))
    for rules in selectors:
        reply.map(3)
        _write_rules(reply, rules)


def _write_rules(reply: ReplyWriter, rules: RuleSet) -> None:
    """Three fields of a map."""
    for name, text in (
        (b"commands", rules.command_text),
        (b"keys", rules.key_text),
        (b"channels", rules.channel_text),
    ):
        reply.bulk(name)
        reply.bulk(text)


@command(
    "ACL LIST", arity=2, group="server", flags=_ADMIN, since="6.0.0",
    complexity="O(N) with N being the number of users",
    summary="Returns all users with their rules, as in ACL files.",
)  # fmt: skip
def acl_list(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.bulk_array([user.line for user in ctx.get(Acl).in_order()])


@command(
    "ACL USERS", arity=2, group="server", flags=_ADMIN, since="6.0.0",
    complexity="O(N) with N being the number of users", summary="Returns the names of all users.",
)  # fmt: skip
def acl_users(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.bulk_array([user.name for user in ctx.get(Acl).in_order()])


@command(
    "ACL WHOAMI", arity=2, group="server", flags=_OPEN, since="6.0.0",
    summary="Returns the name of the connection's user.",
)  # fmt: skip
def acl_whoami(ctx: ServerContext, args: list[bytes]) -> None:
    user = ctx.client.user
    ctx.reply.bulk(None if user is None else user.name)


# --- Categories, dry runs, denials ------------------------------------------------------------------------------------------


@command(
    "ACL CAT", arity=-2, group="server", flags=_OPEN, since="6.0.0",
    summary="Returns the categories of commands, or the commands of one.", args=(optional(string("category")),),
)  # fmt: skip
def acl_cat(ctx: ServerContext, args: list[bytes]) -> None:
    _refuse_more(args, 3)
    if len(args) == 2:
        ctx.reply.bulk_array([category.encode() for category in ACL_CATEGORIES])
        return
    category = args[2].decode("latin-1").lower()
    if category not in ACL_CATEGORIES:
        raise CommandError(f"ERR Unknown category '{printable(args[2])}'")
    ctx.reply.bulk_array([name.encode() for name in ctx.get(Acl).index.names_in(category)])


@command(
    "ACL DRYRUN", arity=-4, group="server", flags=_ADMIN, since="7.0.0",
    summary="Checks whether a user may run a request, without running it.",
    args=(string("username"), string("command"), optional(multiple(string("arg")))),
)  # fmt: skip
def acl_dryrun(ctx: ServerContext, args: list[bytes]) -> None:
    acl = ctx.get(Acl)
    user = acl.users.get(args[2])
    if user is None:
        raise CommandError(f"ERR User '{printable(args[2])}' not found")
    request = args[3:]
    called = ctx.get(Host).commands.find(request)
    if called is None:
        raise CommandError(f"ERR Command '{printable(request[0])}' not found")
    if not called.accepts(len(request)) or called.handler is None:
        raise CommandError(f"ERR wrong number of arguments for '{called.full_name}' command")
    denial = acl.explain(user, called, request)
    if denial is None:
        ctx.reply.ok()
    else:
        ctx.reply.bulk(denial)


@command(
    "ACL GENPASS", arity=-2, group="server", flags=_OPEN, since="6.0.0",
    summary="Generates a random password.", args=(optional(integer("bits")),),
)  # fmt: skip
def acl_genpass(ctx: ServerContext, args: list[bytes]) -> None:
    _refuse_more(args, 3)
    bits = read_integer(args[2]) if len(args) == 3 else USUAL_BITS
    if not 0 < bits <= MOST_BITS:
        raise CommandError(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to"
            f" {MOST_BITS}"
        )
    digits = (bits + 3) // 4
    ctx.reply.bulk(os.urandom((digits + 1) // 2).hex()[:digits].encode())


@command(
    "ACL LOG", arity=-2, group="server", flags=_ADMIN, since="6.0.0",
    complexity="O(N) with N being the number of entries shown",
    summary="Returns recent denials, newest first, or clears them.",
    history=(("7.2.0", "An entry's number, and the times of its creation and last change."),),
    args=(optional(oneof("operation", integer("count"), token("RESET"))),),
)  # fmt: skip
def acl_log(ctx: ServerContext, args: list[bytes]) -> None:
    _refuse_more(args, 3)
    entries = ctx.get(Acl).log.entries
    if len(args) == 3 and args[2].upper() == b"RESET":
        entries.clear()
        ctx.reply.ok()
        return
    count = max(0, read_integer(args[2])) if len(args) == 3 else LOG_ENTRIES
    shown = list(entries)[:count]
    now_ms = time.time_ns() // 1_000_000
    ctx.reply.array(len(shown))
    for entry in shown:
        _write_log_entry(ctx.reply, entry, now_ms)


def _write_log_entry(reply: ReplyWriter, entry: LogEntry, now_ms: int) -> None:
    reply.map(10)
    reply.bulk(b"count")
    reply.integer(entry.count)
    for name, text in (
        (b"reason", entry.reason.word.encode()),
        (b"context", entry.context.encode()),
        (b"object", entry.subject),
        (b"username", entry.username),
    ):
        reply.bulk(name)
        reply.bulk(text)
    reply.bulk(b"age-seconds")
    reply.double(max(0, now_ms - entry.updated_ms) / 1000)
    reply.bulk(b"client-info")
    reply.bulk(entry.client)
    for name, number in (
        (b"entry-id", entry.id),
        (b"timestamp-created", entry.created_ms),
        (b"timestamp-last-updated", entry.updated_ms),
    ):
        reply.bulk(name)
        reply.integer(number)


# --- The file --------------------------------------------------------------------------------------------------------------------


@command(
    "ACL LOAD", arity=2, group="server", flags=_ADMIN, since="6.0.0",
    complexity="O(N) with N being the number of users", summary="Reads the users from the ACL file.",
)  # fmt: skip
def acl_load(ctx: ServerContext, args: list[bytes]) -> None:
    if not ctx.config.aclfile:
        raise CommandError(NO_FILE)
    try:
        ctx.get(Acl).load_file()
    except AclError as error:
        raise CommandError(f"ERR {error}") from error
    ctx.reply.ok()


@command(
    "ACL SAVE", arity=2, group="server", flags=_ADMIN, since="6.0.0", tips=_TO_ALL_NODES,
    complexity="O(N) with N being the number of users", summary="Writes the users to the ACL file.",
)  # fmt: skip
def acl_save(ctx: ServerContext, args: list[bytes]) -> None:
    if not ctx.config.aclfile:
        raise CommandError(NO_FILE)
    try:
        ctx.get(Acl).save_file()
    except OSError as error:
        raise CommandError(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information"
        ) from error
    ctx.reply.ok()


declare_help(
    "ACL", "server", "6.0.0",
    "CAT [<category>]",
    "    List the categories of commands, or the commands of one.",
    "DELUSER <username> [<username> ...]",
    "    Delete users, and close their connections.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Check whether a user may run a request, without running it.",
    "GETUSER <username>",
    "    Show a user's flags, passwords and rules.",
    "GENPASS [<bits>]",
    "    Generate a password of <bits> bits, 256 by default, in hexadecimal digits.",
    "LIST",
    "    List all users with their rules, as in ACL files.",
    "LOAD",
    "    Read the users from the ACL file.",
    "LOG [<count> | RESET]",
    "    Show recent denials; RESET clears them.",
    "SAVE",
    "    Write the users to the ACL file.",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "    Create a user, or change one.",
    "USERS",
    "    List the names of all users.",
    "WHOAMI",
    "    Show the name of this connection's user.",
)  # fmt: skip
