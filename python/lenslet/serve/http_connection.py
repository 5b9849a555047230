"""A connection of HTTP/1.1. httptools parses the heads; the kernel writes a body directly to its final memory. An
answer is one write, and a connection has one timer.

Clients are hostile. Everything that they make the server keep is counted (heads, headers, pipelined requests) or taken
from the bound on memory (bodies as they come, answers until they are sent), and every wait has a time limit.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import socket
import sys
import urllib.parse
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, List, Optional, Tuple

import httptools  # type: ignore[import-untyped, import-not-found, unused-ignore]

from .http_exchange import CONTINUE, STATUS_LINES, Answer, Exchange, Headers
from .memory import Hold
from .protocol import RequestError, malformed
from .rooms import LONG_BYTES

if TYPE_CHECKING:
    from .http_server import Server

#: Bytes of a request's first line and headers, and number of headers.
HEADER_BYTES, HEADERS = 32768, 100
#: Pipelined requests that wait behind the current one on a connection, if its body is chunked; otherwise they are not
#: parsed earlier.
WAITING = 32
#: Seconds that a connection without a request is kept.
IDLE_SECONDS = 75
#: A client that takes fewer bytes than this in these seconds loses the rest of its answers.
WRITE_SECONDS, WRITE_BYTES = 10, 1 << 16
#: Bytes that a connection may have unsent without being paused.
UNSENT_BYTES = 1 << 16
#: Bytes read before a head is known, and so copied; also the step for dropping data and for sending long answers.
HEAD_BYTES, PIECE_BYTES = 16384, 1 << 18
#: Makes a socket discard received data (tcp(7), MSG_TRUNC).
DISCARDS = sys.platform == "linux"
#: Bytes of a long answer that are sent before the event loop continues.
TURN_BYTES = 1 << 20
#: After a client has closed its side, first and last wait between checks that it is still there.
ASKING_SECONDS = (0.05, 1.0)
FOREVER = float("inf")

#: The headers that are read. None of them may be repeated.
KNOWN_HEADERS = frozenset((
    b"content-length", b"content-type", b"content-encoding", b"transfer-encoding", b"inference-header-content-length",
    b"host", b"expect",
))  # fmt: skip

# One for all connections: its content is taken out before the next read.
_piece = memoryview(bytearray(PIECE_BYTES))
_head = _piece[:HEAD_BYTES]
_discards = mmap.mmap(-1, 1 << 24)  # never touched


class Connection(asyncio.BufferedProtocol):
    """A connection of `server`."""

    def __init__(self, server: "Server") -> None:
        self.server, self._loop = server, server.loop
        self._limits = server.limits
        self.transport: Any = None
        self.peer: Any = None  # address and port, which an exchange may need after the client has gone
        self._parser = self._new_parser()
        self._url, self._header_bytes, self._header_count = b"", 0, 0
        self._headers: Headers = {}
        self._coming: Optional[Exchange] = None  # its body is being received
        self._current: Optional[Exchange] = None  # is being answered, or is not complete
        self._waiting: Deque[Exchange] = deque()
        self._length = -1  # of a body with a length
        self._at = self._end = 0  # of a body of known length: the received bytes, and all
        self._began = 0.0  # its begin
        self._later = self._tail = b""  # data after a request; the end of an incomplete head
        self._reading = False
        self._direct = False  # the rest goes directly to its memory, or is dropped
        self._heads = 0  # bytes of an incomplete head
        self._deadline = FOREVER
        self._timer: Any = None
        self._full = False  # the client does not take its answers
        self._tls = self._closes = False  # the second: once everything is sent
        self._left: Deque[memoryview] = deque()  # of a long answer, or one over TLS
        self._unsent: List[Hold] = []
        self._unsent_bytes = 0
        self._paused = self._ended = self._refused = self._stops = False

    def _new_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        try:  # keeps the answer of a request that ends the connection and is followed by others
            parser.set_dangerous_leniencies(lenient_data_after_close=True)
        except AttributeError:  # httptools below 0.6.3
            pass
        return parser

    # ---- The connection ----

    def connection_made(self, transport: Any) -> None:
        self.transport, self.peer = transport, transport.get_extra_info("peername")
        transport.set_write_buffer_limits(UNSENT_BYTES, 0)
        self._tls = transport.get_extra_info("sslcontext") is not None
        self._set_deadline(self._limits.seconds)
        self._timer = self._loop.call_later(self._limits.seconds, self._look_at_the_clock)
        self.server.made(self)

    def connection_lost(self, error: Optional[Exception]) -> None:
        self.server.lost(self)
        if self._timer is not None:
            self._timer.cancel()
        self.drop()
        # Avoids a cycle, so that everything the connection held is freed at once.
        self._parser = None
        self._unsent = []
        self._left.clear()

    def drop(self) -> None:
        """Ends all requests: no client waits for their answers."""
        for exchange in (self._current, self._coming, *self._waiting):
            if exchange is not None:
                exchange.gone = True
                exchange.connection = None
                exchange.forget()
                if exchange.task is not None and not exchange.answered:
                    exchange.task.cancel()
                    if not exchange.started:  # it will never start
                        exchange.ended()
        self._waiting.clear()
        self._coming = self._current = None
        self._later = b""

    def abort(self) -> None:
        """Frees everything at once. The connection ends slightly later, because uvloop crashes if that happens during a
        read that needs memory."""
        self._refused = True
        self.drop()
        self._unsent = []
        self._left.clear()
        self._loop.call_soon(self.transport.abort)

    def eof_received(self) -> bool:
        """A client that has closed its side may wait for answers, or be gone: then sending to it fails."""
        self._ended = True
        if self._coming is not None or (self._current is None and not self._full):
            return False
        self._ask(ASKING_SECONDS[0])
        return True

    def _ask(self, wait: float) -> None:
        current = self._current
        if self.transport.is_closing() or current is None:
            return
        if not (current.answered or self._full or current.version == "1.0"):
            self.transport.write(CONTINUE)
        self._loop.call_later(wait, self._ask, min(2 * wait, ASKING_SECONDS[1]))

    def shutdown(self) -> None:
        """The server stops: complete requests are answered."""
        self._stops = True
        if self._current is None:
            self._close()
        elif self._coming is None:
            self._pause()

    def ends_with(self, exchange: Exchange) -> bool:
        """No request follows, and none can come."""
        return (self._ended or self._stops) and self._coming in (None, exchange) and not (self._waiting or self._later)

    def pause_writing(self) -> None:
        self._full = True
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._set_timer(WRITE_SECONDS)
        self._pause()

    def resume_writing(self) -> None:
        if self._left:  # TLS is still at work
            self._loop.call_soon(self._hand_on)
            return
        self._full = False
        self._unsent = []
        if self._closes:
            self._close()
        elif self._current is None:
            self._set_deadline(IDLE_SECONDS)
        self._go_on()

    def _hand_on(self) -> None:
        """Sends more as the client, or TLS, takes it; TLS does not report what the connection below has sent."""
        self._full = False
        size = 0
        while self._left and not self._full:
            size += len(self._left[0])
            self.transport.write(self._left.popleft())
            if size >= TURN_BYTES and self._left and not self._full:
                self._full = True
                self._loop.call_soon(self._hand_on)
        if not self._full:
            self.resume_writing()

    def _pause(self) -> None:
        if not (self._paused or self._ended):
            self._paused = True
            self.transport.pause_reading()

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = self._loop.time() + seconds

    def _set_timer(self, seconds: float) -> None:
        """For a deadline that may be before the timer's next time."""
        self._set_deadline(seconds)
        self._timer.cancel()
        self._timer = self._loop.call_later(min(seconds, max(self._limits.seconds, 0.1)), self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        """The timer never waits longer than `limits.seconds`, so it fires before any deadline that is set meanwhile."""
        left = self._deadline - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(min(left, max(self._limits.seconds, 0.1)), self._look_at_the_clock)
            return
        coming = self._coming
        if self._full:
            unsent = self.transport.get_write_buffer_size()
            if unsent > self._unsent_bytes - WRITE_BYTES:
                self.abort()
                return
            self._unsent_bytes = unsent
            self._set_timer(WRITE_SECONDS)
        elif coming is not None and not coming.answered and coming is self._current:
            coming.refuse(RequestError("timeout", f"the body did not come in {self._limits.seconds:g} s"))
            self._set_timer(self._limits.seconds)
        elif coming is not None or self._heads or self.transport.is_closing():
            self.abort()
        else:
            self._close()

    def _close(self) -> None:
        """Closes after everything is sent, waiting for a limited time."""
        self._closes = True
        if not (self._left or self.transport.is_closing()):
            self.transport.close()
            self._set_timer(WRITE_SECONDS)

    # ---- What may be taken back ----

    @property
    def idle(self) -> bool:
        """There is no request, or no complete one as far as is known."""
        return self._current is None and not self._full

    @property
    def answers_all(self) -> bool:
        """Only the client's taking of the answers remains."""
        return self._current is None or self._current.answered

    def rate(self, now: float) -> Optional[Tuple[float, float]]:
        """Seconds that a client has had to send its body or take its answer, and bytes a second; None for others."""
        if self._coming is not None and self._coming.error is None and not self._coming.answered:
            seconds = now - self._began
            return seconds, (self._at or len(self._coming.buffer)) / max(seconds, 1e-3)
        if self._full:
            seconds = WRITE_SECONDS - (self._deadline - now)
            sent = self._unsent_bytes - self.transport.get_write_buffer_size()
            return seconds, sent / max(seconds, 1e-3)
        return None

    # ---- What comes ----

    def get_buffer(self, _: int) -> Any:
        if self._refused:
            return _piece
        if self._direct:
            exchange = self._coming
            room = None if exchange is None else exchange.room
            if room is not None and exchange is not None:
                try:
                    into = room.at(self._at)
                    if exchange.room is room:  # otherwise it was dropped as the slowest when memory was short
                        return into
                except RequestError as error:
                    exchange.refuse(error)
            if self._refused:
                return _piece
            left = self._end - self._at
            if left > HEAD_BYTES and DISCARDS and not self._tls:
                self._at += self._discarded(left - 1)
                return _piece[:1]  # the start of the rest, or there is no more yet
            return _piece[:left]
        return _head

    def _discarded(self, most: int) -> int:
        """Bytes that the kernel discarded, which it need not copy."""
        own = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, self.transport.get_extra_info("socket").fileno())
        try:
            return own.recv_into(_discards, min(most, len(_discards)), socket.MSG_TRUNC | socket.MSG_DONTWAIT)
        except OSError:  # the loop will see the error
            return 0
        finally:
            own.detach()

    def buffer_updated(self, count: int) -> None:
        if self._refused:
            return
        if self._direct:
            self._at += count
            if self._at == self._end:
                self._direct = False
                self._parser = self._new_parser()  # the old one waits for a body that it does not see
                self.on_message_complete()
            elif self._end > LONG_BYTES and count >= UNSENT_BYTES and not self._paused:
                self.transport.pause_reading()  # as below
                self._loop.call_soon(self._read_on)
            return
        self._read(bytes(_piece[:count]))
        if count == HEAD_BYTES and not (self._direct or self._paused):  # more is there: libuv reads 32 times
            self.transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read(self, data: bytes) -> None:
        """Parses data request by request: later data waits until the current one is answered, and costs nothing."""
        self._reading = True
        while data and not self._refused:
            end = len(data)
            if self._coming is not None:
                if self._length > self._at:
                    end = self._length - self._at
            elif self._current is not None and not self._heads:
                self._later = data
                self._pause()
                break
            else:
                found = (self._tail + data).find(b"\r\n\r\n")
                # Without another request's first line, all of it belongs to this one.
                if found >= 0 and data.find(b"HTTP/", found + 4 - len(self._tail)) >= 0:
                    end = found + 4 - len(self._tail)
            part, self._later = data[:end], data[end:]
            self._parse(part)
            data, self._later = self._later, b""
        self._reading = False
        if self._end and self._coming is not None:
            self._direct = True

    def _parse(self, data: bytes) -> None:
        size, tail, self._tail = len(data), (self._tail + data)[-3:], b""
        while data:
            try:
                self._parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:  # not supported: HTTP/1.1 continues
                data = data[upgrade.args[0] :]
                self._parser = self._new_parser()
            except httptools.HttpParserError as error:
                if self._refused:  # the request itself is refused
                    return
                cause = error.__context__
                self._refuse(cause if isinstance(cause, RequestError) else malformed("this is no HTTP"))
                return
        if self._coming is None and self._heads:
            self._tail = tail
            self._heads += size
            if self._heads > HEADER_BYTES + 2 * HEAD_BYTES:  # a header without an end, which on_header() does not get
                self._refuse(malformed("headers are too large"))

    def _read_on(self) -> None:
        if not (self._paused or self.transport.is_closing()):
            self.transport.resume_reading()

    def _refuse(self, error: RequestError) -> None:
        """Ends the connection with all its unanswered requests."""
        if self._left:
            self.abort()
            return
        self._refused = True
        self.drop()
        line = json.dumps({"error": str(error)}).encode()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(line)
        self.transport.write(STATUS_LINES[error.status] + head + line)
        self._close()

    def on_message_begin(self) -> None:
        self._url, self._headers, self._header_bytes, self._header_count, self._heads = b"", {}, 0, 0, 1
        if self._current is None:
            self._set_deadline(self._limits.seconds)

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._count(len(name) + len(value))
        if self._header_count > HEADERS:
            raise malformed(f"more than {HEADERS} headers")
        name = name.lower()
        if name in KNOWN_HEADERS and self._coming is None:  # otherwise it is a trailer
            if name in self._headers:
                raise malformed(f"{name.decode()} is there twice")
            self._headers[name] = value

    def _count(self, more: int) -> None:
        self._header_bytes += more
        if self._header_bytes > HEADER_BYTES:
            raise malformed("headers are too large")

    def on_headers_complete(self) -> None:
        self._heads = 0
        parser, headers = self._parser, self._headers
        version = parser.get_http_version()
        if version == "1.1" and b"host" not in headers:
            raise malformed("no Host")
        coding = headers.get(b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            if coding.lower().replace(b" ", b"").endswith(b",chunked"):
                raise RequestError("coding", "a body is chunked, and no more")
            raise malformed("a body that is coded has no end unless it is chunked")
        if coding is not None and (version == "1.0" or b"content-length" in headers):
            raise malformed("a body is chunked, or has a length, or is of HTTP/1.0")
        url = httptools.parse_url(self._url)
        path = (url.path or b"/").decode("ascii")
        if "%" in path:
            path = urllib.parse.unquote(path)
        length, before = -1, 0
        text = headers.get(b"content-length")
        if text is not None:
            length = int(text) if len(text) < 19 else 1 << 62
        text = headers.get(b"inference-header-content-length")
        if text is not None and text.isdigit() and len(text) < 10:
            before = int(text)
        keep_alive = version != "1.0" and parser.should_keep_alive()
        exchange = Exchange(self, version, parser.get_method().decode("ascii"), path, headers, keep_alive)
        exchange.query = url.query or b""
        if self._current is not None:
            if len(self._waiting) == WAITING:
                raise malformed(f"more than {WAITING} requests behind one that is not answered")
            # The memory of a pipelined head in Python.
            exchange.hold = self.server.app.memory.take(2048 + 2 * self._header_bytes, "a request behind another")
        self._coming = exchange
        self._at = self._end = 0
        self._length = length
        self._began = self._loop.time()
        if length > HEAD_BYTES and not parser.should_upgrade():
            self._end = length
            if self.server.app.takes(exchange, length):
                try:
                    exchange.room = self.server.app.room_for(path, min(before, length), max(0, length - before))
                except RequestError as error:
                    exchange.refuse(error)
        if self._current is None:
            self._begin(exchange)
        else:
            self._waiting.append(exchange)
            self._pause()

    def on_body(self, body: bytes) -> None:
        exchange = self._coming
        assert exchange is not None
        if self._end:
            self._at += len(body)
            at = self._at - len(body)
            while body and exchange.room is not None:
                try:
                    into = exchange.room.at(at)
                except RequestError as error:
                    exchange.refuse(error)
                if exchange.room is None:
                    return
                size = min(len(into), len(body))
                into[:size] = body[:size]
                at, body = at + size, body[size:]
            return
        self._at += len(body)
        if exchange.answered or exchange.error is not None:  # refused: receive it, or the answer is lost
            return
        if len(exchange.buffer) + len(body) > self._limits.body:
            exchange.refuse(RequestError("too_large", f"a body of more than {self._limits.body} bytes"))
            return
        if self._length >= 0:  # no longer than a connection's own buffer
            exchange.buffer += body
            return
        try:  # twice: it moves when it grows
            if exchange.hold is None:
                exchange.hold = self.server.app.memory.take(2 * len(body), "the body")
            else:
                exchange.hold.grow(2 * len(body), "the body")
        except RequestError as error:
            exchange.refuse(error)
            return
        exchange.buffer += body

    def on_message_complete(self) -> None:
        exchange, self._coming, self._end = self._coming, None, 0
        assert exchange is not None
        if exchange is self._current and not exchange.answered and exchange.error is None:
            exchange.ready = self.server.app.comes(exchange)
        exchange.whole = True
        if self._stops:
            self._pause()
        if exchange is self._current:
            self._deadline = FOREVER
            if exchange.answered and not exchange.keep_alive:
                self._close()
            elif exchange.answered:  # refused before its body was complete
                self._current = None
                self._set_deadline(IDLE_SECONDS)
                self._go_on()
            else:
                exchange.wake()

    # ---- What goes ----

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        if exchange.whole:
            self._deadline = FOREVER
        else:
            self._set_deadline(self._limits.seconds)
        self.server.begin(exchange)

    def write(self, head: List[bytes], answer: Answer) -> None:
        parts = answer.parts
        piece = UNSENT_BYTES if self._tls else PIECE_BYTES
        if answer.size > piece:
            for part in (b"".join(head), *parts):
                view = memoryview(part)
                self._left.extend(view[at : at + piece] for at in range(0, len(view), piece))
            self._hand_on()
        elif answer.size < PIECE_BYTES:
            self.transport.write(b"".join([*head, *parts]))
        else:
            self.transport.writelines([b"".join(head), *parts])
        if answer.hold is not None and self._full:
            self._unsent.append(answer.hold)
            answer.hold = None

    def answered(self, exchange: Exchange) -> None:
        if not exchange.keep_alive and (exchange.whole or not exchange.lingers):
            self._close()
        elif exchange.whole:
            self._current = None
            if not self._full:
                self._set_deadline(IDLE_SECONDS)
            self.server.idles(self)
            self._go_on()
        else:
            if not self._full:
                self._set_deadline(self._limits.seconds)
            exchange.forget()

    def _go_on(self) -> None:
        """Continues with the next request if the client takes answers."""
        if self._current is not None or self._full or self.transport.is_closing():
            return
        if self._waiting:
            self._begin(self._waiting.popleft())
        elif self._later and not self._reading:
            self._read(self._later)
        if self._current is None and not self._later:
            if self._ended or self._stops:
                self._close()
                return
            self._set_deadline(IDLE_SECONDS if self._coming is None and not self._heads else self._limits.seconds)
        if self._paused and not (self._waiting or self._later) and (self._coming is not None or not self._stops):
            self._paused = False
            self.transport.resume_reading()
