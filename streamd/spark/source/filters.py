"""How the filters that Spark passes to a reader narrow the streams and the range of IDs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from streamd.client.points import MAX_ID, MIN_ID, first_id_of, last_id_of, parse_entry_id
from streamd.transfer.narrowed import Narrowed

__all__ = ["narrow_by_filters"]


def narrow_by_filters(filters: Iterable[Filter], prefix: str) -> Narrowed:
    """Narrow by filters on the metadata columns; other filters are ignored."""
    narrowed = Narrowed()
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if len(attribute) == 1 and attribute[0].startswith(prefix):
            column = attribute[0].removeprefix(prefix)
            if column == "ms":
                _narrow_by_ms(narrowed, each)
            elif column == "time":
                _narrow_by_time(narrowed, each)
            elif column == "id":
                _narrow_by_id(narrowed, each)
            elif column == "stream":
                _narrow_by_stream(narrowed, each)
    return narrowed


def _narrow_by_number(narrowed: Narrowed, each: Filter, of: Any) -> None:
    """Narrow by a filter on a column that grows with the ID; `of(value)` are the lowest and highest ms it can mean."""
    if isinstance(each, EqualTo):
        low, high = of(each.value)
        narrowed.narrow(first_id_of(low), last_id_of(high))
    elif isinstance(each, In):
        spans = [of(value) for value in each.value if value is not None]
        if spans:
            narrowed.narrow(first_id_of(min(low for low, _ in spans)), last_id_of(max(high for _, high in spans)))
    elif isinstance(each, GreaterThan | GreaterThanOrEqual):
        narrowed.narrow(first_id_of(of(each.value)[0]), MAX_ID)
    elif isinstance(each, LessThan | LessThanOrEqual):
        narrowed.narrow(MIN_ID, last_id_of(of(each.value)[1]))


def _narrow_by_ms(narrowed: Narrowed, each: Filter) -> None:
    def of(value: Any) -> tuple[int, int]:
        return int(value), int(value)

    if isinstance(each, GreaterThan):
        narrowed.narrow(first_id_of(int(each.value) + 1), MAX_ID)
    elif isinstance(each, LessThan):
        # Nothing is below the first millisecond.
        narrowed.narrow(MIN_ID, first_id_of(int(each.value)) - 1)
    else:
        _narrow_by_number(narrowed, each, of)


def _narrow_by_time(narrowed: Narrowed, each: Filter) -> None:
    def of(value: datetime) -> tuple[int, int]:
        moment = value if value.tzinfo is not None else value.astimezone()
        ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        return ms, ms + 1

    values = each.value if isinstance(each, In) else [getattr(each, "value", None)]
    if all(isinstance(value, datetime) for value in values):
        _narrow_by_number(narrowed, each, of)


def _narrow_by_id(narrowed: Narrowed, each: Filter) -> None:
    if isinstance(each, EqualTo | In):
        values = each.value if isinstance(each, In) else [each.value]
        try:
            numbers = [parse_entry_id(value) for value in values if value is not None]
        except ValueError:
            return  # no ID is written like that; Spark itself will find nothing
        if numbers:
            narrowed.narrow(min(numbers), max(numbers))
    elif isinstance(each, GreaterThan | GreaterThanOrEqual):
        narrowed.id_texts.append(("from", each.value))
    elif isinstance(each, LessThan | LessThanOrEqual):
        narrowed.id_texts.append(("to", each.value))
    elif isinstance(each, StringStartsWith):
        narrowed.id_texts.append(("prefix", each.value))


def _narrow_by_stream(narrowed: Narrowed, each: Filter) -> None:
    if isinstance(each, EqualTo):
        narrowed.only_streams([each.value])
    elif isinstance(each, In):
        narrowed.only_streams(each.value)
    elif isinstance(each, StringStartsWith) and each.value.startswith(narrowed.stream_prefix):
        narrowed.stream_prefix = each.value
