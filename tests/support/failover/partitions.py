"""Partitions between the nodes of shards that must not lose anything: rounds as in support.failover.shards, in a network of their own.

    unshare --net python -m tests.support.failover.partitions --rounds 8 --seed 1

Each node has an address of its own, 127.0.1.N, for its bus and its replication; packets from one to another are dropped by iptables. Clients
reach all nodes at 127.0.0.1, so that they find a primary that others do not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..replicas.nodes import Node
from .shards import Move, Shards, play_on_shards

__all__ = ["PARTITIONS", "Parted", "missing"]

BASE = "127.0.1."


class Parted(Shards):
    """Shards whose nodes can be kept from each other."""

    def settings_of(self, number: int) -> dict[str, str]:
        address = f"{BASE}{number + 1}"
        return {
            "bind": f"127.0.0.1 {address}",
            "bind-source-addr": address,
            "cluster-announce-ip": address,
        }

    def address_of(self, node: Node) -> str:
        return str(node.must("CONFIG", "GET", "cluster-announce-ip").value[1].value.decode())

    def cut(self, senders: Sequence[Node], receivers: Sequence[Node]) -> None:
        """Drop all packets from nodes to others."""
        for sender in map(self.address_of, senders):
            for receiver in map(self.address_of, receivers):
                iptables("-A", "INPUT", "-s", sender, "-d", receiver, "-j", "DROP")

    def heal(self) -> None:
        iptables("-F", "INPUT")


def iptables(*words: str) -> None:
    subprocess.run(["iptables", "-w", *words], check=True)


def _part(with_replica: bool, ways: str) -> Callable[[Shards, Node, random.Random], str]:
    def strike(shards: Shards, victim: Node, chance: random.Random) -> str:
        """The primary is alone, or with one of its replicas; ways: whether it cannot hear others, or they it, or both."""
        assert isinstance(shards, Parted)
        name = shards.nodes.id_of(victim)
        minority = [victim]
        if with_replica:
            minority.append(chance.choice([each for each in shards.shard_of(victim) if each is not victim]))
        others = [each for each in shards.nodes if each not in minority]
        if "out" in ways:
            shards.cut(minority, others)
        if "in" in ways:
            shards.cut(others, minority)
        return name

    return strike


PARTITIONS = [
    Move("primary cut off", _part(False, "out in"), is_cut_off=True),
    Move("primary is not heard", _part(False, "out"), is_cut_off=True),
    Move("primary does not hear", _part(False, "in"), is_cut_off=True),
    Move("primary and a replica cut off", _part(True, "out in"), is_cut_off=True),
    Move("primary and a replica are not heard", _part(True, "out"), is_cut_off=True),
    Move("primary and a replica do not hear", _part(True, "in"), is_cut_off=True),
]


def missing() -> str | None:
    """Why partitions cannot be made here, or None."""
    if not all(map(shutil.which, ("unshare", "ip", "iptables"))):
        return "needs Linux with unshare, ip and iptables"
    words = ["unshare", "--net", "sh", "-c", "ip link set lo up && iptables -w -A INPUT -s 127.0.1.1 -j DROP"]
    works = subprocess.run(words, capture_output=True, check=False).returncode == 0
    return None if works else "may not make network namespaces with iptables here"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.failover.partitions", description="Partitions between loss-free shards."
    )
    parser.add_argument("--rounds", type=int, default=len(PARTITIONS))
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each round has the next")
    options = parser.parse_args()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="streamd-partitions-") as folder, Parted(Path(folder)) as shards:
        for seed in range(options.seed, options.seed + options.rounds):
            fault = PARTITIONS[(seed - 1) % len(PARTITIONS)]
            try:
                result = play_on_shards(shards, fault, seed)
            except BaseException:
                print(fault.name, seed, shards.logs(), flush=True)
                raise
            print(result, flush=True)
            wrong += bool(result.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
