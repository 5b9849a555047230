"""A request of HTTP/1.1, from its head to its answer. Its connection (http_connection.py) delivers the body."""

from __future__ import annotations

import asyncio
import http
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from .memory import Hold
from .protocol import Buffer, RequestError
from .rooms import Room
from .service import Disconnected

if TYPE_CHECKING:
    from .http_connection import Connection

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

Headers = Dict[bytes, bytes]


class Answer:
    """`parts` of a body, and their share of the memory until the client has taken them."""

    __slots__ = ("status", "parts", "headers", "hold", "size")

    def __init__(self, status: int, parts: List[Buffer], headers: List[Tuple[bytes, bytes]],
                 hold: Optional[Hold] = None) -> None:  # fmt: skip
        self.status, self.parts, self.headers, self.hold = status, parts, headers, hold
        self.size = sum(map(len, parts))


class Exchange:
    """A request and its answer. Its task is cancelled when the client goes."""

    def __init__(self, connection: Connection, version: str, method: str, path: str, headers: Headers,
                 keep_alive: bool) -> None:  # fmt: skip
        self.connection: Optional[Connection] = connection
        self.server, self._peer = connection.server, connection.peer
        self.version, self.method, self.path, self.headers, self.keep_alive = version, method, path, headers, keep_alive
        self.query = b""
        self.expects = version != "1.0" and headers.get(b"expect", b"").lower() == b"100-continue"
        self.lingers = True  # after its answer receive the body, or the answer is lost
        self.task: Any = None
        self.room: Optional[Room] = None
        self.buffer = bytearray()  # for a body without a room
        self.hold: Optional[Hold] = None  # for the buffer, and what is made from it
        self.error: Optional[Tuple[str, str]] = None  # why the body is refused
        self.whole = self.gone = self.answered = self.started = False
        self.ready = False  # complete, and waits for its turn
        self._waiter: Any = None

    def client(self) -> str:
        peer = self._peer
        return f"{peer[0]}:{peer[1]}" if peer else ""

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def refuse(self, error: RequestError) -> None:
        """Drops its body from now on."""
        self.error = (error.kind, str(error))  # an exception that was raised holds frames, and those the body
        self.forget()
        self.wake()

    def forget(self) -> None:
        """Frees its memory. A room with an incomplete body was never read and can be reused. Others are not kept, since
        clients could fill the process with abandoned bodies."""
        if self.room is not None and self.room.slab is not None and not self.whole:
            self.server.app.rooms.give(self.room)
        self.room = self.hold = None
        self.buffer = bytearray()
        self.begun()

    def begun(self) -> None:
        """Its turn has come, or will not come."""
        if self.ready:
            self.ready = False
            self.server.app.turns.ready -= 1

    async def body(self) -> Tuple[Buffer, Optional[Room]]:
        """The complete body; with a room its `head` has the JSON, and this is the rest. RequestError, Disconnected."""
        connection = self.connection
        if self.expects and not self.whole and connection is not None and self.error is None:
            connection.transport.write(CONTINUE)
        self.expects = False
        while not (self.whole or self.gone or self.error):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._waiter = None
        if self.ready:
            if self.server.app.turns.ready > 1:
                await self.server.app.turns.come()
            self.begun()
        if self.gone:
            raise Disconnected
        if self.error is not None:
            raise RequestError(*self.error)
        room = self.room
        if room is not None:
            return room.rest, room
        return memoryview(self.buffer), None

    def ended(self) -> None:
        """Its task has ended."""
        connection = self.connection
        self.server.tasks.discard(self.task)
        self.task = None
        self.begun()
        if not self.answered and connection is not None:
            connection.abort()

    def answer(self, answer: Answer) -> None:
        connection = self.connection
        if self.gone or connection is None:
            return
        headers = answer.headers
        if (b"connection", b"close") in headers:
            self.keep_alive = self.lingers = False
        else:
            if self.expects and not self.whole:  # the body may or may not come
                self.keep_alive = self.lingers = False
            if not self.keep_alive or connection.ends_with(self):
                self.keep_alive = False
                headers.append((b"connection", b"close"))
        head = [STATUS_LINES[answer.status]]
        for name, value in headers:
            head += (name, b": ", value, b"\r\n")
        head.append(b"content-length: %d\r\n\r\n" % answer.size)
        self.answered = True
        if self.method == "HEAD":
            answer.parts = []
        connection.write(head, answer)
        connection.answered(self)
