"""Finds and opens the native library, and turns its errors into exceptions. Calls release the GIL."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import pathlib
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any, Callable

from . import _structs as structs
from .errors import BY_STATUS, Error, InternalError

API_MAJOR, API_MINOR = 1, 1

Handle = c_void_p
Out = POINTER(c_void_p)
Text = POINTER(c_void_p)  # c_char_p would lose the address, which lenslet_text_free() needs
Tensors = POINTER(structs.Tensor)

# Arguments of functions that return a lenslet_status.
_FUNCTIONS: dict[str, list[Any]] = {
    "lenslet_negotiate": [c_uint32, c_uint32],
    "lenslet_model_load": [c_char_p, POINTER(structs.LoadOptions), Out],
    "lenslet_model_load_bytes": [c_char_p, c_size_t, POINTER(structs.LoadOptions), Out],
    "lenslet_model_free": [Handle],
    "lenslet_model_count": [Handle, POINTER(c_size_t), POINTER(c_size_t)],
    "lenslet_model_input": [Handle, c_size_t, POINTER(structs.Port)],
    "lenslet_model_output": [Handle, c_size_t, POINTER(structs.Port)],
    "lenslet_model_plan_json": [Handle, POINTER(structs.PlanOptions), Text],
    "lenslet_text_free": [c_void_p],
    "lenslet_runner_create": [Handle, POINTER(structs.PlanOptions), Out],
    "lenslet_runner_free": [Handle],
    "lenslet_runner_plan_json": [Handle, Text],
    "lenslet_runner_input": [Handle, c_size_t, POINTER(structs.Port)],
    "lenslet_runner_output": [Handle, c_size_t, POINTER(structs.Port)],
    "lenslet_python_run": [c_void_p],
    "lenslet_runner_result": [Handle, c_size_t, Tensors],
    "lenslet_python_observe": [Handle, structs.Observer],
    "lenslet_event_input": [Handle, c_size_t, Tensors],
    "lenslet_event_output": [Handle, c_size_t, Tensors],
    "lenslet_python_check_layers": [Handle, POINTER(structs.PlanOptions), Tensors, c_size_t, c_char_p, Text],
    "lenslet_python_check_layer": [POINTER(structs.PlanOptions), Tensors, c_size_t, c_char_p, Text],
    "lenslet_cancel_create": [Out],
    "lenslet_cancel_request": [Handle],
    "lenslet_cancel_free": [Handle],
    "lenslet_card_read": [c_char_p, c_char_p, Out],
    "lenslet_card_of": [Handle, c_char_p, c_char_p, c_size_t, Out],
    "lenslet_card_bound": [Handle, Handle, Out],
    "lenslet_card_free": [Handle],
    "lenslet_card_describe": [Handle, Text],
    "lenslet_card_prepare": [Handle, POINTER(structs.Picture), c_void_p, c_size_t],
    "lenslet_card_photo_boxes": [Handle, c_int64, c_int64, c_void_p, c_void_p, c_size_t, c_void_p],
    "lenslet_image_tiles": [*[c_int64] * 5, c_void_p, c_size_t, POINTER(c_size_t)],
    "lenslet_card_top": [Handle, c_void_p, c_size_t, c_size_t, POINTER(c_int64), POINTER(c_float), POINTER(c_size_t)],
    "lenslet_detector_create": [Handle, Handle, c_char_p, POINTER(structs.PlanOptions), Out],
    "lenslet_detector_free": [Handle],
    "lenslet_detector_describe": [Handle, Text],
    "lenslet_detector_detect": [
        Handle, POINTER(structs.Picture), c_double, c_double, c_int64, c_void_p, c_size_t, POINTER(c_size_t),
    ],
    "lenslet_python_prepare": [
        Handle, POINTER(structs.Picture), c_void_p, c_size_t, POINTER(c_int64), POINTER(c_int64),
    ],
    "lenslet_python_boxes": [
        Handle, Handle, Tensors, c_size_t, c_int64, c_int64, c_double, c_double, c_void_p, c_size_t, POINTER(c_size_t),
    ],
    "lenslet_labels_read": [c_char_p, c_int64, Text],
    "lenslet_default_model": [Text],
    "lenslet_photos_create": [Handle, Handle, POINTER(structs.PhotoOptions), Out],
    "lenslet_photos_free": [Handle],
    "lenslet_photos_describe": [Handle, Text],
    "lenslet_photos_capacity": [Handle, POINTER(c_size_t)],
    "lenslet_photos_offer": [Handle, POINTER(structs.Photo), POINTER(c_int32)],
    "lenslet_photos_take": [Handle, c_int32, POINTER(structs.PhotoResult), POINTER(c_int32)],
    "lenslet_classifier_create": [Handle, Handle, c_char_p, POINTER(structs.PlanOptions), Out],
    "lenslet_classifier_free": [Handle],
    "lenslet_classifier_describe": [Handle, Text],
    "lenslet_classifier_prepare": [Handle, POINTER(structs.Picture), c_int64],
    "lenslet_classifier_run": [Handle],
    "lenslet_classifier_top": [Handle, c_int64, c_size_t, POINTER(c_int64), POINTER(c_float), POINTER(c_size_t)],
}


def _file() -> str:
    """LENSLET_LIBRARY is for using the package from the source tree, with the library in the build folder."""
    named = os.environ.get("LENSLET_LIBRARY")
    return named if named else str(pathlib.Path(__file__).parent / "lib" / "liblenslet_python.so")


def _point_to(library: str) -> None:
    """"cublas" or "nvjpeg" from NVIDIA's wheels, which no loader searches. It is opened when it is first needed."""
    variable = "LENSLET_" + library.upper()
    if variable in os.environ:
        return
    nvidia = importlib.util.find_spec("nvidia")
    for root in (nvidia.submodule_search_locations or []) if nvidia is not None else []:
        for folder in ("cu13/lib", library + "/lib"):
            if any((pathlib.Path(root) / folder).glob(f"lib{library}.so.1[23]")):
                os.environ[variable] = str(pathlib.Path(root) / folder)
                return


def _open() -> ctypes.CDLL:
    file = _file()
    try:
        library = ctypes.CDLL(file)
    except OSError as error:
        raise ImportError(f"lenslet's library cannot be opened ({error}); is this a wheel for this machine?") from None
    try:
        for name, arguments in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = c_int32
    except AttributeError as error:
        raise ImportError(f"lenslet's library is of another version than the package: {error}") from None
    for name in ("lenslet_version", "lenslet_last_error", "lenslet_last_error_details"):
        getattr(library, name).restype = c_char_p
    library.lenslet_dtype_bytes.argtypes = [c_int32]
    library.lenslet_dtype_bytes.restype = c_size_t
    library.lenslet_command.argtypes = [c_int, POINTER(c_char_p)]
    library.lenslet_command.restype = c_int
    return library


_point_to("cublas")
_point_to("nvjpeg")
library = _open()


def text_of(value: bytes | None) -> str:
    """Names and messages are UTF-8, except for bytes from a file."""
    return (value or b"").decode("utf-8", "replace")


def last_error(status: int) -> Error:
    """The exception for a nonzero status of this thread's last call."""
    kind = BY_STATUS.get(status, InternalError)
    return kind(text_of(library.lenslet_last_error()), text_of(library.lenslet_last_error_details()))


def check(status: int) -> None:
    if status != 0:
        raise last_error(status)


def taken_text(ask: Callable[[Any], int]) -> str:
    """The text that `ask` stores in a pointer; the native text is freed."""
    text = c_void_p()
    check(ask(ctypes.byref(text)))
    try:
        return text_of(ctypes.cast(text, c_char_p).value)
    finally:
        library.lenslet_text_free(text)


def taken_json(ask: Callable[[Any], int]) -> Any:
    return json.loads(taken_text(ask))


check(library.lenslet_negotiate(API_MAJOR, API_MINOR))
