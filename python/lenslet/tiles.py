"""Rectangles of large pictures."""

from __future__ import annotations

import ctypes
from typing import List, NamedTuple, Tuple

import numpy as np

from ._arrays import address
from ._library import check, library
from ._options import whole

MOST = 2**62


class Rect(NamedTuple):
    """A rectangle of whole pixels. ``image[rect.slices]`` is that part of an array [H,W] or [H,W,C], not copied."""

    top: int
    left: int
    height: int
    width: int

    @property
    def slices(self) -> Tuple[slice, slice]:
        return slice(self.top, self.top + self.height), slice(self.left, self.left + self.width)


def image_tiles(height: int, width: int, tile_height: int, tile_width: int, overlap: int) -> List[Rect]:
    """Covers a large picture with tiles, row by row. Neighbours share `overlap` pixels, the last ones more: they end at
    the picture's edge. All have the full size, except along a side on which the picture is smaller.

    InvalidArgumentError unless 0 <= overlap < both sides of a tile, LimitError for more than a million tiles.
    """
    names = ("height", "width", "tile_height", "tile_width")
    sizes = [whole(size, name, 1, MOST) for size, name in zip((height, width, tile_height, tile_width), names)]
    sizes.append(whole(overlap, "overlap", 0, MOST))
    count = ctypes.c_size_t()
    check(library.lenslet_image_tiles(*sizes, None, 0, ctypes.byref(count)))
    tiles = np.empty((count.value, 4), np.int64)
    check(library.lenslet_image_tiles(*sizes, address(tiles), count.value, ctypes.byref(count)))
    return [Rect(*tile) for tile in tiles.tolist()]
