"""lenslet: runs convolutional networks from ONNX files.

    import lenslet
    lenslet.classify("photo.jpg")                       # the default model (`lenslet fetch`)
    runner = lenslet.Model("net.onnx").runner(threads=2)
    scores = runner(x)                                  # NumPy, PyTorch, CuPy, or with DLPack

Errors are subclasses of lenslet.Error, one for each kind. docs/python.md has the details.
"""

from __future__ import annotations

from ._library import library as _native
from ._library import text_of as _text_of
from .cancel import Cancel
from .card import Card, Prediction, read_labels
from .check import LayerCheck, check_layer
from .classifier import Classifier, classify, default_model
from .detector import Detection, Detector
from .errors import (
    CancelledError,
    CardWarning,
    DeviceError,
    Error,
    FileError,
    InternalError,
    InvalidArgumentError,
    InvalidImageError,
    InvalidModelError,
    LimitError,
    UnsupportedError,
)
from .model import Model
from .photos import PhotoResult, classify_many
from .ports import Port
from .runner import LayerEvent, Runner
from .tiles import Rect, image_tiles
from .verbs import quantize, report

__version__: str = _text_of(_native.lenslet_version())

__all__ = [
    "Cancel",
    "CancelledError",
    "Card",
    "CardWarning",
    "Classifier",
    "Detection",
    "Detector",
    "DeviceError",
    "Error",
    "FileError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidImageError",
    "InvalidModelError",
    "LayerCheck",
    "LayerEvent",
    "LimitError",
    "Model",
    "PhotoResult",
    "Port",
    "Prediction",
    "Rect",
    "Runner",
    "UnsupportedError",
    "__version__",
    "check_layer",
    "classify",
    "classify_many",
    "default_model",
    "image_tiles",
    "quantize",
    "read_labels",
    "report",
]
