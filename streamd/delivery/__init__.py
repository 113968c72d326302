"""Delivery: rules for streams and their groups, which say when entries move, are given up and are trimmed, and where they go then.

The package itself has what programs use; the rest of it belongs to the server, and is not imported with it:

    from streamd.delivery import Retain, group, stream

    group(client, "jobs", "workers").set(max_deliveries=5, dead_letter="jobs:dead", backoff=1.0, factor=2)
    stream(client, "orders").set(retain=Retain(length=100_000, acked=True, at_most=timedelta(days=7)))
"""

from streamd.delivery.client import GroupRules, Retain, StreamRules, group, stream

__all__ = ["GroupRules", "Retain", "StreamRules", "group", "stream"]
