"""The structs of lenslet/lenslet.h, lenslet/lenslet_photos.h and python/native/python.h, for ctypes.
tests/python/structs_test.py compares them with the headers."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from typing import List, TypeVar

MAX_RANK = 8
ON_HOST, ON_CUDA = 0, 1

PLAN_ALGORITHM_WHERE_ACCEPTED = 1
PLAN_KEEP_ALL_VALUES = 2
PLAN_SYNC_EACH_STEP = 4
PLAN_FLUSH_DENORMALS = 8


class Tensor(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("bytes", c_size_t),
        ("dtype", c_int32),
        ("memory", c_int32),
        ("rank", c_int32),
        ("reserved", c_int32),
        ("dims", c_int64 * MAX_RANK),
    ]


class Port(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("dtype", c_int32),
        ("rank", c_int32),
        ("dims", c_int64 * MAX_RANK),
        ("dim_names", c_char_p * MAX_RANK),
        ("unread", c_int32),
        ("reserved", c_int32),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("runner", c_void_p),
        ("inputs", c_void_p),
        ("input_count", c_size_t),
        ("outputs", c_void_p),
        ("output_count", c_size_t),
        ("options", c_void_p),
    ]


class LoadOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("external_data_dir", c_char_p),
        ("name", c_char_p),
        ("overridden", ctypes.POINTER(c_char_p)),
        ("overridden_count", c_size_t),
    ]


class NamedShape(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("rank", c_int32),
        ("reserved", c_int32),
        ("dims", c_int64 * MAX_RANK),
    ]


class LayerAlgorithm(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("layer", c_char_p), ("algorithm", c_char_p)]


class NamedTensor(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("tensor", ctypes.POINTER(Tensor))]


class PlanOptions(ctypes.Structure):
    kept: List[object]  # arrays that its tensors point to

    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_char_p),
        ("precision", c_char_p),
        ("conv_algorithm", c_char_p),
        ("batch", c_int64),
        ("threads", c_int32),
        ("reserved", c_int32),
        ("flags", c_uint64),
        ("other_shapes", c_uint64),
        ("shapes", ctypes.POINTER(NamedShape)),
        ("shape_count", c_size_t),
        ("executor", c_void_p),
        ("allocator", c_void_p),
        ("layer_algorithms", ctypes.POINTER(LayerAlgorithm)),
        ("layer_algorithm_count", c_size_t),
        ("disabled_passes", ctypes.POINTER(c_char_p)),
        ("disabled_pass_count", c_size_t),
        ("calibration", ctypes.POINTER(Tensor)),
        ("calibration_count", c_size_t),
        ("input_values", ctypes.POINTER(NamedTensor)),
        ("input_value_count", c_size_t),
    ]


class RunOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("cancel", c_void_p), ("cuda_stream", c_void_p)]


class Event(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("op", c_char_p),
        ("algorithm", c_char_p),
        ("ms", c_double),
        ("step", c_int32),
        ("reserved", c_int32),
        ("inputs", c_size_t),
        ("outputs", c_size_t),
        ("values", c_void_p),
    ]


Observer = CFUNCTYPE(c_int32, ctypes.POINTER(Event))


class Picture(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("file", c_char_p),
        ("bytes", c_void_p),
        ("size", c_size_t),
        ("height", c_int64),
        ("width", c_int64),
        ("channels", c_int32),
        ("reserved", c_int32),
    ]


class Detection(ctypes.Structure):
    _fields_ = [
        ("left", c_double),
        ("top", c_double),
        ("right", c_double),
        ("bottom", c_double),
        ("score", c_double),
        ("index", c_int64),
        ("label", c_char_p),
    ]


class PhotoOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("devices", ctypes.POINTER(c_char_p)),
        ("device_count", c_size_t),
        ("labels", c_char_p),
        ("batch", c_int64),
        ("threads", c_int32),
        ("unordered", c_int32),
        ("top", c_uint64),
        ("count", c_uint64),
        ("plan", ctypes.POINTER(PlanOptions)),
        ("gpu_decode", c_int32),
        ("reserved", c_int32),
    ]


class Photo(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("bytes", c_void_p), ("size", c_size_t)]


class PhotoClass(ctypes.Structure):
    _fields_ = [("index", c_int64), ("label", c_char_p), ("prob", c_float), ("reserved", c_int32)]


class PhotoResult(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("index", c_uint64),
        ("name", c_char_p),
        ("device", c_char_p),
        ("classes", ctypes.POINTER(PhotoClass)),
        ("class_count", c_size_t),
        ("error", c_char_p),
        ("status", c_int32),
        ("decoded_on_gpu", c_int32),
        ("decode_ms", c_double),
        ("prepare_ms", c_double),
        ("run_ms", c_double),
    ]


S = TypeVar("S", bound=ctypes.Structure)


def made(kind: type[S]) -> S:
    """A struct with its size and all other members 0, which are the defaults."""
    struct = kind()
    struct.struct_size = ctypes.sizeof(kind)
    return struct
