"""The served models: only those of the command line. A request's model name is looked up, never used as a path."""

from __future__ import annotations

import math
import os
import pathlib
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

import lenslet
from lenslet.detector import boxes_in, prepared_whole

from .memory import Memory
from .pictures import decoding_bytes
from .protocol import (
    DATATYPES,
    Array,
    Boxes,
    Buffer,
    Request,
    RequestError,
    Shape,
    Wanted,
    array_of,
    malformed,
    quoted,
    strings_of,
)
from .wire import Contents

#: Larger batches are assembled for the run.
SLAB_BYTES = 32 << 20


class RunnerOptions:
    """Options of all runners."""

    def __init__(self, device: str, precision: Optional[str], threads: int, max_batch: int) -> None:
        self.device, self.precision = device, precision
        self.threads, self.max_batch = threads, max_batch


def planned_sizes(max_batch: int) -> List[int]:
    """Planned batch sizes, largest first: powers of two, and `max_batch`. Any number is a sum of them, so nothing is
    padded; a plan for each number would take eight times the memory at 16."""
    sizes = {max_batch}
    size = 1
    while size < max_batch:
        sizes.add(size)
        size *= 2
    return sorted(sizes, reverse=True)


class ServedModel:
    """A named model, its public ports, and its preprocessing of pictures."""

    def __init__(
        self,
        name: str,
        path: pathlib.Path,
        card: Optional[pathlib.Path],
        shapes: Mapping[str, Shape],
        options: RunnerOptions,
    ) -> None:
        self.name, self.path, self.options = name, path, options
        self.model = lenslet.Model(path)
        #: Required inputs; clients may send the others, which are ignored.
        self.inputs = tuple(port for port in self.model.inputs if not port.unread)
        self._unread = {port.name for port in self.model.inputs if port.unread}
        self.outputs = self.model.outputs
        self._numbers = {port.name: number for number, port in enumerate(self.inputs)}
        self._names = [port.name for port in self.outputs]
        self.shapes = dict(shapes)
        self.broken = ""  # why this model's device has failed for good
        for port in (*self.inputs, *self.outputs):
            if port.dtype not in DATATYPES:
                raise lenslet.UnsupportedError(f"{path}: '{port.name}' is {port.dtype}, which is not served")
        names = [port.name for port in self.inputs]
        for wrong in sorted(set(shapes) - set(names)):
            raise lenslet.InvalidArgumentError(f"{path}: --shape: no input is named {quoted(wrong)}")
        self.dtypes = [np.dtype(port.dtype) for port in self.inputs]
        self._plan()
        self.image_bytes = self._image_bytes()
        self.row_bytes = self._row_bytes()
        self.guess = ""  # how the card was found, if it is a guess
        self.card = self._card_of(card)
        #: The number of the input that accepts pictures, or None.
        self.picture_input = None if self.card is None else self._picture_index(self.card)

    # ---- The plan ----

    def _plan(self) -> None:
        """Sets `fixed` (no input has a free dimension except the batch), `batchable`, and the ports' shapes; -1 is
        free. Axis 0 of all inputs and outputs is a batch if batch 2 doubles all of them."""
        free = [
            port.name
            for port in self.inputs
            if port.name not in self.shapes
            and (port.shape is None or any(isinstance(dim, str) for dim in port.shape[1:]))
        ]
        self.fixed = not free
        self.device = self.options.device
        self.batchable = False
        self.input_shapes = [_free_as_minus_one(port) for port in self.inputs]
        self.output_shapes = [_free_as_minus_one(port) for port in self.outputs]
        if not self.fixed:
            return
        try:
            one = self.make_runner(1)
        except (lenslet.InvalidModelError, lenslet.UnsupportedError):
            self.fixed = not any(-1 in shape[:1] for shape in self.input_shapes)
            if self.fixed:
                raise
            return  # a free first dimension that cannot be 1: planned for the requests' shapes
        self.device = one.device
        self.input_shapes = [tuple(map(int, port.shape or ())) for port in _read(one.inputs)]
        self.output_shapes = [_free_as_minus_one(port) for port in one.outputs]
        ones = [port.shape for port in (*_read(one.inputs), *one.outputs)]
        if all(shape and shape[0] == 1 for shape in ones):
            try:
                two = self.make_runner(2)
            except lenslet.Error:
                return  # a model exported for a batch of 1 that cannot be changed
            twos = [port.shape for port in (*_read(two.inputs), *two.outputs)]
            two.close()
            self.batchable = all(a and b and b == (2, *a[1:]) for a, b in zip(ones, twos))
        if self.batchable:
            self.input_shapes = [(-1, *shape[1:]) for shape in self.input_shapes]
            self.output_shapes = [(-1, *shape[1:]) for shape in self.output_shapes]
        one.close()

    def _image_bytes(self) -> int:
        """Bytes of the tensor of one image, which is placed beside other requests' (rooms.py); 0 if it is not."""
        if not self.batchable or len(self.inputs) != 1 or self.dtypes[0] == np.bool_:
            return 0
        size = math.prod(self.input_shapes[0][1:]) * self.dtypes[0].itemsize
        return size if size * self.options.max_batch <= SLAB_BYTES else 0

    @property
    def sizes(self) -> List[int]:
        return planned_sizes(self.options.max_batch) if self.batchable else [1]

    def make_runner(self, batch: int, shapes: Optional[Mapping[str, Shape]] = None) -> lenslet.Runner:
        """`shapes`: of a request, for a model that is not `fixed`."""
        return self.model.runner(**self.how(batch, shapes))

    def how(self, batch: int, shapes: Optional[Mapping[str, Shape]] = None) -> Dict[str, Any]:
        """The arguments of its runners, and of their plans."""
        own = {name: (batch, *shape[1:]) for name, shape in self.shapes.items()}
        return {
            "device": self.options.device,
            "threads": self.options.threads,
            "batch": batch,
            "precision": self.options.precision,
            "shapes": {**own, **(shapes or {})} or None,
        }

    def needed(self, shapes: Mapping[str, Shape]) -> Tuple[int, int]:
        """Bytes of a run for a request's shapes, without shapes that it computes, and bytes of its outputs. Allocates
        nothing. lenslet.Error for shapes that the model does not accept."""
        plan = self.model.plan(**self.how(1, shapes))
        memory = plan["memory"]
        outputs = zip(self.outputs, plan["outputs"])
        output_bytes = sum(_bytes(output["shape"], np.dtype(port.dtype)) for port, output in outputs)
        # Misaligned inputs are copied.
        input_bytes = sum(_bytes(shapes[port.name], dtype) for port, dtype in zip(self.inputs, self.dtypes))
        return memory["peak_bytes"] + memory["prepared_bytes"] + input_bytes, output_bytes

    def _row_bytes(self) -> int:
        """Bytes of the outputs of one image, or of one request without batches, as far as known."""
        if not self.fixed:
            return 0
        return sum(
            _bytes(shape[1:] if self.batchable else shape, np.dtype(port.dtype))
            for shape, port in zip(self.output_shapes, self.outputs)
        )

    @property
    def picture_bytes(self) -> int:
        """Bytes of the tensor of one picture in float32, from which other types are cast."""
        assert self.card is not None and self.picture_input is not None
        own = self.dtypes[self.picture_input].itemsize
        pixels = self.card.height * self.card.width * self.card.channels
        return pixels * (4 if own == 4 else 4 + own)

    # ---- Pictures ----

    def _card_of(self, file: Optional[pathlib.Path]) -> Optional[lenslet.Card]:
        """The given card, or the one that `lenslet classify` would use; None if it does not fit the model."""
        if file is not None:
            card = lenslet.Card(file).bound(self.model)
            if self._picture_index(card) is None:
                raise lenslet.InvalidArgumentError(f"{file}: does not fit the inputs of {self.path}")
            return card
        try:
            card = lenslet.Card._of(self.model)
        except lenslet.Error:  # not a classifier, apparently
            return None
        assumed = card.found_by == "assumed"
        self.guess = "assumed" if assumed else "by the model's name only" if card.found_by == "name" else ""
        # A network for pictures of any size is hardly a classifier, so no card is assumed.
        return card if (self.fixed or not assumed) and self._picture_index(card) is not None else None

    def _picture_index(self, card: lenslet.Card) -> Optional[int]:
        """The input for pictures, if it has the card's size."""
        rows = (card.height, card.width, card.channels) if card.nhwc else (card.channels, card.height, card.width)
        for index, port in enumerate(self.inputs):
            if port.name == card.input:
                shape = self.input_shapes[index]
                fits = len(shape) == 4 and all(dim in (-1, row) for dim, row in zip(shape[1:], rows))
                return index if fits and port.dtype in ("float32", "float16", "uint8") else None
        return None

    @property
    def picture_name(self) -> str:
        """The name of a BYTES input with pictures; the input's own name works as well."""
        taken = any(port.name == "image" for i, port in enumerate(self.inputs) if i != self.picture_input)
        return "encoded_image" if taken else "image"

    def prepared(
        self, pictures: Sequence[Buffer], into: Optional[Array], memory: Memory, sizes: Optional[List[Tuple[int, int]]] = None
    ) -> Array:
        """[N,C,H,W] (or [N,H,W,C]) from N encoded pictures, in the input's type; in `into` (float32) if given.
        `sizes`: gets the pictures' heights and widths; they are then decoded whole, for boxes in their pixels.
        RequestError for invalid pictures."""
        card = self.card
        assert card is not None and self.picture_input is not None
        rows = (card.height, card.width, card.channels) if card.nhwc else (card.channels, card.height, card.width)
        batch = np.empty((len(pictures), *rows), np.float32) if into is None else into
        for index, picture in enumerate(pictures):
            try:
                with memory.take(decoding_bytes(picture), "decoding a picture"):
                    if sizes is None:
                        card.prepare(picture, out=batch[index])
                    else:
                        sizes.append(prepared_whole(card, picture, batch[index]))
            except lenslet.Error as error:
                where = f"picture {index + 1} of {len(pictures)}: " if len(pictures) > 1 else ""
                raise RequestError("image", where + str(error)) from None
        dtype = self.dtypes[self.picture_input]
        if dtype == np.uint8:
            return np.clip(np.rint(batch), 0, 255).astype(np.uint8)
        return batch.astype(dtype, copy=False)

    def boxes(self, outputs: Sequence[Array], size: Tuple[int, int], options: Boxes) -> List[lenslet.Detection]:
        """Objects in a picture of this height and width, best first. RequestError if outputs are not as the card says."""
        assert self.card is not None
        try:
            return boxes_in(self.model, self.card, outputs, size, *options)
        except lenslet.Error as error:
            raise RequestError("run", f"model '{self.name}': {error}") from None

    # ---- Requests ----

    def read(self, request: Request, max_rows: int) -> Tuple[List[Optional[Array]], List[Buffer]]:
        """The request's inputs in the model's order, checked; None for the input of `pictures`."""
        inputs: List[Optional[Array]] = [None] * len(self.inputs)
        given: Dict[int, Shape] = {}
        pictures: List[Buffer] = []
        for tensor in request.inputs:
            index = self._numbers.get(tensor.name)
            if tensor.datatype == "BYTES":
                if self.picture_input is None:
                    raise malformed(f"model '{self.name}' has no card and takes no BYTES: {quoted(tensor.name)}")
                if index is None and tensor.name == self.picture_name:
                    index = self.picture_input
                if index != self.picture_input:
                    raise malformed(f"input {quoted(tensor.name)}: pictures are for '{self.picture_name}'")
            if index is None and tensor.name in self._unread:
                continue
            if index is None:
                raise malformed(f"model '{self.name}' has no input {quoted(tensor.name)}")
            if index in given:
                raise malformed(f"input {quoted(tensor.name)} is given twice")
            if tensor.datatype == "BYTES":
                if not 1 <= len(tensor.shape) <= 2 or tensor.shape[1:] not in ((), (1,)):
                    raise malformed(f"input {quoted(tensor.name)}: pictures are of shape [N] or [N,1]")
                if not 1 <= tensor.shape[0] <= max_rows:
                    raise malformed(f"input {quoted(tensor.name)}: 1 to {max_rows} pictures a request")
                pictures = strings_of(tensor)
                given[index] = (len(pictures),)
                continue
            datatype = DATATYPES[self.inputs[index].dtype]
            if tensor.datatype != datatype:
                raise malformed(f"input {quoted(tensor.name)}: is {datatype}, not {quoted(tensor.datatype)}")
            shape = self.input_shapes[index]
            if len(shape) != len(tensor.shape) or any(a not in (-1, b) for a, b in zip(shape, tensor.shape)):
                raise malformed(
                    f"input {quoted(tensor.name)}: shape {list(tensor.shape)} is not the model's {list(shape)}"
                )
            if isinstance(tensor.data, Contents) and self.batchable and tensor.shape[0] > max_rows:
                raise malformed(f"model '{self.name}': 1 to {max_rows} rows a request")  # before they are allocated
            inputs[index] = array_of(tensor, self.dtypes[index])
            given[index] = tensor.shape
        for index, port in enumerate(self.inputs):
            if index not in given:
                raise malformed(f"model '{self.name}' wants input '{port.name}'")
        self._check_rows(given, max_rows)
        return inputs, pictures

    def _check_rows(self, given: Mapping[int, Shape], max_rows: int) -> None:
        if self.batchable:
            rows = {shape[0] for shape in given.values()}
            if len(rows) != 1:
                raise malformed(f"model '{self.name}': inputs of {sorted(rows)} rows in one request")
            if not 1 <= rows.pop() <= max_rows:
                raise malformed(f"model '{self.name}': 1 to {max_rows} rows a request")
        elif self.picture_input is not None:
            shape = self.input_shapes[self.picture_input]
            if shape[0] not in (-1, given[self.picture_input][0]):
                raise malformed(f"model '{self.name}' takes {shape[0]} picture at a time")

    def wanted(self, request: Request) -> List[Tuple[int, Wanted]]:
        """The requested outputs, each with its number."""
        names = self._names
        if not request.wanted:
            return [(index, Wanted(name, request.binary)) for index, name in enumerate(names)]
        found: List[Tuple[int, Wanted]] = []
        for wanted in request.wanted:
            if wanted.name not in names:
                raise malformed(f"model '{self.name}' has no output {quoted(wanted.name)}")
            found.append((names.index(wanted.name), wanted))
        if len({index for index, _ in found}) != len(found):
            raise malformed("an output is asked for twice")
        return found

    def classes(self, index: int, scores: Array, count: int) -> List[bytes]:
        """The `count` best classes in each row of output `index`: "probability:class:label" or "value:class"."""
        if scores.size == 0:
            return []
        rows = scores.reshape(scores.shape[0] if scores.ndim > 1 else 1, -1)
        count = min(count, rows.shape[1])
        found: List[bytes] = []
        card = self.card
        if card is not None and self.outputs[index].name == card.output:
            for row in rows:
                top = card.top(row, count)
                found += [f"{best.prob:f}:{best.index}{':' if best.label else ''}{best.label}".encode() for best in top]
            return found
        for row in rows:
            order = np.argsort(-row.astype(np.float64), kind="stable")[:count]
            found += [f"{float(row[best]):f}:{best}".encode() for best in order]
        return found


def _read(ports: Sequence[lenslet.Port]) -> List[lenslet.Port]:
    return [port for port in ports if not port.unread]


def _bytes(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    return math.prod(max(0, dim) for dim in shape) * dtype.itemsize


def _free_as_minus_one(port: lenslet.Port) -> Shape:
    return tuple(dim if isinstance(dim, int) else -1 for dim in port.shape or ())


class Repository:
    """Models by name, in the order of the command line."""

    def __init__(self) -> None:
        self.models: Dict[str, ServedModel] = {}

    def add(self, served: ServedModel) -> None:
        self.models[served.name] = served

    def find(self, name: object, version: object = "") -> ServedModel:
        """RequestError("unknown") for an unknown name or version. Each model's only version is "1"."""
        served = self.models.get(name) if isinstance(name, str) else None
        if served is None:
            raise RequestError("unknown", f"no model is named {quoted(name)}")
        if version not in ("", "1", None):
            raise RequestError("unknown", f"model '{served.name}' has no version {quoted(version)}")
        return served


def named(argument: str) -> Tuple[str, pathlib.Path]:
    """(name, file) of "NAME=FILE", or of "FILE", whose name is the file's without its extension. ValueError for a name
    that a URL cannot contain unescaped."""
    head, equals, tail = argument.partition("=")
    name, path = (head, tail) if equals and os.sep not in head else ("", argument)
    name = name or pathlib.Path(path).stem
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", name):
        raise ValueError(f"{quoted(name)} is no name of a model (letters, digits, '_', '-', '.'): NAME={path}")
    return name, pathlib.Path(path)
