"""Metrics for Prometheus, at /metrics. Only the names of served models appear: names that clients invent are not
counted separately, so that they cannot fill the memory."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from itertools import accumulate
from typing import Any, Dict, Generic, Iterator, List, Sequence, Sized, Tuple, Type, TypeVar

from prometheus_client import (  # type: ignore[import-not-found, unused-ignore]
    CollectorRegistry,
    Gauge,
    generate_latest,
)
from prometheus_client.core import (  # type: ignore[import-not-found, unused-ignore]
    CounterMetricFamily,
    HistogramMetricFamily,
)

from .memory import Memory

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Count:
    made = CounterMetricFamily

    def __init__(self) -> None:
        self.value = 0

    def inc(self) -> None:
        self.value += 1

    def said(self) -> Tuple[Any, ...]:
        """As the library expects it."""
        return (self.value,)


class Spread:
    """Counts the values up to each of `bounds`."""

    made = HistogramMetricFamily
    bounds: Sequence[float] = SECONDS

    def __init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def said(self) -> Tuple[Any, ...]:
        names = [*map(str, map(float, self.bounds)), "+Inf"]
        return (list(zip(names, accumulate(self.counts))), self.sum)


class RowSpread(Spread):
    bounds = ROWS


Child = TypeVar("Child", Count, Spread)


class Family(Generic[Child]):
    """One child for each combination of labels. A request updates ten counters: the library's, each with a lock, took a
    tenth of a small request's time."""

    def __init__(self, kind: Type[Child], name: str, about: str, labels: List[str], registry: CollectorRegistry) -> None:
        self._kind: Type[Child] = kind
        self._name, self._about, self._labels = name, about, labels
        self._children: Dict[Tuple[str, ...], Child] = {}
        registry.register(self)  # type: ignore[arg-type, unused-ignore]

    def of(self, *labels: str) -> Child:
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._kind()
        return child

    def collect(self) -> Iterator[Any]:
        """Called by the library."""
        family: Any = self._kind.made(self._name, self._about, labels=self._labels)
        for labels, child in self._children.items():
            family.add_metric(labels, *child.said())
        yield family


class Metrics:
    """Updated only in the event loop's thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        count, spread = partial(Family, Count, registry=self.registry), partial(Family, Spread, registry=self.registry)
        both = ["model", "protocol"]
        self.requests = count("lenslet_requests", "Inference requests, failed ones included", both)
        self.failures = count("lenslet_failures", "Requests that were not done, by the reason", [*both, "kind"])
        self.request_seconds = spread(
            "lenslet_request_seconds", "From a request's headers to its answer, of those that were done", both
        )
        self.batch = Family(RowSpread, "lenslet_batch_size", "Rows (images) of a run", ["model"], self.registry)
        self.prepare_seconds = spread(
            "lenslet_prepare_seconds", "Decoding and preparing the pictures of a request", ["model"]
        )
        self.queue_seconds = spread("lenslet_queue_seconds", "A request's wait for a runner", ["model"])
        self.run_seconds = spread("lenslet_run_seconds", "Runs of the network, each a batch", ["model"])
        self.ended_runs = count(
            "lenslet_ended_runs", "Runs that were ended since nobody waited for them any more", ["model"]
        )
        self.in_house = Gauge(
            "lenslet_requests_in_house", "Requests that were let in and are not answered yet", registry=self.registry
        )
        self.queue = Gauge("lenslet_queue_length", "Requests that wait for a runner", ["model"], registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self.memory = gauge("lenslet_memory_bytes", "What requests hold: bodies, tensors, plans, answers")
        self.memory_limit = gauge("lenslet_memory_limit_bytes", "--max-memory-mib")
        self.memory_peak = gauge("lenslet_memory_peak_bytes", "The most that requests have held")
        self.memory_refused = gauge("lenslet_memory_refused", "How often it was not there")
        self.kept_runners = gauge("lenslet_kept_runners", "For shapes that requests had, kept for the next")
        self.messages = gauge("lenslet_grpc_messages_coming", "Calls of gRPC whose message is not here yet")
        self.answers = gauge("lenslet_grpc_answers_leaving", "Calls of gRPC whose answer the client has not taken yet")
        self.lost_lines = gauge("lenslet_access_log_lost", "Lines that the disk did not take in time")

    def observe_memory(self, memory: Memory, kept: Sized) -> None:
        self.memory.set_function(lambda: memory.used)
        self.memory_peak.set_function(lambda: memory.peak)
        self.memory_limit.set(memory.most)
        self.memory_refused.set_function(lambda: memory.refused)
        self.kept_runners.set_function(lambda: len(kept))

    def text(self) -> bytes:
        """In Prometheus' text format 0.0.4."""
        return bytes(generate_latest(self.registry))
