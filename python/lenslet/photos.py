"""Classifies many photos: reading, decoding, preparation and the network run side by side, on every core and GPU."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import weakref
from typing import Any, Dict, Generator, Iterable, Iterator, List, Optional, Sequence, Sized, Tuple, Union

import numpy as np

from . import _options as options
from . import _structs as structs
from . import tables
from ._arrays import address
from ._library import Handle, check, library, taken_json, text_of
from ._pictures import Image, picture_of
from .card import Prediction, Predictions
from .classifier import CardOrPath, Labels, ModelOrPath, resolved
from .errors import BY_STATUS, Error, InternalError, InvalidArgumentError

# A picture, or its name in results and the picture. The name of a path is the path.
Photo = Union[Image, Tuple[str, Image]]

_NOTHING = np.zeros(1, np.uint8)[:0]
_NAMELESS = b"the picture"  # in messages


@dataclasses.dataclass(frozen=True)
class PhotoResult:
    """The classes of a photo, best first, or the error of a photo that is missing, damaged or refused.

    `name` is the path or the given name, else ""; `index` counts the photos from 0. `device` ("cpu", "cuda:0") ran it;
    "" after an error, when `classes` are empty. `decoded_on_gpu`: by nvJPEG.
    """

    name: str
    index: int
    classes: List[Prediction]
    error: Optional[Error]
    device: str
    decoded_on_gpu: bool = False

    def _repr_html_(self) -> str:
        words = f"{self.name or f'photo {self.index}'}: {self.error or self.device}"
        return Predictions(self.classes)._repr_html_(tables.printable(words))


def classify_many(
    photos: Iterable[Photo],
    model: Optional[ModelOrPath] = None,
    card: Optional[CardOrPath] = None,
    *,
    labels: Labels = None,
    devices: Union[str, Sequence[str]] = "auto",
    threads: int = 0,
    batch: int = 0,
    top: int = 5,
    in_order: bool = True,
    precision: Optional[str] = None,
    decode: str = "cpu",
) -> Generator[PhotoResult, None, None]:
    """Yields a PhotoResult for each photo as it is ready, or, `in_order`, as it is ready and those before it are.

    `photos`: paths, encoded bytes, uint8 arrays, PIL's images, or pairs of a name and one of these. They are read as
    results are taken, and only so far ahead that memory stays bounded. A broken photo costs its own result alone.

    `devices`: "auto", "cpu", "cuda:N", "all", or several ("cpu,cuda:0" or a list). `threads` read, decode and run on
    the CPU, in all; 0: the available cores. `decode`: "gpu" has nvJPEG decode JPEGs on the GPU that runs them, whose
    pixels differ a little (docs/photos.md). `batch`: photos in a run; 0: 1 on the CPU, 32 on a GPU. `model`, `card`,
    `labels`, `precision`: as of Classifier, which errors and warnings are like, too. close() of the generator, or its
    end by an exception, frees everything.
    """
    check_many(photos)
    pipeline = Pipeline(
        model,
        card,
        labels=labels,
        devices=devices,
        threads=threads,
        batch=batch,
        top=top,
        in_order=in_order,
        precision=precision,
        decode=decode,
        count=len(photos) if isinstance(photos, Sized) else 0,
    )
    return pipeline.classify(photos, close=True)


def check_many(photos: Any) -> None:
    if isinstance(photos, (str, bytes, bytearray, memoryview, os.PathLike)):
        raise InvalidArgumentError(f"one picture, a {type(photos).__name__}, where many are meant: [picture]")


class Pipeline:
    """lenslet_photos for one stream of photos after the other. After an error that is no photo's, the next is planned
    anew."""

    def __init__(
        self,
        model: Optional[ModelOrPath],
        card: Optional[CardOrPath],
        *,
        labels: Labels,
        devices: Union[str, Sequence[str]],
        threads: int,
        batch: int,
        top: int,
        in_order: bool = True,
        precision: Optional[str] = None,
        decode: str = "cpu",
        count: int = 0,
    ) -> None:
        if decode not in ("cpu", "gpu"):
            raise InvalidArgumentError(f'decode is {decode!r}; it has to be "cpu" or "gpu"')
        self._model, self._card, self._labels, labels_file = resolved(model, card, labels)
        self._top = options.whole(top, "top", 1, 1_000_000)
        self._options = structs.made(structs.PhotoOptions)
        listed = devices.split(",") if isinstance(devices, str) else devices
        self._options.devices, self._options.device_count = options.names(
            [options.default_device(device) for device in listed], "devices"
        )
        self._options.labels = labels_file
        self._options.threads = options.whole(threads, "threads", 0, 1024)
        self._options.batch = options.whole(batch, "batch", 0, 2**40)
        self._options.unordered = not in_order
        self._options.count = count
        self._options.gpu_decode = decode == "gpu"
        self._options.plan = ctypes.pointer(options.plan_options(precision=precision))
        # Labels that only Python has are compared with the classes here: at once, or if a run gives their number, by
        # asking for one class more than there are labels.
        self._count_classes = labels_file is None and self._labels is not None
        self._make()
        if self._count_classes:
            fields: Dict[str, Any] = taken_json(lambda text: library.lenslet_photos_describe(self._handle, text))
            self._count_classes = fields["classes"] < 0
            if not self._count_classes and fields["classes"] != len(self._labels or ()):
                raise InvalidArgumentError(f"{len(self._labels or ())} labels for {fields['classes']} classes")

    def _make(self) -> None:
        self._options.top = max(self._top, len(self._labels or ()) + 1) if self._count_classes else self._top
        self._handle, self._offered = Handle(), 0
        check(
            library.lenslet_photos_create(
                self._model._handle, self._card._handle, self._options, ctypes.byref(self._handle)
            )
        )
        self.close = weakref.finalize(self, library.lenslet_photos_free, self._handle)
        capacity = ctypes.c_size_t()
        check(library.lenslet_photos_capacity(self._handle, ctypes.byref(capacity)))
        self.capacity = capacity.value

    def classify(self, photos: Iterable[Photo], close: bool = False) -> Generator[PhotoResult, None, None]:
        """With `close` the pipeline is closed at the end."""
        if not self.close.alive:
            self._make()
        first = self._offered
        # By index, of photos under way: the name, and the error of what is no picture.
        under_way: Dict[int, Tuple[str, Optional[Error]]] = {}
        try:
            waiting: Iterator[Photo] = iter(photos)
            while True:
                if len(under_way) == self.capacity:
                    yield from self._taken(under_way, first, wait=True)
                try:
                    photo = next(waiting)
                except StopIteration:
                    break
                self._offer(photo, under_way)
                yield from self._taken(under_way, first, wait=False)
            while under_way:
                yield from self._taken(under_way, first, wait=True)
        finally:
            if close or under_way:
                self.close()

    def _offer(self, photo: Photo, under_way: Dict[int, Tuple[str, Optional[Error]]]) -> None:
        name, image, error = "", photo, None
        held: Any = _NOTHING
        struct = structs.made(structs.Photo)
        struct.name = _NAMELESS
        try:
            if isinstance(photo, tuple):
                if len(photo) != 2 or not isinstance(photo[0], str):
                    raise InvalidArgumentError("a tuple is a photo if it is a name, a string, and a picture")
                name, image = photo
                struct.name = options.encoded(name, "the photo's name")
            picture, pixels = picture_of(image)
            if picture.file is not None:
                name = name or os.fsdecode(picture.file)
                struct.name, held = picture.file, None
            elif picture.height:  # as a PNM, which keeps the bits
                head = b"P%d %d %d 255\n" % (6 if picture.channels == 3 else 5, picture.width, picture.height)
                held = np.frombuffer(head + pixels.tobytes(), np.uint8)
            elif picture.size:
                held = pixels
        except Error as refused:
            error = refused
        if held is not None:
            struct.bytes, struct.size = address(held), held.size
        accepted = ctypes.c_int32()
        check(library.lenslet_photos_offer(self._handle, struct, ctypes.byref(accepted)))
        if not accepted:  # the pipeline has failed: its error
            self._take(wait=True)
            raise InternalError("a photo was not accepted")
        under_way[self._offered] = name, error
        self._offered += 1

    def _take(self, wait: bool) -> Optional[structs.PhotoResult]:
        result, taken = structs.made(structs.PhotoResult), ctypes.c_int32()
        check(library.lenslet_photos_take(self._handle, wait, result, ctypes.byref(taken)))
        return result if taken else None

    def _taken(
        self, under_way: Dict[int, Tuple[str, Optional[Error]]], first: int, wait: bool
    ) -> Iterator[PhotoResult]:
        """The next result, waited for, or all that are ready."""
        while result := self._take(wait):
            name, error = under_way.pop(result.index)
            if error is None and result.status:
                error = BY_STATUS.get(result.status, InternalError)(text_of(result.error))
            classes = Predictions()
            if error is None:
                best, labels = result.classes[: result.class_count], self._labels
                if self._count_classes and len(best) != len(labels or ()):
                    known = str(len(best)) if len(best) <= len(labels or ()) else "more"
                    raise InvalidArgumentError(f"{len(labels or ())} labels for {known} classes")
                for one in best[: self._top]:
                    label = labels[one.index] if labels is not None and one.index < len(labels) else ""
                    classes.append(Prediction(one.index, label, one.prob))
            yield PhotoResult(
                name, result.index - first, classes, error, text_of(result.device), bool(result.decoded_on_gpu)
            )
            if wait:
                return
