"""The bound on the memory of all requests (`--max-memory-mib`): bodies, parsed data, arrays of runs, and answers until
they are sent. Each is counted here before it is allocated. Beyond the bound requests are refused at once (503,
RESOURCE_EXHAUSTED): nothing waits for memory, so nothing can hang on it.

    hold = memory.take(size, "the body")    # RequestError("memory") where it is not there
    hold.grow(more)                         # likewise; it keeps what it had
    hold.give()                             # or `with hold:`, or when the last reference to it goes

    array = memory.array(size, "a tensor")  # bytes with anything in them; given back when the last view of them goes

An object that owns memory also keeps its Hold: both are then freed together, whatever happens to the request.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, List, Optional

import numpy as np

from .protocol import Array, RequestError

#: Alignment of tensors, so that kernels read them in place.
ALIGNMENT = 64
#: Bytes that are granted even if the process is crowded.
SMALL_BYTES = 1 << 16


class Memory:
    """Thread-safe. `used` never exceeds `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self.peak = 0
        self.refused = 0  # number of refusals
        self.crowded = False  # the process uses more than is counted here (tidy.py)
        #: Called when memory is short, in the requesting thread, to free some; return whether to try again.
        self.when_short: List[Callable[[], bool]] = []
        self._lock = threading.RLock()  # a Hold may end within take(), by garbage collection

    def take(self, size: int, what: str) -> "Hold":
        """RequestError("memory") if there is not enough; `what` names the purpose."""
        hold = self.take_if_there(size) if size else Hold(self, 0)
        if hold is None:
            raise self.short(size, what)
        return hold

    def array(self, size: int, what: str, taken: Optional[int] = None) -> Array:
        """Cache-line-aligned bytes with undefined content. `taken`: counts fewer bytes, if `hold_of(array)` grows
        before the others are used."""
        hold = self.take(size if taken is None else min(size, taken), what)
        made = Owned(size + ALIGNMENT, np.uint8)
        made.hold = hold
        plain = made.view(np.ndarray)
        start = -plain.ctypes.data % ALIGNMENT
        return plain[start : start + size]

    def take_if_there(self, size: int) -> Optional["Hold"]:
        return Hold(self, size) if self._add(size) else None

    def short(self, size: int, what: str) -> RequestError:
        """The client's error."""
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
    """A number of bytes of a Memory."""

    __slots__ = ("_memory", "size")

    def __init__(self, memory: Memory, size: int) -> None:
        """The bytes are already counted."""
        self._memory, self.size = memory, size

    def grow(self, more: int, what: str) -> None:
        """RequestError("memory") if there is not enough; the Hold is then unchanged."""
        if more and not self.grow_if_there(more):
            raise self._memory.short(more, what)

    def grow_if_there(self, more: int) -> bool:
        if not self._memory._add(more):
            return False
        with self._memory._lock:
            self.size += more
        return True

    def shrink(self, size: int) -> None:
        """Reduces it to the bytes still needed."""
        with self._memory._lock:
            if size < self.size:
                self._memory.used -= self.size - size
                self.size = size

    def keep(self) -> None:
        """Never frees it."""
        self.size = 0

    def give(self) -> None:
        """Frees all of it. Repeated calls do nothing."""
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
    """Bytes with their Hold. Every NumPy or Python view of them keeps both alive."""

    hold: Hold


def hold_of(array: Array) -> Hold:
    """The Hold of an array from Memory.array()."""
    owner: Any = array
    while not isinstance(owner, Owned):
        owner = owner.base
    return owner.hold
