"""Turns a column of pictures into classes and errors: shared by the workers of Ray and Spark."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np

from .classifier import Classifier
from .errors import Error

# The classes of a row, best first, or None and the error of its picture.
Outcome = Tuple[Optional[List[Dict[str, Any]]], Optional[str]]

# No paths: a row comes from outside, and must not open files on the worker.
_PICTURES = (bytes, bytearray, memoryview, np.ndarray)


def described(error: Error) -> str:
    """Text for the column `error`. The kind comes first, so that a query can group by it."""
    return f"{error.kind}: {error}"


def outcomes(classifier: Classifier, cells: Iterable[Any], top: int) -> Iterator[Outcome]:
    """One for each cell, in order. An invalid or missing picture is an error of its row. DeviceError is raised."""
    cells, again = itertools.tee(cells)
    pictures = (cell if isinstance(cell, _PICTURES) else None for cell in again)
    for cell, result in zip(cells, classifier.classify_stream(pictures, top)):
        if not isinstance(result, Error):
            yield [{"index": best.index, "label": best.label or None, "prob": best.prob} for best in result], None
        elif isinstance(cell, _PICTURES):
            yield None, described(result)
        else:
            what = "null" if cell is None else type(cell).__name__
            yield None, f"invalid argument: a picture is encoded bytes or an array of uint8, no {what}"
