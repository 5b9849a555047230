"""Queues of requests. A run takes all waiting requests of a model at once, up to a limit.

A worker is a thread with its own runner for every model and batch size. There are as many workers as concurrent runs,
so that models share the processors and none takes them all. A free worker takes the model whose first request has
waited longest, with the requests after it. Nothing is padded: n rows run as planned sizes whose sum is n. Runners
release the GIL while they compute. A run ends early if no client waits for it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

import lenslet

from .forecast import Forecast
from .memory import Hold
from .protocol import Array
from .repository import Repository, ServedModel
from .rooms import Room
from .shapes import ShapeRunners

#: Added to the niceness of threads that compute.
NICER = 10
#: Seconds that a cancelled run has to end.
CANCEL_SECONDS = 5.0

Outcome = Tuple["Job", Union[List[Array], Exception]]


def behind_the_loop() -> None:
    """Lowers this thread's priority below the event loop's, so that requests are refused and probes answered at once,
    whatever the load."""
    if sys.platform == "linux":  # elsewhere a thread's id is not a process id
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + NICER)


class Job:
    """A request's inputs, checked and complete, on their way to a runner; `hold` is their share of the memory."""

    __slots__ = ("served", "inputs", "rows", "future", "since", "waiting", "slab", "place", "hold", "gone", "run",
                 "began", "ended")  # fmt: skip

    def __init__(self, served: ServedModel, inputs: List[Array], future: asyncio.Future[List[Array]],
                 room: Optional[Room] = None, hold: Optional[Hold] = None) -> None:  # fmt: skip
        self.served, self.inputs, self.future, self.hold = served, inputs, future, hold
        self.rows = inputs[0].shape[0] if served.batchable else 1
        self.since = time.monotonic()
        self.waiting = True
        self.gone = False  # no client waits for it
        self.run: Optional[_Run] = None  # the run that contains it
        self.began = self.ended = 0.0
        self.slab, self.place = (None, 0) if room is None else (room.slab, room.place)


class Done:
    """A completed run: its jobs, each with its outputs or its error, and when it began and ended."""

    __slots__ = ("served", "jobs", "rows", "began", "ended")

    def __init__(self, served: ServedModel, jobs: List[Outcome], rows: int, began: float, ended: float) -> None:
        self.served, self.jobs, self.rows, self.began, self.ended = served, jobs, rows, began, ended


class _Run:
    """Jobs that run together, until the run ends."""

    __slots__ = ("jobs", "cancel", "cancelled", "until")

    def __init__(self, jobs: List[Job], cancel: lenslet.Cancel, until: float) -> None:
        self.jobs, self.cancel, self.cancelled = jobs, cancel, False
        self.until = until  # estimated

    def end(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self.cancel.request()


class Batcher:
    """`deliver` is called for each run, in a worker's thread."""

    def __init__(self, repository: Repository, workers: int, max_wait: float, deliver: Callable[[Done], None],
                 shapes: ShapeRunners) -> None:  # fmt: skip
        self._max_wait, self._deliver, self.shapes = max_wait, deliver, shapes
        self._changed = threading.Condition()
        self._queues: Dict[ServedModel, Deque[Job]] = {served: deque() for served in repository.models.values()}
        self._rows: Dict[ServedModel, int] = dict.fromkeys(self._queues, 0)
        self._forecast = Forecast(workers, {served: served.sizes[0] for served in self._queues})
        self._runs: Dict[_Run, None] = {}
        self._idle = 0
        self._stopping = False
        self._workers = [_Worker(self, list(self._queues)) for _ in range(workers)]
        self.planned_bytes = sum(worker.planned_bytes for worker in self._workers)

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def put(self, job: Job) -> None:
        with self._changed:
            queue = self._queues[job.served]
            queue.append(job)
            self._rows[job.served] += job.rows
            if self._idle:
                self._changed.notify()

    def drop(self, job: Job) -> None:
        """No client waits for the job any more. The run ends if the same holds for all its jobs."""
        with self._changed:
            job.gone = True
            if job.waiting:
                job.waiting = False
                self._queues[job.served].remove(job)
                self._rows[job.served] -= job.rows
            elif job.run is not None and all(each.gone for each in job.run.jobs):
                job.run.end()

    def waiting(self, served: ServedModel) -> int:
        return len(self._queues[served])

    def wait(self, served: ServedModel, least: float) -> float:
        """The seconds that a request would wait for a runner, if these are too many and more than `least`; else 0."""
        if self._idle or not any(self._rows.values()):  # it would be the next
            return 0
        with self._changed:
            running = [(run.jobs[0].served, run.until) for run in self._runs]
            return self._forecast.too_long(served, time.monotonic(), running, self._rows, least)

    def stop(self, seconds: float = CANCEL_SECONDS) -> bool:
        """Ends running jobs and drops waiting ones. False if something still runs after this time."""
        with self._changed:
            self._stopping = True
            for served, queue in self._queues.items():
                queue.clear()
                self._rows[served] = 0
            for run in self._runs:
                run.end()
            self._changed.notify_all()
        until = time.monotonic() + seconds
        for worker in self._workers:
            if worker.ident is not None:
                worker.join(max(0, until - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)

    def take(self) -> Optional[List[Job]]:
        """For workers: waits for the next batch; None at the end."""
        with self._changed:
            while True:
                now = time.monotonic()
                first: Optional[ServedModel] = None
                due = float("inf")
                for served, queue in self._queues.items():
                    if queue:
                        when = queue[0].since
                        if served.batchable and self._rows[served] < served.options.max_batch and not self._stopping:
                            when += self._max_wait
                        if when < due:
                            first, due = served, when
                if first is not None and due <= now:
                    return self._pop(first)
                if first is None and self._stopping:
                    return None
                self._idle += 1
                self._changed.wait(None if first is None else due - now)
                self._idle -= 1

    def _pop(self, served: ServedModel) -> List[Job]:
        queue = self._queues[served]
        jobs = self._beside_the_first(queue, served.options.max_batch)
        if not jobs:
            jobs = [queue.popleft()]
            rows = jobs[0].rows
            while served.batchable and queue and rows + queue[0].rows <= served.options.max_batch:
                jobs.append(queue.popleft())
                rows += jobs[-1].rows
        rows = sum(job.rows for job in jobs)
        self._rows[served] -= rows
        for job in jobs:
            job.waiting = False
        if self._idle and any(self._queues.values()):
            self._changed.notify()
        return jobs

    @staticmethod
    def _beside_the_first(queue: Deque[Job], most: int) -> List[Job]:
        """Requests whose images are adjacent to the first one's, if they are as many as otherwise, or fewer with enough
        behind them: later batches then follow slabs. None if it does not pay."""
        slab = queue[0].slab
        if slab is None:
            return []
        jobs = [job for job in itertools.islice(queue, 2 * most) if job.slab is slab]
        if len(jobs) < min(most, len(queue)) and len(queue) - len(jobs) < most:
            return []
        for job in jobs:
            queue.remove(job)
        return jobs

    def begin(self, jobs: List[Job], cancel: lenslet.Cancel) -> Optional[_Run]:
        """None: no client waits for any of the jobs."""
        with self._changed:
            jobs[:] = [job for job in jobs if not job.gone]
            if not jobs or self._stopping:
                return None
            served = jobs[0].served
            run = _Run(jobs, cancel, time.monotonic() + self._forecast.run(served, sum(job.rows for job in jobs)))
            for job in jobs:
                job.run = run
            self._runs[run] = None
            return run

    def over(self, run: _Run) -> None:
        with self._changed:
            del self._runs[run]
            for job in run.jobs:
                job.run = None

    def delivered(self, done: Done) -> None:
        if not isinstance(done.jobs[0][1], Exception):
            with self._changed:
                self._forecast.ran(done.served, max(1, done.rows), done.ended - done.began)
        self._deliver(done)


class _Worker(threading.Thread):
    def __init__(self, batcher: Batcher, models: Sequence[ServedModel]) -> None:
        super().__init__(name="lenslet-worker", daemon=True)
        self._batcher = batcher
        self._runners = {served: _Runners(served, batcher.shapes) for served in models}
        self._cancel = lenslet.Cancel()
        self.planned_bytes = sum(runners.planned_bytes for runners in self._runners.values())

    def run(self) -> None:
        behind_the_loop()
        while True:
            jobs = self._batcher.take()
            if jobs is None:
                return
            runners = self._runners[jobs[0].served]
            self._run(runners, jobs)
            del jobs  # otherwise the last batch stays alive until the next one

    def _run(self, runners: "_Runners", jobs: List[Job]) -> None:
        run = self._batcher.begin(jobs, self._cancel)
        if run is None:
            return
        began = time.monotonic()
        outcomes: List[Outcome]
        failed: Optional[Exception] = None
        try:
            results = runners.run(jobs, self._cancel)
            outcomes = list(zip(jobs, results))
        except Exception as error:  # whatever it is, the other requests continue
            failed = error.with_traceback(None)  # it holds this frame, and that the jobs with the error: a cycle
        self._batcher.over(run)
        if run.cancelled:
            self._cancel = lenslet.Cancel()  # the old one cannot be reset
        if failed is not None:
            if len(jobs) > 1 and not run.cancelled:  # if one row is at fault, it fails alone
                for job in jobs:
                    self._run(runners, [job])
                return
            if isinstance(failed, lenslet.DeviceError):
                runners.served.broken = str(failed)
            outcomes = [(job, failed) for job in jobs]
        rows = sum(job.rows for job in jobs)
        self._batcher.delivered(Done(runners.served, outcomes, rows, began, time.monotonic()))


class _Runners:
    """One worker's runners of one model, used by that worker only."""

    def __init__(self, served: ServedModel, shapes: ShapeRunners) -> None:
        self.served, self._shapes = served, shapes
        self._by_size: Dict[int, lenslet.Runner] = {}
        self._buffers: List[Array] = []
        self.planned_bytes = 0
        if served.fixed:
            for size in served.sizes:
                self._by_size[size] = served.make_runner(size)
                self.planned_bytes += int(self._by_size[size].plan["memory"]["peak_bytes"])
            rows = served.sizes[0]
            for shape, dtype in zip(served.input_shapes, served.dtypes):
                self._buffers.append(np.empty((rows, *shape[1:]) if served.batchable else shape, dtype))
                self._buffers[-1].fill(0)

    def run(self, jobs: List[Job], cancel: lenslet.Cancel) -> List[List[Array]]:
        """The outputs of each job, in the order that `jobs` then has. Those of a batch are views of shared arrays."""
        served = self.served
        if not served.fixed:
            return [self._run_any(job, cancel) for job in jobs]
        if not served.batchable:
            return [self._run_one(job.inputs, cancel) for job in jobs]
        together = images_beside(jobs)
        counts = [job.rows for job in jobs]
        rows = sum(counts)
        capacity = served.sizes[0]
        if together is not None:
            inputs = [together]
        elif rows <= capacity:  # one copy, to memory that kernels read in place
            inputs = [buffer[:rows] for buffer in self._buffers]
            for number, into in enumerate(inputs):
                np.concatenate([job.inputs[number] for job in jobs], out=into)
        else:
            inputs = jobs[0].inputs  # a request with more rows than a batch runs alone
        pieces: List[Tuple[Array, ...]] = []
        at = 0
        while at < rows:
            size = next(size for size in served.sizes if size <= rows - at)
            part = [array[at : at + size] for array in inputs]
            if rows > capacity:
                for buffer, array in zip(self._buffers, part):
                    buffer[:size] = array
                part = [buffer[:size] for buffer in self._buffers]
            pieces.append(outputs_of(self._by_size[size](*part, cancel=cancel)))
            at += size
        whole = [np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*pieces)]
        if len(counts) == 1:
            return [whole]
        ends = np.cumsum(counts)
        return [[array[end - count : end] for array in whole] for count, end in zip(counts, ends)]

    def _run_one(self, inputs: Sequence[Array], cancel: lenslet.Cancel) -> List[Array]:
        for buffer, array in zip(self._buffers, inputs):
            buffer[...] = array
        return list(outputs_of(self._by_size[1](*self._buffers, cancel=cancel)))

    def _run_any(self, job: Job, cancel: lenslet.Cancel) -> List[Array]:
        names = [port.name for port in self.served.inputs]
        made = self._shapes.take(self.served, {name: array.shape for name, array in zip(names, job.inputs)})
        try:
            if job.hold is not None:
                job.hold.grow(made.output_bytes, "the outputs")
            return list(outputs_of(made.runner(*job.inputs, cancel=cancel)))
        finally:
            self._shapes.give(made)


def outputs_of(result: Any) -> Tuple[Array, ...]:
    """A Runner's result, always as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def images_beside(jobs: List[Job]) -> Optional[Array]:
    """The images of `jobs` as one array if they are adjacent (rooms.py); `jobs` are then in that order."""
    slab = jobs[0].slab
    if slab is None or any(job.slab is not slab for job in jobs):
        return None
    jobs.sort(key=lambda job: job.place)
    first = jobs[0].place
    return slab.images[first : first + len(jobs)] if jobs[-1].place - first == len(jobs) - 1 else None
