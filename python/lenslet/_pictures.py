"""Pictures of all accepted kinds as lenslet_picture."""

from __future__ import annotations

import importlib
import os
from typing import Any, Tuple, Union

import numpy as np

from . import _structs as structs
from ._arrays import address
from ._options import encoded
from .errors import InvalidArgumentError, InvalidImageError

# A path, an encoded picture (JPEG, PNG, BMP, PNM, WebP), a uint8 array [H,W], [H,W,1], [H,W,3] or [H,W,4], or a PIL
# image.
Image = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, "np.ndarray[Any, Any]", Any]


def _pixels(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype != np.uint8:
        raise InvalidArgumentError(f"an image of {array.dtype}: 8-bit pixels (uint8) are wanted")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4):
        raise InvalidArgumentError(f"an image of shape {list(array.shape)}: [H,W], [H,W,1], [H,W,3] or [H,W,4] is wanted")
    if array.size == 0:
        raise InvalidArgumentError(f"an image of shape {list(array.shape)} has no pixels")
    if array.shape[2] == 4:  # alpha is dropped without blending, as for files
        array = array[:, :, :3]
    return np.ascontiguousarray(array)


def _from_pil(image: Any) -> np.ndarray[Any, Any]:
    """Turned upright by its EXIF orientation, like a file's picture."""
    sixteen = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))  # old Pillows
    if image.mode in ("I", "F") and not sixteen:  # convert() would clamp values above 255
        raise InvalidArgumentError(f"an image of PIL's mode {image.mode}: 8-bit pixels are wanted")
    try:
        upright = importlib.import_module("PIL.ImageOps").exif_transpose(image)
        if sixteen:
            return (np.asarray(upright) >> 8).astype(np.uint8)  # the upper 8 bits
        gray = upright.mode in ("1", "L", "LA", "La")
        return np.asarray(upright.convert("L" if gray else "RGB"))
    except (OSError, SyntaxError, ValueError) as error:  # PIL decodes lazily
        raise InvalidImageError(f"PIL: {error}") from None


def picture_of(image: Image) -> Tuple[structs.Picture, Any]:
    """The struct, and what must stay alive while it is used."""
    picture = structs.made(structs.Picture)
    if isinstance(image, (str, os.PathLike)):
        picture.file = encoded(os.fspath(image), "the picture's path")
        return picture, None
    if isinstance(image, (bytes, bytearray, memoryview)):
        held = np.frombuffer(image, np.uint8)
        picture.bytes, picture.size = address(held), held.size
        return picture, held
    if not isinstance(image, np.ndarray):
        if type(image).__module__.startswith("PIL."):
            image = _from_pil(image)
        elif hasattr(image, "__array__") or hasattr(image, "__array_interface__"):
            try:
                image = np.asarray(image)
            except (TypeError, ValueError, RuntimeError) as error:
                raise InvalidArgumentError(f"a picture that NumPy does not take: {error}") from None
        else:
            raise InvalidArgumentError(f"a picture is a path, bytes, an array or PIL's image, no {type(image).__name__}")
    held = _pixels(image)
    picture.bytes, picture.size = address(held), held.size
    picture.height, picture.width, picture.channels = held.shape
    return picture, held
