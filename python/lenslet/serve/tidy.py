"""What a large request took is given back to the system: glibc keeps what is freed, for the next one."""

from __future__ import annotations

import asyncio
import ctypes
import os
from typing import Any

from .memory import Memory

#: So much more than before has to be kept. Less stays: fresh memory costs a fault for each page.
WORTH_BYTES = 64 << 20
SECONDS = 1.0


def resident() -> int:
    """Bytes of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Tidy:
    """Looks each second, in the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, memory: Memory) -> None:
        self._loop, self._memory = loop, memory
        self._trim: Any = None
        self._timer: Any = None
        self._before = 0
        try:
            self._trim = ctypes.CDLL(None).malloc_trim
        except (OSError, AttributeError):  # another C library
            return
        self._before = self._unused()
        self._timer = loop.call_later(SECONDS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _unused(self) -> int:
        """By requests, but resident: models, and what was theirs."""
        return resident() - self._memory.used

    def _look(self) -> None:
        unused = self._unused()
        if unused - self._before >= WORTH_BYTES:
            self._before = unused
            self._loop.run_in_executor(None, self._trim, 0)
        self._before = min(self._before, unused)
        self._timer = self._loop.call_later(SECONDS, self._look)
