"""HTTP's port: accepts connections (http_connection.py), limits their number, and closes them."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import threading
from typing import Any, Dict, Optional, Set

from .http_app import HttpApp
from .http_connection import Connection
from .http_exchange import Exchange
from .service import Limits

#: Open files besides connections: of models, of gRPC, the standard streams.
OTHER_FILES = 256
#: Connections that the kernel queues until they are accepted, and that asyncio accepts at a time.
BACKLOG, ACCEPTED = 1024, 64
#: TLS: seconds for a handshake, and maximum number of concurrent ones; a new one replaces the oldest.
HANDSHAKE_SECONDS, HANDSHAKES = 10, 128
#: When memory is short, a client slower than the others loses its connection after this many seconds.
SLOW_SECONDS = 1.0


class Server:
    """Beyond `most` connections, each new one closes the one that has been idle longest."""

    def __init__(self, app: HttpApp, limits: Limits, most: int) -> None:
        self.app, self.limits = app, limits
        self.loop = asyncio.get_running_loop()
        self.most = _with_files(most)
        self._listener: Any = None
        self._accepting: Any = None  # for TLS
        self._handshakes: Dict[Any, None] = {}  # the oldest first
        self._connections: Dict[Connection, None] = {}  # those that have been idle longest come first
        self.tasks: Set[Any] = set()
        self._thread = threading.get_ident()
        app.memory.when_short.append(self._drop_the_slow)
        app.when_full.append(self._drop_the_slow)

    async def start(self, listener: socket.socket, context: Optional[ssl.SSLContext]) -> None:
        if context is None:
            self._listener = await self.loop.create_server(lambda: Connection(self), sock=listener, backlog=ACCEPTED)
            listener.listen(BACKLOG)
            return
        self._listener = listener
        listener.listen(BACKLOG)
        self._accepting = self.loop.create_task(self._accept(listener, context))

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        """asyncio's server would allow as many handshakes as there are files."""
        while True:
            try:
                accepted, _ = await self.loop.sock_accept(listener)
            except OSError:  # no files are left: idle connections free some
                await asyncio.sleep(0.1)
                continue
            while len(self._handshakes) >= HANDSHAKES:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
            handshake = self.loop.create_task(self._shake_hands(accepted, context))
            self._handshakes[handshake] = None
            handshake.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _shake_hands(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        with contextlib.suppress(OSError):  # one of them has TLS
            try:
                await self.loop.connect_accepted_socket(
                    lambda: Connection(self), accepted, ssl=context, ssl_handshake_timeout=HANDSHAKE_SECONDS
                )
            except asyncio.CancelledError:
                accepted.shutdown(socket.SHUT_RDWR)  # asyncio leaves it open, unlike uvloop
                raise

    async def close(self, seconds: float) -> None:
        """Accepts no more, answers requests for at most `seconds`, and ends the rest."""
        if self._accepting is not None:
            ends = [self._accepting, *self._handshakes]
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        self._listener.close()
        for connection in list(self._connections):
            connection.shutdown()
        until = self.loop.time() + seconds
        while (self._connections or self.tasks) and self.loop.time() < until:
            await asyncio.sleep(0.02)
        for connection in list(self._connections):
            connection.abort()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.sleep(0)

    # ---- Of connections ----

    def made(self, connection: Connection) -> None:
        while len(self._connections) >= self.most:
            oldest = next((each for each in self._connections if each.idle), None)
            oldest = oldest or next((each for each in self._connections if each.answers_all), None)
            if oldest is None:
                connection.abort()
                return
            self._drop(oldest)
        self._connections[connection] = None

    def _drop(self, connection: Connection) -> None:
        """It must not be found again: it ends slightly later, and memory may be requested several times until then."""
        del self._connections[connection]
        connection.abort()

    def lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def idles(self, connection: Connection) -> None:
        """It is idle from now on."""
        if self._connections.pop(connection, connection) is None:
            self._connections[connection] = None

    def begin(self, exchange: Exchange) -> None:
        exchange.task = self.loop.create_task(self.app.answer(exchange))
        self.tasks.add(exchange.task)

    def _drop_the_slow(self) -> bool:
        """Drops the slowest client that sends a body or takes an answer."""
        if threading.get_ident() != self._thread:
            self.loop.call_soon_threadsafe(self._drop_the_slow)
            return False
        now = self.loop.time()
        slowest: Optional[Connection] = None
        least = float("inf")
        for connection in self._connections:
            rate = connection.rate(now)
            if rate is not None and rate[0] > SLOW_SECONDS and rate[1] < least:
                slowest, least = connection, rate[1]
        if slowest is not None:
            self._drop(slowest)
        return slowest is not None


def _with_files(connections: int) -> int:
    """As many connections as this process may have files; raises the limit first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(1, min(connections, soft - OTHER_FILES))
    return connections


def listening(host: str, port: int) -> socket.socket:
    """A bound socket. OSError."""
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, number)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made
