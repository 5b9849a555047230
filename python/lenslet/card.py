"""Model cards: how a picture becomes an input, and the meaning of an output (docs/model-card.md)."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import sys
import warnings
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, Union

import numpy as np

from . import _arrays as arrays
from . import tables
from ._library import Handle, check, library, taken_json
from ._options import encoded, whole
from ._pictures import Image, picture_of
from .errors import CardWarning, InvalidArgumentError
from .model import Model
from .tiles import MOST, Rect


class Prediction(NamedTuple):
    """A class. ``label`` is "" without labels; ``prob`` may be a score of another range, depending on the model."""

    index: int  # type: ignore[assignment]
    label: str
    prob: float


class Predictions(List[Prediction]):
    """Classes, best first: a list that a notebook shows with bars."""

    def _repr_html_(self, summary: str = "") -> str:
        rows = [(one.label or f"class {one.index}", one.prob) for one in self]
        return tables.html_table(summary, ("class", "probability"), rows, [one.prob for one in self])


class Card:
    """A card from a file, or from its JSON as an object. `Card.of` finds a model's card.

    `found_by` is its origin: "given", or from `Card.of` "beside the model", "checksum" or "name" (a card that ships
    with lenslet and identifies the model's file by it), or "assumed" (from the model's input). `path` is its file, or
    None. `labels` are class names, None without. `softmax`: whether the output is logits that need a softmax; None
    leaves that to the model's graph, which bound() and Card.of() check. `boxes`: whether it is a Detector's.

    InvalidArgumentError names an invalid field. A pickled Card is complete, including labels, and needs no file where
    it is loaded.
    """

    name: str
    input: str
    output: str
    labels: Optional[Tuple[str, ...]]
    softmax: Optional[bool]
    height: int
    width: int
    channels: int
    nhwc: bool
    preparation: str
    boxes: bool
    found_by: str
    path: Optional[str]

    def __init__(self, source: Union[str, "os.PathLike[str]", Mapping[str, object]]) -> None:
        handle = Handle()
        if isinstance(source, Mapping):
            try:
                text = encoded(json.dumps(source), "the card")
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidArgumentError(f"the card is no JSON: {error}") from None
            check(library.lenslet_card_read(b"card", text, ctypes.byref(handle)))
        elif isinstance(source, (str, os.PathLike)):
            check(library.lenslet_card_read(encoded(os.fspath(source), "the path"), None, ctypes.byref(handle)))
        else:
            raise InvalidArgumentError(f"a card is a path or a mapping, no {type(source).__name__}")
        self._take(handle, None)

    @classmethod
    def of(cls, model: Model) -> Card:
        """The card that the command would use: the one beside the model's file, else a card that ships with lenslet and
        matches by SHA-256 (of a file or bytes) or by file name, else one assumed from the model's input. `found_by`
        tells which; a guess ("name", "assumed") also gives a CardWarning."""
        card = cls._of(model)
        if card.found_by in ("name", "assumed"):
            warn(card._words)
        return card

    @classmethod
    def _of(cls, model: Model) -> Card:
        """Without a warning."""
        handle = Handle()
        # A different file at the path is not the model, so its checksum must not select a card.
        file = None if model._file is None or model._is_another() else encoded(model._file, "the path")
        size = 0 if model._bytes is None else len(model._bytes)
        check(library.lenslet_card_of(model._handle, file, model._bytes, size, ctypes.byref(handle)))
        card = cls.__new__(cls)
        card._take(handle, None)
        return card

    def bound(self, model: Model) -> Card:
        """The same card with the fields filled in that it leaves to the model. InvalidArgumentError if they do not
        match; CardWarning for a `softmax` that contradicts the graph."""
        handle = Handle()
        check(library.lenslet_card_bound(self._handle, model._handle, ctypes.byref(handle)))
        card = type(self).__new__(type(self))
        card._take(handle, self._names)
        card.found_by, card.path = self.found_by, self.path
        card._labels_assumed |= self._labels_assumed
        if card._remark:
            warn(card._remark)
        return card

    def __reduce__(self) -> Tuple[Any, ...]:
        own = {"_handle", "_json", "_labels_file"}
        state = {name: value for name, value in vars(self).items() if name not in own}
        return _restored, (type(self), self._json, {**state, "_names": self.labels})

    def __copy__(self) -> Card:
        return self

    def __deepcopy__(self, _: object) -> Card:
        return self

    def prepare(self, image: Image, out: Optional[np.ndarray[Any, Any]] = None) -> np.ndarray[Any, Any]:
        """The picture as the network's input, preprocessed as by the command: float32 [C,H,W], or [H,W,C] for an nhwc
        card.

        `out`, a contiguous float32 array of that shape, is filled and returned instead of a new one. InvalidImageError
        for an invalid picture, LimitError for one that is too large.
        """
        shape = (
            (self.height, self.width, self.channels) if self.nhwc else (self.channels, self.height, self.width)
        )
        if out is None:
            out = np.empty(shape, np.float32)
        elif (
            not isinstance(out, np.ndarray)
            or out.dtype != np.float32
            or out.shape != shape
            or not out.flags.c_contiguous
            or not out.flags.writeable
        ):
            raise InvalidArgumentError(f"out has to be a contiguous array of float32{list(shape)}")
        picture, held = picture_of(image)
        check(library.lenslet_card_prepare(self._handle, picture, arrays.address(out), out.size))
        del held
        return out

    def photo_box(
        self, boxes: Any, height: int, width: int, part: Optional[Sequence[int]] = None
    ) -> np.ndarray[Any, Any]:
        """Maps boxes from pixels of the input to pixels of the photo of `height` x `width`: one box (left, top, right,
        bottom) or an array [...,4] of them; the result is a new float32 array of that shape. `part`: the Rect (top,
        left, height, width) of the photo that was prepared, a tile; None: all of it.

        Boxes are not clipped to the photo, and NaN stays NaN. InvalidArgumentError unless `part` lies inside the photo
        and the card can prepare it.
        """
        try:
            mapped = np.array(boxes, np.float32, order="C")
            rect = None if part is None else Rect(*part)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # PyTorch's are RuntimeErrors
            raise InvalidArgumentError(f"boxes or part (top, left, height, width): {error}") from None
        if mapped.shape[-1:] != (4,):
            raise InvalidArgumentError(f"boxes of shape {list(mapped.shape)}: [4] or [N,4] is wanted")
        sides = whole(height, "height", 1, MOST), whole(width, "width", 1, MOST)
        at, of = arrays.address(mapped), None
        if rect is not None:
            of = (ctypes.c_int64 * 4)(*(whole(n, f"part.{name}", 0, MOST) for name, n in zip(Rect._fields, rect)))
        check(library.lenslet_card_photo_boxes(self._handle, *sides, of, at, mapped.size // 4, at))
        return mapped

    def top(self, scores: Any, count: int = 5) -> List[Prediction]:
        """The best classes of one image's output, best first, after a softmax if `softmax` is true.
        InvalidArgumentError for a batch of several, and if `softmax` is None: bound() decides it by the model."""
        try:
            values = np.ascontiguousarray(scores, np.float32)
        except (TypeError, ValueError, RuntimeError) as error:  # PyTorch's are RuntimeErrors
            raise InvalidArgumentError(f"scores are no numbers: {error}") from None
        if sum(dim > 1 for dim in values.shape) > 1:
            raise InvalidArgumentError(f"scores of shape {list(values.shape)}: those of one image are wanted")
        values = values.reshape(-1)
        room = min(whole(count, "count", 0, 2**62), values.size)
        classes, probs, found = (ctypes.c_int64 * room)(), (ctypes.c_float * room)(), ctypes.c_size_t()
        check(
            library.lenslet_card_top(
                self._handle, arrays.address(values), values.size, room, classes, probs, ctypes.byref(found)
            )
        )
        return predictions(classes, probs, found.value, self.labels)

    def _take(self, handle: Handle, names: Optional[Tuple[str, ...]]) -> None:
        """`names`: labels from a pickle."""
        self._handle, self._names = handle, names
        fields: Mapping[str, Any] = taken_json(lambda text: library.lenslet_card_describe(handle, text))
        self.name, self.input, self.output = fields["name"], fields["input"], fields["output"]
        self.softmax, self.preparation = fields["softmax"], fields["preparation"]
        self.height, self.width, self.channels = fields["height"], fields["width"], fields["channels"]
        self.nhwc, self.path, self.boxes = fields["nhwc"], fields["file"], fields["boxes"]
        self.found_by = {"": "assumed", "option": "given"}.get(fields["found_by"], fields["found_by"])
        self._json: str = fields["json"]
        self._class_offset: int = fields["class_offset"]
        self._words: str = fields["words"]
        self._remark: str = fields["remark"]
        self._labels_file: Optional[str] = fields["labels_file"]
        self._labels_assumed: bool = fields["labels_assumed"] and names is None
        self.labels = self._names
        if self._names is None and self._labels_file is not None:
            self.labels = read_labels(self._labels_file)

    def __repr__(self) -> str:
        return f"<lenslet.Card {self.name!r}: {self.preparation} ({self.found_by})>"

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.lenslet_card_free(self._handle)


def _restored(kind: Type[Card], text: str, state: Mapping[str, Any]) -> Card:
    """A Card from a pickle."""
    handle = Handle()
    check(library.lenslet_card_read(b"card", encoded(text, "the card"), ctypes.byref(handle)))
    card = kind.__new__(kind)
    card._take(handle, None)
    vars(card).update(state)
    return card


def warn(words: str) -> None:
    """A CardWarning for the calling line outside of the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(words, CardWarning, level)


def read_labels(file: Union[str, "os.PathLike[str]"], classes: int = -1) -> Tuple[str, ...]:
    """Class names, one a line. InvalidArgumentError unless there are exactly `classes`, if that is not negative."""
    name = encoded(os.fspath(file), "the path")
    return tuple(taken_json(lambda text: library.lenslet_labels_read(name, classes, text)))


def predictions(
    classes: Iterable[int], probs: Iterable[float], count: int, labels: Optional[Sequence[str]]
) -> List[Prediction]:
    """The first `count` classes, with their names."""
    return Predictions(
        Prediction(index, labels[index] if labels is not None and index < len(labels) else "", prob)
        for index, prob in itertools.islice(zip(classes, probs), count)
    )
