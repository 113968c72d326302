"""CLIENT MAINT_NOTIFICATIONS. No open Redis has it: the request is that of redis-py, node-redis, go-redis and Jedis."""

from __future__ import annotations

from streamd.clients.maintenance import Maintenance
from streamd.core.dispatch import ServerContext
from streamd.core.spec import command, oneof, optional, token
from streamd.errors import CommandError, OptionSyntaxError, printable

__all__: list[str] = []

ENDPOINT_TYPES = (b"internal-ip", b"internal-fqdn", b"external-ip", b"external-fqdn", b"none")


def read_endpoint_type(args: list[bytes]) -> bytes:
    """The endpoint type of a request. Raises CommandError."""
    if len(args) == 3:
        return ENDPOINT_TYPES[0]
    if len(args) != 5 or args[3].lower() != b"moving-endpoint-type":
        raise OptionSyntaxError
    wanted = args[4].lower()
    if wanted not in ENDPOINT_TYPES:
        types = b", ".join(ENDPOINT_TYPES).decode()
        raise CommandError(f"ERR Unknown moving-endpoint-type '{printable(args[4][:128])}'. It is one of {types}.")
    return wanted


@command(
    "CLIENT MAINT_NOTIFICATIONS", arity=-3, group="connection", flags="noscript loading stale", since="8.6.0",
    summary="Announces planned switches to this connection, as pushes of RESP3.",
    args=(
        oneof("status", token("ON"), token("OFF")),
        optional(
            oneof(
                "endpoint-type", token("internal-ip"), token("internal-fqdn"), token("external-ip"),
                token("external-fqdn"), token("none"), token="moving-endpoint-type",
            )
        ),
    ),
)  # fmt: skip
def client_maint_notifications(ctx: ServerContext, args: list[bytes]) -> None:
    switch = args[2].upper()
    if switch not in (b"ON", b"OFF"):
        raise OptionSyntaxError
    endpoint_type = read_endpoint_type(args)
    maintenance = ctx.get(Maintenance)
    if switch == b"OFF":
        maintenance.ignore(ctx.client)
    elif ctx.client.reply.resp != 3:
        raise CommandError("ERR CLIENT MAINT_NOTIFICATIONS ON needs RESP3. Send HELLO 3 first.")
    else:
        maintenance.listen(ctx.client, wants_address=endpoint_type != b"none")
    ctx.reply.ok()
