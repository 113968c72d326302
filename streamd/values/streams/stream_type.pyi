from typing import final

from streamd.core.host import Host
from streamd.keyspace.value_type import ValueType
from streamd.values.streams.last_hour import StreamHistory
from streamd.values.streams.metrics import StreamMetrics

@final
class StreamType(ValueType):
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def metrics(self, host: Host) -> StreamMetrics: ...
    def history(self, host: Host) -> StreamHistory: ...
