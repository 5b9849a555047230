"""ModelProtos for `lenslet.backend`: loading them, editing them, and making models of one node."""

from __future__ import annotations

import math
import os
import pathlib
import tempfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper, shape_inference

from . import InvalidArgumentError, LimitError, Model

def load(model: ModelProto, external_data_dir: str | os.PathLike[str] | None) -> Model:
    """Errors as of lenslet.Model."""
    name = model.graph.name or "model"
    whole = _serialized(model)
    if whole is not None:
        return Model(whole, name=name, external_data_dir=external_data_dir)
    # The library reads the weight file before the folder is removed.
    with tempfile.TemporaryDirectory(prefix="lenslet-backend-") as folder:
        whole = _serialized(with_weights_in(model, pathlib.Path(folder) / "weights"))
        if whole is None:
            raise LimitError(f"{name}: is larger than 2 GiB even without its weights")
        return Model(whole, name=name, external_data_dir=folder)


def _serialized(message: ModelProto) -> bytes | None:
    """None for messages above 2 GiB."""
    try:
        data: bytes = message.SerializeToString()
        return data
    except Exception:  # EncodeError or ValueError, depending on protobuf's implementation, and nothing else
        return None


def edited(
    model: ModelProto, as_inputs: Collection[str], ranks: Mapping[str, int], values: Mapping[str, Any]
) -> ModelProto:
    """A copy with the initializers `as_inputs` as inputs, these `ranks` of inputs, and inputs with `values` as
    constants."""
    copy = _without(model, lambda tensor: tensor.name in as_inputs)
    inputs = list(copy.graph.input)
    del copy.graph.input[:]
    for port in inputs:
        if port.name in values:
            copy.graph.initializer.append(numpy_helper.from_array(values[port.name], port.name))
            continue
        if port.name in ranks:
            port.type.tensor_type.shape.Clear()
            for _ in range(ranks[port.name]):
                port.type.tensor_type.shape.dim.add()
        copy.graph.input.append(port)
    return copy


def with_weights_in(model: ModelProto, file: pathlib.Path) -> ModelProto:
    """A copy whose large weights are written to `file`, as external data."""
    skeleton = _without(model, _is_large)
    with file.open("wb") as out:
        for tensor in filter(_is_large, model.graph.initializer):
            entry = skeleton.graph.initializer.add(
                name=tensor.name, dims=tensor.dims, data_type=tensor.data_type, data_location=TensorProto.EXTERNAL
            )
            data = tensor.raw_data  # protobuf copies it each time
            for key, value in (("location", file.name), ("offset", out.tell()), ("length", len(data))):
                entry.external_data.add(key=key, value=str(value))
            out.write(data)
    return skeleton


def _is_large(tensor: TensorProto) -> bool:
    return bool(tensor.HasField("raw_data")) and math.prod(tensor.dims) > 1024


def _without(model: ModelProto, is_left_out: Any) -> ModelProto:
    """A copy without the initializers for which `is_left_out` holds. These may be gigabytes and are never copied."""
    copy = ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _put(copy, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _put(copy.graph, field.name, value)
    copy.graph.initializer.extend(tensor for tensor in model.graph.initializer if not is_left_out(tensor))
    return copy


def _put(message: Any, name: str, value: Any) -> None:
    if isinstance(value, (str, bytes, int, float)):
        setattr(message, name, value)
    else:
        getattr(message, name).MergeFrom(value)


# ---- Single nodes ----


def node_feeds(node: NodeProto, inputs: Any) -> dict[str, Any]:
    """By name. `inputs` is a mapping, or arrays for the node's inputs in order; None or nothing omits one."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    names = list(node.input)
    if len(given) != len(names):
        names = [name for name in names if name]
    if len(given) != len(names):
        names = list(dict.fromkeys(names))
    if len(given) != len(names):
        raise InvalidArgumentError(f"{len(given)} inputs were given, node {node.op_type} has {len(names)}")
    return {name: value for name, value in zip(names, given) if name and value is not None}


def model_of_node(node: NodeProto, feeds: Mapping[str, Any], outputs_info: Any, opset: int | None) -> ModelProto:
    """`outputs_info` has pairs of type and shape; if it is None, ONNX's inference finds them."""
    names = [name for name in node.output if name]
    if outputs_info is None:
        outputs = [ValueInfoProto(name=name) for name in names]
    else:
        outputs = [_port(name, np.dtype(dtype), shape) for name, (dtype, shape) in zip(names, outputs_info)]
    inputs = [_port(name, value.dtype, value.shape) for name, value in feeds.items()]
    domain = "" if node.domain == "ai.onnx" else node.domain
    if opset is None:
        versions = [s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain]
        opset = max(versions, default=1)
    graph = helper.make_graph([node], node.op_type, inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)])
    return shape_inference.infer_shapes(model) if outputs_info is None else model


def _port(name: str, dtype: Any, shape: Sequence[int]) -> ValueInfoProto:
    kind = TensorProto.STRING if dtype.kind in "OSU" else helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, kind, shape)
