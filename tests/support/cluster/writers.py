"""Clients of a cluster that must lose no request while its nodes change."""

from __future__ import annotations

import asyncio
import threading

import redis
import redis.asyncio

from ..replicas.nodes import Node, wait_until
from .nodes import Nodes

__all__ = ["Writers", "check_written"]


class Writers:
    """A thread and a task that append 0, 1, 2 ... to a stream each, in the slot 5061 of `bar`."""

    def __init__(self, node: Node) -> None:
        self.counts = {"{bar}thread": 0, "{bar}task": 0}
        self.errors: list[BaseException] = []
        self._place = {"host": "127.0.0.1", "port": node.port}
        self._stops = threading.Event()
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._run_task)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        try:
            with redis.RedisCluster(**self._place) as client:
                while not self._stops.is_set():
                    client.xadd("{bar}thread", {"n": self.counts["{bar}thread"]})
                    self.counts["{bar}thread"] += 1
        except BaseException as error:
            self.errors.append(error)

    def _run_task(self) -> None:
        asyncio.run(self._write_later())

    async def _write_later(self) -> None:
        try:
            async with redis.asyncio.RedisCluster(**self._place) as client:
                while not self._stops.is_set():
                    await client.xadd("{bar}task", {"n": self.counts["{bar}task"]})
                    self.counts["{bar}task"] += 1
        except BaseException as error:
            self.errors.append(error)

    def wait_for_more(self) -> None:
        goal = {name: count + 20 for name, count in self.counts.items()}
        wait_until(lambda: self.errors or all(self.counts[name] >= goal[name] for name in goal), "clients write")

    def stop(self) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join()


def check_written(writers: Writers, nodes: Nodes) -> None:
    assert not writers.errors
    nodes.wait()
    owner = nodes.owner_of(5061)
    for name, count in writers.counts.items():
        entries = owner.must("XRANGE", name, "-", "+").value
        assert [int(entry.value[1].value[1].value) for entry in entries] == list(range(count))
