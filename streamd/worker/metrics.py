"""The counts of workers for prometheus_client, which the program must have:

prometheus_client.REGISTRY.register(WorkerMetrics(worker))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamd.worker.worker import Counts, Worker

__all__ = ["WorkerMetrics"]

LABELS = ("stream", "group", "consumer")


class WorkerMetrics:
    """A collector: `streamd_worker_<count>_total` for each of `Counts`, and `streamd_worker_jobs`, those being handled."""

    def __init__(self, *workers: Worker) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        for each in fields(Counts):
            family = CounterMetricFamily(f"streamd_worker_{each.name}", f"Jobs: {each.name}", labels=LABELS)
            for worker in self._workers:
                family.add_metric(labels_of(worker), getattr(worker.counts, each.name))
            yield family
        gauge = GaugeMetricFamily("streamd_worker_jobs", "Jobs that are being handled", labels=LABELS)
        for worker in self._workers:
            gauge.add_metric(labels_of(worker), worker.jobs)
        yield gauge


def labels_of(worker: Worker) -> tuple[str, str, str]:
    return worker.stream, worker.group, worker.consumer
