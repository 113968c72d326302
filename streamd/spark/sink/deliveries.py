"""The five deliveries: how the rows of one task are written to streams.

Plain          at least once: a chunk whose reply is lost is written again, a repeated task writes all of its rows again
Marked         exactly once: the transaction of a chunk also moves a marker, a string beside the streams, that says how
               many rows of which batch are written. A repeated task skips that many rows (marked.py)
Keyed          exactly once by a key of each row (XADD IDMP): the server remembers the keys, repeated rows do nothing
KeyedByString  the same on servers without IDMP: a string, which expires, for each key (keyed.py, both)
Identified     the row has the entry's ID: an entry that the server refuses because it has it already is skipped
               (identified.py)
"""

from __future__ import annotations

from streamd.client.connection import server_features
from streamd.spark.sink.identified import Identified
from streamd.spark.sink.keyed import Keyed, KeyedByString
from streamd.transfer.chunk_delivery import Delivery, Plain, WriterLink
from streamd.transfer.marked import Marked
from streamd.transfer.task import Task
from streamd.transfer.write_options import SinkOptions

__all__ = ["open_delivery"]


def open_delivery(options: SinkOptions, task: Task, *, marker_ttl_ms: int | None = None) -> Delivery:
    """The delivery that the options ask for. Connects only when it must know the server, or write."""
    link = WriterLink(options.connection)
    if options.idempotency_key is not None:
        has_idmp = link.ask(server_features).has_idmp
        return (Keyed if has_idmp else KeyedByString)(options, task, link)
    if options.id_column is not None:
        return Identified(options, task, link)
    if options.is_marked:
        return Marked(options, task, link, options.marker_ttl_ms if marker_ttl_ms is None else marker_ttl_ms)
    return Plain(options, task, link)
