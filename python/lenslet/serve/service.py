"""Shared by HTTP and gRPC: a request is admitted or refused, its pictures are prepared, it waits for its run, is
answered, and is counted."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import time
from functools import partial
from typing import Callable, Dict, List, Optional, Tuple, Type, TypeVar, Union

import numpy as np

import lenslet

from .access_log import AccessLog
from .batcher import Batcher, Done, Job, behind_the_loop
from .deadline import Deadline, Deadlines
from .memory import Hold, Memory
from .metrics import Metrics
from .protocol import DATATYPES, Array, Buffer, Request, RequestError, Result, Wanted
from .repository import Repository, ServedModel
from .rooms import Room, Rooms
from .shapes import ShapeRunners
from .tidy import Tidy

T = TypeVar("T")
#: Elements above which classes are sorted in another thread; and bytes of each string.
SORTED_BYTES, STRING_BYTES = 1 << 17, 128
#: Longer outputs and answers are taken from the bound on memory; a connection's own buffer covers shorter ones.
HELD_FROM = 1 << 14
#: Seconds that a step of a thread that parses JSON may delay the event loop.
ASIDE_SECONDS = 0.001


class Limits:
    """Limits of a request."""

    def __init__(
        self, body: int, memory: int, requests: int, rows: int, seconds: float, *, plan: int = 0,
        message: int = 0, run_seconds: float = 0, queue_seconds: float = 0,
    ) -> None:  # fmt: skip
        self.body = body  # bytes of a request
        self.memory = memory  # bytes of all requests at once
        self.requests = requests  # admitted at once
        self.rows = rows  # images in a request
        self.seconds = seconds  # for a complete request, from its connection on
        self.message = message or body  # bytes of a request over gRPC
        self.plan = plan or memory  # bytes of a run for shapes other than the planned ones
        self.run_seconds = run_seconds  # from a complete request to its answer; 0: any
        self.queue_seconds = queue_seconds  # expected wait for a runner; 0: any


class Service:
    """Used in the event loop's thread."""

    def __init__(
        self, repository: Repository, limits: Limits, workers: int, preparers: int, max_wait: float,
        access_log: Optional[AccessLog] = None,
    ) -> None:  # fmt: skip
        self.repository, self.limits, self.access_log = repository, limits, access_log
        self.metrics = Metrics()
        self.memory = Memory(limits.memory)
        self.rooms = Rooms(self.memory)
        self.stopping = False
        #: Called at the limit of requests: each ends a request with a slow client, and returns whether there was one.
        self.when_full: List[Callable[[], bool]] = []
        self._in_house = self._aside = 0
        self._switch = sys.getswitchinterval()
        self._loop = asyncio.get_running_loop()
        shapes = ShapeRunners(self.memory, limits.plan)
        self._batcher = Batcher(repository, workers, max_wait, self._deliver, shapes)
        self.tidy = Tidy(self._loop, self.memory, self._batcher.planned_bytes)
        self._preparers = concurrent.futures.ThreadPoolExecutor(preparers, "lenslet-prepare", behind_the_loop)
        # A thread with the GIL delays the event loop: if it is not scheduled, the loop waits, too.
        self._readers = concurrent.futures.ThreadPoolExecutor(1, "lenslet-read")
        self.metrics.in_house.set_function(lambda: self._in_house)
        for served in repository.models.values():
            self.metrics.queue.labels(served.name).set_function(partial(self._batcher.waiting, served))
        self.metrics.observe_memory(self.memory, shapes)
        self.deadlines = Deadlines(self._loop, limits.run_seconds)
        if access_log is not None:
            self.metrics.lost_lines.set_function(lambda: access_log.lost)
        self._batcher.start()

    def ready(self, served: Optional[ServedModel] = None) -> bool:
        """For one model or all."""
        models = self.repository.models.values() if served is None else [served]
        return not self.stopping and not any(model.broken for model in models)

    @property
    def in_house(self) -> int:
        return self._in_house

    async def stop(self) -> bool:
        """Called when all requests are answered or given up: cancels active runs. False if a step does not end."""
        self.tidy.stop()
        self.deadlines.stop()
        ended = await self._loop.run_in_executor(None, self._batcher.stop)
        for pool in (self._preparers, self._readers):
            pool.shutdown(wait=False, cancel_futures=True)
        if self.access_log is not None:
            await self._loop.run_in_executor(None, self.access_log.close)
        return ended

    def counted(
        self, protocol: str, served: Optional[ServedModel] = None, client: Union[str, Callable[[], str]] = ""
    ) -> "Visit":
        return Visit(self, protocol, served, client)

    def check_queue(self, served: ServedModel) -> None:
        """RequestError("queue_full") when a request would wait too long for a runner."""
        least = self.limits.queue_seconds
        seconds = self._batcher.wait(served, least) if least else 0
        if seconds:
            raise RequestError("queue_full", f"some {seconds * 1000:.0f} ms to wait for a runner: try again later")

    async def aside(self, work: Callable[[], T]) -> T:
        """Runs work that is too long for the event loop in another thread."""
        if not self._aside:
            sys.setswitchinterval(ASIDE_SECONDS)
        self._aside += 1
        try:
            return await self._loop.run_in_executor(self._readers, work)
        finally:
            self._aside -= 1
            if not self._aside:
                sys.setswitchinterval(self._switch)

    async def infer(
        self, served: ServedModel, read: Callable[[], Request], long: bool, room: Optional[Room], visit: "Visit",
        hold: Hold, deadline: Optional[Deadline] = None,
    ) -> Tuple[List[Result], Request]:  # fmt: skip
        """The outputs of the request that `read` returns. `long`: it contains many numbers as text. `room` contains its
        tensors; `hold` is its share of the memory.

        RequestError for every failure; the default `deadline` is that of this call. Cancelling it withdraws the
        request; a run without waiting clients ends.
        """
        if deadline is None:
            with Deadline(self.deadlines) as deadline:
                return await self.infer(served, read, long, room, visit, hold, deadline)
        self.check_queue(served)

        def checked() -> Tuple[Request, List[Tuple[int, Wanted]], List[Optional[Array]], List[Buffer]]:
            request = read()
            inputs, pictures = served.read(request, self.limits.rows)
            outputs = served.wanted(request)
            if long:  # the text may be freed
                request = request._replace(inputs=[])
            return request, outputs, inputs, pictures

        request, outputs, inputs, pictures = await self.aside(checked) if long else checked()
        if request.timeout:
            deadline.shorten(request.timeout)
        own = None  # a room that this call gives back
        if pictures:
            began = time.monotonic()
            assert served.picture_input is not None
            hold.grow(len(pictures) * served.picture_bytes, "the pictures' tensor")
            if len(pictures) == 1 and served.image_bytes and served.dtypes[0] == np.float32:
                own = self.rooms.take(0, served.image_bytes, served)
            room = own
            into = None if own is None else own.image
            try:
                inputs[served.picture_input] = await self._loop.run_in_executor(
                    self._preparers, lambda: (served.prepared(pictures, into, self.memory, visit.sizes), hold)[0]  # its memory
                )
            except RequestError:
                if own is not None:
                    self.rooms.give(own)
                raise
            took = time.monotonic() - began
            self.metrics.prepare_seconds.of(served.name).observe(took)
            visit.stages["prepare"] = took
        complete = [array for array in inputs if array is not None]
        if room is not None and not _lies_in(complete, room):  # JSON, or an input that no node reads
            room = None
        job = Job(served, complete, self._loop.create_future(), room, hold)
        if job.rows * served.row_bytes > HELD_FROM:
            hold.grow(job.rows * served.row_bytes, "the outputs")
        self._batcher.put(job)
        try:
            arrays = await job.future
        except asyncio.CancelledError:
            self._batcher.drop(job)
            raise
        except RequestError:
            raise
        except lenslet.Error as error:
            # Shapes and datatypes were checked, so the run objects to values, such as an index outside.
            kind = "malformed" if isinstance(error, lenslet.InvalidArgumentError) else "run"
            raise RequestError(kind, f"model '{served.name}': {error}") from None
        except Exception as error:
            raise RequestError("run", f"model '{served.name}': {type(error).__name__}: {error}") from None
        finally:
            if job.ended:
                visit.stages["queue"] = job.began - job.since
                visit.stages["run"] = job.ended - job.began
            del job  # its future holds the error, and that this frame: a cycle
        if own is not None:
            self.rooms.give(own)

        def results() -> List[Result]:
            return [_result(served, index, arrays[index], want.binary, want.classes) for index, want in outputs]

        sorted_bytes = sum(_sorting_bytes(arrays[index], want.classes) for index, want in outputs if want.classes)
        hold.grow(sorted_bytes, "the classes")
        return (await self.aside(results) if sorted_bytes > SORTED_BYTES else results()), request

    def _deliver(self, done: Done) -> None:
        """Called in a worker's thread."""
        self._loop.call_soon_threadsafe(self._delivered, done)

    def _delivered(self, done: Done) -> None:
        name = done.served.name
        self.metrics.batch.of(name).observe(done.rows)
        self.metrics.run_seconds.of(name).observe(done.ended - done.began)
        queue_seconds = self.metrics.queue_seconds.of(name)
        if isinstance(done.jobs[0][1], lenslet.CancelledError):
            self.metrics.ended_runs.of(name).inc()
        for job, outcome in done.jobs:
            job.began, job.ended = done.began, done.ended
            queue_seconds.observe(done.began - job.since)
            if job.future.done():  # its client has gone
                continue
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)


def _lies_in(inputs: List[Array], room: Room) -> bool:
    """Whether the only input is the image in a slab's room, in place."""
    if room.slab is None or len(inputs) != 1:
        return False
    images, array = room.slab.images, inputs[0]
    return array.size * len(images) == images.size and array.dtype == images.dtype and np.may_share_memory(array, images)


class Visit:
    """A request from its headers to its answer. `with` it, the request is counted and active until the end; an error is
    counted as such."""

    __slots__ = ("_service", "_protocol", "_name", "_client", "_inside", "_since", "_kind", "_bytes", "stages", "sizes")

    def __init__(
        self, service: Service, protocol: str, served: Optional[ServedModel], client: Union[str, Callable[[], str]]
    ) -> None:
        self._service, self._protocol, self._client = service, protocol, client
        self._name = "" if served is None else served.name
        self._inside = False
        self._since = time.monotonic()
        self._kind = ""
        self._bytes = [0, 0]
        #: For boxes: gets the height and width of each picture, which is decoded whole.
        self.sizes: Optional[List[Tuple[int, int]]] = None
        #: Seconds of its parts.
        self.stages: Dict[str, float] = {}

    def enter(self, served: Optional[ServedModel] = None) -> None:
        """Admits the request. RequestError at the limit of requests, or while closing; `of` may follow for `served`."""
        service = self._service
        if served is not None:
            self.of(served)
        if service.stopping:
            raise RequestError("stopping", "the server is stopping")
        if service._in_house >= service.limits.requests and not any(free() for free in service.when_full):
            raise RequestError("queue_full", f"{service._in_house} requests wait already: try again later")
        service._in_house += 1
        self._inside = True

    def leave(self) -> None:
        """Ends its admission, at the end or earlier."""
        if self._inside:
            self._inside = False
            self._service._in_house -= 1

    def of(self, served: ServedModel) -> None:
        """RequestError if too many wait for this model."""
        self._name = served.name
        self._service.check_queue(served)

    def received(self, size: int) -> None:
        self._bytes[0] = size

    def sent(self, size: int) -> None:
        self._bytes[1] = size

    def server_timing(self) -> bytes:
        """The value of HTTP's Server-Timing (W3C Server Timing, section 2): milliseconds of its parts."""
        return ", ".join([f"{name};dur={1000 * seconds:.3f}" for name, seconds in self.stages.items()]).encode()

    def fails(self, kind: str) -> None:
        """Counts it as this kind, however it ends."""
        self._kind = kind

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _: object) -> None:
        metrics = self._service.metrics
        self.leave()
        metrics.requests.of(self._name, self._protocol).inc()
        seconds = time.monotonic() - self._since
        failed = ""
        if error is None:
            metrics.request_seconds.of(self._name, self._protocol).observe(seconds)
        else:
            if self._kind:
                failed = self._kind
            elif isinstance(error, RequestError):
                failed = error.kind
            else:
                gone = isinstance(error, (asyncio.CancelledError, Disconnected))
                failed = "disconnected" if gone else "internal"
            metrics.failures.of(self._name, self._protocol, failed).inc()
        if self._service.access_log is not None:
            self._log(self._service.access_log, failed, error, seconds)

    def _log(self, log: AccessLog, failed: str, error: Optional[BaseException], seconds: float) -> None:
        client = self._client if isinstance(self._client, str) else self._client()
        status: Union[int, str] = "OK" if self._protocol == "grpc" else 200
        if failed in RequestError.CODES:
            status = RequestError.CODES[failed][self._protocol == "grpc"]
        elif failed:
            status = 0 if self._protocol == "http" else "CANCELLED"
        milliseconds = {stage: round(took * 1000, 3) for stage, took in (*self.stages.items(), ("all", seconds))}
        log.write({
            "time": time.time(), "client": client, "protocol": self._protocol, "model": self._name, "status": status,
            "failure": failed, "error": str(error) if isinstance(error, RequestError) else "",
            "bytes_in": self._bytes[0], "bytes_out": self._bytes[1], "ms": milliseconds,
        })  # fmt: skip


class Disconnected(Exception):
    """The client has gone: no answer is needed."""


def _sorting_bytes(array: Array, classes: int) -> int:
    """Bytes for its elements in order, and for the strings of the best."""
    rows = array.shape[0] if array.ndim > 1 else 1
    return 24 * array.size + STRING_BYTES * min(array.size, rows * classes)


def _result(served: ServedModel, index: int, array: Array, binary: bool, classes: int) -> Result:
    port = served.outputs[index]
    if classes:
        strings = served.classes(index, array, classes)
        rows = array.shape[0] if array.ndim > 1 else 1
        shape = (rows, len(strings) // rows) if rows else (0, 0)
        return Result(port.name, "BYTES", shape, strings, binary)
    return Result(port.name, DATATYPES[port.dtype], array.shape, array, binary)
