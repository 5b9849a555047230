"""Finds objects in pictures."""

from __future__ import annotations

import ctypes
import dataclasses
import threading
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

import numpy as np

from . import _options as options
from . import _structs as structs
from . import tables
from ._arrays import address, describe_any
from ._library import Handle, check, library, taken_json
from ._pictures import Image, picture_of
from .card import Card
from .classifier import CardOrPath, Labels, ModelOrPath, resolved
from .errors import InvalidArgumentError, stays_here
from .model import Model

#: Boxes that are compared with each other, at most.
MOST = 30_000


@dataclasses.dataclass(frozen=True)
class Detection:
    """An object. The box is in pixels of the photo, inside it. ``label`` is "" without labels."""

    index: int
    label: str
    score: float
    left: float
    top: float
    right: float
    bottom: float


class Detections(List[Detection]):
    """Objects, best first: a list that a notebook shows with bars."""

    def _repr_html_(self) -> str:
        rows = [(one.label or f"class {one.index}", one.score, one.left, one.top, one.right, one.bottom) for one in self]
        head = ("class", "score", "left", "top", "right", "bottom")
        return tables.html_table("", head, rows, [one.score for one in self])


class Detector:
    """A model with its card, whose `output.boxes` say how outputs hold boxes, and its labels, planned for one picture or
    tile at a time. Concurrent calls run one after the other. Arguments and warnings are Classifier's.

    InvalidArgumentError for a card without boxes, UnsupportedError for outputs that are not as the card says.
    """

    labels: Optional[Tuple[str, ...]]
    device: str

    def __init__(
        self,
        model: ModelOrPath,
        card: Optional[CardOrPath] = None,
        *,
        labels: Labels = None,
        device: str = "auto",
        threads: int = 0,
        precision: Optional[str] = None,
    ) -> None:
        self.model, self.card, self.labels, file = resolved(model, card, labels)
        made = options.plan_options(device=device, threads=threads, precision=precision)
        self._handle = Handle()
        self._lock = threading.Lock()
        check(
            library.lenslet_detector_create(
                self.model._handle, self.card._handle, file, made, ctypes.byref(self._handle)
            )
        )
        fields: Dict[str, Any] = taken_json(lambda text: library.lenslet_detector_describe(self._handle, text))
        self.device = fields["device"]
        if self.labels and fields["classes"] not in (-1, len(self.labels)):
            raise InvalidArgumentError(f"{len(self.labels)} labels for {fields['classes']} classes")

    def detect(
        self,
        photo: Image,
        threshold: float = 0.25,
        iou: float = 0.45,
        top: int = 100,
        tile_overlap: Optional[int] = None,
    ) -> List[Detection]:
        """The `top` best objects with scores above `threshold`. Of two boxes of a class whose intersection over union is
        more than `iou` the better one stays. `tile_overlap`: a large photo is covered with tiles of the input's size,
        which share that many pixels. InvalidImageError, FileError, LimitError."""
        picture, held = picture_of(photo)
        overlap = -1 if tile_overlap is None else options.whole(tile_overlap, "tile_overlap", 0, 2**62)
        with self._lock:
            found = _found(
                lambda *at: library.lenslet_detector_detect(
                    self._handle, picture, *_numbers(threshold, iou), overlap, *at
                ), top, self.labels,
            )  # fmt: skip
        del held
        return found

    def __reduce__(self) -> NoReturn:
        raise stays_here("Detector", "send its model and card, and make one where it is used, once for each worker")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.lenslet_detector_free(self._handle)


def prepared_whole(card: Card, image: Image, out: np.ndarray[Any, Any]) -> Tuple[int, int]:
    """Card.prepare() of a picture that is decoded whole, as a Detector does: its height and width."""
    picture, held = picture_of(image)
    height, width = ctypes.c_int64(), ctypes.c_int64()
    where = ctypes.byref(height), ctypes.byref(width)
    check(library.lenslet_python_prepare(card._handle, picture, address(out), out.size, *where))
    del held
    return height.value, width.value


def boxes_in(
    model: Model, card: Card, outputs: Sequence[Any], size: Tuple[int, int], threshold: float, iou: float, top: int
) -> List[Detection]:
    """What a Detector finds, from the model's outputs for a picture of prepared_whole(), which has this size."""
    tensors = (structs.Tensor * len(outputs))()
    for tensor in tensors:
        tensor.struct_size = ctypes.sizeof(structs.Tensor)
    held = [describe_any(tensor, array, None, "an output") for tensor, array in zip(tensors, outputs)]
    found = _found(
        lambda *at: library.lenslet_python_boxes(
            model._handle, card._handle, tensors, len(tensors), *size, *_numbers(threshold, iou), *at
        ), top, card.labels,
    )  # fmt: skip
    del held
    return found


def _numbers(threshold: float, iou: float) -> Tuple[float, float]:
    try:
        return float(threshold), float(iou)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"threshold or iou: {error}") from None


def _found(ask: Callable[..., int], top: int, labels: Optional[Sequence[str]]) -> Detections:
    room = min(options.whole(top, "top", 1, 1_000_000), MOST)
    found, count = (structs.Detection * room)(), ctypes.c_size_t()
    check(ask(found, room, ctypes.byref(count)))
    names = labels or ()
    return Detections(
        Detection(
            one.index, names[one.index] if 0 <= one.index < len(names) else "",
            one.score, one.left, one.top, one.right, one.bottom,
        ) for one in found[: count.value]
    )  # fmt: skip
