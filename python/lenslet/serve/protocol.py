"""What an inference request and its answer are, whichever of HTTP and gRPC carried them.

The Open Inference Protocol (KServe v2): a request names a model and holds tensors, each with a name, a datatype
("FP32"), a shape and its elements; an answer likewise. Everything in a request is hostile until `tensor` and
`Answer` have checked it: what is wrong is a RequestError of one line.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Dict, Generic, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

MAX_RANK = 8
MAX_ELEMENTS = 1 << 59
#: KnownHeads has so many, of at most so many bytes each.
KNOWN_HEADS, HEAD_BYTES = 64, 4096
#: Datatypes of the protocol, by NumPy's name of the element type. BF16 is not there: NumPy has no such type.
DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip

Shape = Tuple[int, ...]
Array = np.ndarray[Any, Any]
Buffer = Union[bytes, bytearray, memoryview]
T = TypeVar("T")


class KnownHeads(Generic[T]):
    """What was read of the last requests' heads: a client's requests mostly differ in their tensors alone. Of heads
    without elements only. In the event loop's thread: what is read aside is longer."""

    def __init__(self) -> None:
        self._known: Dict[Any, T] = {}
        self.get = self._known.get

    def keep(self, head: object, read: T) -> None:
        while len(self._known) >= KNOWN_HEADS:
            del self._known[next(iter(self._known))]
        self._known[head] = read


class TextOfNumbers:
    """Numbers as JSON or gRPC wrote them, read when it is known that the model takes so many (json_text.py, wire.py)."""

    def array(self, name: str, datatype: str, shape: Shape, dtype: np.dtype[Any]) -> Array:
        raise NotImplementedError


class LongText:
    """A string of JSON that is read when it is known what for."""

    def string(self) -> str:
        """RequestError."""
        raise NotImplementedError

    def decoded(self) -> Buffer:
        """From base64. binascii.Error."""
        raise NotImplementedError


#: Of a tensor in a request: its bytes as they lie in memory (little-endian; of BYTES each element behind its length in
#: four bytes), or a sequence of values, of BYTES nested or not.
Data = Union[Buffer, TextOfNumbers, Sequence[Any]]


class RequestError(Exception):
    """A request that is not done: `kind` counts it in the metrics, `status` is HTTP's, `grpc` names gRPC's code."""

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
    """What a client sent, for a message: no control characters, not long."""
    shown = ascii(text)
    return shown if len(shown) <= 80 else shown[:77] + "..."


class Tensor(NamedTuple):
    """One input of a request as it came."""

    name: str
    datatype: str
    shape: Shape
    data: Data
    base64: bool = False  # of BYTES in JSON: the strings are base64


class Wanted(NamedTuple):
    """One output that a request asks for."""

    name: str
    binary: bool = False
    classes: int = 0  # > 0: the so many best classes in place of the elements


class Request(NamedTuple):
    id: str
    inputs: List[Tensor]
    wanted: List[Wanted]  # empty: all outputs
    binary: bool = False  # of outputs that are not in `wanted`
    timeout: float = 0  # seconds until it is answered or given up; 0: the server's


class Result(NamedTuple):
    """One output of an answer: an array, or strings (datatype BYTES) in row-major order."""

    name: str
    datatype: str
    shape: Shape
    values: Union[Array, List[bytes]]
    binary: bool

    def raw(self) -> bytes:
        """Its bytes, as `Data` has them."""
        if isinstance(self.values, list):
            return b"".join(struct.pack("<I", len(value)) + value for value in self.values)
        return self.values.tobytes()

    def view(self) -> Buffer:
        """The same, without a copy where there is none to be made."""
        if isinstance(self.values, list):
            return self.raw()
        return self.values.reshape(-1).view(np.uint8).data


def checked_shape(shape: object, name: str) -> Shape:
    """`shape` as a tuple of dimensions >= 0; at most MAX_RANK of them."""
    if not isinstance(shape, (list, tuple)) or any(type(dim) is not int for dim in shape):
        raise malformed(f"input {quoted(name)}: 'shape' is no list of integers")
    if len(shape) > MAX_RANK or any(not 0 <= dim < 2**31 for dim in shape):
        raise malformed(f"input {quoted(name)}: no shape is {quoted(list(shape))}")
    if math.prod(dim or 1 for dim in shape) > MAX_ELEMENTS:  # NumPy has none such, be it empty
        raise malformed(f"input {quoted(name)}: no tensor is of shape {quoted(list(shape))}")
    return tuple(shape)


def array_of(tensor: Tensor, dtype: np.dtype[Any]) -> Array:
    """The tensor's elements, which are numbers or truth values; a view where its bytes came."""
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
    # Sizes first: of an empty list NumPy makes float64.
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
    with np.errstate(over="ignore"):  # a float beyond the type is infinite, as when a file is read
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
    """JSON's "parameters" of `where`, an object or nothing."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise malformed(f"{where}: 'parameters' is no object")
    return value


def timeout_of(parameters: Dict[str, Any]) -> float:
    """Seconds, of a request's parameter "timeout", which is in microseconds; 0: it has none."""
    timeout = parameters.get("timeout", 0)
    if type(timeout) is not int or not 0 <= timeout < 2**63:
        raise malformed("'timeout' is a number of microseconds")
    return timeout / 1e6


def wanted_of(name: object, parameters: Dict[str, Any], binary: Optional[bool]) -> Wanted:
    """An output asked for, by its parameters "binary_data" and "classification". `binary`: its default."""
    if not isinstance(name, str):
        raise malformed("an output has no 'name'")
    asked = parameters.get("binary_data", binary)
    classes = parameters.get("classification", 0)
    if not isinstance(asked, bool):
        raise malformed(f"output {quoted(name)}: 'binary_data' is true or false")
    if type(classes) is not int or not 0 <= classes < 2**31:
        raise malformed(f"output {quoted(name)}: 'classification' is a number of classes")
    return Wanted(name, asked, classes)
