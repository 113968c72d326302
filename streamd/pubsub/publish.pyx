# cython: language_level=3, boundscheck=False, wraparound=False
"""Messages: PUBLISH and SPUBLISH.

Compiled, unlike the commands in subscribe.py: the cost of a message to one subscriber is mostly overhead. It is
propagated to replicas, whose subscribers receive it too, and not written to the append-only file; in a cluster it goes
to the other nodes instead (`Hub.relay`). Behaviour: Redis 8.6.
"""

from cpython.bytes cimport PyBytes_GET_SIZE

from streamd.core.context cimport Context

from streamd.pubsub.hub cimport Hub
from streamd.core.spec import ChannelsAt, KeysAt, command, string

__all__ = ["publish", "spublish"]

FLAGS = "pubsub loading stale fast may_replicate"

cdef enum:
    HELLO_LENGTH = 18

cdef bytes HELLO_CHANNEL = b"__sentinel__:hello"     # where Sentinels say who is the primary


@command(
    "PUBLISH", arity=3, group="pubsub", flags=FLAGS, channels=ChannelsAt(1, 1), since="2.0.0",
    complexity="O(N+M) with N being the number of the channel's subscribers and M that of all patterns",
    summary="Sends a message to the subscribers of a channel.", args=(string("channel"), string("message")),
)
def publish(Context ctx not None, list args not None):
    cdef Hub hub = ctx.parts[Hub]
    if PyBytes_GET_SIZE(args[1]) == HELLO_LENGTH and args[1] == HELLO_CHANNEL and hub.hello_observer is not None:
        hub.hello_observer(ctx.client, args[2])
    ctx.reply.integer(hub.publish(<bytes>args[1], <bytes>args[2], False))
    if hub.relay is not None:
        hub.relay(args[1], args[2], False)
    elif ctx.is_propagating:
        ctx.propagate_to_replicas(args)


@command(
    "SPUBLISH", arity=3, group="pubsub", flags=FLAGS, keys=KeysAt(1, flags="not_key"), channels=ChannelsAt(1, 1),
    since="7.0.0", complexity="O(N) with N being the number of the shard channel's subscribers",
    summary="Sends a message to the subscribers of a shard channel.", args=(string("shardchannel"), string("message")),
)
def spublish(Context ctx not None, list args not None):
    cdef Hub hub = ctx.parts[Hub]
    ctx.reply.integer(hub.publish(<bytes>args[1], <bytes>args[2], True))
    if hub.relay is not None:
        hub.relay(args[1], args[2], True)
    elif ctx.is_propagating:
        ctx.propagate_to_replicas(args)
