"""Rates, gaps and windowed aggregates over event time, of batch and streaming frames alike.

Takes any frame of `format("streamd")`, also one of an archive with its stream. Event time is its column `time`, or is
derived from `ms` or `id`, so a frame with few columns is enough. Numeric fields are columns of the user's schema, or are
extracted from the lossless `fields` by `with_numbers`.

    frame = spark.readStream.format("streamd").option("stream", "readings").load()
    by_minute = aggregates(with_numbers(frame, "celsius"), "celsius", window="1 minute", watermark="10 seconds")
    by_minute.writeStream.format("streamd").option("stream", "readings:by-minute")...

A result has a row for each window that has entries, with plain columns (`window_start`, `window_end`, then those of `by`,
then the figures), so that it can be written to a stream or to Parquet as it is. On a streaming frame give a watermark: how
late entries may come. In output mode `append` a window is emitted once, when the watermark has passed its end; a batch
frame ignores the watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamd.integers import INT64_MAX
from streamd.report.field_numbers import NUMBER_PATTERN

__all__ = ["FIGURES", "aggregates", "gaps", "number", "rates", "with_event_time", "with_numbers"]

FIGURES = ("count", "min", "max", "avg", "sum", "stddev")
"""What `aggregates` can compute for a column, besides percentiles written `p50`, `p99`, `p99.9` (approximate)."""

TIME = "time"

SPANS = 1_000
"""Parts of the time between the first entry and the last that `gaps` looks at one by one."""


def with_event_time(frame: DataFrame, watermark: str | None = None) -> DataFrame:
    """The frame with a column `time`, from `ms` or `id` when it has none, and with a watermark when one is given.

    IDs whose milliseconds are beyond Spark's timestamps have null there, and belong to no window.
    Raises ValueError when the frame has none of the three.
    """
    if TIME not in frame.columns:
        if "ms" in frame.columns:
            ms = F.col("ms").try_cast("bigint")
        elif "id" in frame.columns:
            ms = F.split_part(F.col("id"), F.lit("-"), F.lit(1)).try_cast("bigint")
        else:
            raise ValueError(f"no event time: there is no column time, ms or id among {', '.join(frame.columns)}")
        # Timestamps are microseconds in 64 bits.
        frame = frame.withColumn(TIME, F.when(ms <= INT64_MAX // 1000, F.timestamp_millis(ms)))
    return frame if watermark is None else frame.withWatermark(TIME, watermark)


def number(field: str, fields: str = "fields") -> Column:
    """The value of a field of lossless entries as a double: the last of several with this name; null if it is not a number.

    fields  the column, array<struct<field, value>>, of binary or text
    """
    wanted = F.lit(bytearray(field.encode(errors="surrogateescape")))
    found = F.filter(F.col(fields), lambda pair: pair["field"].cast("binary") == wanted)
    value = F.try_element_at(found, F.lit(-1))["value"].cast("string")
    read = value.try_cast("double")
    # `\\z`, since `$` would let a line end pass, which casting trims away.
    return F.when(value.rlike(f"^(?:{NUMBER_PATTERN})\\z") & (F.abs(read) < float("inf")), read)


def with_numbers(frame: DataFrame, *names: str, fields: str = "fields") -> DataFrame:
    """The frame with a column of numbers for each of these fields, see `number`."""
    return frame.withColumns({name: number(name, fields) for name in names})


def _windowed(
    frame: DataFrame, window: str, slide: str | None, watermark: str | None, by: Sequence[str], figures: list[Column]
) -> DataFrame:
    timed = with_event_time(frame, watermark)
    span = F.window(TIME, window, slide) if slide else F.window(TIME, window)
    found = timed.groupBy(span.alias("window"), *by).agg(*figures)
    return found.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *(_quoted(each) for each in found.columns if each != "window"),
    )


def _quoted(name: str) -> Column:
    """A column by a name that may contain dots: field names are chosen by the user."""
    return F.col("`" + name.replace("`", "``") + "`")


def rates(
    frame: DataFrame,
    window: str,
    *,
    slide: str | None = None,
    watermark: str | None = None,
    by: Sequence[str] = (),
) -> DataFrame:
    """Entries in each window: window_start, window_end, the columns of `by`, entries, per_second.

    window     its length, `1 minute`; windows start at multiples of it since 1970
    slide      distance between their starts, if they overlap
    watermark  how late entries may come, for streaming frames
    by         columns to group by, such as `stream`
    """
    seconds = F.unix_millis(F.col("window_end")) - F.unix_millis(F.col("window_start"))
    counted = _windowed(frame, window, slide, watermark, by, [F.count(F.lit(1)).alias("entries")])
    return counted.withColumn("per_second", F.col("entries") * 1000 / seconds)


def aggregates(
    frame: DataFrame,
    columns: str | Sequence[str],
    window: str,
    *,
    figures: Sequence[str] = ("count", "min", "max", "avg"),
    slide: str | None = None,
    watermark: str | None = None,
    by: Sequence[str] = (),
) -> DataFrame:
    """Figures of numeric columns in each window, in columns named `<column>_<figure>`; the rest as in `rates`.

    figures  of FIGURES, or percentiles. Entries without a finite number in the column do not count.
    Raises ValueError for an unknown figure.
    """
    names = [columns] if isinstance(columns, str) else list(columns)
    wanted = [_figure(name, figure).alias(f"{name}_{figure}") for name in names for figure in figures]
    return _windowed(frame, window, slide, watermark, by, wanted)


def _figure(name: str, figure: str) -> Column:
    value = _quoted(name).cast("double")
    # NaN and the infinities would spoil every mean that they are part of; Spark sorts NaN above all numbers.
    value = F.when(F.abs(value) < float("inf"), value)
    if figure in FIGURES:
        made: Column = getattr(F, figure)(value)
        return made
    try:
        percent = float(figure.removeprefix("p")) if figure.startswith("p") else -1.0
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ValueError(
            f"unknown figure {figure!r}; there are {', '.join(FIGURES)} and percentiles written p50, p99.9"
        )
    return F.percentile_approx(value, percent / 100)


def gaps(frame: DataFrame, *, by: Sequence[str] = ("stream",)) -> DataFrame:
    """The frame with `gap_ms`: milliseconds since the entry before, null for the first. Batch frames only.

    by  columns that distinguish streams; those that the frame does not have are ignored
    The time from the first entry to the last is cut into SPANS parts, so that no task sorts all entries of a stream. This
    reads the frame three times: it must be the same each time.
    Raises ValueError for a streaming frame or one without `ms`.
    """
    if frame.isStreaming:
        raise ValueError("gaps need neighbouring entries, which a streaming frame does not have; use a batch frame")
    missing = {"ms", "seq"} - set(frame.columns)
    if missing:
        raise ValueError(f"gaps need the columns ms and seq; there is no {' and no '.join(sorted(missing))}")
    keys = [_quoted(each) for each in by if each in frame.columns]
    extent = frame.agg(F.min("ms").alias("streamd_low"), F.max("ms").alias("streamd_high"))
    span = F.expr(f"(ms - streamd_low) div ((streamd_high - streamd_low) div {SPANS} + 1)")
    cut = frame.crossJoin(F.broadcast(extent)).withColumn("streamd_span", span).drop("streamd_low", "streamd_high")
    inside = F.lag("ms").over(Window.partitionBy(*keys, "streamd_span").orderBy("ms", "seq"))
    before = _ends_before(cut.where("ms is not null"), keys)
    is_same = [key.eqNullSafe(before[f"streamd_key{at}"]) for at, key in enumerate(keys)]
    joined = cut.withColumn("streamd_inside", inside).join(
        before, reduce(and_, is_same, F.col("streamd_span") == before["streamd_after"]), "left"
    )
    gap = F.col("ms") - F.coalesce("streamd_inside", "streamd_last")
    return joined.select(*(_quoted(each) for each in frame.columns), gap.alias("gap_ms"))


def _ends_before(cut: DataFrame, keys: Sequence[Column]) -> DataFrame:
    """For each span of each stream but the first one: `streamd_last`, the last `ms` of the span with entries before it."""
    ends = cut.groupBy(*keys, "streamd_span").agg(F.max("ms").alias("streamd_last"))
    # As many rows for a stream as there are spans, so they are sorted in an array.
    spans = F.array_sort(F.collect_list(F.struct("streamd_span", "streamd_last"))).alias("streamd_spans")
    pairs = F.expr(
        "explode(transform(slice(streamd_spans, 2, size(streamd_spans)), (each, at) -> "
        "struct(each.streamd_span AS streamd_after, streamd_spans[at].streamd_last AS streamd_last)))"
    )
    names = [key.alias(f"streamd_key{at}") for at, key in enumerate(keys)]
    return ends.groupBy(*keys).agg(spans).select(*names, pairs.alias("streamd_pair")).select("*", "streamd_pair.*")
