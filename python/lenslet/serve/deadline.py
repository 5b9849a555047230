"""Every request has a time limit. At its end the request's task is interrupted wherever it waits: for a thread, for a
runner. Work in a thread continues, and its memory is freed only after it."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Dict, Optional, Type

from .protocol import RequestError

#: Seconds between checks for requests whose time is up.
LATE_SECONDS = 0.1


class Deadlines:
    """Used in the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float) -> None:
        """`limit`: seconds for every request; 0: none."""
        self._loop, self._limit = loop, limit
        self._of: Dict[Deadline, float] = {}  # by begin; the oldest come first
        self._timer: Any = None  # active while there are deadlines

    def add(self, deadline: Deadline, since: float) -> None:
        self._of[deadline] = since
        if self._limit and self._timer is None:
            self._timer = self._loop.call_later(min(LATE_SECONDS, self._limit), self._look)

    def remove(self, deadline: Deadline) -> None:
        del self._of[deadline]

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        limit, now = self._limit, self._loop.time()
        for late in list(itertools.takewhile(lambda each: now - self._of[each] >= limit, self._of)):
            late.over(limit)
        self._timer = self._loop.call_later(min(LATE_SECONDS, limit), self._look) if self._of else None


class Deadline:
    """`with` it, the running task gets RequestError("deadline") if it waits for too long."""

    __slots__ = ("_all", "_since", "_task", "_timer", "_over")

    def __init__(self, deadlines: Deadlines) -> None:
        self._all = deadlines
        self._since = deadlines._loop.time()
        self._over = 0.0
        self._timer: Any = None

    def shorten(self, seconds: float) -> None:
        """Shortens the limit to `seconds`, counted from its begin."""
        loop = self._all._loop
        self._timer = loop.call_later(max(0.0, self._since + seconds - loop.time()), self.over, seconds)

    def over(self, limit: float) -> None:
        if not self._over:
            self._over = limit
            self._task.cancel()

    def __enter__(self) -> "Deadline":
        self._task: Any = asyncio.current_task(self._all._loop)
        self._all.add(self, self._since)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], *_: object) -> None:
        self._all.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._over and kind is asyncio.CancelledError:
            if hasattr(self._task, "uncancel"):  # Python 3.11
                self._task.uncancel()
            raise RequestError("deadline", f"not done in {self._over:g} s") from None
