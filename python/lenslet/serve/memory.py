"""The one bound on what requests hold at once (`--max-memory-mib`): bodies, what is read of them, arrays of runs, and
answers until they are sent. Each is taken from here before it is allocated. What is not there is refused at once (503,
RESOURCE_EXHAUSTED): nobody waits, so that nothing can hang on it.

    hold = memory.take(size, "the body")    # RequestError("memory") where it is not there
    hold.grow(more)                         # likewise; it keeps what it had
    hold.give()                             # or `with hold:`, or when the last reference to it goes

An object that owns the memory keeps its Hold beside it: both then end together, whatever happens to the request.
"""

from __future__ import annotations

import threading
from typing import Callable, List, Optional

from .protocol import RequestError


class Memory:
    """Used by any thread. `used` never passes `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self.peak = 0
        self.refused = 0  # how often
        #: Each is asked, when memory is short, to give back what it keeps for later; in the thread that takes.
        self.when_short: List[Callable[[], None]] = []
        self._lock = threading.RLock()  # a Hold may end within take(), by a collection of garbage

    def take(self, size: int, what: str) -> "Hold":
        """RequestError("memory") where there is not so much: `what` is what it was for."""
        hold = self.take_if_there(size)
        if hold is None:
            raise self.short(size, what)
        return hold

    def take_if_there(self, size: int) -> Optional["Hold"]:
        return Hold(self, size) if self._add(size) else None

    def short(self, size: int, what: str) -> RequestError:
        """What the client is told."""
        self.refused += 1
        if size > self.most:
            return RequestError("memory", f"{what}: {size} bytes, where all requests may have {self.most}")
        return RequestError("memory", f"{what}: {size} bytes are not free now: try again later")

    def _add(self, size: int) -> bool:
        assert size >= 0
        if self._fits(size):
            return True
        if size <= self.most:
            for free in self.when_short:
                free()
                if self._fits(size):
                    return True
        return False

    def _fits(self, size: int) -> bool:
        with self._lock:
            if self.used + size > self.most:
                return False
            self.used += size
            if self.used > self.peak:
                self.peak = self.used
            return True

    def _sub(self, size: int) -> None:
        with self._lock:
            self.used -= size


class Hold:
    """So many bytes of a Memory, of which one owner is: it is not shared by threads."""

    __slots__ = ("_memory", "size")

    def __init__(self, memory: Memory, size: int) -> None:
        """Of bytes that are added already."""
        self._memory, self.size = memory, size

    def grow(self, more: int, what: str) -> None:
        """RequestError("memory") where there is not so much: it then has what it had."""
        if not self.grow_if_there(more):
            raise self._memory.short(more, what)

    def grow_if_there(self, more: int) -> bool:
        if not self._memory._add(more):
            return False
        self.size += more
        return True

    def shrink(self, size: int) -> None:
        """To so much as is needed still."""
        if size < self.size:
            self._memory._sub(self.size - size)
            self.size = size

    def give(self) -> None:
        """All of it. Again, it does nothing."""
        self.shrink(0)

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, *_: object) -> None:
        self.give()

    def __del__(self) -> None:
        self.shrink(0)
