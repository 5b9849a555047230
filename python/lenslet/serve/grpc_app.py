"""The Open Inference Protocol over gRPC, with gRPC's own services for health and reflection.

Methods are declared as streams of requests, of which they read one. A unary client does not see that, and the server
controls whether and when it reads a message. gRPC itself reads everything, and reports a message only when it is
complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import urllib.parse
from functools import partial
from typing import Any, Awaitable, Callable, Dict, List, Optional, Tuple

import grpc  # type: ignore[import-untyped, import-not-found, unused-ignore]
import grpc.aio  # type: ignore[import-untyped, import-not-found, unused-ignore]

import lenslet

from . import grpc_server
from .http_app import ASIDE_FROM, EXTENSIONS, metadata
from .memory import Hold
from .messages import HEALTH, METHODS, REFLECTIONS, SERVICE, Package, packages
from .protocol import KnownHeads, RequestError, Result, malformed, quoted
from .repository import ServedModel
from .service import Service, Visit
from .wire import Inference, Message, appended

#: Bytes of a message besides its tensors, and of a message without tensors.
HEADER_BYTES = 1 << 16
#: Bytes of a call besides its answer until the client has taken that.
CALL_BYTES = 1 << 15
#: Calls without inference whose message is awaited, and long-lived calls: beyond this number the oldest is ended.
SMALL_CALLS = 64
#: If others need its place, a message slower than this is dropped, the oldest first.
SLOW_SECONDS = 1.0
#: If this share of the requests' memory is resident, slow messages are dropped.
FULL = 0.8
#: Seconds between checks for slow clients, while there may be any.
TICK_SECONDS = 0.02
#: Connections, at most one for every FILES files; seconds for a handshake, and for a connection without calls.
CONNECTIONS, FILES, HANDSHAKE_SECONDS, IDLE_SECONDS = 4096, 4, 10, 75
#: Seconds between pings of a silent client, and for its answer: finds clients that vanished.
PING_SECONDS = 30
#: Seconds between checks for changes in Health.Watch.
WATCH_SECONDS = 0.25
#: Calls of a connection. Further ones wait at the client, or are refused if they come before it knows the limit. Reset
#: calls count until they are taken (grpc.http.overload_protection): otherwise one connection could make tens of
#: thousands a second.
STREAMS = 512
#: Calls that wait in gRPC until they are taken one at a time, some 14 KB each; beyond that it cancels all, of any
#: client. gRPC enforces the limit of metadata only after the client acknowledged the settings; before, a call may use
#: 0.5 MB, so that these reach the default of --max-memory-mib.
PENDING_CALLS = 2048

Method = Callable[[Any], Awaitable[Any]]


class _Reading:
    """A call whose message is not complete."""

    __slots__ = ("task", "since", "visit", "error")

    def __init__(self, since: float, visit: Optional[Visit]) -> None:
        self.task, self.since, self.visit = asyncio.current_task(), since, visit
        self.error: Optional[RequestError] = None

    def refuse(self, error: RequestError) -> None:
        """Stops waiting for its message."""
        self.error = error
        if self.visit is not None:
            self.visit.leave()
        assert self.task is not None
        self.task.cancel()


class GrpcApp:
    """The methods of inference.GRPCInferenceService, grpc.health.v1.Health and grpc.reflection."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._packages = packages()
        self._messages = self._packages[SERVICE].classes
        self._health = self._packages[f"{HEALTH}.Health"].classes
        self._heads: KnownHeads[bytes] = KnownHeads()  # of answers, by model and shapes
        # By age, as a dict is.
        self._reading: Dict[_Reading, None] = {}
        self._small: Dict[_Reading, None] = {}
        #: By context: when sending its answer began, and to which client.
        self._sending: Dict[Any, Tuple[float, str]] = {}
        self._watching = 0
        self._ends = False
        self._port = 0
        self._timer: Any = None

    # ---- Its life ----

    def server(self, connections: int) -> grpc.aio.Server:
        """A server without a port yet."""
        unary: Dict[str, Method] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._model_infer,
            "RepositoryIndex": self._repository_index,
        }
        one = partial(self._handler, grpc.stream_unary_rpc_method_handler)
        many = partial(self._handler, grpc.stream_stream_rpc_method_handler)
        health = {"Check": one(self._check), "Watch": many(self._watch_health)}
        services = {SERVICE: {name: one(unary[name]) for name in METHODS}, f"{HEALTH}.Health": health}
        for package in REFLECTIONS:
            name = f"{package}.ServerReflection"
            services[name] = {"ServerReflectionInfo": many(partial(self._server_reflection_info, self._packages[name]))}
        limits = self._service.limits
        return grpc_server.server(services, [
            ("grpc.max_receive_message_length", limits.message + HEADER_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # a port in use must be an error
            ("grpc.max_concurrent_streams", max(limits.requests + SMALL_CALLS, STREAMS)),
            ("grpc.http.overload_protection", 1),
            ("grpc.server.max_pending_requests", PENDING_CALLS),
            ("grpc.server.max_pending_requests_hard_limit", PENDING_CALLS),
            ("grpc.max_allowed_incoming_connections", connections),
            ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
            ("grpc.keepalive_time_ms", PING_SECONDS * 1000),
            ("grpc.keepalive_timeout_ms", PING_SECONDS * 1000),
            # A compressed message expands beyond its size; Triton's clients do not compress by default.
            ("grpc.compression_enabled_algorithms_bitset", 1),
        ])  # fmt: skip

    def started(self, port: int) -> None:
        """The server listens on `port`."""
        self._port = port
        self._service.when_full.append(self._give_way)
        metrics = self._service.metrics
        metrics.messages.set_function(lambda: len(self._reading) + len(self._small))
        metrics.answers.set_function(lambda: len(self._sending))

    def stopping(self) -> None:
        """Ends long-lived calls and those without a message; watching clients are told first."""
        self._ends = True
        for reading in list(self._small):
            reading.refuse(RequestError("stopping", "the server is stopping"))

    # ---- Calls ----

    @staticmethod
    def _handler(kind: Any, method: Method) -> Any:
        async def call(_: Any, context: Any) -> Optional[bytes]:
            try:
                answer = await method(context)
                return answer if answer is None or type(answer) is bytes else bytes(answer.SerializeToString())
            except RequestError as error:
                code, line = getattr(grpc.StatusCode, error.grpc), str(error)
            await context.abort(code, line)
            raise AssertionError  # abort() has raised

        return kind(call)

    async def _message(self, context: Any, visit: Optional[Visit] = None) -> Any:
        """The call's next message as it came. RequestError if it is no longer awaited, or if there is none."""
        among = self._small if visit is None else self._reading
        if visit is None and len(among) >= SMALL_CALLS:
            oldest = next(iter(among))
            del among[oldest]
            oldest.refuse(RequestError("queue_full", f"more than {SMALL_CALLS} calls whose message does not come"))
        reading = _Reading(self._loop.time(), visit)
        among[reading] = None
        self._look_soon()
        try:
            data = await context.read()
        except asyncio.CancelledError:
            if reading.error is None:
                raise
            raise reading.error from None
        finally:
            among.pop(reading, None)
        if data is grpc.aio.EOF:
            raise malformed("the call has no message")
        return data

    async def _small_message(self, context: Any, kind: Any) -> Any:
        """The call's message of the class `kind`, which has no tensors."""
        data = await self._message(context)
        if len(data) > HEADER_BYTES:
            raise malformed(f"a message of {len(data)} bytes: at most {HEADER_BYTES}")
        try:
            return kind.FromString(data)
        except Exception:  # protobuf's DecodeError, of any of its implementations
            raise malformed(f"the message is no {kind.DESCRIPTOR.name}") from None

    # ---- What is slow ----

    def _look_soon(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for among in (self._reading, self._small):
            self._end_late(among, now)
        self._end_untaken(now)
        if self._reading or self._small or self._sending:
            self._look_soon()

    def _end_late(self, among: Dict[_Reading, None], now: float) -> None:
        seconds = self._service.limits.seconds
        while among:
            oldest = next(iter(among))
            if now - oldest.since >= seconds:
                error = RequestError("timeout", f"the message did not come in {seconds:g} s")
            elif now - oldest.since >= TICK_SECONDS and self._memory_is_full():
                error = RequestError("memory", "messages that come slowly fill the memory: try again later")
            else:
                return
            del among[oldest]
            oldest.refuse(error)

    def _memory_is_full(self) -> bool:
        """gRPC holds parts of incomplete messages, and does not report their size."""
        memory = self._service.memory
        return max(memory.used, self._service.tidy.grown()) > FULL * memory.most

    def _give_way(self) -> bool:
        """At the limit of requests: ends one whose message comes slowly, and returns whether there was one."""
        if self._reading:
            oldest = next(iter(self._reading))
            if self._loop.time() - oldest.since >= SLOW_SECONDS:
                del self._reading[oldest]
                oldest.refuse(RequestError("queue_full", "the message comes slowly, and others wait: try again later"))
                return True
        return False

    def _end_untaken(self, now: float) -> None:
        """gRPC ends a call that sends its answer only with its connection: ends the oldest, sooner if memory is full."""
        for since, peer in self._sending.values():
            if now - since >= (SLOW_SECONDS if self._memory_is_full() else self._service.limits.seconds):
                self._sending = {context: each for context, each in self._sending.items() if each[1] != peer}
                shut_connection(peer, self._port)
            return

    def _send(self, context: Any, hold: Hold) -> None:
        """The answer is being sent: it keeps `hold` until the client has taken it, or the connection ends."""
        self._sending[context] = self._loop.time(), context.peer()  # after the call peer() aborts the process
        self._look_soon()

        def taken(_: Any) -> None:
            self._sending.pop(context, None)
            hold.give()

        context.add_done_callback(taken)

    # ---- Methods ----

    async def _server_live(self, _: Any) -> Any:
        return self._messages["ServerLiveResponse"](live=True)

    async def _server_ready(self, _: Any) -> Any:
        return self._messages["ServerReadyResponse"](ready=self._service.ready())

    async def _model_ready(self, context: Any) -> Any:
        message = await self._small_message(context, self._messages["ModelReadyRequest"])
        served = self._service.repository.find(message.name, message.version)
        return self._messages["ModelReadyResponse"](ready=self._service.ready(served))

    async def _server_metadata(self, _: Any) -> Any:
        made = self._messages["ServerMetadataResponse"]
        return made(name="lenslet", version=lenslet.__version__, extensions=EXTENSIONS)

    async def _model_metadata(self, context: Any) -> Any:
        message = await self._small_message(context, self._messages["ModelMetadataRequest"])
        about = metadata(self._service.repository.find(message.name, message.version))
        about.pop("parameters", None)  # gRPC's message has no field for them
        return self._messages["ModelMetadataResponse"](**about)

    async def _repository_index(self, _: Any) -> Any:
        answer = self._messages["RepositoryIndexResponse"]()
        for served in self._service.repository.models.values():
            state = "UNAVAILABLE" if served.broken else "READY"
            answer.models.add(name=served.name, version="1", state=state, reason=served.broken)
        return answer

    async def _model_infer(self, context: Any) -> bytes:
        service = self._service
        with service.counted("grpc", client=context.peer) as visit:
            try:
                visit.enter()
                data = await self._message(context, visit)
                visit.received(len(data))
                hold = service.memory.take(len(data), "the message")
                message = Message(data)
                long = message.plain_bytes >= ASIDE_FROM
                inference = await self._read(message, hold, long)
                del data, message
                served = service.repository.find(inference.model, inference.version)
                visit.of(served)
                results, _ = await service.infer(served, lambda: inference.request, long, None, visit, hold)
                parts = self._answer(served, inference.request.id, results)
                size = sum(map(len, parts))
                # gRPC keeps its own copy until the client has taken it.
                sent = service.memory.take(2 * size + CALL_BYTES, "the answer")
                answer = b"".join(parts)
                visit.sent(size)
                self._send(context, sent)
                return answer
            except asyncio.CancelledError:
                if context.time_remaining() == 0:
                    visit.fails("deadline")
                raise

    async def _read(self, message: Message, hold: Hold, long: bool) -> Inference:
        return await self._service.aside(lambda: message.read(hold)) if long else message.read(hold)

    def _answer(self, served: ServedModel, id: str, results: List[Result]) -> List[Any]:
        """Outputs are raw, as in Triton: copied only once, after the rest as serialised by protobuf."""
        shapes = tuple([result[:3] for result in results])
        head = self._heads.get((served, shapes))
        if head is None:
            answer = self._messages["ModelInferResponse"](model_name=served.name, model_version="1")
            for name, datatype, shape in shapes:
                answer.outputs.add(name=name, datatype=datatype, shape=shape)
            head = answer.SerializeToString()
            self._heads.keep((served, shapes), head)
        parts: List[Any] = [head]
        if id:
            appended(parts, 3, id.encode())
        for result in results:
            appended(parts, 6, result.view())  # raw_output_contents
        return parts

    # ---- Health and reflection ----

    def _serving(self, service: str) -> int:
        """HealthCheckResponse.ServingStatus of a service, of the whole server ("") or of a model, by name."""
        if service in self._packages or service == "":
            ready = self._service.ready()
        elif service in self._service.repository.models:
            ready = self._service.ready(self._service.repository.models[service])
        else:
            return 3
        return 1 if ready else 2

    async def _check(self, context: Any) -> Any:
        message = await self._small_message(context, self._health["HealthCheckRequest"])
        status = self._serving(message.service)
        if status == 3:
            raise RequestError("unknown", f"no service is named {quoted(message.service)}")
        return self._health["HealthCheckResponse"](status=status)

    async def _watch_health(self, context: Any) -> None:
        with self._one_that_stays():
            message = await self._small_message(context, self._health["HealthCheckRequest"])
            said = -1
            while True:
                status = self._serving(message.service)
                if status != said:
                    said = status
                    await context.write(self._health["HealthCheckResponse"](status=status).SerializeToString())
                if self._ends:
                    return
                await asyncio.sleep(WATCH_SECONDS)

    @contextlib.contextmanager
    def _one_that_stays(self) -> Any:
        if self._watching >= SMALL_CALLS:
            raise RequestError("queue_full", f"{SMALL_CALLS} such calls are there already")
        self._watching += 1
        try:
            yield
        finally:
            self._watching -= 1

    async def _server_reflection_info(self, described: Package, context: Any) -> None:
        kind, answered = described.classes["ServerReflectionRequest"], described.classes["ServerReflectionResponse"]
        with self._one_that_stays():
            while not self._ends:
                try:
                    message = await self._small_message(context, kind)
                except RequestError as error:
                    if str(error).startswith("the call has no"):
                        return
                    raise
                answer = answered(valid_host=message.host, original_request=message)
                self._reflect(message, answer)
                await context.write(answer.SerializeToString())

    def _reflect(self, message: Any, answer: Any) -> None:
        asked = message.WhichOneof("message_request")
        packages = self._packages
        found: Optional[bytes] = None
        if asked == "list_services":
            for name in packages:
                answer.list_services_response.service.add(name=name)
            return
        if asked == "file_by_filename":
            named = message.file_by_filename
            found = next((package.file for package in packages.values() if package.file_name == named), None)
        elif asked == "file_containing_symbol":
            named = message.file_containing_symbol
            found = next((package.file for package in packages.values() if named in package.names), None)
        if found is None:
            answer.error_response.error_code = grpc.StatusCode.NOT_FOUND.value[0]
            answer.error_response.error_message = "there is no such file, symbol or extension"
        else:
            answer.file_descriptor_response.file_descriptor_proto.append(found)


def connections_with_files() -> int:
    """The files left by HTTP and everything else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS * FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS if soft == resource.RLIM_INFINITY else min(CONNECTIONS, soft // FILES)


def shut_connection(peer: str, port: int) -> None:
    """Shuts down the TCP connection from `port` to `peer`, in gRPC's notation: "ipv4:127.0.0.1:1234"."""
    wanted = _address(urllib.parse.unquote(peer).partition(":")[2])
    for name in os.listdir("/proc/self/fd"):
        try:
            if _peer_of(int(name)) != wanted:  # the usual case: costs one look, and no file descriptor
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:  # a duplicate, which nobody closes meanwhile
                if found.getsockname()[1] == port and _peer_of(found.fileno()) == wanted:
                    found.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has vanished, or has no peer
            continue


def _peer_of(file: int) -> Tuple[str, str]:
    """OSError if it is not a socket or has no peer; empty for a peer without a port."""
    seen = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, file)  # also holds an IPv4 address
    try:
        peer = seen.getpeername()
    finally:
        seen.detach()
    return _address(f"{peer[0]}:{peer[1]}") if isinstance(peer, tuple) else ("", "")


def _address(text: str) -> Tuple[str, str]:
    host, _, port = text.rpartition(":")
    return host.strip("[]").replace("::ffff:", ""), port
