from typing import final

from streamd.keyspace.value_type import ValueType

ENCODING_BY_VALUE: int
ENCODING_BY_LENGTH: int
ENCODING_RAW: int

@final
class StringType(ValueType):
    def __init__(self, *args: object, **kwargs: object) -> None: ...
