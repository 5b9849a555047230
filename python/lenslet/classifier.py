"""Classifies pictures."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NoReturn, Optional, Tuple, Union

from . import _options as options
from ._library import Handle, check, library, taken_json, taken_text
from ._pictures import Image, picture_of
from .card import Card, Prediction, predictions, read_labels, warn
from .errors import DeviceError, Error, InvalidArgumentError, stays_here
from .model import Model

ModelOrPath = Union[Model, str, "os.PathLike[str]", bytes]
CardOrPath = Union[Card, str, "os.PathLike[str]", Mapping[str, object]]
Labels = Union[str, "os.PathLike[str]", Iterable[str], None]


def default_model() -> str:
    """Path of the default model (EfficientNet-Lite0). FileError until ``lenslet fetch`` has fetched it."""
    return taken_text(library.lenslet_default_model)


def resolved(
    model: Optional[ModelOrPath], card: Optional[CardOrPath], labels: Labels
) -> Tuple[Model, Card, Optional[Tuple[str, ...]], Optional[bytes]]:
    """The model, its card bound to it, the class names, and the path of the labels' file if `labels` is one."""
    model = model if isinstance(model, Model) else Model(default_model() if model is None else model)
    found = Card.of(model) if card is None else card if isinstance(card, Card) else Card(card)
    card = found.bound(model)
    if isinstance(labels, (str, os.PathLike)):
        return model, card, read_labels(labels), options.encoded(os.fspath(labels), "labels")
    names = card.labels
    if labels is not None:
        names = tuple(labels)
        if not all(isinstance(name, str) for name in names):
            raise InvalidArgumentError("labels are no strings")
    elif card._labels_assumed:
        warn(f"{len(names or ())} classes without names: assuming ImageNet's (labels= names others)")
    return model, card, names, None


class Classifier:
    """A model with its card and labels, planned for `batch` pictures at once. Concurrent calls run one after the other.

    `model`: a Model, a path or bytes; None: the default model. `card`: None finds the model's like the command, with
    its warning (CardWarning) for a guess. `labels`: a file with a class name a line, or the names; None: the card's.
    `device`, `threads`, `batch`, `precision`: as of Model.runner(). A batch size fixed by the model's file is kept.
    """

    labels: Optional[Tuple[str, ...]]
    batch: int
    device: str

    def __init__(
        self,
        model: Optional[ModelOrPath] = None,
        card: Optional[CardOrPath] = None,
        *,
        labels: Labels = None,
        device: str = "auto",
        threads: int = 0,
        batch: int = 1,
        precision: Optional[str] = None,
    ) -> None:
        self.model, self.card, names, file = resolved(model, card, labels)
        made = options.plan_options(device=device, threads=threads, batch=batch, precision=precision)
        self._handle = Handle()
        self._lock = threading.Lock()
        check(
            library.lenslet_classifier_create(
                self.model._handle, self.card._handle, file, made, ctypes.byref(self._handle)
            )
        )
        self.labels = names
        self._labels_given = file is None and names is not None
        fields = self._described()
        self.batch, self.device = fields["batch"], fields["device"]
        self._classes: int = fields["classes"]  # -1: a run gives the number

    def _described(self) -> Dict[str, Any]:
        fields: Dict[str, Any] = taken_json(lambda text: library.lenslet_classifier_describe(self._handle, text))
        count = fields["classes"]
        if self._labels_given and count >= 0 and len(self.labels or ()) != count:
            raise InvalidArgumentError(f"{len(self.labels or ())} labels for {count} classes")
        return fields

    def __call__(self, image: Image, top: int = 5) -> List[Prediction]:
        """The `top` best classes of one picture, best first. InvalidImageError, FileError, LimitError."""
        result = next(self.classify_stream((image,), top))
        if isinstance(result, Error):
            raise result
        return result

    def classify_each(self, images: Iterable[Image], top: int = 5) -> List[Union[List[Prediction], Error]]:
        """Classifies many, `batch` at a time. A broken picture gives its Error; the others continue."""
        return list(self.classify_stream(images, top))

    def classify_stream(self, images: Iterable[Image], top: int = 5) -> Iterator[Union[List[Prediction], Error]]:
        """Classifies a stream: at most one batch is read ahead of the results."""
        if isinstance(images, (str, bytes, bytearray, memoryview, os.PathLike)):
            raise InvalidArgumentError(f"one picture, a {type(images).__name__}, where many are meant: [picture]")
        return self._stream(iter(images), options.whole(top, "top", 1, 1_000_000))

    def _stream(self, images: Iterator[Image], count: int) -> Iterator[Union[List[Prediction], Error]]:
        # Read before the lock is taken: the iterator may wait for another thread, or use this Classifier.
        while batch := list(itertools.islice(images, self.batch)):
            yield from self._classified(batch, count)

    def _classified(self, images: List[Image], count: int) -> List[Union[List[Prediction], Error]]:
        """For at most one batch."""
        results: List[Union[List[Prediction], Error]] = []
        with self._lock:
            errors: List[Optional[Error]] = []  # None: in a batch slot
            for image in images:
                errors.append(self._prepare(image, errors.count(None)))
            if None in errors:
                check(library.lenslet_classifier_run(self._handle))
            room = min(count, max(0, self._described()["classes"] if self._classes < 0 else self._classes))
            classes, probs, found = (ctypes.c_int64 * room)(), (ctypes.c_float * room)(), ctypes.c_size_t()
            slot = 0
            for error in errors:
                if error is not None:
                    results.append(error)
                    continue
                check(library.lenslet_classifier_top(self._handle, slot, room, classes, probs, ctypes.byref(found)))
                results.append(predictions(classes, probs, found.value, self.labels))
                slot += 1
        return results

    def _prepare(self, image: Image, slot: int) -> Optional[Error]:
        try:
            picture, held = picture_of(image)
            check(library.lenslet_classifier_prepare(self._handle, picture, slot))
            del held
        except DeviceError:  # not the picture's fault
            raise
        except Error as error:
            return error
        return None

    def __reduce__(self) -> NoReturn:
        raise stays_here("Classifier", "send its model and card, and make one where it is used, once for each worker")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.lenslet_classifier_free(self._handle)


def classify(
    image: Image,
    *,
    model: Optional[ModelOrPath] = None,
    card: Optional[CardOrPath] = None,
    top: int = 5,
    device: str = "auto",
    threads: int = 0,
) -> List[Prediction]:
    """What is in a picture. Loads and plans the model each time: for many pictures make a Classifier."""
    return Classifier(model, card, device=device, threads=threads)(image, top)
