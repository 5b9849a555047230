"""The server's life: models planned, ports open, ready, and after a signal ready no more, drained, closed."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import List, Optional

import uvloop

from . import grpc_app, http_server
from .http_app import HttpApp
from .options import Options
from .repository import Repository
from .service import Limits, Service


def run(options: Options, repository: Repository) -> None:
    """Returns after SIGTERM or SIGINT. OSError for a port that is not to be had."""
    loop = uvloop.new_event_loop()
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

    async def live(self) -> None:
        options = self._options
        loop = asyncio.get_running_loop()
        asked_to_stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked_to_stop.set)
        limits = Limits(options.max_body, options.max_requests, options.max_rows, options.seconds)
        workers, preparers = options.runners, options.preparers
        service = Service(self._repository, limits, workers, preparers, options.max_wait)
        where: List[str] = []
        http_task: Optional["asyncio.Task[None]"] = None
        grpc_server = None
        if options.http_port is not None:
            listener = http_server.listening(options.host, options.http_port)
            http = http_server.server(
                HttpApp(service), options.seconds, options.max_requests + options.max_connections, options.stop_seconds
            )
            where.append(f"HTTP on {_shown(options.host, listener.getsockname()[1])}")
        if options.grpc_port is not None:
            grpc_server = grpc_app.GrpcApp(service).server()
            try:
                port = grpc_server.add_insecure_port(_shown(options.host, options.grpc_port))
            except RuntimeError:
                port = 0
            if port == 0:
                raise OSError(f"gRPC cannot listen on {_shown(options.host, options.grpc_port)}")
            where.append(f"gRPC on {_shown(options.host, port)}")
            await grpc_server.start()
        if options.http_port is not None:
            http_task = loop.create_task(http.serve(sockets=[listener]))
            while not http.started and not http_task.done():
                await asyncio.sleep(0.01)
        print("lenslet: ready: " + ", ".join(where), flush=True)
        await asked_to_stop.wait()
        print(f"lenslet: stopping, {service.in_house} requests to be finished", file=sys.stderr, flush=True)
        service.stopping = True
        await self._leave_time(service, options.drain_seconds)
        ends = []
        if http_task is not None:
            http.should_exit = True
            ends.append(http_task)
        if grpc_server is not None:
            ends.append(loop.create_task(grpc_app.stop(grpc_server, options.stop_seconds)))
        await asyncio.gather(*ends)
        await service.stop()

    async def _leave_time(self, service: Service, seconds: float) -> None:
        """Ports stay open meanwhile, so that whoever asks is told that we are not ready."""
        await asyncio.sleep(seconds)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
