"""What Prometheus is told, at /metrics. Names of models are those that are served: what clients make up is not counted
by name, so that it cannot fill the memory."""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, Sized, Tuple

from prometheus_client import (  # type: ignore[import-not-found, unused-ignore]
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from .memory import Memory

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

        self.ended_runs = Counter(
            "lenslet_ended_runs", "Runs that were ended since nobody waited for them any more", ["model"],
            registry=self.registry,
        )  # fmt: skip
        gauge = partial(Gauge, registry=self.registry)
        self.memory = gauge("lenslet_memory_bytes", "What requests hold: bodies, tensors, plans, answers")
        self.memory_limit = gauge("lenslet_memory_limit_bytes", "--max-memory-mib")
        self.memory_peak = gauge("lenslet_memory_peak_bytes", "The most that requests have held")
        self.memory_refused = gauge("lenslet_memory_refused", "How often it was not there")
        self.kept_runners = gauge("lenslet_kept_runners", "For shapes that requests had, kept for the next")
        self.messages = gauge("lenslet_grpc_messages_coming", "Calls of gRPC whose message is not here yet")
        self.answers = gauge("lenslet_grpc_answers_leaving", "Calls of gRPC whose answer the client has not taken yet")
        self.lost_lines = gauge("lenslet_access_log_lost", "Lines that the disk did not take in time")
        self._of: Dict[Tuple[Any, Tuple[str, ...]], Any] = {}

    def observe_memory(self, memory: Memory, kept: Sized) -> None:
        self.memory.set_function(lambda: memory.used)
        self.memory_peak.set_function(lambda: memory.peak)
        self.memory_limit.set(memory.most)
        self.memory_refused.set_function(lambda: memory.refused)
        self.kept_runners.set_function(lambda: len(kept))

    def of(self, metric: Any, *labels: str) -> Any:
        """`metric.labels(*labels)`, found in a tenth of its time."""
        child = self._of.get((metric, labels))
        if child is None:
            child = self._of[metric, labels] = metric.labels(*labels)
        return child

    def text(self) -> bytes:
        """In Prometheus' text format 0.0.4."""
        return bytes(generate_latest(self.registry))
