"""Requests take turns in the event loop. What lies on connections is read before what was read is looked at; so, where
more comes than the loop can do, all would wait for all. Here those that are whole wait, and are few: others are refused.
They have the loop for a millisecond at a time, between which connections are read, and refusals sent."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Deque

from .protocol import RequestError

#: Requests that may be ahead of one, as in forecast.py; and by how many what each takes is measured.
AHEAD, MEASURED = 16, 64
SECONDS = 0.001


class Turns:
    """In the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, least: float) -> None:
        """`least`: seconds of waiting for which nobody is refused; 0: any."""
        self._loop, self._least = loop, least
        self.ready = 0  # requests that are whole, and not begun
        self._waiting: Deque[asyncio.Future[None]] = deque()
        self._since = 0.0  # when the first in this turn of the loop was begun; 0: none
        self._each, self._measured, self._left = 0.0, time.thread_time(), MEASURED

    def check(self) -> None:
        """RequestError where one more would wait too long."""
        seconds = self.ready * self._each
        if self.ready >= AHEAD and seconds > self._least > 0:
            raise RequestError("queue_full", f"some {seconds * 1000:.0f} ms to wait for a turn: try again later")

    def add(self) -> None:
        """A request is whole. RequestError as check()."""
        self._left -= 1
        if not self._left:
            now = time.thread_time()
            self._each, self._measured, self._left = (now - self._measured) / MEASURED, now, MEASURED
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
        """The loop has looked at connections since. Those who are woken now go on behind this."""
        self._since = 0.0
        for _ in range(min(len(self._waiting), max(1, int(SECONDS / self._each)) if self._each else 1)):
            if not self._since:
                self._since = self._loop.time()
                self._loop.call_soon(self._next)
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
