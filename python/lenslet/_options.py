"""How a model is to be run, as lenslet_plan_options."""

from __future__ import annotations

import ctypes
import os
from typing import Mapping, Optional, Sequence

from . import _structs as structs
from .errors import InvalidArgumentError

Shapes = Mapping[str, Sequence[int]]


def encoded(text: str, what: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidArgumentError(f"{what} is a {type(text).__name__}, no string")
    if "\0" in text:
        raise InvalidArgumentError(f"{what} has a zero character")
    return text.encode("utf-8", "surrogateescape")


def whole(value: int, what: str, least: int, most: int) -> int:
    try:
        number = value.__index__()
    except AttributeError:
        raise InvalidArgumentError(f"{what} is a {type(value).__name__}, no whole number") from None
    if not least <= number <= most:
        raise InvalidArgumentError(f"{what} is {number}; it can be {least} to {most}")
    return number


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
) -> structs.PlanOptions:
    """The arguments of Model.runner(). What they mean to a model is the library's to judge."""
    options = structs.made(structs.PlanOptions)
    # As the command: LENSLET_DEVICE stands in for what nobody named.
    options.device = encoded(os.environ.get("LENSLET_DEVICE") or "auto" if device == "auto" else device, "device")
    if precision is not None:
        options.precision = encoded(precision, "precision")
    if algorithm is not None:
        options.conv_algorithm = encoded(algorithm, "algorithm")
        options.flags |= structs.PLAN_ALGORITHM_WHERE_ACCEPTED
    if flush_denormals:
        options.flags |= structs.PLAN_FLUSH_DENORMALS
    options.batch = whole(batch, "batch", 1, 2**40)
    options.threads = whole(threads, "threads", 0, 1024)
    options.other_shapes = whole(other_shapes, "other_shapes", 0, 2**32)
    named = (structs.NamedShape * len(shapes))() if shapes else None
    if named is not None and shapes is not None:
        for struct, (name, dims) in zip(named, shapes.items()):
            if len(dims) > structs.MAX_RANK:
                raise InvalidArgumentError(f"shapes: {name} has {len(dims)} dimensions, at most {structs.MAX_RANK}")
            struct.struct_size = ctypes.sizeof(structs.NamedShape)
            struct.name = encoded(name, "a name in shapes")
            struct.rank = len(dims)
            for axis, dim in enumerate(dims):
                struct.dims[axis] = whole(dim, f"shapes: a dimension of {name}", 0, 2**40)
        options.shapes = named
        options.shape_count = len(named)
    return options
