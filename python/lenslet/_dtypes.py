"""lenslet's element types and NumPy's. ml_dtypes provides those that NumPy lacks, if it is installed."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from .errors import UnsupportedError

# By number (lenslet/lenslet.h).
NAMES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "int2",
    "uint2",
)
NUMBERS = {name: number for number, name in enumerate(NAMES)}
_OF_NUMPY = frozenset(range(NUMBERS["bool"] + 1)) - {NUMBERS["bfloat16"]}


def numpy_dtype(number: int) -> np.dtype[Any]:
    """UnsupportedError if neither NumPy nor ml_dtypes has it."""
    name = NAMES[number]
    if number in _OF_NUMPY:
        return np.dtype(name)
    try:
        made: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
        return made
    except (ImportError, AttributeError):
        raise UnsupportedError(f"{name} has no NumPy type here: install ml_dtypes") from None


def number_of(dtype: np.dtype[Any]) -> int:
    """UnsupportedError for types that no tensor has (strings, complex numbers, another byte order)."""
    number = NUMBERS.get(dtype.name)
    if number is None or not dtype.isnative:
        raise UnsupportedError(f"arrays of {dtype.str if not dtype.isnative else dtype.name} are not taken")
    return number
