"""Shard channels of slots that have left this shard: their subscribers are notified, and look for them elsewhere."""

from __future__ import annotations

from streamd.keyspace.hash_slot import slot_of
from streamd.pubsub.hub import Hub

__all__ = ["end_subscriptions"]


def end_subscriptions(hub: Hub, slots: list[int]) -> None:
    """End the subscriptions of all shard channels in these slots. O(channels)."""
    left = frozenset(slots)
    for channel in [each for each in hub.shard_channels if slot_of(each) in left]:
        hub.shard_channels.drop_all(channel, b"sunsubscribe")
