"""StreamLimits: the settings of streams, copied to where the handlers can access them quickly."""

from __future__ import annotations

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.persistence.rdb.format import FORMS
from streamd.values.streams.forms import has_xnack
from streamd.values.streams.idempotency import IdempotencyRegistry

__all__ = ["StreamLimits"]


class StreamLimits(Capability):
    """How large nodes are, how long producers' IDs are remembered, and which commands readers of effects know."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def apply_settings(self) -> None:
        config, context = self._host.config, self._host.dispatcher.context
        context.stream_node_max_bytes = config.stream_node_max_bytes
        context.stream_node_max_entries = config.stream_node_max_entries
        context.stream_idmp_duration = config.stream_idmp_duration
        context.stream_idmp_maxsize = config.stream_idmp_maxsize
        context.has_xnack = has_xnack(FORMS[config.rdb_form].version)

    def each_second(self, now_ms: int) -> None:
        registry = self._host.find(IdempotencyRegistry)
        if registry is not None:
            registry.expire(now_ms)
