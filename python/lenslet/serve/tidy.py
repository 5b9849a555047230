"""Keeps the process within its memory bound. glibc keeps freed memory, so memory of large requests is returned to the
system. If the process uses more than memory.py counts (parts of gRPC's messages, fragmentation), no more is granted
until there is less."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
from typing import Any

from .memory import Memory

#: Excess that is returned to the system. Less is kept: fresh memory costs a fault for each page.
WORTH_BYTES = 64 << 20
#: Seconds between checks; the second once requests hold this part of the memory.
SECONDS, SOON_SECONDS, PART = 1.0, 0.02, 1 / 8
#: If this share of the requests' memory is resident, no more is granted.
CROWDED = 0.9


def resident() -> int:
    """Resident bytes of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Tidy:
    """Used in the event loop's thread. `models`: bytes that models may still allocate."""

    def __init__(self, loop: asyncio.AbstractEventLoop, memory: Memory, models: int) -> None:
        self._loop, self._memory = loop, memory
        self._first = resident() + models
        self._trimming: Any = None
        self._next = loop.time() + SECONDS
        self._trim: Any = None
        with contextlib.suppress(OSError, AttributeError):  # another C library
            self._trim = ctypes.CDLL(None).malloc_trim
        self._before = self._first
        self._timer = loop.call_later(SOON_SECONDS, self._tick)

    def stop(self) -> None:
        self._timer.cancel()

    def grown(self) -> int:
        """Growth in bytes since all models were loaded."""
        return resident() - self._first

    def _tick(self) -> None:
        if self._memory.used > PART * self._memory.most or self._memory.crowded or self._loop.time() >= self._next:
            self._look()
        self._timer = self._loop.call_later(SOON_SECONDS, self._tick)

    def _look(self) -> None:
        memory, now = self._memory, resident()
        memory.crowded = now - self._first > CROWDED * memory.most
        if memory.crowded:
            if memory.used < PART * memory.most and self._loop.time() >= self._next:
                self._next = self._loop.time() + SECONDS
                gc.collect()  # requests do not hold it: server.py makes collections rare
            self._give_back()
        elif self._loop.time() >= self._next:
            self._next = self._loop.time() + SECONDS
            unused = now - memory.used  # by requests; models, and memory that was theirs
            if unused - self._before >= WORTH_BYTES:
                self._before = unused
                self._give_back()
            self._before = min(self._before, unused)

    def _give_back(self) -> None:
        if self._trim is not None and (self._trimming is None or self._trimming.done()):
            self._trimming = self._loop.run_in_executor(None, self._trim, 0)
