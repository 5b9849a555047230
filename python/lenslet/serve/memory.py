"""The one bound on what requests hold at once (`--max-memory-mib`): bodies, what is read of them, arrays of runs, and
answers until they are sent. Each is taken from here before it is allocated. What is not there is refused at once (503,
RESOURCE_EXHAUSTED): nobody waits, so that nothing can hang on it.

    hold = memory.take(size, "the body")    # RequestError("memory") where it is not there
    hold.grow(more)                         # likewise; it keeps what it had
    hold.give()                             # or `with hold:`, or when the last reference to it goes

    array = memory.array(size, "a tensor")  # bytes with anything in them; given back when the last view of them goes

An object that owns the memory keeps its Hold beside it: both then end together, whatever happens to the request.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, List, Optional

import numpy as np

from .protocol import Array, RequestError

#: Where a tensor begins, so that kernels read it there.
ALIGNMENT = 64
#: What is taken though the process is crowded.
SMALL_BYTES = 1 << 16


class Memory:
    """Used by any thread. `used` never passes `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self.peak = 0
        self.refused = 0  # how often
        self.crowded = False  # the process has more than is known of here (tidy.py)
        #: Asked, when memory is short, to give some back, in the thread that takes: whether it is worth to ask again.
        self.when_short: List[Callable[[], bool]] = []
        self._lock = threading.RLock()  # a Hold may end within take(), by a collection of garbage

    def take(self, size: int, what: str) -> "Hold":
        """RequestError("memory") where there is not so much: `what` is what it was for."""
        hold = self.take_if_there(size) if size else Hold(self, 0)
        if hold is None:
            raise self.short(size, what)
        return hold

    def array(self, size: int, what: str, taken: Optional[int] = None) -> Array:
        """Bytes on a line of the cache, with anything in them. `taken`: less than all of them, where `hold_of(array)`
        is grown before the others are touched."""
        hold = self.take(size if taken is None else min(size, taken), what)
        made = Owned(size + ALIGNMENT, np.uint8)
        made.hold = hold
        plain = made.view(np.ndarray)
        start = -plain.ctypes.data % ALIGNMENT
        return plain[start : start + size]

    def take_if_there(self, size: int) -> Optional["Hold"]:
        return Hold(self, size) if self._add(size) else None

    def short(self, size: int, what: str) -> RequestError:
        """What the client is told."""
        self.refused += 1
        if size > self.most:
            return RequestError("too_large", f"{what}: {size} bytes, where all requests may have {self.most}")
        return RequestError("memory", f"{what}: {size} bytes are not free now: try again later")

    def _add(self, size: int) -> bool:
        assert size >= 0
        if self._fits(size):
            return True
        if size <= self.most:
            for free in self.when_short:
                again = True
                while again:
                    again = free()
                    if self._fits(size):
                        return True
        return False

    def _fits(self, size: int) -> bool:
        with self._lock:
            if self.used + size > self.most or self.crowded and size > SMALL_BYTES:
                return False
            self.used += size
            if self.used > self.peak:
                self.peak = self.used
            return True


class Hold:
    """So many bytes of a Memory."""

    __slots__ = ("_memory", "size")

    def __init__(self, memory: Memory, size: int) -> None:
        """Of bytes that are added already."""
        self._memory, self.size = memory, size

    def grow(self, more: int, what: str) -> None:
        """RequestError("memory") where there is not so much: it then has what it had."""
        if more and not self.grow_if_there(more):
            raise self._memory.short(more, what)

    def grow_if_there(self, more: int) -> bool:
        if not self._memory._add(more):
            return False
        with self._memory._lock:
            self.size += more
        return True

    def shrink(self, size: int) -> None:
        """To so much as is needed still."""
        with self._memory._lock:
            if size < self.size:
                self._memory.used -= self.size - size
                self.size = size

    def keep(self) -> None:
        """It is never given back."""
        self.size = 0

    def give(self) -> None:
        """All of it. Again, it does nothing."""
        if self.size:
            self.shrink(0)

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, *_: object) -> None:
        self.give()

    def __del__(self) -> None:
        if self.size:
            self.shrink(0)


class Owned(np.ndarray[Any, Any]):
    """Bytes with their Hold. Every view of them, of NumPy's or Python's, keeps both."""

    hold: Hold


def hold_of(array: Array) -> Hold:
    """Of Memory.array()."""
    owner: Any = array
    while not isinstance(owner, Owned):
        owner = owner.base
    return owner.hold
