"""A ModelInferRequest as it comes over gRPC, read without protobuf.

protobuf builds an object for each field before they can be counted, and a number for each element: 16 MiB of two-byte
fields take 2.4 GB and 10 seconds. Here fields are counted while they are read, and reading stops at the first one too
many. Tensors stay in place, and new memory is counted before it is allocated.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from .memory import Hold
from .protocol import (
    HEAD_BYTES,
    MAX_RANK,
    Array,
    Data,
    KnownHeads,
    Request,
    Shape,
    Tensor,
    TextOfNumbers,
    Wanted,
    checked_shape,
    malformed,
    quoted,
    timeout_of,
    wanted_of,
)

#: Fields of a message including nested ones; each picture in bytes_contents is one.
FIELDS = 10000
#: Inputs, and requested outputs.
ENTRIES = 1024
#: Bytes of a name, an id, a parameter.
TEXT_BYTES = 1 << 16
#: Bytes of varints that are converted at a time: the conversion takes some 30 times as much.
BLOCK = 1 << 16

#: The field of InferTensorContents with a datatype's elements, and the type to which its varints are truncated. There
#: are no 16-bit floats.
CONTENTS: Dict[str, Tuple[int, Any]] = {
    "BOOL": (1, None), "INT8": (2, np.int32), "INT16": (2, np.int32), "INT32": (2, np.int32), "INT64": (3, np.int64),
    "UINT8": (4, np.uint32), "UINT16": (4, np.uint32), "UINT32": (4, np.uint32), "UINT64": (5, np.uint64),
    "FP32": (6, None), "FP64": (7, None), "BYTES": (8, None),
}  # fmt: skip

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_RAW = 7  # ModelInferRequest.raw_input_contents

#: A field: its number, its wire type, the begin and end of its value, and the value of a varint.
_Field = Tuple[int, int, int, int, int]


class Inference(NamedTuple):
    """The content of a ModelInferRequest."""

    model: str
    version: str
    request: Request


class _Head(NamedTuple):
    """Its content without raw_input_contents."""

    model: str
    version: str
    id: str
    timeout: float
    inputs: List[Tuple[Tensor, bool]]  # with whether its elements are included
    wanted: List[Wanted]


#: The last message of a length: the bytes before its raw_input_contents, and their content.
_known_heads: KnownHeads[Tuple[bytes, _Head]] = KnownHeads()


class Message:
    """The fields of a ModelInferRequest. RequestError for one that is malformed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._head: Optional[_Head] = None
        before, head = _known_heads.get(len(data), (data, None))
        if head is not None and data.startswith(before):
            self._head = head
        self._find(0 if self._head is None else len(before))
        if self._head is not None and self._others:
            self._head = None
            self._find(0)

    def _find(self, begin: int) -> None:
        self._reader = _Reader(self._data)
        self._raw: List[memoryview] = []
        self._others: List[_Field] = []
        view = memoryview(self._data)
        #: Bytes outside of raw_input_contents. If they are many, read() takes long.
        self.plain_bytes = len(view)
        self._head_bytes = 0  # before raw_input_contents, if nothing else follows
        for field in self._reader.fields(begin, len(view)):
            number, kind, start, end, _ = field
            if number == _RAW and kind == _BYTES:
                if not self._raw:
                    self._head_bytes = self._reader.begin
                self._raw.append(view[start:end])
                self.plain_bytes -= end - start
            else:
                self._head_bytes = 0
                self._others.append(field)

    def read(self, hold: Hold) -> Inference:
        """RequestError for malformed messages, and if `hold` cannot grow enough."""
        head = self._head
        if head is None:
            head = _read_head(self._reader, self._others, hold, bool(self._raw))
            if self._head_bytes and self.plain_bytes <= HEAD_BYTES and not any(there for _, there in head.inputs):
                _known_heads.keep(len(self._data), (self._data[: self._head_bytes], head))
        return _whole(head, self._raw)


def _whole(head: _Head, raw: List[memoryview]) -> Inference:
    tensors = []
    if raw and len(raw) != len(head.inputs):
        raise malformed(f"{len(raw)} raw_input_contents for {len(head.inputs)} inputs")
    for number, (tensor, there) in enumerate(head.inputs):
        if raw:
            if there:
                raise malformed(f"input {quoted(tensor.name)}: has both contents and raw_input_contents")
            tensor = Tensor(tensor.name, tensor.datatype, tensor.shape, raw[number])
        elif tensor.datatype not in CONTENTS:
            datatype = quoted(tensor.datatype)
            raise malformed(f"input {quoted(tensor.name)}: {datatype} comes in raw_input_contents")
        tensors.append(tensor)
    return Inference(head.model, head.version, Request(head.id, tensors, head.wanted, True, head.timeout))


class _Reader:
    """Counts fields; a message has at most FIELDS."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = FIELDS
        self.begin = 0  # of the last field

    def fields(self, at: int, end: int) -> Iterator[_Field]:
        """The fields of the message in data[at:end]."""
        data = self.data
        while at < end:
            self.left -= 1
            if self.left < 0:
                raise malformed(f"the message has more than {FIELDS} fields")
            self.begin = at
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = self.varint(at - 1, end)
            number, kind, value, start = tag >> 3, tag & 7, 0, at
            if kind == _BYTES:
                value, start = self.varint(at, end)
                at = start + value
            elif kind == _VARINT:
                value, at = self.varint(at, end)
            elif kind == _FOUR:
                at += 4
            elif kind == _EIGHT:
                at += 8
            else:
                raise malformed("the message is no ModelInferRequest: it has a group, or is cut up")
            if at > end or number == 0:
                raise malformed("the message is no ModelInferRequest: it ends within a field")
            yield number, kind, start, at, value

    def varint(self, at: int, end: int) -> Tuple[int, int]:
        """A number and its end."""
        data, number, shift = self.data, 0, 0
        while at < end and shift < 70:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & 0xFFFFFFFFFFFFFFFF, at
            shift += 7
        raise malformed("the message is no ModelInferRequest: it ends within a number")

    def text(self, start: int, end: int, what: str) -> str:
        if end - start > TEXT_BYTES:
            raise malformed(f"{what} has {end - start} bytes: at most {TEXT_BYTES}")
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError:
            raise malformed(f"{what} is no UTF-8") from None


def _read_head(reader: _Reader, fields: List[_Field], hold: Hold, raw: bool) -> _Head:
    texts = {1: "", 2: "", 3: ""}
    inputs: List[Tuple[Tensor, bool]] = []
    wanted: List[Wanted] = []
    parameters: Dict[str, Any] = {}
    for number, kind, start, end, _ in fields:
        if kind != _BYTES:
            continue
        if number in texts:
            texts[number] = reader.text(start, end, ("", "model_name", "model_version", "id")[number])
        elif number == 4:
            _parameter(reader, start, end, parameters)
        elif number in (5, 6):
            if len(inputs) + len(wanted) == ENTRIES:
                raise malformed(f"more than {ENTRIES} inputs and outputs")
            if number == 5:
                inputs.append(_input(reader, start, end, hold, raw))
            else:
                wanted.append(_output(reader, start, end))
    return _Head(texts[1], texts[2], texts[3], timeout_of(parameters), inputs, wanted)


def _output(reader: _Reader, at: int, end: int) -> Wanted:
    name, parameters = "", {}  # type: str, Dict[str, Any]
    for number, kind, start, stop, _ in reader.fields(at, end):
        if kind == _BYTES and number == 1:
            name = reader.text(start, stop, "an output's name")
        elif kind == _BYTES and number == 2:
            _parameter(reader, start, stop, parameters)
    return wanted_of(name, parameters, True)


def _parameter(reader: _Reader, at: int, end: int, into: Dict[str, Any]) -> None:
    """An entry of map<string, InferParameter>."""
    key, value = "", None  # type: str, Any
    for number, kind, start, stop, _ in reader.fields(at, end):
        if kind == _BYTES and number == 1:
            key = reader.text(start, stop, "a parameter's name")
        elif kind == _BYTES and number == 2:
            for choice, how, first, last, given in reader.fields(start, stop):
                if how == _VARINT and choice == 1:
                    value = given != 0
                elif how == _VARINT and choice in (2, 5):
                    value = given - (1 << 64) if choice == 2 and given >> 63 else given
                elif how == _BYTES and choice == 3:
                    value = reader.text(first, last, "a parameter")
                elif how == _EIGHT and choice == 4:
                    (value,) = struct.unpack_from("<d", reader.data, first)
    into[key] = value


def _input(reader: _Reader, at: int, end: int, hold: Hold, raw: bool) -> Tuple[Tensor, bool]:
    """An InferInputTensor, and whether it has contents. Its parameters are ignored."""
    name, datatype = "", ""
    shape: List[int] = []
    contents: List[Tuple[int, int]] = []
    for number, kind, start, stop, value in reader.fields(at, end):
        if number == 3 and kind in (_VARINT, _BYTES):
            if kind == _VARINT:
                shape.append(_signed(value))
            while kind == _BYTES and start < stop and len(shape) <= MAX_RANK:
                value, start = reader.varint(start, stop)
                shape.append(_signed(value))
            if len(shape) > MAX_RANK:
                raise malformed(f"input {quoted(name)}: a shape of more than {MAX_RANK} dimensions")
        elif kind == _BYTES:
            if number == 1:
                name = reader.text(start, stop, "an input's name")
            elif number == 2:
                datatype = reader.text(start, stop, "a datatype")
            elif number == 5:
                contents.append((start, stop))
    whole = checked_shape(shape, name)
    data: Data = ()
    if contents and not raw and datatype in CONTENTS:
        data = _elements(reader, contents, datatype, hold)
    return Tensor(name, datatype, whole, data), bool(contents)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _elements(reader: _Reader, contents: List[Tuple[int, int]], datatype: str, hold: Hold) -> Data:
    """The field of `datatype` in an InferTensorContents, which may come in parts."""
    wanted = CONTENTS[datatype][0]
    alone = {6: _FOUR, 7: _EIGHT, 8: _BYTES}.get(wanted, _VARINT)  # of an unpacked element
    view = memoryview(reader.data)
    parts: List[memoryview] = []
    for at, end in contents:
        for number, kind, start, stop, _ in reader.fields(at, end):
            if number == wanted and kind in (_BYTES, alone):
                parts.append(view[start:stop])
    return parts if wanted == 8 else Contents(parts, hold)


class Contents(TextOfNumbers):
    """Numbers, packed in parts or single. Their memory is taken from `hold`."""

    def __init__(self, parts: List[memoryview], hold: Hold) -> None:
        self._parts, self._hold = parts, hold

    def array(self, name: str, datatype: str, shape: Shape, dtype: np.dtype[Any]) -> Array:
        wanted, there = CONTENTS[datatype]
        count = math.prod(shape)
        parts = self._parts
        what = f"input {quoted(name)}"
        fixed = dtype.itemsize if wanted in (6, 7) else 0
        if any(len(part) % fixed if fixed else len(part) and part[-1] >= 0x80 for part in parts):
            raise malformed(f"{what}: its contents end within an element")
        if len(parts) > 1:
            self._hold.grow(sum(map(len, parts)), what)
            parts = [memoryview(b"".join(parts))]
        view = parts[0] if parts else memoryview(b"")
        if fixed:
            found: Array = np.frombuffer(view, dtype)
        else:
            found = self._numbers(np.frombuffer(view, np.uint8), count, there, dtype, what, datatype)
        if len(found) != count:
            raise malformed(f"{what}: {len(found)} elements, but shape {list(shape)} has {count}")
        return found.reshape(shape)

    def _numbers(self, stream: Array, count: int, there: Any, dtype: np.dtype[Any], what: str,
                 datatype: str) -> Array:  # fmt: skip
        """`count` varints, or none. `there`: the type to which they are truncated, as in protobuf."""
        blocks = [slice(at, at + BLOCK) for at in range(0, len(stream), BLOCK)]
        ended = sum(int(np.count_nonzero(stream[block] < 0x80)) for block in blocks)
        if ended != count:
            raise malformed(f"{what}: {ended} elements, but its shape has {count}")
        self._hold.grow(count * dtype.itemsize, what)
        found: Array = np.empty(count, dtype)
        at = done = 0
        while at < len(stream):
            part = stream[at : at + BLOCK]
            ends = np.flatnonzero(part < 0x80)
            values = None if not len(ends) else _of_block(part, ends)
            if values is None:
                raise malformed(f"{what}: a number of more than ten bytes")
            at += int(ends[-1]) + 1
            if there is not None:
                values = values.astype(there)
                limits = np.iinfo(dtype)
                if int(values.min()) < limits.min or int(values.max()) > limits.max:
                    raise malformed(f"{what}: 'data' goes beyond {datatype}")
            found[done : done + len(ends)] = values
            done += len(ends)
        return found


def _of_block(part: Array, ends: Array) -> Optional[Array]:
    """The numbers that end at `ends`; None if one has more than ten bytes."""
    if len(ends) == ends[-1] + 1:  # all have one byte
        return part[: len(ends)].astype(np.uint64)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > 10:
        return None
    values = np.zeros(len(ends), np.uint64)
    for byte in range(longest):
        longer = lengths > byte
        more = (part[starts[longer] + byte] & 0x7F).astype(np.uint64)
        values[longer] |= more << np.uint64(7 * byte)
    return values


def appended(parts: List[Any], number: int, data: Any) -> None:
    """Appends field `number`, of bytes, to the parts of a message."""
    size, head = len(data), bytearray([number << 3 | _BYTES])
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    parts += (bytes(head), data)
