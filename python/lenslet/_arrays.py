"""Converts arrays of NumPy, PyTorch, CuPy and others with DLPack to lenslet_tensor, and makes new arrays of their
kind."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional, Sequence, Tuple

import numpy as np

from . import _structs as structs
from ._dtypes import NAMES, NUMBERS, number_of, numpy_dtype
from .errors import InvalidArgumentError, UnsupportedError

# Bits of a byte that an element leaves unused.
FREE_BITS = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 6, "uint2": 6}


_from_buffer: Any = ctypes.c_char.from_buffer


def address(array: np.ndarray[Any, Any]) -> int:
    """Address of a contiguous array. The first method takes a third of the second's time, but refuses arrays that are
    read-only, empty, or of ml_dtypes' types."""
    try:
        return ctypes.addressof(_from_buffer(array))
    except (TypeError, ValueError, BufferError):
        return int(array.ctypes.data)


def describe(
    tensor: structs.Tensor, data: int, dtype: int, shape: Sequence[int], itemsize: int, memory: int, what: str
) -> None:
    """Fills a lenslet_tensor."""
    if len(shape) > structs.MAX_RANK:
        raise InvalidArgumentError(f"{what} has {len(shape)} dimensions, at most {structs.MAX_RANK}")
    tensor.data = data
    tensor.dtype = dtype
    tensor.memory = memory
    tensor.rank = len(shape)
    size = itemsize
    for axis, dim in enumerate(shape):
        tensor.dims[axis] = dim
        size *= dim
    tensor.bytes = size


def describe_numpy(tensor: structs.Tensor, array: np.ndarray[Any, Any], what: str, writable: bool = False) -> None:
    """`array` is contiguous; the caller keeps it alive."""
    if writable and not array.flags.writeable:
        raise InvalidArgumentError(f"{what} is read-only")
    describe(tensor, address(array), number_of(array.dtype), array.shape, array.itemsize, structs.ON_HOST, what)


def _clean(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For elements of fewer than 8 bits: ml_dtypes ignores the unused bits, the library needs them sign-extended."""
    free = FREE_BITS.get(array.dtype.name, 0)
    if free == 0:
        return array
    bits = array.view(np.int8 if array.dtype.name.startswith("int") else np.uint8)
    return np.asarray(np.right_shift(np.left_shift(bits, free), free)).view(array.dtype)


def library_of(array: Any) -> Optional[str]:
    """ "torch", "cupy" or None; neither is imported."""
    root = type(array).__module__.partition(".")[0]
    if root in ("torch", "cupy"):
        return root
    if root != "numpy" and "torch" in sys.modules:  # a user's subclass
        tensor = getattr(sys.modules["torch"], "Tensor", None)
        if isinstance(tensor, type) and isinstance(array, tensor):
            return "torch"
    return None


def _torch_number(dtype: Any) -> int:
    name = str(dtype).rpartition(".")[2]  # "torch.float32"
    if name not in NUMBERS:
        raise UnsupportedError(f"tensors of {dtype} are not taken")
    return NUMBERS[name]


def _as_stored(array: Any, what: str, writable: bool) -> Any:
    """PyTorch negates and conjugates lazily by a flag, which readers of the memory do not see, including DLPack's."""
    for bit, asked, resolve in (("conj", "is_conj", "resolve_conj"), ("neg", "is_neg", "resolve_neg")):
        is_set = getattr(array, asked, None)
        if callable(is_set) and is_set():
            if writable:
                raise InvalidArgumentError(f"{what} is a view with the {bit} bit set: its memory is not what it shows")
            array = getattr(array, resolve)()
    return array


def _describe_torch(tensor: structs.Tensor, array: Any, what: str, writable: bool) -> Any:
    array = _as_stored(array, what, writable)
    if array.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"{what} lies on {array.device}: it has to be on the CPU or on a CUDA device")
    if not array.is_contiguous():
        if writable:
            raise InvalidArgumentError(f"{what} is not contiguous")
        array = array.contiguous()
    if array.numel() and not array.data_ptr():  # zeros without memory
        if writable:
            raise InvalidArgumentError(f"{what} has no memory")
        array = array.clone()
    memory = structs.ON_HOST if array.device.type == "cpu" else structs.ON_CUDA
    describe(tensor, array.data_ptr(), _torch_number(array.dtype), array.shape, array.element_size(), memory, what)
    return array


def _describe_cupy(tensor: structs.Tensor, array: Any, what: str, writable: bool) -> Any:
    if not array.flags.c_contiguous:
        if writable:
            raise InvalidArgumentError(f"{what} is not contiguous")
        array = sys.modules["cupy"].ascontiguousarray(array)
    describe(tensor, array.data.ptr, number_of(array.dtype), array.shape, array.itemsize, structs.ON_CUDA, what)
    return array


def describe_any(
    tensor: structs.Tensor, array: Any, planned: np.dtype[Any] | None, what: str, writable: bool = False
) -> Any:
    """Fills `tensor` for any kind of array. Returns what must stay alive while the tensor is used: the array itself, or
    a contiguous copy. Lists and numbers become arrays of the `planned` type. The library checks type and shape."""
    library = library_of(array)
    if library == "torch":
        return _describe_torch(tensor, array, what, writable)
    if library == "cupy":
        return _describe_cupy(tensor, array, what, writable)
    if not isinstance(array, np.ndarray):
        if writable:
            raise InvalidArgumentError(f"{what} is a {type(array).__name__}: NumPy's, PyTorch's or CuPy's is wanted")
        if hasattr(array, "__dlpack__"):
            array = _from_dlpack(array, what)
        elif isinstance(array, (str, bytes)) or array is None:
            raise InvalidArgumentError(f"{what} is a {type(array).__name__}, no array")
        else:
            try:
                array = np.asarray(array, dtype=planned)
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidArgumentError(f"{what} is no array: {error}") from None
    if not array.flags.c_contiguous:
        if writable:
            raise InvalidArgumentError(f"{what} is not contiguous")
        array = np.ascontiguousarray(array)
    if not array.dtype.isnative and not writable:
        array = array.astype(array.dtype.newbyteorder("="))
    if not writable:
        array = _clean(array)
    describe_numpy(tensor, array, what, writable)
    return array


def _from_dlpack(array: Any, what: str) -> np.ndarray[Any, Any]:
    """A view of the array. NumPy accepts host memory."""
    try:
        return np.from_dlpack(_as_stored(array, what, False))
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as error:
        raise UnsupportedError(f"{what}: NumPy does not take it by DLPack: {error}") from None


def current_stream(arrays: Sequence[Any]) -> Optional[int]:
    """The current CUDA stream of the first CUDA array's library."""
    for array in arrays:
        library = library_of(array)
        if library == "torch" and array.device.type == "cuda":
            return int(sys.modules["torch"].cuda.current_stream(array.device).cuda_stream)
        if library == "cupy":
            return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return None


def fresh_like(model: Any, number: int, shape: Tuple[int, ...]) -> Any:
    """An output of the same library and device as `model`, an input of PyTorch or CuPy."""
    if library_of(model) == "torch":
        torch = sys.modules["torch"]
        kind = getattr(torch, NAMES[number], None)
        if kind is None:
            raise UnsupportedError(f"PyTorch has no {NAMES[number]}")
        return torch.empty(shape, dtype=kind, device=model.device)
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(model.device.id):
        return cupy.empty(shape, dtype=numpy_dtype(number))


def copied(result: structs.Tensor) -> np.ndarray[Any, Any]:
    """A new NumPy array with a copy of one of the library's host tensors."""
    shape = tuple(result.dims[axis] for axis in range(result.rank))
    array = np.empty(shape, numpy_dtype(result.dtype))
    if result.bytes:
        ctypes.memmove(address(array), result.data, result.bytes)
    return array
