"""The server's life: plans models, opens ports, becomes ready; after a signal is not ready, drains, and closes."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
from typing import Any, Awaitable, List, Optional

from . import grpc_app, http_server, tls
from .access_log import AccessLog
from .http_app import HttpApp
from .options import Options
from .page import Page
from .repository import Repository
from .service import Limits, Service


#: Ratio of collections of the second and of the oldest generation.
RARELY = 1000


def keep_memory() -> None:
    """Messages of a megabyte come and go: glibc would map each anew, with a fault for every page."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    mallopt(-3, 4 << 20)  # M_MMAP_THRESHOLD: larger blocks are returned when freed
    mallopt(-1, 16 << 20)  # M_TRIM_THRESHOLD
    mallopt(-8, 2)  # M_ARENA_MAX: arenas stay large after a flood, and gRPC's threads would have eight a core


def run(options: Options, repository: Repository) -> None:
    """Returns after SIGTERM or SIGINT. OSError if a port is not available."""
    keep_memory()
    try:
        import uvloop  # type: ignore[import-not-found, unused-ignore]

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    except ImportError:
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_Server(options, repository).live())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


class _Server:
    def __init__(self, options: Options, repository: Repository) -> None:
        self._options, self._repository = options, repository
        self._http: Optional[http_server.Server] = None
        self._grpc: Any = None
        self._grpc_app: Any = None
        self._context: Any = None  # of TLS, for HTTP

    async def live(self) -> None:
        options = self._options
        loop = asyncio.get_running_loop()
        asked_to_stop = asyncio.Event()

        def stop() -> None:
            if asked_to_stop.is_set():  # the second signal stops at once
                os._exit(1)
            asked_to_stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        limits = Limits(
            options.max_body, options.max_memory, options.max_requests, options.max_rows, options.seconds,
            plan=options.max_plan, message=options.max_message, run_seconds=options.run_seconds, queue_seconds=options.max_queue,
        )  # fmt: skip
        runners = options.runners or self._runners()
        log = AccessLog(options.access_log) if options.access_log else None
        self._context = tls.http_context(options.tls)
        service = Service(self._repository, limits, runners, options.preparers, options.max_wait, log)
        try:
            where = await self._open(service)
            gc.collect()
            gc.freeze()  # permanent objects: collections skip them
            # Also avoids scanning thousands of calls' objects, a quarter of a second: no request is a cycle.
            gc.set_threshold(*gc.get_threshold()[:2], RARELY)
            print("lenslet: ready: " + ", ".join(where), flush=True)
            await asked_to_stop.wait()
            print(f"lenslet: stopping, {service.in_house} requests to be finished", file=sys.stderr, flush=True)
            service.stopping = True
            await asyncio.sleep(options.drain_seconds)  # ports stay open to answer 'not ready'
        finally:
            await self._close()
            ended = await service.stop()
        if not ended:  # the process would wait for a step that does not end
            print("lenslet: stopped in the middle of a run", file=sys.stderr, flush=True)
            os._exit(0)

    def _runners(self) -> int:
        """One for each core; one on CUDA."""
        if any(served.device.startswith("cuda") for served in self._repository.models.values()):
            return 1
        return max(1, len(os.sched_getaffinity(0)) // self._options.threads)

    async def _open(self, service: Service) -> List[str]:
        """Opens the ports and returns their addresses. OSError."""
        options = self._options
        where: List[str] = []
        if options.grpc_port is not None:
            self._grpc_app = grpc_app.GrpcApp(service)
            most = grpc_app.connections_with_files()
            server = self._grpc_app.server(tls.connections(options.tls, service.memory, tls.GRPC_BYTES, tls.GRPC_PART, most))
            address = _shown(options.host, options.grpc_port)
            try:
                if options.tls is None:
                    port = server.add_insecure_port(address)
                else:
                    port = server.add_secure_port(address, tls.grpc_credentials(options.tls))
            except RuntimeError:
                port = 0
            if port == 0:
                raise OSError(f"gRPC cannot listen on {address}")
            where.append(f"gRPC on {_shown(options.host, port)}")
            await server.start()
            self._grpc_app.started(port)
            self._grpc = server
        if options.http_port is not None:
            try:
                listener = http_server.listening(options.host, options.http_port)
            except OSError as error:
                address = _shown(options.host, options.http_port)
                raise OSError(f"HTTP cannot listen on {address}: {error.strerror or error}") from None
            where.insert(0, f"HTTP on {_shown(options.host, listener.getsockname()[1])}")
            most = options.max_requests + options.max_connections
            connections = tls.connections(options.tls, service.memory, tls.HTTP_BYTES, tls.HTTP_PART, most)
            self._http = http_server.Server(HttpApp(service, Page() if options.page else None), service.limits, connections)
            await self._http.start(listener, self._context)
        return where

    async def _close(self) -> None:
        """Closes the ports. Returns when all requests are answered, or their time is up."""
        ends: List[Awaitable[Any]] = []
        if self._http is not None:
            ends.append(self._http.close(self._options.stop_seconds))
        if self._grpc is not None:
            self._grpc_app.stopping()
            ends.append(self._grpc.stop(self._options.stop_seconds))
        await asyncio.gather(*ends)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
