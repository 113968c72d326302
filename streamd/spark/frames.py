"""Frames: records as one, and the profile of one.

to_frame(spark, kind, records)   records (report/records.py) as a frame
frame_profile(frame, ...)        what report/profile.py finds in entries that it reads itself, of a batch frame, of whatever
                                 size: Spark counts and returns a few rows
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamd.report.field_numbers import NUMBER_PATTERN
from streamd.report.profile import BINS, GAP_EDGES_MS, Bin, Gap, Profile, Spread, bin_width, empty_profile
from streamd.report.records import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["frame_profile", "to_frame"]


def to_frame(spark: SparkSession, kind: type[Any], records: Sequence[Any]) -> DataFrame:
    """Records as a frame, to be joined, aggregated or written like any other."""
    return spark.createDataFrame(to_arrow(kind, records))


def frame_profile(frame: DataFrame, *, fields: Sequence[str] = (), bins: int = BINS, prefix: str = "") -> Profile:
    """The profile of a batch frame of one stream: columns `ms` and `seq`, and one for each field (numbers, or text of them).

    prefix  prefix of the names of the first two columns (`metadataPrefix`)
    Reads the frame twice, so its end should be fixed. Gaps are found inside of each bin by Spark, those between bins here:
    no single task sees the whole stream.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # Field names may contain dots, or equal those of columns made here: each becomes a column named by its position.
    columns = [F.col("`" + name.replace("`", "``") + "`") for name in fields]
    order_columns = [F.col(prefix + "ms").alias("ms"), F.col(prefix + "seq").alias("seq")]
    plain = frame.select(*order_columns, *(_number_of(frame, each).alias(f"n{at}") for at, each in enumerate(columns)))
    plain = plain.where("ms is not null")  # beyond what a bigint can hold: not times
    bounds = plain.agg(F.min("ms"), F.max("ms")).first()
    if bounds is None or bounds[0] is None:
        return empty_profile(tuple(fields))
    first_ms, last_ms = int(bounds[0]), int(bounds[1])
    width = bin_width(first_ms, last_ms, bins)
    order = Window.partitionBy("place").orderBy("ms", "seq")
    placed = plain.withColumn("place", F.expr(f"ms div {width}"))
    with_gaps = placed.withColumn("gap", F.col("ms") - F.lag("ms").over(order)).withColumn("class", _gap_class("gap"))
    # Of gaps of one length the earliest.
    longest = F.max(F.when(F.col("gap").isNotNull(), F.struct("gap", -F.col("ms"))))
    figures = [F.count("*"), F.min("ms"), F.max("ms"), longest]
    for at in range(len(fields)):
        figures += [found(f"n{at}") for found in (F.count, F.min, F.max, F.sum)]
    classes = [F.count_if(F.col("class") == at) for at in range(len(GAP_EDGES_MS))]
    rows = {int(row[0]): row for row in with_gaps.groupBy("place").agg(*figures, *classes).collect()}
    return _joined(rows, first_ms, last_ms, width, tuple(fields))


def _number_of(frame: DataFrame, column: Column) -> Column:
    """A column as finite doubles; text that is not a number is null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import NumericType

    number = column.try_cast("double")
    is_finite = F.abs(number) < float("inf")
    if not isinstance(frame.select(column).schema[0].dataType, NumericType):
        is_finite = is_finite & column.cast("string").rlike(f"^(?:{NUMBER_PATTERN})\\z")
    return F.when(is_finite, number)


def _gap_class(name: str) -> Column:
    """The class of a gap; null for no gap."""
    from pyspark.sql import functions as F

    found = F.when(F.col(name).isNull(), F.lit(None))
    for at in range(len(GAP_EDGES_MS) - 1, -1, -1):
        found = found.when(F.col(name) >= GAP_EDGES_MS[at], at)
    return found


def _joined(rows: dict[int, Any], first_ms: int, last_ms: int, width: int, fields: tuple[str, ...]) -> Profile:
    """The profile from a row for each bin: place, entries, first, last, longest gap and its end, numbers, gap classes."""
    gaps: Counter[int] = Counter()
    found, previous_ms = [], None
    for place in range(first_ms // width, last_ms // width + 1):
        row = rows.get(place)
        if row is None:
            found.append(Bin(place * width, 0, None, (None,) * len(fields)))
            continue
        _, entries, first, last, inner = row[:5]
        longest = None if inner is None else Gap(-inner[1], inner[0])
        if previous_ms is not None:
            gap = int(first) - previous_ms
            gaps[bisect_right(GAP_EDGES_MS, gap) - 1] += 1
            if longest is None or gap >= longest.ms:
                longest = Gap(int(first), gap)
        previous_ms = int(last)
        numbers = [row[5 + 4 * at : 9 + 4 * at] for at in range(len(fields))]
        spreads = tuple(Spread(*each) if each[0] else None for each in numbers)
        found.append(Bin(place * width, entries, longest, spreads))
        for at, many in enumerate(row[5 + 4 * len(fields) :]):
            gaps[at] += many
    entries = sum(each.entries for each in found)
    classes = tuple(gaps[at] for at in range(len(GAP_EDGES_MS)))
    return Profile(entries, first_ms, last_ms, width, tuple(found), classes, fields)
