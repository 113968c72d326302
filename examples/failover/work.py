"""A producer and a group of consumers that continue through a fail-over, and count losses and repetitions.

    python work.py --seconds 20

The producer repeats what was not acknowledged under the same idempotent ID (XADD ... IDMP), so that nothing is added twice.
A consumer that has lost its connection reads its own pending entries again before it asks for new ones. At the end everything
that was acknowledged to the producer must be in the stream, and must have been worked on.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, ResponseError, TimeoutError
from redis.retry import Retry
from redis.sentinel import Sentinel

STREAM, GROUP = "orders", "workers"
CONSUMERS = 3


def connect(ports: list[int]) -> redis.Redis:
    """A client of the primary that the Sentinels report. It never repeats a command by itself."""
    sentinel = Sentinel([("127.0.0.1", port) for port in ports], socket_timeout=1)
    return sentinel.master_for("service", socket_timeout=2, decode_responses=True, retry=Retry(NoBackoff(), 0))


class Service:
    """The service, asked until it answers.

    interruptions   how often it did not
    """

    def __init__(self, ports: list[int], stopped: threading.Event) -> None:
        self.client = connect(ports)
        self.stopped = stopped
        self.interruptions = 0

    def answer(self, ask: Callable[[], Any]) -> Any:
        """Ask until there is an answer; None when it is time to stop."""
        while True:
            try:
                return ask()
            except (ConnectionError, TimeoutError):
                self.interruptions += 1  # it was not answered, or there is no primary at the moment
            except ResponseError as error:
                if not str(error).startswith(("NOREPLICAS", "LOADING", "UNBLOCKED")):
                    raise
                self.interruptions += 1
            self.client.connection_pool.disconnect()  # ask the Sentinels again
            if self.stopped.wait(0.05):
                return None


class Producer(threading.Thread):
    """acknowledged: ID -> number; answered_at: when, monotonic seconds."""

    def __init__(self, ports: list[int], stopped: threading.Event) -> None:
        super().__init__()
        self.service = Service(ports, stopped)
        self.acknowledged: dict[str, int] = {}
        self.answered_at: list[float] = []

    def run(self) -> None:
        service, number = self.service, 0
        while not service.stopped.is_set():
            number += 1
            fields, name = {"number": number}, ("producer", b"%d" % number)
            entry_id = service.answer(partial(service.client.xadd, STREAM, fields, idmp=name))
            if entry_id is not None:
                self.acknowledged[entry_id] = number
                self.answered_at.append(time.monotonic())


class Consumer(threading.Thread):
    """worked: how often this consumer has worked on each entry."""

    def __init__(self, name: str, ports: list[int], stopped: threading.Event) -> None:
        super().__init__(name=name)
        self.service = Service(ports, stopped)
        self.worked = Counter[str]()

    def run(self) -> None:
        service, client = self.service, self.service.client
        start = ">"
        while not service.stopped.is_set():
            before = service.interruptions
            read = partial(client.xreadgroup, GROUP, self.name, {STREAM: start}, count=10, block=100)
            found = service.answer(read)
            entries = found[0][1] if found else []
            for entry_id, _ in entries:
                self.worked[entry_id] += 1
                service.answer(partial(client.xack, STREAM, GROUP, entry_id))
            if service.interruptions > before:
                start = "0"  # entries delivered in replies that were lost, before new ones
            elif not entries:
                start = ">"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20)
    first = int(os.environ.get("PORT", 7001)) + 3
    parser.add_argument("--sentinels", type=int, nargs="+", default=[first, first + 1, first + 2], help="their ports")
    options = parser.parse_args()
    service = Service(options.sentinels, threading.Event())
    with service.client as client:
        client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        told, done = threading.Event(), threading.Event()
        producer = Producer(options.sentinels, told)
        consumers = [Consumer(f"consumer{n}", options.sentinels, done) for n in range(CONSUMERS)]
        for thread in (producer, *consumers):
            thread.start()
        time.sleep(options.seconds)
        told.set()
        producer.join()
        lag = wait_for_consumers(service)
        done.set()
        for consumer in consumers:
            consumer.join()
        return report(service, producer, consumers, lag)


def wait_for_consumers(service: Service) -> int:
    """Wait until everything has been delivered and acknowledged; return what has not been, after half a minute."""
    until = time.monotonic() + 30
    while True:
        group = service.answer(partial(service.client.xinfo_groups, STREAM))[0]
        left = int(group["lag"] or 0) + int(group["pending"])
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.1)


def report(service: Service, producer: Producer, consumers: list[Consumer], left: int) -> int:
    entries = service.answer(partial(service.client.xrange, STREAM))
    there = {entry_id: int(fields["number"]) for entry_id, fields in entries}
    lost = [each for each, number in producer.acknowledged.items() if there.get(each) != number]
    repeated = sum(count > 1 for count in Counter(there.values()).values())
    worked = sum((consumer.worked for consumer in consumers), Counter[str]())
    pause = max(after - before for before, after in pairwise(producer.answered_at))
    print(f"acknowledged entries        {len(producer.acknowledged)}")
    print(f"lost                        {len(lost)}")
    print(f"added twice                 {repeated}")
    print(f"never worked on             {sum(each not in worked for each in producer.acknowledged)}")
    print(f"worked on more than once    {sum(count > 1 for count in worked.values())}")
    print(f"left in the group           {left}")
    print(f"longest pause in seconds    {pause:.1f}")
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
