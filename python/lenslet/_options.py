"""Options of a run as lenslet_plan_options."""

from __future__ import annotations

import ctypes
import os
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from . import _arrays as arrays
from . import _structs as structs
from ._dtypes import NUMBERS, numpy_dtype
from .errors import InvalidArgumentError, UnsupportedError
from .ports import Port

Shapes = Mapping[str, Sequence[int]]


def encoded(text: str, what: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidArgumentError(f"{what} is a {type(text).__name__}, no string")
    if "\0" in text:
        raise InvalidArgumentError(f"{what} has a zero character")
    return text.encode("utf-8", "surrogateescape")


def names(value: Sequence[str], what: str) -> Tuple[Any, int]:
    """As a C array, with its length."""
    if isinstance(value, str):
        raise InvalidArgumentError(f"{what} is a string, no list of names")
    listed = [encoded(name, f"a name in {what}") for name in value]
    return (ctypes.c_char_p * len(listed))(*listed), len(listed)


def mapping(value: Optional[Mapping[str, Any]], what: str) -> Mapping[str, Any]:
    """{} for None."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{what} is a {type(value).__name__}, no mapping from names")
    return {} if value is None else value


def whole(value: int, what: str, least: int, most: int) -> int:
    try:
        number = value.__index__()
    except AttributeError:
        raise InvalidArgumentError(f"{what} is a {type(value).__name__}, no whole number") from None
    if not least <= number <= most:
        raise InvalidArgumentError(f"{what} is {number}; it can be {least} to {most}")
    return number


def default_device(device: str) -> str:
    """As in the command, LENSLET_DEVICE instead of "auto"."""
    return os.environ.get("LENSLET_DEVICE") or "auto" if device == "auto" else device


def plan_options(
    *,
    device: str = "auto",
    threads: int = 0,
    batch: int = 1,
    precision: Optional[str] = None,
    shapes: Optional[Shapes] = None,
    algorithm: Optional[str] = None,
    other_shapes: int = 0,
    flush_denormals: bool = False,
    layer_algorithms: Optional[Mapping[str, str]] = None,
    strict: bool = False,
    disabled_passes: Sequence[str] = (),
    calibration: Any = None,
    input_values: Optional[Mapping[str, Any]] = None,
    ports: Sequence[Port] = (),
) -> structs.PlanOptions:
    """Converts the arguments of Model.runner() for a model with these inputs. The library checks their meaning."""
    options = structs.made(structs.PlanOptions)
    options.kept = []
    options.device = encoded(default_device(device), "device")
    if precision is not None:
        options.precision = encoded(precision, "precision")
    if algorithm is not None:
        options.conv_algorithm = encoded(algorithm, "algorithm")
    if not strict:
        options.flags |= structs.PLAN_ALGORITHM_WHERE_ACCEPTED
    if flush_denormals:
        options.flags |= structs.PLAN_FLUSH_DENORMALS
    options.batch = whole(batch, "batch", 1, 2**40)
    options.threads = whole(threads, "threads", 0, 1024)
    options.other_shapes = whole(other_shapes, "other_shapes", 0, 2**32)
    sized = mapping(shapes, "shapes")
    if sized:
        named = (structs.NamedShape * len(sized))()
        for struct, (name, dims) in zip(named, sized.items()):
            if isinstance(dims, str) or not hasattr(dims, "__len__"):
                raise InvalidArgumentError(f"shapes: {name} is a {type(dims).__name__}, no sequence of whole numbers")
            if len(dims) > structs.MAX_RANK:
                raise InvalidArgumentError(f"shapes: {name} has {len(dims)} dimensions, at most {structs.MAX_RANK}")
            struct.struct_size = ctypes.sizeof(structs.NamedShape)
            struct.name = encoded(name, "a name in shapes")
            struct.rank = len(dims)
            for axis, dim in enumerate(dims):
                struct.dims[axis] = whole(dim, f"shapes: a dimension of {name}", 0, 2**40)
        options.shapes = named
        options.shape_count = len(named)
    _set_layers(options, mapping(layer_algorithms, "layer_algorithms"))
    options.disabled_passes, options.disabled_pass_count = names(disabled_passes, "disabled_passes")
    _set_arrays(options, calibration, mapping(input_values, "input_values"), ports)
    return options


def _set_layers(options: structs.PlanOptions, algorithms: Mapping[str, str]) -> None:
    if not algorithms:
        return
    layers = (structs.LayerAlgorithm * len(algorithms))()
    for struct, (name, algorithm) in zip(layers, algorithms.items()):
        struct.struct_size = ctypes.sizeof(structs.LayerAlgorithm)
        struct.layer = encoded(name, "a layer in layer_algorithms")
        struct.algorithm = encoded(algorithm, f"layer_algorithms: the algorithm of {name}")
    options.layer_algorithms = layers
    options.layer_algorithm_count = len(layers)


def _set_arrays(
    options: structs.PlanOptions, calibration: Any, values: Mapping[str, Any], ports: Sequence[Port]
) -> None:
    if calibration is not None:
        listed = in_order(calibration, ports, "calibration")
        tensors = (structs.Tensor * len(listed))()
        for number, array in enumerate(listed):
            describe(options, tensors[number], array, ports[number] if number < len(ports) else None, "calibration")
        options.calibration = tensors
        options.calibration_count = len(tensors)
    if values:
        known = {port.name: port for port in ports}
        named = (structs.NamedTensor * len(values))()
        for struct, (name, array) in zip(named, values.items()):
            struct.struct_size = ctypes.sizeof(structs.NamedTensor)
            struct.name = encoded(name, "a name in input_values")
            tensor = structs.made(structs.Tensor)
            describe(options, tensor, array, known.get(name), f"input_values: {name}")
            struct.tensor = ctypes.pointer(tensor)
        options.input_values = named
        options.input_value_count = len(named)


def in_order(arrays_of: Any, ports: Sequence[Port], what: str) -> List[Any]:
    """One array for each input: given by name, as a list or tuple in the model's order, or as the only one."""
    if not isinstance(arrays_of, Mapping):
        return list(arrays_of) if isinstance(arrays_of, (list, tuple)) else [arrays_of]
    names = [port.name for port in ports]
    if set(arrays_of) != set(names):
        given = ", ".join(map(str, arrays_of))
        raise InvalidArgumentError(f"{what} names {given}; the inputs are {', '.join(names)}")
    return [arrays_of[name] for name in names]


def describe(
    options: structs.PlanOptions, tensor: structs.Tensor, array: Any, port: Optional[Port], what: str
) -> None:
    tensor.struct_size = ctypes.sizeof(structs.Tensor)
    try:
        planned = None if port is None else numpy_dtype(NUMBERS[port.dtype])
    except UnsupportedError:  # NumPy lacks the type, which matters only for lists
        planned = None
    options.kept.append(arrays.describe_any(tensor, array, planned, what))
