"""A stream in parts, which spread evenly over the primaries of a cluster, and readers that share the parts.

    parts              names of the parts, the part of a key, the recorded count
    sharing            which reader gets which parts: arithmetic alone
    partition_scripts  what happens at a server in one step: leases, reads under a lease, the readers that live
    reading            a reader as steps, without I/O
    thread_reader      the steps carried out in threads, with redis-py
    async_reader       the same in tasks of asyncio

It needs redis-py, `RedisCluster` or `Redis`, of which the caller passes a client, and works with any server of Redis 7 or newer.
"""

from streamd.partitions.async_reader import AsyncReader
from streamd.partitions.partition_error import PartitionError
from streamd.partitions.parts import Parts
from streamd.partitions.reading import Batch
from streamd.partitions.thread_reader import Reader

__all__ = ["AsyncReader", "Batch", "PartitionError", "Parts", "Reader"]
