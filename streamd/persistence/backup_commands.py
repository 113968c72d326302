"""BACKUP: a copy of the data as of one moment. Behaviour: as documented for Redis 8.10."""

from __future__ import annotations

from streamd.core.dispatch import ServerContext
from streamd.core.help import declare_help
from streamd.core.spec import command, container
from streamd.persistence.persistence import Persistence

__all__: list[str] = []


SINCE = "8.10.0"

container("BACKUP", group="server", since=SINCE, summary="Groups the commands about backups.")


@command(
    "BACKUP START", arity=2, group="server", flags="admin noscript", since=SINCE,
    complexity="O(1) for the server; a child process does the work",
    summary="Begins a backup in the directory `backupdirname`.",
)  # fmt: skip
def backup_start(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Persistence).backup.start(must_wait=ctx.in_transaction)
    ctx.reply.ok()


@command(
    "BACKUP SEAL", arity=2, group="server", flags="admin noscript", since=SINCE,
    summary="Ends the backup, which then contains the data as of this moment.",
)  # fmt: skip
def backup_seal(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Persistence).backup.seal(must_wait=ctx.in_transaction)
    ctx.reply.ok()


@command(
    "BACKUP STATUS", arity=2, group="server", flags="admin stale", since=SINCE,
    summary="Returns the state of the backup, why it failed, and its times.",
)  # fmt: skip
def backup_status(ctx: ServerContext, args: list[bytes]) -> None:
    status = ctx.get(Persistence).backup.status()
    ctx.reply.map(len(status))
    for name, value in status.items():
        ctx.reply.bulk_str(name)
        ctx.reply.bulk_str(value)


@command(
    "BACKUP LIST", arity=2, group="server", flags="admin stale", since=SINCE,
    summary="Returns the paths of the files of a sealed backup.",
)  # fmt: skip
def backup_list(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.bulk_array([path.encode("utf-8", "surrogateescape") for path in ctx.get(Persistence).backup.files()])


@command(
    "BACKUP ABORT", arity=2, group="server", flags="admin noscript", since=SINCE,
    summary="Cancels the backup that is in progress.",
)  # fmt: skip
def backup_abort(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Persistence).backup.abort()
    ctx.reply.ok()


@command(
    "BACKUP CLEANUP", arity=2, group="server", flags="admin noscript", since=SINCE,
    summary="Deletes the files of a backup that is no longer in progress.",
)  # fmt: skip
def backup_cleanup(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Persistence).backup.clean_up()
    ctx.reply.ok()


declare_help(
    "BACKUP", "server", SINCE,
    "START",
    "    Begin a backup.",
    "SEAL",
    "    End it: it has the data as of now.",
    "STATUS",
    "    Its state, why it failed, and its times.",
    "LIST",
    "    The files of a sealed backup.",
    "ABORT",
    "    Give up the backup that is in progress.",
    "CLEANUP",
    "    Delete the files.",
)  # fmt: skip
