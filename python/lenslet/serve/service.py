"""What HTTP and gRPC share: a request is let in or not, its pictures are prepared, it waits for its run, is answered,
and is counted."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from functools import partial
from typing import Callable, List, Optional, Tuple, Type, TypeVar

import numpy as np

import lenslet

from .batcher import Batcher, Done, Job
from .memory import Memory
from .metrics import Metrics
from .protocol import DATATYPES, Array, Buffer, Request, RequestError, Result, Wanted
from .repository import Repository, ServedModel
from .rooms import Room, Rooms

T = TypeVar("T")


class Limits:
    """What a request may cost."""

    def __init__(self, body: int, memory: int, requests: int, rows: int, seconds: float) -> None:
        self.body = body  # bytes of a request
        self.memory = memory  # bytes of all requests at once
        self.requests = requests  # let in at once
        self.rows = rows  # images of a request
        self.seconds = seconds  # until a request has to be there, once its connection is


class Service:
    """Lives in the event loop's thread."""

    def __init__(self, repository: Repository, limits: Limits, workers: int, preparers: int, max_wait: float) -> None:
        self.repository, self.limits = repository, limits
        self.metrics = Metrics()
        self.memory = Memory(limits.memory)
        self.rooms = Rooms()
        self.stopping = False
        self._in_house = 0
        self._loop = asyncio.get_running_loop()
        self._batcher = Batcher(repository, workers, max_wait, self._deliver)
        self._preparers = concurrent.futures.ThreadPoolExecutor(preparers, "lenslet-prepare")
        self.metrics.in_house.set_function(lambda: self._in_house)
        for served in repository.models.values():
            self.metrics.queue.labels(served.name).set_function(partial(self._batcher.waiting, served))
        self._batcher.start()

    def ready(self, served: Optional[ServedModel] = None) -> bool:
        """Of one model or all."""
        models = self.repository.models.values() if served is None else [served]
        return not self.stopping and not any(model.broken for model in models)

    @property
    def in_house(self) -> int:
        return self._in_house

    async def stop(self) -> None:
        """When all requests have been answered, or are to be given up."""
        await self._loop.run_in_executor(None, self._batcher.stop)
        self._preparers.shutdown(wait=False)

    def counted(self, protocol: str, served: Optional[ServedModel] = None) -> "Visit":
        return Visit(self, protocol, served)

    async def aside(self, work: Callable[[], T]) -> T:
        """Work that takes long for the event loop's thread (or lets go of Python's lock), in another."""
        return await self._loop.run_in_executor(self._preparers, work)

    async def infer(
        self, served: ServedModel, read: Callable[[], Request], long: bool, room: Optional[Room] = None
    ) -> Tuple[List[Result], Request]:
        """The outputs of the request that `read` gives, which is `long` when it holds many numbers as such; `room` is
        where its tensors lie.

        RequestError for everything that is not done. Cancelled, it takes the request back if that has not begun.
        """

        def checked() -> Tuple[Request, List[Tuple[int, Wanted]], List[Optional[Array]], List[Buffer]]:
            request = read()
            return (request, served.wanted(request), *served.read(request, self.limits.rows))

        request, outputs, inputs, pictures = await self.aside(checked) if long else checked()
        own = None  # room that is ours to give back
        if pictures:
            began = time.monotonic()
            assert served.picture_input is not None
            if len(pictures) == 1 and served.image_bytes and served.dtypes[0] == np.float32:
                own = self.rooms.take(0, served.image_bytes, served)
            room = own
            into = None if own is None else own.image
            try:
                inputs[served.picture_input] = await self.aside(lambda: served.prepared(pictures, into))
            except RequestError:
                if own is not None:
                    self.rooms.give(own)
                raise
            self.metrics.of(self.metrics.prepare_seconds, served.name).observe(time.monotonic() - began)
        complete = [array for array in inputs if array is not None]
        job = Job(served, complete, self._loop.create_future(), room)
        self._batcher.put(job)
        try:
            arrays = await job.future
        except asyncio.CancelledError:
            self._batcher.drop(job)
            raise
        except RequestError:
            raise
        except lenslet.Error as error:
            raise RequestError("run", f"model '{served.name}': {error}") from None
        except Exception as error:
            raise RequestError("run", f"model '{served.name}': {type(error).__name__}: {error}") from None
        if own is not None:
            self.rooms.give(own)
        return [_result(served, index, arrays[index], want.binary, want.classes) for index, want in outputs], request

    def _deliver(self, done: Done) -> None:
        """In a worker's thread."""
        self._loop.call_soon_threadsafe(self._delivered, done)

    def _delivered(self, done: Done) -> None:
        name = done.served.name
        self.metrics.of(self.metrics.batch, name).observe(done.rows)
        self.metrics.of(self.metrics.run_seconds, name).observe(done.ended - done.began)
        queue_seconds = self.metrics.of(self.metrics.queue_seconds, name)
        for job, outcome in done.jobs:
            queue_seconds.observe(done.began - job.since)
            if job.future.done():  # its client is gone
                continue
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)


class Visit:
    """A request from its headers to its answer: `with` it, it is counted, and in the house until the end. Leaving by an
    error counts that."""

    def __init__(self, service: Service, protocol: str, served: Optional[ServedModel]) -> None:
        self._service, self._protocol = service, protocol
        self._name = "" if served is None else served.name
        self._inside = False
        self._since = time.monotonic()

    def enter(self, served: ServedModel) -> None:
        """Lets it in. RequestError when the house is full, or closing."""
        service = self._service
        self._name = served.name
        if service.stopping:
            raise RequestError("stopping", "the server is stopping")
        if service._in_house >= service.limits.requests:
            raise RequestError("queue_full", f"{service._in_house} requests wait already: try again later")
        service._in_house += 1
        self._inside = True

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _: object) -> None:
        metrics = self._service.metrics
        if self._inside:
            self._service._in_house -= 1
        metrics.of(metrics.requests, self._name, self._protocol).inc()
        if error is None:
            metrics.of(metrics.request_seconds, self._name, self._protocol).observe(time.monotonic() - self._since)
        elif isinstance(error, RequestError):
            metrics.of(metrics.failures, self._name, self._protocol, error.kind).inc()
        elif isinstance(error, (asyncio.CancelledError, Disconnected)):
            metrics.of(metrics.failures, self._name, self._protocol, "disconnected").inc()
        else:
            metrics.of(metrics.failures, self._name, self._protocol, "internal").inc()


class Disconnected(Exception):
    """The client is gone: nobody is to be answered."""


def _result(served: ServedModel, index: int, array: Array, binary: bool, classes: int) -> Result:
    port = served.outputs[index]
    if classes:
        strings = served.classes(index, array, classes)
        rows = array.shape[0] if array.ndim > 1 else 1
        shape = (rows, len(strings) // rows) if rows else (0, 0)
        return Result(port.name, "BYTES", shape, strings, binary)
    return Result(port.name, DATATYPES[port.dtype], array.shape, array, binary)
