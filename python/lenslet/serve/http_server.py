"""uvicorn with connections of ours (http_connection.py)."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Iterator

import uvicorn  # type: ignore[import-not-found, unused-ignore]

from .http_app import HttpApp
from .http_connection import connection_class
from .service import Limits


class Server(uvicorn.Server):  # type: ignore[misc, unused-ignore]
    """Signals are not its business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(app: HttpApp, limits: Limits, connections: int, stop_seconds: float) -> Server:
    """One to be given sockets."""
    connection: Any = connection_class(app, limits, connections)
    config = uvicorn.Config(
        app,
        http=connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # a malformed request is answered and counted, not logged
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(stop_seconds)),
    )
    return Server(config)


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
