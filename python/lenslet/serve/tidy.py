"""The process keeps within its bound: what a large request took is given back to the system, for glibc keeps what is
freed, and where there is more than memory.py knows of (what came of gRPC's messages, holes between what is used), nothing
is taken until there is less."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
from typing import Any

from .memory import Memory

#: So much more than before has to be kept. Less stays: fresh memory costs a fault for each page.
WORTH_BYTES = 64 << 20
#: How often one looks for that, and for more than there may be: that is soon, once requests hold a part of it.
SECONDS, SOON_SECONDS, PART = 1.0, 0.02, 1 / 8
#: Of what requests may have, this much is resident: nothing more is taken.
CROWDED = 0.9


def resident() -> int:
    """Bytes of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Tidy:
    """In the event loop's thread. `models`: bytes that these may take yet."""

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
        """Bytes, since all models were there."""
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
                gc.collect()  # no request has it: server.py has made this rare
            self._give_back()
        elif self._loop.time() >= self._next:
            self._next = self._loop.time() + SECONDS
            unused = now - memory.used  # by requests: models, and what was theirs
            if unused - self._before >= WORTH_BYTES:
                self._before = unused
                self._give_back()
            self._before = min(self._before, unused)

    def _give_back(self) -> None:
        if self._trim is not None and (self._trimming is None or self._trimming.done()):
            self._trimming = self._loop.run_in_executor(None, self._trim, 0)
