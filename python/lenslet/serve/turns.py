"""Requests take turns in the event loop. What lies on connections is read before what was read is looked at; so, where
more comes than the loop can do, all would wait for all. Here those that are whole wait, and are few: others are refused.
They have the loop for a millisecond at a time, and more where connections have it for long between."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Deque

from .protocol import RequestError

#: Requests that may be ahead of one, as in forecast.py.
AHEAD = 16
#: They have the loop for so long, or for this part of what connections had before them.
SECONDS, PART = 0.001, 0.25
#: Of each turn of the loop in what a request is thought to take.
WEIGHT = 0.1


class Turns:
    """In the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, least: float) -> None:
        """`least`: seconds of waiting for which nobody is refused; 0: any."""
        self._loop, self._least = loop, least
        self.ready = 0  # requests that are whole, and not begun
        self._waiting: Deque[asyncio.Future[None]] = deque()
        self._since = 0.0  # when the first in this turn of the loop was begun; 0: none
        # Those that were woken last: when, when they began, and how many they are.
        self._last = self._began = 0.0
        self._woken = 0
        # Seconds of the loop: what one takes, and with what connections take between them.
        self._own = self._each = 0.0

    def check(self) -> None:
        """RequestError where one more would wait too long."""
        seconds = self.ready * self._each
        if self.ready >= AHEAD and seconds > self._least > 0:
            raise RequestError("queue_full", f"some {seconds * 1000:.0f} ms to wait for a turn: try again later")

    def add(self) -> None:
        """A request is whole. RequestError as check()."""
        self.check()
        self.ready += 1

    async def come(self) -> None:
        """Its turn, where others are there."""
        now = self._loop.time()
        if not self._since:
            self._since = now
            self._loop.call_soon(self._next)
        elif self._waiting or now - self._since > SECONDS:
            turn = self._loop.create_future()
            self._waiting.append(turn)
            await turn

    def _next(self) -> None:
        """Those who were woken have just had their turns, and before them the loop has looked at connections."""
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
