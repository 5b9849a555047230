"""Compares layers with double-precision references: the rows of ``lenslet verify`` (docs/verify.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import _options as options
from . import _structs as structs
from ._library import library, taken_json
from .errors import InvalidArgumentError
from .ports import Port

Dims = Tuple[int, ...]


@dataclass(frozen=True)
class LayerCheck:
    """A step computed by one kernel, an output of the whole network, or a kernel that refuses a step. str() is one line
    with all that matters."""

    kind: str  # "layer", "output" or "refusal"
    name: str  # of the node, or of the output
    op: str  # "Conv"; "" for an output
    algorithm: str  # the kernel, if the operator has several
    config: str  # its configuration
    device: str  # "cpu", "cuda:0"
    precision: str  # "fp32", "tf32", "fp16", "bf16"
    forced: str  # the algorithm forced in this run
    input_shapes: Tuple[Dims, ...]
    output_shapes: Tuple[Dims, ...]
    error: float  # the largest, as in `measure`
    tolerance: float  # stated by the kernel, as in `measure`
    worst_output: int  # the output of the step with that error,
    worst_element: int  # and the element there, in row-major order
    got: float  # its value,
    exact: float  # and the reference's
    not_finite: int  # elements that are infinite or NaN in the reference, too
    made_nan: int  # elements that became NaN because Winograd or fft mixed them with a neighbour
    beyond_range: int  # elements that are infinite only in the 16 bits that store them
    largest: float  # the largest magnitude of these
    refusal: str  # the kernel's reason
    skipped: str  # why there was no comparison
    ms: float  # median time of the step alone; 0 if none was requested
    runs: int  # number of runs for the median
    judged: bool  # whether it was compared with a reference
    passed: bool  # False if it was compared and is wrong
    measure: str  # "of the element's terms" or "absolute"
    text: str

    def __str__(self) -> str:
        return self.text


_NUMBERS = ("error", "tolerance", "got", "exact", "largest", "ms")  # text for non-finite values


def _rows(found: List[Dict[str, Any]]) -> List[LayerCheck]:
    rows = []
    for row in found:
        for name in _NUMBERS:
            row[name] = float(row[name])
        for name in ("input_shapes", "output_shapes"):
            row[name] = tuple(map(tuple, row[name]))
        rows.append(LayerCheck(**row))
    return rows


def _tensors(plan: structs.PlanOptions, given: Sequence[Any], ports: Sequence[Port]) -> Any:
    tensors = (structs.Tensor * len(given))()
    for number, array in enumerate(given):
        if array is not None:
            port = ports[number] if number < len(ports) else None
            options.describe(plan, tensors[number], array, port, f"input {number}")
    return tensors


def _seconds(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 3600:
        raise InvalidArgumentError(f"seconds is {value!r}; it can be 0 to 3600")
    return float(value)


def check_layers(
    handle: Any, ports: Sequence[Port], *, inputs: Any, seed: int, outputs: bool, seconds: float, **how: Any
) -> List[LayerCheck]:
    """Model.check_layers()."""
    plan = options.plan_options(**how, ports=ports)
    tensors = _tensors(plan, [] if inputs is None else options.in_order(inputs, ports, "inputs"), ports)
    asked = {
        "seed": options.whole(seed, "seed", 0, 2**64 - 1),
        "outputs": bool(outputs),
        "seconds": _seconds(seconds),
    }
    return _rows(
        taken_json(
            lambda text: library.lenslet_python_check_layers(
                handle, plan, tensors, len(tensors), json.dumps(asked).encode(), text
            )
        )
    )


def check_layer(
    op: str,
    attributes: Optional[Mapping[str, Any]] = None,
    inputs: Sequence[Any] = (),
    *,
    device: str = "auto",
    precision: Optional[str] = None,
    algorithm: Optional[str] = None,
    threads: int = 0,
    seconds: float = 0.05,
    run_inputs: int = 1,
    outputs: int = 1,
    domain: str = "",
    opset: int = 0,
) -> List[LayerCheck]:
    """One layer, as a node of an ONNX file: ``check_layer("Conv", {"pads": [1, 1, 1, 1]}, [x, filters])``.

    A row for each kernel that accepts it, or only for `algorithm`, with error, stated tolerance and time, and one for
    each that refuses it. An attribute is an int, a float, a string, a list of these, or a NumPy array; an input is an
    array, or None for an omitted one. The first `run_inputs` inputs are given in the run, the others are constants,
    like weights. `outputs` is the node's number of outputs; `domain` and `opset` are the operator's, by default ONNX's
    and the newest. `seconds` is the time for measuring each kernel; 0: no times.
    """
    plan = options.plan_options(device=device, precision=precision, algorithm=algorithm, threads=threads)
    options.encoded(op, "op")
    options.encoded(domain, "domain")
    given = list(inputs)
    values: Dict[str, Any] = {}
    for name, value in options.mapping(attributes, "attributes").items():
        if isinstance(value, np.ndarray):
            values[name] = {"tensor": len(given)}
            given.append(value)
        else:
            values[name] = _attribute(name, value)
    tensors = _tensors(plan, given, ())
    asked = {
        "op": op,
        "attributes": values,
        "inputs": len(list(inputs)),
        "domain": domain,
        "opset": options.whole(opset, "opset", 0, 2**31),
        "run_inputs": options.whole(run_inputs, "run_inputs", 0, 2**31),
        "outputs": options.whole(outputs, "outputs", 0, 2**16),
        "seconds": _seconds(seconds),
    }
    text = json.dumps(asked).encode()
    return _rows(
        taken_json(lambda found: library.lenslet_python_check_layer(plan, tensors, len(tensors), text, found))
    )


def _attribute(name: str, value: Any) -> Any:
    """Encoded for JSON."""
    if isinstance(value, (list, tuple)):
        made = [_attribute(name, one) for one in value]
        if len({isinstance(one, str) for one in made}) < 2 and not any(isinstance(one, list) for one in made):
            return made
    elif isinstance(value, str):
        return value
    elif hasattr(value, "__index__"):
        return options.whole(value, f"attribute {name}", -(2**63), 2**63 - 1)
    elif hasattr(value, "__float__") and abs(float(value)) < float("inf"):
        return float(value)
    raise InvalidArgumentError(
        f"attribute {name} is a {type(value).__name__}; it can be a finite number, a string, a list of these, an array"
    )
