"""Metrics as text: OpenMetrics, or the older format of Prometheus where that is asked for.

What depends on the format (heads, the last line, the content type) comes from prometheus_client, and so do samples with few
labels. The samples of streams and groups are written here: prometheus_client needs about 4 us for each, and there are tens of
thousands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from streamd.observe.metrics.metric_families import Family
from streamd.printable import key_text

__all__ = ["Exposition", "escaped"]

END = b"# EOF\n"
OPENMETRICS = "application/openmetrics-text"
KINDS: Mapping[str, Any] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
    "info": InfoMetricFamily,
}


class _One:
    """A registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


class Exposition:
    """The text in one of the two formats.

    accept        the header of that name of the request
    content_type  of the reply
    end           what the text ends with
    """

    def __init__(self, accept: str) -> None:
        # Only these two: no name here needs to be escaped, and texts are shared by those who ask for the same.
        self._encode, self.content_type = choose_encoder(OPENMETRICS if OPENMETRICS in accept else "")
        self.end = END if self._encode_all(GaugeMetricFamily("x", "x")).endswith(END) else b""

    def _encode_all(self, metric: Metric) -> bytes:
        return self._encode(_One(metric))

    def head(self, family: Family) -> bytes:
        """The lines before the samples of a metric."""
        return self._encode_all(KINDS[family.kind](family.name, family.help, labels=())).removesuffix(END)

    def samples(self, family: Family, values: Iterable[tuple[Mapping[str, str], Any]]) -> bytes:
        """A metric with few samples: labels and values."""
        metric = KINDS[family.kind](family.name, family.help)
        for labels, value in values:
            name = family.name + {"counter": "_total", "info": "_info"}.get(family.kind, "")
            metric.add_sample(name, dict(labels), value)
        return self._encode_all(metric).removesuffix(END) if metric.samples else b""


def escaped(value: bytes | str | int) -> str:
    """The value of a label between its quotes."""
    text = key_text(value.decode("utf-8", "surrogateescape")) if isinstance(value, bytes) else str(value)
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text
