"""Memory that bodies of requests are read to, before anything is known of them but their sizes.

Fresh memory costs a fault for each page, so that it is kept. A request of one image goes to a place beside those of the
requests before and after it: a batch of them then is one array, and nothing is copied to make it one.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import numpy as np

from .protocol import Array
from .repository import ServedModel

#: Of memory that is kept for later requests.
KEPT_BYTES = 64 << 20
#: Where a tensor begins, so that kernels read it there.
ALIGNMENT = 64
STEP = 1 << 16


class Room:
    """Of one body: `head` for JSON, `rest` for what comes behind it. `slab` and `place` where it is part of one."""

    __slots__ = ("head", "rest", "memory", "slab", "place")

    def __init__(self, head: int, rest: Any, memory: Array, slab: Optional["Slab"] = None, place: int = 0) -> None:
        self.head = memoryview(bytearray(head))
        self.rest, self.memory, self.slab, self.place = rest, memory, slab, place

    @property
    def image(self) -> Array:
        """[1,...] of the model's input, of a room in a slab."""
        return self.memory[self.place : self.place + 1]


class Slab:
    """Places for as many images as a batch has: `images` is [N,...] of the model's input."""

    __slots__ = ("served", "images", "places", "taken", "done")

    def __init__(self, served: ServedModel) -> None:
        shape = (served.sizes[0], *served.input_shapes[0][1:])
        memory = _aligned(shape[0] * served.image_bytes)
        self.served = served
        self.images: Array = memory.view(served.dtypes[0]).reshape(shape)
        self.places = [part.data for part in memory.reshape(shape[0], -1)]
        self.taken = self.done = 0


class Rooms:
    """Used in the event loop's thread. What is not given back, since somebody may look at it still, is garbage."""

    def __init__(self) -> None:
        self._free: Dict[object, List[Any]] = {}
        self._kept = 0
        self._current: Dict[ServedModel, Slab] = {}

    def take(self, head: int, rest: int, served: Optional[ServedModel]) -> Room:
        """Room for a body of `head` + `rest` bytes, with anything in it."""
        if served is None or not served.image_bytes or rest != served.image_bytes:
            size = -(-rest // STEP) * STEP
            memory = self._kept_one(size, size)
            if memory is None:
                memory = _aligned(size)
            return Room(head, memory[:rest].data, memory)
        slab = self._current.get(served)
        if slab is None or slab.taken == len(slab.places):
            slab = self._current[served] = self._kept_one(served, served.sizes[0] * rest) or Slab(served)
        slab.taken += 1
        return Room(head, slab.places[slab.taken - 1], slab.images, slab, slab.taken - 1)

    def give(self, room: Room) -> None:
        """Nobody looks at it any more."""
        slab = room.slab
        if slab is None:
            self._keep(room.memory.size, room.memory.size, room.memory)
            return
        slab.done += 1
        if slab.done == slab.taken:
            # A client that is alone has the first place each time, which the cache holds.
            slab.taken = slab.done = 0
            if self._current.get(slab.served) is not slab:
                self._keep(slab.served, slab.images.nbytes, slab)

    def _kept_one(self, kind: object, size: int) -> Any:
        free = self._free.get(kind)
        if not free:
            return None
        self._kept -= size
        return free.pop()

    def _keep(self, kind: object, size: int, thing: Any) -> None:
        if self._kept + size <= KEPT_BYTES:
            self._kept += size
            self._free.setdefault(kind, []).append(thing)


def _aligned(size: int) -> Array:
    """Bytes on a line of the cache, with anything in them."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]
