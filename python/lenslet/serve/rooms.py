"""Memory into which bodies of requests are read, when only their sizes are known.

It is reused, because fresh memory costs a fault for each page. The images of consecutive requests with one image each
are adjacent: a batch of them is one array without a copy. All of it is taken from the bound on memory (memory.py), and
unused memory is freed when that is short.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .memory import Memory, hold_of
from .protocol import Array, RequestError
from .repository import ServedModel

#: Bytes kept for later requests.
KEPT_BYTES = 64 << 20
STEP = 1 << 16
#: A shorter head is covered by the connection's own buffer, and not counted.
HEAD_BYTES = 1 << 14
#: Bytes of a long body that are taken from the bound at a time, as it comes: clients that send nothing hold nothing.
TAKEN_BYTES = 1 << 20
#: Bytes of longer bodies that are read at a time: libuv reads 32 times before it serves other connections, and fresh
#: memory is slow.
LONG_BYTES, READ_BYTES = 1 << 22, 1 << 18


class Room:
    """Memory for one body: `head` for JSON, `rest` for what follows. `slab` and `place` if it is part of one."""

    __slots__ = ("head", "rest", "memory", "slab", "place", "_hold", "_size", "_taken")

    def __init__(self, head: memoryview, rest: memoryview, memory: Array, slab: Optional["Slab"] = None,
                 place: int = 0) -> None:  # fmt: skip
        self.head, self.rest, self.memory, self.slab, self.place = head, rest, memory, slab, place
        self._size = len(head) + len(rest)
        self._hold = hold_of(memory) if slab is None else None
        self._taken = self._size if self._hold is None else len(head) + min(self._hold.size, len(rest))

    @property
    def image(self) -> Array:
        """The model's input [1,...] of a room in a slab."""
        return self.memory[self.place : self.place + 1]

    def at(self, at: int) -> memoryview:
        """Where the body continues after its first `at` bytes, as far as memory is taken. RequestError("memory")."""
        if at == self._taken:
            assert self._hold is not None
            more = min(TAKEN_BYTES, self._size - at)
            self._hold.grow(more, "the body")
            self._taken += more
        head = len(self.head)
        end = self._taken if self._size <= LONG_BYTES else min(self._taken, at + READ_BYTES)
        return self.head[at:end] if at < head else self.rest[at - head : end - head]


class Slab:
    """Space for a batch of images: `images` is [N,...] of the model's input."""

    __slots__ = ("served", "images", "places", "taken", "done")

    def __init__(self, served: ServedModel, memory: Memory) -> None:
        shape = (served.sizes[0], *served.input_shapes[0][1:])
        array = memory.array(shape[0] * served.image_bytes, "a batch")
        self.served = served
        self.images: Array = array.view(served.dtypes[0]).reshape(shape)
        self.places = [part.data for part in array.reshape(shape[0], -1)]
        self.taken = self.done = 0


class Rooms:
    """Used in the event loop's thread. Rooms that may still be in use are not given back, but garbage-collected."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._free: Dict[object, List[Any]] = {}
        self._kept = 0
        self._current: Dict[ServedModel, Slab] = {}
        memory.when_short.append(self.forget)

    def take(self, head: int, rest: int, served: Optional[ServedModel]) -> Room:
        """Memory for a body of `head` + `rest` bytes with undefined content. RequestError("memory")."""
        if head > STEP:
            head, rest = 0, head + rest
        if served is not None and served.image_bytes and rest == served.image_bytes:
            try:
                return self._beside_others(head, rest, served)
            except RequestError:  # there is no memory for a whole batch
                pass
        size = -(-rest // STEP) * STEP
        memory = self._kept_one(size, size)
        if memory is None:
            memory = self._memory.array(size, "the body", TAKEN_BYTES)
        return Room(self._head(head), memory[:rest].data, memory)

    def _head(self, size: int) -> memoryview:
        if size <= HEAD_BYTES:
            return memoryview(bytearray(size))
        return self._memory.array(size, "the body").data

    def _beside_others(self, head: int, rest: int, served: ServedModel) -> Room:
        slab = self._current.get(served)
        if slab is None or slab.taken == len(slab.places):
            slab = self._kept_one(served, served.sizes[0] * rest) or Slab(served, self._memory)
            self._current[served] = slab
        before = self._head(head)
        slab.taken += 1
        return Room(before, slab.places[slab.taken - 1], slab.images, slab, slab.taken - 1)

    def give(self, room: Room) -> None:
        """Called when the room is no longer used."""
        slab = room.slab
        if slab is None:
            self._keep(room.memory.size, room.memory.size, room.memory)
            return
        slab.done += 1
        if slab.done == slab.taken:
            # A single client gets the first place each time, which stays in the cache.
            slab.taken = slab.done = 0
            if self._current.get(slab.served) is not slab:
                self._keep(slab.served, slab.images.nbytes, slab)

    def forget(self) -> bool:
        """Frees unused memory. Thread-safe."""
        self._free, self._kept = {}, 0
        return False

    def _kept_one(self, kind: object, size: int) -> Any:
        free = self._free.get(kind)
        if not free:
            return None
        self._kept = max(0, self._kept - size)
        return free.pop()

    def _keep(self, kind: object, size: int, thing: Any) -> None:
        if self._kept + size <= KEPT_BYTES:
            self._kept += size
            self._free.setdefault(kind, []).append(thing)
