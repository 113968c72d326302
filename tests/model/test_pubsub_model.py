"""Subscriptions against sets: random clients subscribe, unsubscribe, publish and go, and each must hear what it should.

The clients are real, and so is the server's dispatcher; what they would send stays in their reply buffers, where it is
read. Names are drawn from few, so that subscriptions meet; patterns are of all shapes that the look at a glance knows:
shorter and longer than eight bytes, with and without bytes that stand for themselves.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import hiredis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from support.commands.hosts import Host

from streamd.core.client import Client
from streamd.engine.glob import Glob
from streamd.pubsub.hub import Hub

CHANNELS = [
    b"",
    b"a",
    b"news",
    b"news:12",
    b"news:123",
    b"news:1234",
    b"news:1234:x",
    b"news:1235:x",
    b"x" * 40,
    b"\xff\x00*",
]
PATTERNS = [*CHANNELS, b"*", b"n*", b"news*", b"news:12*", b"news:123*", b"news:1234*", b"news:1234:*", b"news:?23*", b"[an]*",
            b"\\n*", b"*x", b"news:1234:x?", b"x" * 39 + b"*", b"x" * 41, b"\xff*", b"\xff\x00*", b"a\x00"]  # fmt: skip
KINDS = ("channels", "patterns", "shard_channels")


class SubscriptionsAgainstSets(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.host = Host()
        self.hub = self.host.server.get(Hub)
        self.subscribed: dict[Client, dict[str, set[bytes]]] = {}

    def teardown(self) -> None:
        for client in list(self.subscribed):
            client.connection_lost(None)
        self.host.close()
        assert self.hub.client_count == len(self.hub.channels) == len(self.hub.patterns) == 0

    @rule(target=clients, protocol=st.sampled_from([2, 3]))
    def connect(self, protocol: int) -> Client:
        client = self.host.connect().client
        client.reply.resp = protocol
        self.subscribed[client] = {kind: set() for kind in KINDS}
        return client

    @rule(client=clients, kind=st.sampled_from(KINDS), wanted=st.lists(st.sampled_from(PATTERNS), min_size=1))
    def subscribe(self, client: Client, kind: str, wanted: list[bytes]) -> None:
        names = self.subscribed[client][kind]
        for name in wanted:
            assert getattr(self.hub, kind).subscribe(client, name) == (name not in names)
            names.add(name)

    @rule(client=clients, kind=st.sampled_from(KINDS), data=st.data())
    def unsubscribe(self, client: Client, kind: str, data: st.DataObject) -> None:
        names = self.subscribed[client][kind]
        name = data.draw(st.sampled_from(sorted(names) or PATTERNS))
        assert getattr(self.hub, kind).unsubscribe(client, name) == (name in names)
        names.discard(name)

    @rule(client=clients)
    def drop(self, client: Client) -> None:
        self.hub.drop(client)
        self.subscribed[client] = {kind: set() for kind in KINDS}

    @rule(target=clients, client=consumes(clients))
    def disconnect(self, client: Client) -> Any:
        client.connection_lost(None)
        del self.subscribed[client]
        return multiple()

    @rule(payload=st.binary(max_size=20), is_sharded=st.booleans())
    def publish(self, payload: bytes, is_sharded: bool) -> None:
        """To every channel that somebody has named, in whatever way, and to others."""
        named = {name for names in self.subscribed.values() for kind in KINDS for name in names[kind]}
        for channel in sorted({*named, *CHANNELS}):
            self.publish_to(channel, payload, is_sharded)

    def publish_to(self, channel: bytes, payload: bytes, is_sharded: bool) -> None:
        receivers = self.hub.publish(channel, payload, is_sharded)
        heard = 0
        for client, names in self.subscribed.items():
            expected: list[tuple[bytes, ...]] = []
            if is_sharded:
                expected += [(b"smessage", channel, payload)] * (channel in names["shard_channels"])
            else:
                expected += [(b"message", channel, payload)] * (channel in names["channels"])
                expected += [(b"pmessage", p, channel, payload) for p in names["patterns"] if Glob(p).match(channel)]
            said = client.reply.take()
            assert said[:1] in (b"", b">" if client.reply.resp == 3 else b"*")
            assert Counter(read_messages(said)) == Counter(expected)
            heard += len(expected)
        assert receivers == heard

    @invariant()
    def both_ends_agree(self) -> None:
        self.hub.check_invariants(self.subscribed)
        for kind in KINDS:
            used = Counter(name for names in self.subscribed.values() for name in names[kind])
            namespace = getattr(self.hub, kind)
            assert set(namespace) == set(used)
            assert len(namespace) == len(used)
            assert all(namespace.count_clients(name) == used[name] for name in PATTERNS)
            for client, names in self.subscribed.items():
                assert set(namespace.names_of(client)) == names[kind] == set(getattr(client, kind))
        for client, names in self.subscribed.items():
            assert client.is_subscribed == any(names.values())


def read_messages(said: bytes) -> list[tuple[bytes, ...]]:
    reader = hiredis.Reader()
    reader.feed(said)
    messages = []
    while (message := reader.gets()) is not False:
        messages.append(tuple(message))
    return messages


TestSubscriptions = SubscriptionsAgainstSets.TestCase
TestSubscriptions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
