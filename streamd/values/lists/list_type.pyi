from typing import final

from streamd.keyspace.value_type import ValueType

@final
class ListType(ValueType):
    def __init__(self, *args: object, **kwargs: object) -> None: ...
