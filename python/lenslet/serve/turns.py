"""Requests take turns in the event loop. The loop reads all connections before it processes requests, so under overload
all would wait for all. Here complete requests wait, but only few; others are refused. They get a millisecond of the
loop at a time, and more if connections took it for long."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Deque

from .protocol import RequestError

#: Requests that may be ahead of one, as in forecast.py.
AHEAD = 16
#: Seconds of the loop for them at a time, or this share of the time that connections took before.
SECONDS, PART = 0.001, 0.25
#: Weight of a turn in the estimated time of a request.
WEIGHT = 0.1


class Turns:
    """Used in the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, least: float) -> None:
        """`least`: seconds of waiting without a refusal; 0: any."""
        self._loop, self._least = loop, least
        self.ready = 0  # complete requests that have not begun
        self._waiting: Deque[asyncio.Future[None]] = deque()
        self._since = 0.0  # when the first one in this turn of the loop began; 0: none
        # The last ones woken: when, when they began, and their number.
        self._last = self._began = 0.0
        self._woken = 0
        # Seconds of the loop: for a request alone, and including the time for connections.
        self._own = self._each = 0.0

    def check(self) -> None:
        """RequestError if another one would wait too long."""
        seconds = self.ready * self._each
        if self.ready >= AHEAD and seconds > self._least > 0:
            raise RequestError("queue_full", f"some {seconds * 1000:.0f} ms to wait for a turn: try again later")

    def add(self) -> None:
        """A request is complete. RequestError as in check()."""
        self.check()
        self.ready += 1

    async def come(self) -> None:
        """Waits for its turn if there are others."""
        now = self._loop.time()
        if not self._since:
            self._since = now
            self._loop.call_soon(self._next)
        elif self._waiting or now - self._since > SECONDS:
            turn = self._loop.create_future()
            self._waiting.append(turn)
            await turn

    def _next(self) -> None:
        """The woken ones have had their turns, and before that the loop served connections."""
        now = self._loop.time()
        seconds = SECONDS
        if self._woken:
            own, each = (now - self._began) / self._woken, (now - self._last) / self._woken
            self._own += WEIGHT * (own - self._own) if self._own else own
            self._each += WEIGHT * (each - self._each) if self._each else each
            seconds = max(seconds, PART * (self._began - self._last))
        self._since, self._woken = 0.0, 0
        if not self._waiting:
            self._each = self._own
            return
        self._since = self._last = now
        self._loop.call_soon(self._begin)
        most = max(1, int(seconds / self._own)) if self._own else 1
        while self._waiting and self._woken < most:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._woken += 1
        self._loop.call_soon(self._next)

    def _begin(self) -> None:
        self._began = self._loop.time()
