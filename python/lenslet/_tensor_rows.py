"""Runs columns of tensors through a model, row by row in batches of the planned size."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ._dtypes import NUMBERS, numpy_dtype
from ._rows import described
from .errors import Error, InvalidArgumentError
from .model import Model

Array = np.ndarray[Any, Any]


class TensorRows:
    """`inputs`: {"the model's input": "column"}. `columns` are those columns, in the order of the model's inputs.

    InvalidArgumentError if the model's inputs and `inputs` differ, or if an input or output does not begin with the
    batch axis, so that results could not be assigned to rows.
    """

    columns: List[str]

    def __init__(self, model: Model, inputs: Mapping[str, str], **how: Any) -> None:
        self._runner = model.runner(**how)
        read = [port for port in self._runner.inputs if not port.unread]
        names = [port.name for port in read]
        if set(names) != set(inputs):
            raise InvalidArgumentError(f"inputs names {sorted(inputs)}; the model's inputs are {sorted(names)}")
        self.columns = [inputs[name] for name in names]
        ports = (*read, *self._runner.outputs)
        for port in ports:
            if not port.shape or not ports[0].shape or port.shape[0] != ports[0].shape[0]:
                raise InvalidArgumentError(f"{port.name} {port.shape}: its first axis is not the batch's")
        self._slots = {port.name: np.empty(_dims(port.shape), _dtype(port.dtype)) for port in read}
        self._size = len(self._slots[names[0]])

    def __call__(self, columns: Sequence[Sequence[Any]]) -> Tuple[Dict[str, Array], List[Optional[str]]]:
        """The outputs [rows, ...] by name, and each row's error or None; with an error its outputs mean nothing."""
        count = len(columns[0])
        results = {
            port.name: np.zeros((count, *_dims(port.shape)[1:]), _dtype(port.dtype)) for port in self._runner.outputs
        }
        errors: List[Optional[str]] = []
        for start in range(0, count, self._size):
            taken = min(self._size, count - start)
            errors += [self._place(slot, [column[start + slot] for column in columns]) for slot in range(taken)]
            for name, values in self._runner(self._slots).items():  # type: ignore[union-attr]
                results[name][start : start + taken] = values[:taken]
        return results, errors

    def _place(self, slot: int, cells: Sequence[Any]) -> Optional[str]:
        """Zeros if a cell does not fit: the old content belongs to another row, and may be slow to compute with."""
        try:
            for (name, slots), cell in zip(self._slots.items(), cells):
                value = np.asarray(cell)
                if value.shape != slots.shape[1:]:
                    raise InvalidArgumentError(f"{name}: {list(value.shape)} instead of {list(slots.shape[1:])}")
                np.copyto(slots[slot], value, casting="same_kind")
        except (Error, TypeError, ValueError, RuntimeError) as error:  # PyTorch's are RuntimeErrors
            for slots in self._slots.values():
                slots[slot] = 0
            return described(error if isinstance(error, Error) else InvalidArgumentError(str(error)))
        return None


def _dims(shape: Optional[Tuple[Any, ...]]) -> Tuple[int, ...]:
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        raise InvalidArgumentError(f"shape {shape}: tensors of rows are of one shape, known before the run")
    return shape


def _dtype(name: str) -> np.dtype[Any]:
    return numpy_dtype(NUMBERS[name])
