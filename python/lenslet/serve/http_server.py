"""uvicorn, with limits that it leaves to a proxy: on headers, on the time they take, and on connections. And bodies are
given to the application when they are whole: handed on as they come, a tensor of 602 KB costs 0.15 ms more (0.65
for 0.50, docs/serving.md), for two more copies and a pause of the connection at each 64 KB."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, Iterator, List, Type

import uvicorn  # type: ignore[import-not-found, unused-ignore]
from uvicorn.protocols.http.httptools_impl import (  # type: ignore[import-not-found, unused-ignore]
    HttpToolsProtocol,
)

from .service import Limits

#: Of the headers of one request, together with its first line.
HEADER_BYTES = 32768
#: Seconds that a connection without a request is kept.
IDLE_SECONDS = 75


class Server(uvicorn.Server):  # type: ignore[misc, unused-ignore]
    """Signals are not its business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(app: Any, limits: Limits, connections: int, stop_seconds: float) -> Server:
    """One to be given sockets."""
    config = uvicorn.Config(
        app,
        http=protocol(limits, connections),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # a malformed request is answered and counted, not logged
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, round(stop_seconds)),
    )
    return Server(config)


def protocol(limits: Limits, most_connections: int) -> Type[asyncio.Protocol]:
    """A connection's class. A request's headers have `limits.seconds` to come, as its body has then."""

    class Limited(HttpToolsProtocol):  # type: ignore[misc, unused-ignore]
        _header_bytes = _body_bytes = 0
        _parts: List[bytes] = []
        _whole = True
        _timer: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > most_connections:
                transport.abort()
                return
            self._timer = self.loop.call_later(limits.seconds, self._late)

        def connection_lost(self, exc: Any) -> None:
            self._on_time()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._header_bytes = self._body_bytes = 0
            self._whole = False
            self._parts = []
            if self._timer is None:
                self._timer = self.loop.call_later(limits.seconds, self._late)

        def on_url(self, url: bytes) -> None:
            super().on_url(url)
            self._count(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            super().on_header(name, value)
            self._count(name, value)

        def on_headers_complete(self) -> None:
            self._on_time()
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if self.cycle.response_complete or self._body_bytes > limits.body:  # refused
                return
            self._parts.append(body)
            self._body_bytes += len(body)
            if self._body_bytes > limits.body:  # the application is to see that
                self._give()
                self.cycle.message_event.set()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # A refused body is let come and dropped, for a client that still sends would not see the answer.
            if not self._whole and self._timer is None and not self.transport.is_closing():
                self._timer = self.loop.call_later(limits.seconds, self._late)

        def on_message_complete(self) -> None:
            self._whole = True
            self._on_time()
            if self._body_bytes <= limits.body:
                self._give()
            super().on_message_complete()

        def _give(self) -> None:
            # The cycle's bytearray is to be bytes: whoever receives them gets bytes(them), which then is no copy.
            body: Any = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self.cycle.body = body
            self._parts = []

        def _count(self, *parts: bytes) -> None:
            self._header_bytes += sum(map(len, parts))
            if self._header_bytes > HEADER_BYTES:
                raise ValueError("headers are too large")  # httptools ends the request with it: 400

        def _on_time(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _late(self) -> None:
            self._timer = None
            self.transport.abort()

    return Limited


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
