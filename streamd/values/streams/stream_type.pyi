from typing import final

from streamd.core.host import Host
from streamd.keyspace.value_type import ValueType
from streamd.values.streams.stream_metrics import StreamMetrics
from streamd.values.streams.stream_samples import StreamHistory

@final
class StreamType(ValueType):
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def metrics(self, host: Host) -> StreamMetrics: ...
    def history(self, host: Host) -> StreamHistory: ...
