"""Inference requests and answers, independent of HTTP and gRPC.

The Open Inference Protocol (KServe v2): a request names a model and holds tensors, each with a name, a datatype
("FP32"), a shape and its elements; an answer likewise. Everything in a request is hostile until `tensor` and `Answer`
have checked it; errors are RequestErrors of one line.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Dict, Generic, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

MAX_RANK = 8
MAX_ELEMENTS = 1 << 59
#: Size of KnownHeads, and maximum bytes of a head.
KNOWN_HEADS, HEAD_BYTES = 64, 4096
#: Datatypes of the protocol, by NumPy's name of the element type. BF16 is missing: NumPy has no such type.
DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip

Shape = Tuple[int, ...]
Array = np.ndarray[Any, Any]
Buffer = Union[bytes, bytearray, memoryview]
T = TypeVar("T")


class KnownHeads(Generic[T]):
    """Caches parsed heads of the last requests, since a client's requests mostly differ only in their tensors. Only
    heads without elements, and only in the event loop's thread: longer ones are parsed elsewhere."""

    def __init__(self) -> None:
        self._known: Dict[Any, T] = {}
        self.get = self._known.get

    def keep(self, head: object, read: T) -> None:
        while len(self._known) >= KNOWN_HEADS:
            del self._known[next(iter(self._known))]
        self._known[head] = read


class TextOfNumbers:
    """Numbers as text of JSON or gRPC, parsed once the model is known to take as many (json_text.py, wire.py)."""

    def array(self, name: str, datatype: str, shape: Shape, dtype: np.dtype[Any]) -> Array:
        raise NotImplementedError


class LongText:
    """A JSON string that is decoded once its use is known."""

    def string(self) -> str:
        """RequestError."""
        raise NotImplementedError

    def decoded(self) -> Buffer:
        """Decodes base64. binascii.Error."""
        raise NotImplementedError


#: Data of a tensor in a request: its bytes in memory order (little-endian; each BYTES element follows its length in
#: four bytes), or a sequence of values, for BYTES nested or not.
Data = Union[Buffer, TextOfNumbers, Sequence[Any]]


class RequestError(Exception):
    """A refused request: `kind` counts it in the metrics, `status` is HTTP's, `grpc` is the name of gRPC's code."""

    #: kind: (HTTP status, name of gRPC's)
    CODES = {
        "malformed": (400, "INVALID_ARGUMENT"),
        "image": (400, "INVALID_ARGUMENT"),
        "unknown": (404, "NOT_FOUND"),
        "method": (405, "UNIMPLEMENTED"),
        "coding": (501, "UNIMPLEMENTED"),
        "timeout": (408, "DEADLINE_EXCEEDED"),
        "too_large": (413, "RESOURCE_EXHAUSTED"),
        "encoding": (415, "INVALID_ARGUMENT"),
        "queue_full": (429, "RESOURCE_EXHAUSTED"),
        "run": (500, "INTERNAL"),
        "memory": (503, "RESOURCE_EXHAUSTED"),
        "stopping": (503, "UNAVAILABLE"),
        "deadline": (504, "DEADLINE_EXCEEDED"),
    }

    def __init__(self, kind: str, line: str) -> None:
        super().__init__(" ".join(line.split()))
        self.kind = kind
        self.status, self.grpc = self.CODES[kind]


def malformed(line: str) -> RequestError:
    return RequestError("malformed", line)


def quoted(text: object) -> str:
    """A client's text for a message: shortened, without control characters."""
    shown = ascii(text)
    return shown if len(shown) <= 80 else shown[:77] + "..."


class Tensor(NamedTuple):
    """One input of a request as received."""

    name: str
    datatype: str
    shape: Shape
    data: Data
    base64: bool = False  # for BYTES in JSON: the strings are base64


class Wanted(NamedTuple):
    """One output that a request asks for."""

    name: str
    binary: bool = False
    classes: int = 0  # > 0: the number of best classes to return in place of the elements


class Request(NamedTuple):
    id: str
    inputs: List[Tensor]
    wanted: List[Wanted]  # empty: all outputs
    binary: bool = False  # for outputs that are not in `wanted`
    timeout: float = 0  # seconds until an answer or an error; 0: the server's default


class Boxes(NamedTuple):
    """Which boxes a request asks for: lenslet.Detector.detect()'s arguments."""

    threshold: float
    iou: float
    top: int


class Result(NamedTuple):
    """One output of an answer: an array, or strings (datatype BYTES) in row-major order."""

    name: str
    datatype: str
    shape: Shape
    values: Union[Array, List[bytes]]
    binary: bool

    def raw(self) -> bytes:
        """Its bytes, as in `Data`."""
        if isinstance(self.values, list):
            return b"".join(struct.pack("<I", len(value)) + value for value in self.values)
        return self.values.tobytes()

    def view(self) -> Buffer:
        """The same, without a copy if possible."""
        if isinstance(self.values, list):
            return self.raw()
        return self.values.reshape(-1).view(np.uint8).data


def checked_shape(shape: object, name: str) -> Shape:
    """`shape` as a tuple of at most MAX_RANK dimensions >= 0."""
    if not isinstance(shape, (list, tuple)) or any(type(dim) is not int for dim in shape):
        raise malformed(f"input {quoted(name)}: 'shape' is no list of integers")
    if len(shape) > MAX_RANK or any(not 0 <= dim < 2**31 for dim in shape):
        raise malformed(f"input {quoted(name)}: no shape is {quoted(list(shape))}")
    if math.prod(dim or 1 for dim in shape) > MAX_ELEMENTS:  # NumPy does not support it, even if it is empty
        raise malformed(f"input {quoted(name)}: no tensor is of shape {quoted(list(shape))}")
    return tuple(shape)


def array_of(tensor: Tensor, dtype: np.dtype[Any]) -> Array:
    """The tensor's elements, numbers or booleans; a view if its bytes were received."""
    count = math.prod(tensor.shape)
    data = tensor.data
    if isinstance(data, TextOfNumbers):
        return data.array(tensor.name, tensor.datatype, tensor.shape, dtype)
    if isinstance(data, (bytes, bytearray, memoryview)):
        if len(data) != count * dtype.itemsize:
            raise malformed(
                f"input {quoted(tensor.name)}: {len(data)} bytes, but {tensor.datatype} {list(tensor.shape)} "
                f"are {count * dtype.itemsize}"
            )
        array = np.frombuffer(data, np.uint8 if dtype == np.bool_ else dtype)
        if dtype == np.bool_:
            if (array > 1).any():
                raise malformed(f"input {quoted(tensor.name)}: a byte of BOOL is 0 or 1")
            array = array.view(np.bool_)
        return array.reshape(tensor.shape)
    try:
        array = np.asarray(data)
    except (ValueError, TypeError, OverflowError):
        raise malformed(f"input {quoted(tensor.name)}: 'data' is ragged, or holds what is no number") from None
    # Sizes first: NumPy makes float64 from an empty list.
    if array.size != count:
        raise malformed(
            f"input {quoted(tensor.name)}: {array.size} elements, but shape {list(tensor.shape)} has {count}"
        )
    kinds = {"b": "b", "u": "iu", "i": "iu", "f": "iuf"}[dtype.kind]
    if count and array.dtype.kind not in kinds:
        raise malformed(f"input {quoted(tensor.name)}: 'data' does not hold {tensor.datatype}")
    if count and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise malformed(f"input {quoted(tensor.name)}: 'data' goes beyond {tensor.datatype}")
    with np.errstate(over="ignore"):  # a float beyond the type's range becomes infinite, as in files
        return array.astype(dtype, copy=False).reshape(tensor.shape)


def strings_of(tensor: Tensor) -> List[Buffer]:
    """The elements of a tensor of BYTES."""
    count = math.prod(tensor.shape)
    data = tensor.data
    found: List[Buffer] = []
    if isinstance(data, (bytes, bytearray, memoryview)):
        view, at = memoryview(data), 0
        while at < len(view):
            end = at + 4
            if end <= len(view):
                end += int.from_bytes(view[at:end], "little")
            if end > len(view) or len(found) == count:
                raise malformed(f"input {quoted(tensor.name)}: BYTES do not end where their lengths say")
            found.append(view[at + 4 : end])
            at = end
    else:
        found = [] if isinstance(data, TextOfNumbers) else _flat_strings(tensor, data, count)
    if len(found) != count:
        raise malformed(
            f"input {quoted(tensor.name)}: {len(found)} elements, but shape {list(tensor.shape)} has {count}"
        )
    return found


def _flat_strings(tensor: Tensor, data: Sequence[Any], count: int) -> List[Buffer]:
    import base64
    import binascii

    found: List[Buffer] = []
    left: List[Any] = [data]
    while left and len(found) <= count:
        value = left.pop()
        if isinstance(value, (bytes, memoryview)):
            found.append(value)
        elif isinstance(value, str):
            try:
                found.append(base64.b64decode(value, validate=True) if tensor.base64 else value.encode())
            except (binascii.Error, ValueError):
                raise malformed(f"input {quoted(tensor.name)}: 'data' is no base64") from None
        elif isinstance(value, LongText):
            try:
                found.append(value.decoded() if tensor.base64 else value.string().encode())
            except (binascii.Error, ValueError):
                raise malformed(f"input {quoted(tensor.name)}: 'data' is no base64") from None
        elif isinstance(value, (list, tuple)):
            left.extend(reversed(value))
        else:
            raise malformed(f"input {quoted(tensor.name)}: 'data' does not hold BYTES")
    return found


def parameters_of(value: object, where: str) -> Dict[str, Any]:
    """JSON's "parameters" in `where`, an object or nothing."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise malformed(f"{where}: 'parameters' is no object")
    return value


def timeout_of(parameters: Dict[str, Any]) -> float:
    """Seconds from a request's parameter "timeout" in microseconds; 0: it has none."""
    timeout = parameters.get("timeout", 0)
    if type(timeout) is not int or not 0 <= timeout < 2**63:
        raise malformed("'timeout' is a number of microseconds")
    return timeout / 1e6


def wanted_of(name: object, parameters: Dict[str, Any], binary: Optional[bool]) -> Wanted:
    """A requested output with its parameters "binary_data" and "classification". `binary`: its default."""
    if not isinstance(name, str):
        raise malformed("an output has no 'name'")
    asked = parameters.get("binary_data", binary)
    classes = parameters.get("classification", 0)
    if not isinstance(asked, bool):
        raise malformed(f"output {quoted(name)}: 'binary_data' is true or false")
    if type(classes) is not int or not 0 <= classes < 2**31:
        raise malformed(f"output {quoted(name)}: 'classification' is a number of classes")
    return Wanted(name, asked, classes)
