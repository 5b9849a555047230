"""Ray Data: a class of actors for ``Dataset.map_batches``, one model a worker (docs/scale-out.md).

    pictures = ray.data.read_binary_files(folder, include_paths=True)
    classes = pictures.map_batches(lenslet.ray.Predictor, fn_constructor_args=["net.onnx"], batch_size=64, num_cpus=1,
                                   compute=ray.data.ActorPoolStrategy(min_size=1, max_size=8))
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import pyarrow as pa  # type: ignore[import-not-found,import-untyped,unused-ignore]
import ray  # type: ignore[import-not-found,import-untyped,unused-ignore]
from ray.data.block import BlockAccessor  # type: ignore[import-not-found,import-untyped,unused-ignore]
from ray.data.extensions import ArrowTensorArray  # type: ignore[import-not-found,import-untyped,unused-ignore]

from . import InvalidArgumentError, Model
from ._rows import Rows
from ._tensor_rows import TensorRows
from .classifier import CardOrPath

# The type is explicit, so that blocks with only broken pictures have it, too.
CLASSES = pa.list_(pa.struct([("index", pa.int64()), ("label", pa.string()), ("prob", pa.float32())]))


class Predictor:
    """Maps batches to tables: the given columns without those that were read, plus the computed ones.

    Pictures are read from `column`: encoded bytes, or uint8 [H,W,C]. New columns are `classes`, a list of {index,
    label, prob}, best first, and `error`; one of the two is null. `card` is a Card, a path or a mapping; `card`,
    `labels`, `batch` (pictures computed at once), `threads` and `precision` are as in lenslet.classify_many.

    With `inputs`, {"the model's input": "column"}, rows are tensors without the batch axis, which the model gets
    without preprocessing. New columns are its outputs and `error`. A row that does not fit has null in all of them
    except `error`.

    `model`: a path that every worker has, a file's bytes, an ObjectRef of those (ray.put), or a Model, which is sent as
    its path or bytes; None: the default model in the worker's cache. Threads and device are those that Ray assigns to
    the actor (num_cpus, num_gpus), unless given here. An unusable model, card or device ends the job with a
    lenslet.Error.
    """

    def __init__(
        self,
        model: Union[Model, str, "os.PathLike[str]", bytes, "ray.ObjectRef[bytes]", None] = None,
        card: Optional[CardOrPath] = None,
        *,
        column: str = "bytes",
        inputs: Optional[Mapping[str, str]] = None,
        labels: Union[str, "os.PathLike[str]", Sequence[str], None] = None,
        top: int = 5,
        batch: int = 1,
        device: Optional[str] = None,
        threads: Optional[int] = None,
        precision: Optional[str] = None,
    ) -> None:
        if isinstance(model, ray.ObjectRef):
            model = ray.get(model)
        assigned = _assigned()
        how: Dict[str, Any] = {"device": device or assigned[0], "threads": assigned[1] if threads is None else threads}
        how.update(batch=batch, precision=precision)
        if inputs is None:
            self._columns = [column]
            self._rows = Rows(model, card, labels=labels, top=top, **how)
            self._compute = self._classes
        elif model is None or card is not None or labels is not None:
            raise InvalidArgumentError("tensors (inputs=) go through a model that is named, without card and labels")
        else:
            self._tensor_rows = TensorRows(model if isinstance(model, Model) else Model(model), inputs, **how)
            self._columns, self._compute = self._tensor_rows.columns, self._tensors

    def __call__(self, batch: Union[pa.Table, Mapping[str, Any]]) -> pa.Table:
        """`batch`: a mapping to arrays (map_batches(batch_format="numpy"), the default) or a pyarrow.Table."""
        if not isinstance(batch, (pa.Table, Mapping)):
            raise InvalidArgumentError(f"a batch of {type(batch).__name__}: batch_format is numpy or pyarrow")
        names = list(batch) if isinstance(batch, Mapping) else batch.column_names
        kept = [name for name in names if name not in self._columns]
        missing = [name for name in self._columns if name not in names]
        if missing:
            raise InvalidArgumentError(f"no column {missing[0]!r} among {sorted(names)}")
        columns: Any
        if isinstance(batch, Mapping):
            columns, table = batch, BlockAccessor.batch_to_arrow_block({name: batch[name] for name in kept})
        else:
            columns, table = BlockAccessor.for_block(batch).to_numpy(self._columns), batch.select(kept)
        for name, values in self._compute([columns[name] for name in self._columns]).items():
            if name in kept:
                raise InvalidArgumentError(f"a column {name!r} is there already: rename it")
            table = table.append_column(name, values) if table.num_columns else pa.table({name: values})
        return table

    def _classes(self, columns: Sequence[Any]) -> Dict[str, pa.Array]:
        classes, errors = zip(*self._rows(columns[0])) if len(columns[0]) else ((), ())
        return {"classes": pa.array(classes, CLASSES), "error": pa.array(errors, pa.string())}

    def _tensors(self, columns: Sequence[Any]) -> Dict[str, pa.Array]:
        outputs, errors = self._tensor_rows(columns)
        arrays = {name: _array(values, errors) for name, values in outputs.items()}
        return {**arrays, "error": pa.array(errors, pa.string())}


def _assigned() -> Tuple[str, int]:
    """Device and threads that Ray assigned to this worker; outside of a worker the available ones."""
    context: Any = ray.get_runtime_context() if ray.is_initialized() else None
    if context is None or context.get_actor_id() is None:
        return "auto", 0
    resources = context.get_assigned_resources()  # Ray hides all other GPUs from the worker
    return "cuda" if resources.get("GPU", 0) > 0 else "cpu", max(1, round(resources.get("CPU", 1)))


def _array(values: "np.ndarray[Any, Any]", errors: List[Optional[str]]) -> pa.Array:
    """Ray's tensors, null for rows with an error. Ray's NumPy batches ignore nulls and read the memory below: NaN."""
    good = np.array([error is None for error in errors], bool)
    if values.dtype.kind == "f":
        values[~good] = np.nan
    if values.ndim == 1:
        return pa.array(values, mask=~good)
    tensors = ArrowTensorArray.from_numpy(values)
    if good.all():
        return tensors
    buffers, storage = [pa.array(good).buffers()[1], tensors.storage.buffers()[1]], tensors.storage
    storage = pa.Array.from_buffers(storage.type, len(good), buffers, children=[storage.values])
    return pa.ExtensionArray.from_storage(tensors.type, storage)
