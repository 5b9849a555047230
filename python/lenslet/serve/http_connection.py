"""A connection of HTTP/1.1 as uvicorn takes them, in place of its own. httptools reads the heads; the kernel puts a
body where it is to lie, once: uvicorn's copies a tensor of 602 KB four times before a runner sees it. Beside that it
has limits that uvicorn leaves to a proxy, on headers, on the time they take and on connections; it writes an answer at
once, and has one timer, where uvicorn has some for each request.
"""

from __future__ import annotations

import asyncio
import http
import traceback
import urllib.parse
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple, Type

import httptools  # type: ignore[import-untyped, import-not-found, unused-ignore]

from .http_app import HttpApp
from .rooms import Room
from .service import Limits

#: Of the headers of one request, together with its first line.
HEADER_BYTES = 32768
#: Seconds that a connection without a request is kept.
IDLE_SECONDS = 75
#: What is read before a head is known, and so copied, and at a time of bodies whose length is not.
HEAD_BYTES, PIECE_BYTES = 16384, 1 << 18
FOREVER = float("inf")

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}

# One for all connections: what is read is taken out before anything else is read.
_piece = memoryview(bytearray(PIECE_BYTES))
_head = _piece[:HEAD_BYTES]


class Exchange:
    """A request and its answer, as ASGI has them, but that a body comes whole, that one which does not come in time is
    "lenslet.late", that a long one is a "lenslet.room", and that the task is cancelled when the client goes."""

    def __init__(self, connection: "Connection", scope: Dict[str, Any], keep_alive: bool, expects: bool) -> None:
        self._connection, self.scope = connection, scope
        self.keep_alive, self._expects = keep_alive, expects
        self.task: Any = None
        self.room: Optional[Room] = None
        self.body: Any = b""
        self.parts: List[bytes] = []
        self.size = 0  # of the parts
        self.whole = self.too_large = self.late = self.gone = self.answered = False
        self._given = False
        self._start: Dict[str, Any] = {}
        self._waiter: Any = None

    async def run(self, app: HttpApp) -> None:
        connection = self._connection
        try:
            await app(self.scope, self.receive, self.send)
            if self.room is not None and self.whole and self.answered and not self.gone:
                app.rooms.give(self.room)
        except asyncio.CancelledError:  # the client is gone, or the time for stopping is over
            pass
        except Exception:
            traceback.print_exc()
        finally:
            connection.state.tasks.discard(self.task)
            if not self.answered:
                connection.transport.close()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def receive(self) -> Dict[str, Any]:
        if self._expects and not self.whole and not self._connection.transport.is_closing():
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._expects = False
        while not (self.gone or self.answered):
            if not self._given and (self.whole or self.too_large):
                self._given = True
                more = {"more_body": self.too_large, "lenslet.room": self.room}
                return {"type": "http.request", "body": self.body, **more}
            if self.late:
                return {"type": "lenslet.late"}
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return {"type": "http.disconnect"}

    async def send(self, message: Dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self.gone:
            return
        headers = self._start["headers"]
        if (b"connection", b"close") in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            headers.append((b"connection", b"close"))
        parts = [STATUS_LINES[self._start["status"]]]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n")
        if self.scope["method"] != "HEAD":
            parts.append(message["body"])
        self.answered = True
        self._connection.write(parts)
        self._connection.answered(self)


class Connection(asyncio.BufferedProtocol):
    """`app`, `limits` and `most`, the number of connections, are the server's (`connection_class`)."""

    app: HttpApp
    limits: Limits
    most: int

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        self.state, self._loop = server_state, _loop or asyncio.get_event_loop()
        self._connections = server_state.connections
        self.transport: Any = None
        self._parser = self._new_parser()
        self._url, self._headers, self._header_bytes = b"", [], 0  # type: Tuple[bytes, List[Tuple[bytes, bytes]], int]
        self._coming: Optional[Exchange] = None  # whose body is on its way
        self._current: Optional[Exchange] = None  # which is being answered, or is to come wholly
        self._waiting: Deque[Exchange] = deque()
        self._room: Optional[Room] = None  # where the body of `_coming` goes
        self._at = self._end = 0  # of that body: how much is there, and how much it is
        self._direct = False  # the rest of it is read to there
        self._heads = 0  # bytes of a head that has no end yet
        self._deadline = FOREVER
        self._timer: Any = None
        self._full = False  # of answers that the client does not take
        self._paused = False

    def _new_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        try:  # of a request that ends the connection and has others behind it, the answer is not lost
            parser.set_dangerous_leniencies(lenient_data_after_close=True)
        except AttributeError:  # httptools below 0.6.3
            pass
        return parser

    # ---- The connection ----

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._connections.add(self)
        if len(self._connections) > self.most:
            transport.abort()
            return
        self._set_deadline(self.limits.seconds)
        self._timer = self._loop.call_later(self.limits.seconds, self._look_at_the_clock)

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        for exchange in (self._current, self._coming):
            if exchange is not None and not exchange.answered:
                exchange.gone = True
                if exchange.task is not None:
                    exchange.task.cancel()
        self._waiting.clear()
        self._coming = self._current = None

    def eof_received(self) -> None:
        """Who has no more to say is gone."""

    def shutdown(self) -> None:
        """uvicorn stops."""
        if self._current is None:
            self.transport.close()
        for exchange in (self._current, *self._waiting):
            if exchange is not None:
                exchange.keep_alive = False

    def pause_writing(self) -> None:
        self._full = True
        self._pause()

    def resume_writing(self) -> None:
        self._full = False
        self._go_on()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = self._loop.time() + seconds

    def _look_at_the_clock(self) -> None:
        """The timer is never set further than `limits.seconds`: it comes before any deadline that is set meanwhile."""
        left = self._deadline - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(min(left, max(self.limits.seconds, 0.1)), self._look_at_the_clock)
            return
        coming = self._coming
        if coming is not None and not coming.answered and coming is self._current:
            coming.late = True
            coming.wake()
            self._set_deadline(self.limits.seconds)
            self._timer = self._loop.call_later(self.limits.seconds, self._look_at_the_clock)
        elif coming is not None or self._heads or self._full:
            self.transport.abort()
        else:
            self.transport.close()

    # ---- What comes ----

    def get_buffer(self, _: int) -> Any:
        room = self._room
        if self._direct:
            if room is None:  # refused meanwhile: it is let come, and dropped
                return _piece[: self._end - self._at]
            head = len(room.head)
            return room.head[self._at :] if self._at < head else room.rest[self._at - head :]
        return _head if self._coming is None else _piece

    def buffer_updated(self, count: int) -> None:
        if self._direct:
            self._at += count
            if self._at == self._end:
                self._direct = False
                self._parser = self._new_parser()  # the old one waits for a body that it does not see
                self.on_message_complete()
            return
        data = bytes(_piece[:count])
        while data:
            try:
                self._parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:  # not done: what follows is HTTP/1.1 still
                data = data[upgrade.args[0] :]
                self._parser = self._new_parser()
            except httptools.HttpParserError:
                self._refuse()
                return
        if self._room is not None:
            self._direct = True
        elif self._coming is None and self._heads:
            self._heads += count
            if self._heads > HEADER_BYTES + 2 * HEAD_BYTES:  # one without an end, of which on_header() is not told
                self._refuse()

    def _refuse(self) -> None:
        line = b"Invalid HTTP request received."
        self.transport.write(
            STATUS_LINES[400] + b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(line)
            + b"connection: close\r\n\r\n" + line
        )  # fmt: skip
        self.transport.close()

    def on_message_begin(self) -> None:
        self._url, self._headers, self._header_bytes, self._heads = b"", [], 0, 1
        if self._current is None:
            self._set_deadline(self.limits.seconds)

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))
        self._count(len(name) + len(value))

    def _count(self, more: int) -> None:
        self._header_bytes += more
        if self._header_bytes > HEADER_BYTES:
            raise ValueError("headers are too large")  # httptools makes an HttpParserError of it

    def on_headers_complete(self) -> None:
        self._heads = 0
        parser = self._parser
        path = (httptools.parse_url(self._url).path or b"/").decode("ascii")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "method": parser.get_method().decode("ascii"),
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "headers": self._headers,
        }
        length, before, expects, chunked = -1, 0, False, False
        for name, value in self._headers:
            if name == b"content-length":
                length = int(value)
            elif name == b"inference-header-content-length":
                before = int(value) if value.isdigit() and len(value) < 10 else 0
            elif name == b"expect":
                expects = value.lower() == b"100-continue"
            elif name == b"transfer-encoding":
                chunked = True
        keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        exchange = self._coming = Exchange(self, scope, keep_alive, expects)
        if HEAD_BYTES < length <= self.limits.body and before <= length and not chunked and not parser.should_upgrade():
            exchange.room = self._room = self.app.room_for(scope["path"], before, length - before)
            self._at, self._end = 0, length
        if self._current is None:
            self._begin(exchange)
        else:
            self._waiting.append(exchange)
            self._pause()

    def on_body(self, body: bytes) -> None:
        exchange = self._coming
        assert exchange is not None
        room = self._room
        if room is not None:
            left = len(room.head) - self._at
            if left > 0:
                room.head[self._at : self._at + len(body)] = body[:left]
            part = body[left:] if left > 0 else body
            at = max(0, -left)
            room.rest[at : at + len(part)] = part
            self._at += len(body)
        elif not (exchange.answered or exchange.too_large):  # else refused: let come, or the answer is not seen
            exchange.parts.append(body)
            exchange.size += len(body)
            if exchange.size > self.limits.body:
                exchange.too_large = True
                exchange.body = b"".join(exchange.parts)
                exchange.wake()

    def on_message_complete(self) -> None:
        exchange, self._coming, self._room = self._coming, None, None
        assert exchange is not None
        exchange.whole = True
        if exchange.parts and not exchange.too_large:
            exchange.body = exchange.parts[0] if len(exchange.parts) == 1 else b"".join(exchange.parts)
        exchange.parts = []
        if exchange is self._current:
            self._deadline = FOREVER
            if exchange.answered:  # refused, before its body was there
                self._current = None
                self._go_on()
            else:
                exchange.wake()

    # ---- What goes ----

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        if exchange.whole:
            self._deadline = FOREVER
        else:
            self._set_deadline(self.limits.seconds)
        exchange.task = self._loop.create_task(exchange.run(self.app))
        self.state.tasks.add(exchange.task)

    def write(self, parts: List[Any]) -> None:
        if len(parts[-1]) < PIECE_BYTES:
            self.transport.write(b"".join(parts))
        else:
            self.transport.writelines([b"".join(parts[:-1]), parts[-1]])

    def answered(self, exchange: Exchange) -> None:
        self.state.total_requests += 1
        if not exchange.keep_alive:
            self.transport.close()
        elif exchange.whole:
            self._current = None
            self._set_deadline(IDLE_SECONDS)
            self._go_on()
        else:
            self._set_deadline(self.limits.seconds)
            exchange.room = self._room = None

    def _go_on(self) -> None:
        """To the next request, if the client takes answers."""
        if self._current is not None or self._full or self.transport.is_closing():
            return
        if self._waiting:
            self._begin(self._waiting.popleft())
        else:
            self._set_deadline(IDLE_SECONDS if self._coming is None and not self._heads else self.limits.seconds)
        if self._paused and not self._waiting:
            self._paused = False
            self.transport.resume_reading()


def connection_class(app: HttpApp, limits: Limits, most: int) -> Type[Connection]:
    """Connections of one server: a request's headers have `limits.seconds` to come, as its body has then."""
    return type("Connection", (Connection,), {"app": app, "limits": limits, "most": most})
