"""Runners for the shapes that requests have, of models that take any. What a plan needs is known before it is made, and
taken from the memory of all requests; small ones are kept for the next request."""

from __future__ import annotations

import threading
from typing import List, Mapping, NamedTuple, Tuple

import lenslet

from .memory import Hold, Memory
from .protocol import RequestError, Shape
from .repository import ServedModel

#: Of all models and workers, so many runners are kept, of at most so many bytes together.
KEPT, KEPT_BYTES = 16, 64 << 20


class ShapeRunner(NamedTuple):
    """Of one worker while it is used."""

    served: ServedModel
    shapes: Tuple[Shape, ...]
    runner: lenslet.Runner
    output_bytes: int
    hold: Hold


class ShapeRunners:
    """Used by any thread."""

    def __init__(self, memory: Memory, most: int) -> None:
        """`most`: bytes of one."""
        self._memory, self._most = memory, most
        self._lock = threading.Lock()
        self._idle: List[ShapeRunner] = []  # used longest ago first
        memory.when_short.append(self.forget)

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, served: ServedModel, shapes: Mapping[str, Shape]) -> ShapeRunner:
        """RequestError for shapes that the model does not take, and for what is too large."""
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
            # The shapes are the client's, and the model's nodes do not take them.
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
        """What is kept."""
        with self._lock:
            gone, self._idle = self._idle, []
        _close(gone)
        return False


def _close(gone: List[ShapeRunner]) -> None:
    for each in gone:
        each.runner.close()
        each.hold.give()
