"""Replication: what a replica costs its primary, what applying costs the replica, a full sync, WAIT, and writing without loss.

    python -m benchmarks.replication [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Primary and replicas of a row are of the same kind; only "from Redis" has a primary of Redis 8.6 for all. The primary is on
the servers' CPU, its replicas are on that of the load. CPU is that of one process: of the primary, until its replicas have
everything, or of the replica, likewise. A full sync is timed from REPLICAOF until the replica reports that its link is up;
it waits for no further replicas (repl-diskless-sync-delay 0). The longest PING is that of a client of the primary during
one. WAIT is measured as an XADD and WAIT 1 in one piece, over one connection.

Loss-free writing is streamd's: with `min-replicas-durable 1`, XADD is answered when the primary and a replica have it on
disk. Other servers are measured with `appendfsync always` and without a replica there, which is what they can promise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks.append import ALWAYS, FIELDS
from benchmarks.cases import Case, Sample, ensure_stream, measuring, remove, send_all
from benchmarks.load import Requests, make_request, open_connections, run_loop
from benchmarks.script import command
from benchmarks.servers import BASE, LOAD_CPU, Server, start_server

ENTRIES = 5_000_000
APPENDED = 500_000
WAITED = 20_000
DURABLE = 200_000
LINK_DEADLINE_S = 120
POLL_S = 0.005
PRIMARY = ("--repl-diskless-sync-delay", "0")
XADD = Requests([make_request("XADD", "mystream", *FIELDS)])


# --- Replicas ----------------------------------------------------------------------------------------------------------


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LINK_DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {LINK_DEADLINE_S} s")
        time.sleep(POLL_S)


def is_linked(replica: Server) -> bool:
    return replica.info("replication").get("master_link_status") == "up"


def follow(replica: Server, primary: Server) -> None:
    """Make a server a replica, and wait until its link is up."""
    send_all(replica, [make_request("REPLICAOF", "127.0.0.1", primary.port)])
    wait_until(lambda: is_linked(replica), f"the link of {replica.name}")


@contextmanager
def start_replicas(primary: Server, number: int, *arguments: str) -> Iterator[list[Server]]:
    """Fresh replicas of the primary's kind, in sync, until the block ends."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(start_server(primary.name, *PRIMARY, *arguments, cpu=LOAD_CPU)) for _ in range(number)
        ]
        for replica in started:
            follow(replica, primary)
        yield started


def wait_until_applied(primary: Server, replicas: Sequence[Server]) -> None:
    """Wait until replicas have all that the primary has sent. The primary is asked once: it is the one that is measured."""
    offset = int(primary.info("replication")["master_repl_offset"])
    for replica in replicas:
        wait_until(
            lambda replica=replica: int(replica.info("replication")["slave_repl_offset"]) >= offset,  # type: ignore[misc]
            f"the offset of {replica.name}",
        )


def append(primary: Server, number: int) -> None:
    with open_connections(primary.port, 50) as socks:
        run_loop(socks, XADD, number, depth=16)


# --- The cases ---------------------------------------------------------------------------------------------------------


def cost_of_replicas(number: int) -> Callable[[Server, float], Sample]:
    """What an XADD costs a primary with so many replicas."""

    def run(primary: Server, scale: float) -> Sample:
        total = int(APPENDED * scale)
        remove(primary, ["mystream", "big"])
        with start_replicas(primary, number) as replicas, measuring(primary, total) as sample:
            append(primary, total)
            wait_until_applied(primary, replicas)
        return sample

    return run


def cost_of_applying(primary: Server, replica: Server, scale: float) -> Sample:
    """What an XADD costs a replica."""
    total = int(APPENDED * scale)
    with measuring(replica, total) as sample:
        append(primary, total)
        wait_until_applied(primary, [replica])
    return sample


def apply(primary: Server, scale: float) -> Sample:
    remove(primary, ["mystream", "big"])
    with start_replicas(primary, 1) as (replica,):
        return cost_of_applying(primary, replica, scale)


def apply_from_redis(server: Server, scale: float) -> Sample:
    with start_server(BASE, *PRIMARY) as primary, start_server(server.name, cpu=LOAD_CPU) as replica:
        follow(replica, primary)
        return cost_of_applying(primary, replica, scale)


def prepare_entries(primary: Server, scale: float) -> None:
    ensure_stream(primary, "big", int(ENTRIES * scale))


def full_sync(primary: Server, scale: float) -> Sample:
    """From REPLICAOF until the replica's link is up."""
    prepare_entries(primary, scale)
    with start_server(primary.name, *PRIMARY, cpu=LOAD_CPU) as replica:
        began = time.perf_counter()
        follow(replica, primary)
        took = time.perf_counter() - began
        if replica.send("XLEN", "big") != b":%d\r\n" % int(ENTRIES * scale):
            raise RuntimeError(f"{replica.name} has not got all entries")
    return Sample(int(ENTRIES * scale), figure=took)


def stall_of_a_sync(primary: Server, scale: float) -> Sample:
    """The longest PING of a client of the primary while a replica gets everything."""
    prepare_entries(primary, scale)
    ping = Requests([make_request("PING")])
    with start_server(primary.name, *PRIMARY, cpu=LOAD_CPU) as replica, open_connections(primary.port) as socks:
        run_loop(socks, ping, 1)
        syncing = threading.Thread(target=follow, args=(replica, primary))
        syncing.start()
        longest = 0.0
        while syncing.is_alive():
            longest = max(longest, run_loop(socks, ping, 1).seconds)
        syncing.join()
        if not is_linked(replica):
            raise RuntimeError(f"{replica.name} has not been synced")
    return Sample(1, figure=longest * 1000)


def wait_for_a_replica(share: float) -> Callable[[Server, float], Sample]:
    """The time until an XADD and WAIT 1 are answered, below which that share of all times lies."""

    def run(primary: Server, scale: float) -> Sample:
        total = int(WAITED * scale)
        remove(primary, ["mystream", "big"])
        pair = Requests([make_request("XADD", "mystream", *FIELDS), make_request("WAIT", 1, 0)])
        with start_replicas(primary, 1), open_connections(primary.port) as socks:
            run_loop(socks, pair, total // 5 * 2, depth=2)
            with measuring(primary, total) as sample:
                outcome = run_loop(socks, pair, total * 2, depth=2, is_timed=True)
            sample.figure = outcome.times.percentile_us(share)
        return sample

    return run


def durable_appends(primary: Server, total: int) -> Sample:
    with measuring(primary, total) as sample:
        append(primary, total)
    return sample


def without_loss(primary: Server, total: int) -> Sample:
    """With a replica that has every entry on disk before it is acknowledged."""
    with start_replicas(primary, 1, *ALWAYS):
        send_all(primary, [make_request("CONFIG", "SET", "min-replicas-durable", 1)])
        try:
            wait_until(lambda: primary.info("replication")["durable_fenced"] == "0", "the confirmation of the replica")
            return durable_appends(primary, total)
        finally:
            send_all(primary, [make_request("CONFIG", "SET", "min-replicas-durable", 0)])


def loss_free(primary: Server, scale: float) -> Sample:
    total = int(DURABLE * scale)
    remove(primary, ["mystream"])
    return without_loss(primary, total) if primary.name == "streamd" else durable_appends(primary, total)


def loss_free_beside_always(primary: Server, scale: float) -> Sample:
    """The time of an XADD without loss, over that of one that is on the primary's disk alone."""
    total = int(DURABLE * scale)
    remove(primary, ["mystream"])
    alone = durable_appends(primary, total)
    sample = without_loss(primary, total)
    sample.figure = sample.seconds / alone.seconds
    return sample


CASES = [
    Case("XADD, one replica, P=16", cost_of_replicas(1), 1.3, arguments=PRIMARY),
    Case("XADD, two replicas, P=16", cost_of_replicas(2), 1.3, arguments=PRIMARY),
    Case("XADD, applied by a replica, P=16", apply, 1.2, arguments=PRIMARY),
    Case("XADD, applied by a replica, from Redis, P=16", apply_from_redis, 1.2, arguments=PRIMARY, names=("streamd", BASE)),
    Case("XADD and WAIT 1, median", wait_for_a_replica(0.5), 1.0, "us", arguments=PRIMARY),
    Case("XADD and WAIT 1, 99th percentile", wait_for_a_replica(0.99), 1.0, "us", arguments=PRIMARY),
    Case("full sync of 5M entries", full_sync, 1.2, "seconds", arguments=PRIMARY),
    Case("longest PING during a full sync of 5M entries", stall_of_a_sync, 1.0, "ms", arguments=PRIMARY),
    Case("XADD, loss-free, beside always of others, P=16", loss_free, 0.8, "clock", arguments=(*PRIMARY, *ALWAYS)),
    Case("XADD, loss-free, over streamd's own always, P=16", loss_free_beside_always, None, "times", limit=1.25,
         arguments=(*PRIMARY, *ALWAYS), names=("streamd",)),
]  # fmt: skip

main = command(CASES, __doc__, "replication")

if __name__ == "__main__":
    main()
