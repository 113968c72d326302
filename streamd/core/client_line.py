"""The line that describes a connection, in CLIENT LIST, the ACL log, and crash reports."""

from __future__ import annotations

from collections.abc import Sequence

from streamd.core.client import Client

__all__ = ["describe"]

REPLY_BLOCK = 16 * 1024
"""Bytes of unsent replies that Redis keeps in the client itself; the rest goes into its reply list."""
REPLICA_CLASS = 1
"""`Client.output_class` of replicas."""


def _flags_of(client: Client) -> str:
    """The letters that stand for a client's state, in Redis's order."""
    tracking = client.tracking
    letters = (
        "S" if client.output_class == REPLICA_CLASS else "",
        "O" if client.is_monitor else "",
        "M" if client.is_primary else "",
        "P" if client.is_subscribed else "",
        "x" if client.transaction is not None else "",
        "b" if client.blocked is not None or client.postponed is not None else "",
        "" if tracking is None else f"t{'R' if tracking.is_broken else ''}{'B' if tracking.is_bcast else ''}",
        "d" if client.is_dirty else "",
        "c" if client.close_after_reply else "",
        "U" if client.is_unix else "",
        "e" if client.no_evict else "",
        "T" if client.no_touch else "",
    )
    return "".join(letters) or "N"


def describe(client: Client, now: float, request: Sequence[bytes] = ()) -> bytes:
    """The line of CLIENT LIST for one connection, without the line end; `now` is in seconds of CLOCK_MONOTONIC.

    request  the request of the connection that is being run

    What Redis allocates in advance (its argument and reply buffers) is allocated here only while it is used, so those
    fields are zero or derived from actual use.
    """
    unsent = client.output_size
    in_list = max(0, unsent - REPLY_BLOCK)
    transaction, tracking = client.transaction, client.tracking
    block = min(unsent, REPLY_BLOCK)
    command, user = client.last_command, client.user
    # Listing ten thousand connections blocks all clients, and one f-string is the fastest way to build a line.
    line = (
        f"id={client.id} addr={client.address} laddr={client.local_address} fd={client.fileno} name={_text(client.name)}"
        f" age={max(0, int(now - client.created_at))} idle={max(0, int(now - client.last_interaction))}"
        f" flags={_flags_of(client)} db={client.db_index} sub={len(client.channels)} psub={len(client.patterns)}"
        f" ssub={len(client.shard_channels)} multi={-1 if transaction is None else len(transaction)}"
        # After a change the keys are no longer watched, and none can be added.
        f" watch={0 if client.watched is None or client.is_dirty else len(client.watched)}"
        f" qbuf={client.query_buffer_size} qbuf-free={client.query_buffer_free}"
        f" argv-mem={client.args_size + sum(map(len, request))} multi-mem={0 if transaction is None else transaction.size}"
        f" rbs={block} rbp={block} obl={unsent - in_list} oll={-(-in_list // REPLY_BLOCK)} omem={in_list}"
        f" tot-mem={client.memory_usage()} events={'rw' if client.is_congested else 'r'}"
        f" cmd={'NULL' if command is None else command.full_name}"
        f" user={'(superuser)' if user is None else _text(user.name)} redir={-1 if tracking is None else tracking.redirect}"
        f" resp={client.reply.resp} lib-name={_text(client.lib_name)} lib-ver={_text(client.lib_ver)} io-thread=0"
        f" tot-net-in={client.total_net_in} tot-net-out={client.total_net_out} tot-cmds={client.total_commands}"
        f" read-events={client.read_events} parse-batch-cmd-sum={client.batched_commands}"
        f" parse-batch-cnt={client.batches}"
    )
    return line.encode("utf-8", "surrogateescape")


def _text(name: bytes) -> str:
    """Bytes as text that can be encoded back."""
    return name.decode("utf-8", "surrogateescape")
