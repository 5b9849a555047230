"""Runners for the shapes of requests, for models with free dimensions. A plan's memory is known before it is made, and
taken from that of all requests; small plans are kept for later requests."""

from __future__ import annotations

import threading
from typing import List, Mapping, NamedTuple, Tuple

import lenslet

from .memory import Hold, Memory
from .protocol import RequestError, Shape
from .repository import ServedModel

#: Maximum number of runners that are kept for all models and workers, and their bytes.
KEPT, KEPT_BYTES = 16, 64 << 20


class ShapeRunner(NamedTuple):
    """Belongs to one worker while in use."""

    served: ServedModel
    shapes: Tuple[Shape, ...]
    runner: lenslet.Runner
    output_bytes: int
    hold: Hold


class ShapeRunners:
    """Thread-safe."""

    def __init__(self, memory: Memory, most: int) -> None:
        """`most`: bytes of one."""
        self._memory, self._most = memory, most
        self._lock = threading.Lock()
        self._idle: List[ShapeRunner] = []  # least recently used first
        memory.when_short.append(self.forget)

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, served: ServedModel, shapes: Mapping[str, Shape]) -> ShapeRunner:
        """RequestError for shapes that the model does not accept, and for too large ones."""
        key = tuple(shapes.values())
        with self._lock:
            for number, kept in enumerate(self._idle):
                if kept.served is served and kept.shapes == key:
                    return self._idle.pop(number)
        try:
            needed, output_bytes = served.needed(shapes)
            shown = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            what = f"model '{served.name}' for {shown}"
            if needed > self._most:
                raise RequestError("too_large", f"{what}: a run takes {needed} bytes, at most {self._most}")
            hold = self._memory.take(needed, what)
            return ShapeRunner(served, key, served.make_runner(1, shapes), output_bytes, hold)
        except (
            lenslet.InvalidArgumentError, lenslet.InvalidModelError, lenslet.UnsupportedError, lenslet.LimitError,
        ) as error:  # fmt: skip
            # The client's shapes do not fit the model's nodes.
            raise RequestError("malformed", str(error)) from None

    def give(self, used: ShapeRunner) -> None:
        gone = [used]
        if used.hold.size <= KEPT_BYTES // 2 and not used.served.broken:
            with self._lock:
                gone = []
                self._idle.append(used)
                while len(self._idle) > KEPT or sum(each.hold.size for each in self._idle) > KEPT_BYTES:
                    gone.append(self._idle.pop(0))
        _close(gone)

    def forget(self) -> bool:
        """Frees the kept runners."""
        with self._lock:
            gone, self._idle = self._idle, []
        _close(gone)
        return False


def _close(gone: List[ShapeRunner]) -> None:
    for each in gone:
        each.runner.close()
        each.hold.give()
