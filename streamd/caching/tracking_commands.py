"""Client-side caching: CLIENT TRACKING, CACHING, GETREDIR, TRACKINGINFO.

What is asked for is read here; who has read what, and is to be told, is kept in tracking.pyx. Behaviour: Redis 8.6.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from streamd.caching.tracking import ClientTracking, Tracking, tracking_of
from streamd.core.args import integer as read_integer
from streamd.core.dispatch import ServerContext
from streamd.core.host import Host
from streamd.core.spec import command, integer, multiple, oneof, optional, string, token
from streamd.errors import CommandError, OptionSyntaxError, printable

__all__ = ["TrackingOptions", "find_overlapping"]

FLAGS = "noscript loading stale"


@dataclass(frozen=True)
class TrackingOptions:
    """The request of a CLIENT TRACKING.

    redirect  the ID of the connection that is notified instead, or 0
    prefixes  of the keys that BCAST covers, in the order given; none: all keys
    """

    is_on: bool
    redirect: int = 0
    is_bcast: bool = False
    is_optin: bool = False
    is_optout: bool = False
    is_noloop: bool = False
    prefixes: list[bytes] = field(default_factory=list)

    @classmethod
    def parse(cls, args: list[bytes], clients: Container[int]) -> TrackingOptions:
        """Read a request; `clients` are the IDs of all connections. CommandError when it is wrong."""
        found: dict[str, Any] = {}
        prefixes: list[bytes] = []
        at = 3
        while at < len(args):
            word = args[at].upper()
            at += 1
            if word == b"REDIRECT" and at < len(args):
                if found.get("redirect"):
                    raise CommandError("ERR A client can only redirect to a single other client")
                found["redirect"] = int(read_integer(args[at]))
                if found["redirect"] not in clients:
                    raise CommandError("ERR The client ID you want redirect to does not exist")
                at += 1
            elif word == b"PREFIX" and at < len(args):
                prefixes.append(args[at])
                at += 1
            elif word in _SWITCHES:
                found[_SWITCHES[word]] = True
            else:
                raise OptionSyntaxError
        switch = args[2].upper()
        if switch not in (b"ON", b"OFF"):
            raise OptionSyntaxError
        return cls(is_on=switch == b"ON", prefixes=prefixes, **found)

    def check(self, old: ClientTracking | None) -> None:
        """Raise CommandError when the options conflict with each other, or with the client's current ones."""
        if self.prefixes and not self.is_bcast:
            raise CommandError("ERR PREFIX option requires BCAST mode to be enabled")
        if old is not None and old.is_bcast != self.is_bcast:
            raise CommandError(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it"
                " with a different mode."
            )
        if self.is_bcast and (self.is_optin or self.is_optout):
            raise CommandError("ERR OPTIN and OPTOUT are not compatible with BCAST")
        if self.is_optin and self.is_optout:
            raise CommandError("ERR You can't specify both OPTIN mode and OPTOUT mode")
        if old is not None and ((self.is_optin and old.is_optout) or (self.is_optout and old.is_optin)):
            raise CommandError(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it"
                " with a different mode."
            )
        if self.is_bcast:
            self._check_overlaps([] if old is None else old.prefixes)

    def wanted(self) -> ClientTracking:
        """The record that the server keeps of it; the prefixes are added by `Tracking.enable`."""
        return ClientTracking(
            redirect=self.redirect, is_bcast=self.is_bcast, is_optin=self.is_optin, is_optout=self.is_optout,
            is_noloop=self.is_noloop,
        )  # fmt: skip

    def _check_overlaps(self, existing: list[bytes]) -> None:
        at = find_overlapping(self.prefixes, existing)
        if at is None:
            return
        prefix = self.prefixes[at]
        for others, whose in ((existing, "an existing"), (self.prefixes[at + 1 :], "another provided")):
            for other in others:
                if prefix.startswith(other) or other.startswith(prefix):
                    raise CommandError(
                        f"ERR Prefix '{printable(prefix)}' overlaps with {whose} prefix '{printable(other)}'."
                        " Prefixes for a single client must not overlap."
                    )


def find_overlapping(prefixes: list[bytes], existing: list[bytes]) -> int | None:
    """The index of the first of `prefixes` that is a prefix of another one, or has another one as a prefix.

    None when there is none. Those of `existing`, sorted, do not overlap with each other. O(n log n), n in all.
    """
    found = []
    # In sorted order, what starts with a prefix follows it immediately: `outer` has the prefixes of the last one.
    outer: list[tuple[bytes, int]] = []
    given = [(prefix, at) for at, prefix in enumerate(prefixes)]
    for prefix, at in sorted([(prefix, -1) for prefix in existing] + given):
        while outer and not prefix.startswith(outer[-1][0]):
            outer.pop()
        if outer:
            found += [at, outer[-1][1]]
        outer.append((prefix, at))
    return min((at for at in found if at >= 0), default=None)


_SWITCHES = {b"BCAST": "is_bcast", b"OPTIN": "is_optin", b"OPTOUT": "is_optout", b"NOLOOP": "is_noloop"}


@command(
    "CLIENT TRACKING", arity=-3, group="connection", flags=FLAGS, since="6.0.0",
    complexity="O(1), and O(N) with N being the number of prefixes",
    summary="Notifies this connection, or another one, of changes of keys that it has read.",
    args=(
        oneof("status", token("ON"), token("OFF")),
        optional(integer("client-id", "REDIRECT")),
        optional(multiple(string("prefix", "PREFIX"), with_token=True)),
        optional(token("BCAST")),
        optional(token("OPTIN")),
        optional(token("OPTOUT")),
        optional(token("NOLOOP")),
    ),
)  # fmt: skip
def client_tracking(ctx: ServerContext, args: list[bytes]) -> None:
    options = TrackingOptions.parse(args, ctx.get(Host).clients)
    if options.is_on:
        options.check(tracking_of(ctx.client))
        ctx.get(Tracking).enable(ctx.client, options.wanted(), options.prefixes)
    else:
        ctx.get(Tracking).disable(ctx.client)
    ctx.reply.ok()


@command(
    "CLIENT CACHING", arity=3, group="connection", flags=FLAGS, since="6.0.0",
    summary="Sets whether keys read by the next command are tracked, in the modes OPTIN and OPTOUT.",
    args=(oneof("mode", token("YES"), token("NO")),),
)  # fmt: skip
def client_caching(ctx: ServerContext, args: list[bytes]) -> None:
    state = tracking_of(ctx.client)
    if state is None:
        raise CommandError(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"
        )
    word = args[2].upper()
    if word == b"YES":
        if not state.is_optin:
            raise CommandError("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
    elif word == b"NO":
        if not state.is_optout:
            raise CommandError("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
    else:
        raise OptionSyntaxError
    ctx.get(Tracking).set_caching(ctx.client)
    ctx.reply.ok()


@command(
    "CLIENT GETREDIR", arity=2, group="connection", flags=FLAGS, since="6.0.0",
    summary="Returns the ID of the connection that is notified of changes instead of this one.",
)  # fmt: skip
def client_getredir(ctx: ServerContext, args: list[bytes]) -> None:
    state = tracking_of(ctx.client)
    ctx.reply.integer(-1 if state is None else state.redirect)


@command(
    "CLIENT TRACKINGINFO", arity=2, group="connection", flags=FLAGS, since="6.2.0",
    summary="Returns the tracking options of this connection.",
)  # fmt: skip
def client_trackinginfo(ctx: ServerContext, args: list[bytes]) -> None:
    state = tracking_of(ctx.client)
    flags = _flags_of(state)
    reply = ctx.reply
    reply.map(3)
    reply.bulk(b"flags")
    reply.set(len(flags))
    for flag in flags:
        reply.bulk(flag)
    reply.bulk(b"redirect")
    reply.integer(-1 if state is None else state.redirect)
    reply.bulk(b"prefixes")
    reply.bulk_array([] if state is None else state.prefixes)


def _flags_of(state: ClientTracking | None) -> list[bytes]:
    if state is None:
        return [b"off"]
    flags = (
        (b"on", True),
        (b"bcast", state.is_bcast),
        (b"optin", state.is_optin),
        (b"caching-yes", state.is_optin and state.is_caching),
        (b"optout", state.is_optout),
        (b"caching-no", state.is_optout and state.is_caching),
        (b"noloop", state.is_noloop),
        (b"broken_redirect", state.is_broken),
    )
    return [flag for flag, is_set in flags if is_set]
