"""Turns a column of pictures into classes and errors: shared by the workers of Ray and Spark."""

from __future__ import annotations

import threading
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np

from .classifier import CardOrPath, ModelOrPath
from .errors import Error
from .photos import PhotoResult, Pipeline

# The classes of a row, best first, or None and the error of its picture.
Outcome = Tuple[Optional[List[Dict[str, Any]]], Optional[str]]

# No paths: a row comes from outside, and must not open files on the worker.
_PICTURES = (bytes, bytearray, memoryview, np.ndarray)


def described(error: Error) -> str:
    """Text for the column `error`. The kind comes first, so that a query can group by it."""
    return f"{error.kind}: {error}"


class Rows:
    """A Pipeline for columns. Concurrent calls run one after the other."""

    def __init__(self, model: Optional[ModelOrPath], card: Optional[CardOrPath], *, device: str, **how: Any) -> None:
        self._pipeline, self._lock = Pipeline(model, card, devices=[device], **how), threading.Lock()

    def __call__(self, cells: Iterable[Any]) -> List[Outcome]:
        """One for each cell, in order. An invalid or missing picture is an error of its row. DeviceError is raised."""
        cells = list(cells)
        pictures = (cell if isinstance(cell, _PICTURES) else None for cell in cells)
        with self._lock:
            return [self._outcome(cell, result) for cell, result in zip(cells, self._pipeline.classify(pictures))]

    def _outcome(self, cell: Any, result: PhotoResult) -> Outcome:
        if result.error is None:
            return [{"index": of.index, "label": of.label or None, "prob": of.prob} for of in result.classes], None
        if isinstance(cell, _PICTURES):
            return None, described(result.error)
        what = "null" if cell is None else type(cell).__name__
        return None, f"invalid argument: a picture is encoded bytes or an array of uint8, no {what}"
