"""Orders in twelve parts on a cluster of three nodes, read by workers that join and leave; those of a customer stay in order.

    python examples/partitions.py                          its own cluster
    python examples/partitions.py --url redis://host:7000  any node of a cluster

Each part is a stream of its own, with a slot of its own, so all nodes have work. The workers share the parts by leases in the same
cluster. Needs redis-py, which `./install` installs.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import redis

import streamd.embedded
from streamd.partitions import Batch, Parts, Reader

CUSTOMERS = 50


@dataclass
class Summary:
    """What the workers have done.

    by_customer  the numbers of the orders of each customer, as they were handled
    by_worker    how many orders each worker has handled
    by_node      how many parts each node has
    """

    by_customer: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    by_worker: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    by_node: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class Worker(threading.Thread):
    """A reader in a thread; a process each would do as well."""

    def __init__(
        self, client: redis.RedisCluster, parts: Parts, name: str, summary: Summary, done: threading.Semaphore
    ) -> None:
        super().__init__(name=name)
        self._summary = summary
        self._done = done
        self.reader = Reader(client, parts, "billing", self.handle, consumer=name, lease_s=2)

    def run(self) -> None:
        self.reader.run()

    def handle(self, batch: Batch) -> None:
        for _, order in batch.entries:
            self._summary.by_customer[order["customer"]].append(int(order["number"]))
            self._summary.by_worker[self.name] += 1
            self._done.release()


def run(client: redis.RedisCluster, *, orders: int = 600) -> Summary:
    """Add orders while one worker reads, another joins, and the first one leaves."""
    parts = Parts.open(client, "orders", 12)
    summary, done = Summary(), threading.Semaphore(0)
    for stream in parts.streams:
        summary.by_node[client.get_node_from_key(stream).name] += 1  # type: ignore[no-untyped-call]
    first, second = (Worker(client, parts, name, summary, done) for name in ("first", "second"))
    try:
        for number in range(orders):
            if number == 0:
                first.start()
            elif number == orders // 3:
                second.start()
            elif number == 2 * orders // 3:
                first.reader.stop()
            customer = f"customer-{number % CUSTOMERS}"
            client.xadd(parts.stream_of(customer), {"customer": customer, "number": number})
        for _ in range(orders):
            done.acquire()
    finally:
        for worker in (first, second):
            worker.reader.stop()
            if worker.ident is not None:
                worker.join()
    return summary


@contextlib.contextmanager
def connected(url: str | None) -> Iterator[redis.RedisCluster]:
    """A client of the cluster at `url`, or of one of its own."""
    if url is not None:
        with redis.RedisCluster.from_url(url, decode_responses=True) as client:
            yield client
        return
    with streamd.embedded.start_cluster(nodes=3) as cluster:
        yield cluster.client(decode_responses=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="a node of the cluster; a cluster of its own by default")
    with connected(parser.parse_args().url) as client:
        found = run(client)
    print(f"Parts by node: {dict(found.by_node)}")
    print(f"Orders by worker: {dict(found.by_worker)}")
    in_order = sum(numbers == sorted(numbers) for numbers in found.by_customer.values())
    print(f"Customers whose orders were handled in order: {in_order} of {len(found.by_customer)}")


if __name__ == "__main__":
    main()
