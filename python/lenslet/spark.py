"""Spark: a column of encoded pictures to classes, one model for each Python worker process (docs/scale-out.md).

    pictures = spark.read.format("binaryFile").load(folder)
    found = pictures.select("path", lenslet.spark.predict_udf("net.onnx")("content").alias("found"))
    found.select("path", "found.classes", "found.error").write.parquet(results)
"""

from __future__ import annotations

import os
import uuid
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Union

import pandas as pd  # type: ignore[import-not-found,import-untyped,unused-ignore]
from pyspark import Broadcast, TaskContext  # type: ignore[import-not-found,import-untyped,unused-ignore]
from pyspark.sql import SparkSession  # type: ignore[import-not-found,import-untyped,unused-ignore]
from pyspark.sql.pandas.functions import pandas_udf  # type: ignore[import-not-found,import-untyped,unused-ignore]

from . import Model
from ._rows import Rows
from .classifier import CardOrPath

RESULT = "classes array<struct<index: bigint, label: string, prob: float>>, error string"


def predict_udf(
    model: Union[Model, str, "os.PathLike[str]", bytes, "Broadcast[bytes]", None] = None,
    card: Optional[CardOrPath] = None,
    *,
    labels: Union[str, "os.PathLike[str]", Sequence[str], None] = None,
    top: int = 5,
    batch: int = 1,
    device: Optional[str] = None,
    threads: Optional[int] = None,
    precision: Optional[str] = None,
) -> Any:
    """A function of a binary column. It returns a struct of `classes`, an array of {index, label, prob}, best first,
    and `error`; one of the two is null. An invalid or missing picture never ends the job.

    `model`: a path that every worker has, a file's bytes, which are broadcast, or a Model, which is sent as its path or
    bytes; None: the default model in the worker's cache. `card` is a Card, a path or a mapping; `card`, `labels`,
    `batch` (pictures computed at once) and `precision` are as in lenslet.classify_many. Unless given here, threads are the
    task's (spark.task.cpus), and the device is the GPU that Spark assigns to the task (resource "gpu"), else the CPU.
    An unusable model, card or device fails the task with a lenslet.Error.
    """
    session: Any = SparkSession.getActiveSession()
    if isinstance(model, bytes) and hasattr(session, "_jsc"):  # over Spark Connect bytes are sent with the function
        model = session.sparkContext.broadcast(model)
    name = uuid.uuid4().hex
    how = {"card": card, "labels": labels, "batch": batch, "top": top, "precision": precision}

    def predict(batches: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
        assigned = _assigned()
        where = (device or assigned[0], assigned[1] if threads is None else threads)
        rows = _rows(name, where, model, how)
        for pictures in batches:
            yield pd.DataFrame(rows(pictures), columns=["classes", "error"], dtype=object)

    make: Any = pandas_udf  # its overloads lack a struct returned by an iterator
    # Otherwise Spark moves a filter by `error` below the function, and computes every picture twice.
    return make(predict, RESULT).asNondeterministic()


# For this worker process, which runs one task after the other: avoids loading and planning a model for each task. It
# keeps the models of a few queries; the oldest are dropped.
_made: Dict[Tuple[str, str, int], Rows] = {}
_KEPT = 4


def _rows(name: str, where: Tuple[str, int], model: Any, how: Mapping[str, Any]) -> Rows:
    made = _made.get((name, *where))
    if made is None:
        source = model.value if isinstance(model, Broadcast) else model
        made = Rows(source, device=where[0], threads=where[1], **how)
        while len(_made) >= _KEPT:
            del _made[next(iter(_made))]
        _made[(name, *where)] = made
    return made


def _assigned() -> Tuple[str, int]:
    """Device and threads that Spark assigned to the task; outside of a task the available ones."""
    task = TaskContext.get()
    if task is None:
        return "auto", 0
    gpu = task.resources().get("gpu")  # Spark does not hide other GPUs from the worker
    return f"cuda:{gpu.addresses[0]}" if gpu and gpu.addresses else "cpu", max(1, int(task.cpus()))
