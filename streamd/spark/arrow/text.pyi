from collections.abc import Callable

import pyarrow as pa

__all__ = ["field_texts", "time_texts"]

def field_texts(fields: pa.ListArray, odd: Callable[[int], str]) -> pa.StringArray: ...
def time_texts(times: pa.TimestampArray) -> pa.StringArray: ...
