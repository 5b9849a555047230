"""What Prometheus is told, at /metrics. Names of models are those that are served: what clients make up is not counted
by name, so that it cannot fill the memory."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from prometheus_client import (  # type: ignore[import-not-found, unused-ignore]
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counted in the thread of the event loop alone."""

    def __init__(self) -> None:
        # A time beside each counter is a third of the lines, and no dashboard asks for it.
        disable_created_metrics()  # type: ignore[no-untyped-call, unused-ignore]
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "lenslet_requests", "Inference requests, failed ones included", ["model", "protocol"],
            registry=self.registry,
        )  # fmt: skip
        self.failures = Counter(
            "lenslet_failures", "Requests that were not done, by the reason", ["model", "protocol", "kind"],
            registry=self.registry,
        )  # fmt: skip
        self.in_house = Gauge(
            "lenslet_requests_in_house", "Requests that were let in and are not answered yet", registry=self.registry
        )
        self.queue = Gauge("lenslet_queue_length", "Requests that wait for a runner", ["model"], registry=self.registry)
        self.batch = Histogram(
            "lenslet_batch_size", "Rows (images) of a run", ["model"], buckets=ROWS, registry=self.registry
        )
        self.request_seconds = Histogram(
            "lenslet_request_seconds", "From a request's headers to its answer, of those that were done",
            ["model", "protocol"], buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self.prepare_seconds = Histogram(
            "lenslet_prepare_seconds", "Decoding and preparing the pictures of a request", ["model"],
            buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self.queue_seconds = Histogram(
            "lenslet_queue_seconds", "A request's wait for a runner", ["model"], buckets=SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self.run_seconds = Histogram(
            "lenslet_run_seconds", "Runs of the network, each a batch", ["model"], buckets=SECONDS,
            registry=self.registry,
        )  # fmt: skip

        self._of: Dict[Tuple[Any, Tuple[str, ...]], Any] = {}

    def of(self, metric: Any, *labels: str) -> Any:
        """`metric.labels(*labels)`, found in a tenth of its time."""
        child = self._of.get((metric, labels))
        if child is None:
            child = self._of[metric, labels] = metric.labels(*labels)
        return child

    def text(self) -> bytes:
        """In Prometheus' text format 0.0.4."""
        return bytes(generate_latest(self.registry))
