"""What a large request took is given back to the system: glibc keeps what is freed, for the next one."""

from __future__ import annotations

import asyncio
import ctypes
from typing import Any

from .memory import Memory

#: So much has to have gone since the last time. Less is kept: fresh memory costs a fault for each page.
WORTH_BYTES = 64 << 20
SECONDS = 1.0


class Tidy:
    """Looks each second, in the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, memory: Memory) -> None:
        self._loop, self._memory = loop, memory
        self._most = 0
        self._trim: Any = None
        self._timer: Any = None
        try:
            self._trim = ctypes.CDLL(None).malloc_trim
        except (OSError, AttributeError):  # another C library
            return
        self._timer = loop.call_later(SECONDS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        used, recent = self._memory.used, self._memory.recent_peak()
        self._most = max(self._most, recent)
        if self._most - used >= WORTH_BYTES:
            self._most = used
            self._loop.run_in_executor(None, self._trim, 0)
        self._timer = self._loop.call_later(SECONDS, self._look)
