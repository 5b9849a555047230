"""lenslet as a backend of ONNX (`onnx.backend.base`), so that ONNX's own tests run against it.

    import lenslet.backend as backend
    tests = onnx.backend.test.BackendTest(backend, __name__)

Needs the package `onnx`, 1.19 or newer. If lenslet refuses something (an operator, an element type, a published limit),
`prepare` raises `Refused`, or `run` if that depends on the run's shapes or values. Refused is a `unittest.SkipTest`:
test runners count the case as skipped and show the library's reason. ONNX's own BackendIsNotSupposedToImplementIt would
make its runner count it as passed.
"""

from __future__ import annotations

import functools
import re
import unittest
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from . import Error, InvalidArgumentError, LimitError, Port, Runner, UnsupportedError, _onnx_models

# Plans kept for other shapes than those of the first run.
_OTHER_SHAPES = 8
# Maximum number of elements of an input that may decide shapes, as in the command (tools/verbs/bound_run.cpp).
_SHORT_LIST = 1024
# Options that `prepare` passes to the library, and tolerances that ONNX's runner passes to it for its own comparison.
_OPTIONS = ("threads", "precision", "algorithm", "flush_denormals")
_NOT_OURS = ("rtol", "atol")
# Bits of a byte that an element leaves unused.
_FREE_BITS = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 6, "uint2": 6}


class Refused(UnsupportedError, unittest.SkipTest):
    """The model is valid, but lenslet does not support it: `str()` is the reason, the cause the library's error."""


class LensletRep(BackendRep):
    """A model on a device. Use it from one thread at a time; other threads prepare their own."""

    def __init__(self, model: ModelProto, device: str, options: Mapping[str, Any], external_data_dir: Any) -> None:
        self._proto = model
        self._external_data_dir = external_data_dir
        self._options = {**options, "device": device, "other_shapes": _OTHER_SHAPES}
        graph = model.graph
        held = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        self._ports = [port.name for port in graph.input]
        self._needed = [name for name in self._ports if name not in held]
        self._read = _read_names(graph)
        types = {port.name: port.type.tensor_type for port in graph.input if port.type.HasField("tensor_type")}
        self._rankless = {name for name, type_ in types.items() if not type_.HasField("shape")}
        self._outputs = namedtupledict("Outputs", [port.name for port in graph.output])
        self._variants: dict[Any, _Variant] = {}
        self._bound: tuple[Any, _Variant] | None = None
        if self._rankless:
            return
        variant = self._variant(frozenset(), {})
        shapes = {name: tuple(_fixed(dim) for dim in types[name].shape.dim) for name in self._needed if name in types}
        if any(dim is None for shape in shapes.values() for dim in shape):
            return
        try:
            variant.plan(shapes)
        except Refused:
            # The values of a short input may decide: the run will tell.
            if not any(len(shape) <= 1 for shape in shapes.values()):
                raise

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, by number and by name, as new arrays.

        `inputs`: arrays for the model's inputs in order, for all or only those without initializers; or a mapping from
        names; or a single array. None keeps an initializer; inputs that no node reads may be left out. Types and shapes
        must match the model, else `lenslet.InvalidArgumentError`. New shapes are planned, which may be Refused.
        """
        if kwargs:
            raise TypeError(f"run() takes no option {', '.join(kwargs)}")
        feeds = self._feeds(inputs)
        overridden = frozenset(feeds).difference(self._needed)
        ranks = {name: np.ndim(feeds[name]) for name in self._rankless if name in feeds}
        variant = self._variant(overridden, ranks)
        arrays = variant.arrays(feeds)
        try:
            outputs = variant.run(arrays)
        except Refused:
            short = {n: x for n, x in feeds.items() if np.ndim(x) <= 1 and np.size(x) <= _SHORT_LIST}
            if not short:
                raise
            bound = self._bound_to(short, overridden, ranks)
            outputs = bound.run(bound.arrays(feeds))
        return self._outputs(*outputs)

    def _variant(self, overridden: frozenset[str], ranks: Mapping[str, int]) -> _Variant:
        """The model with initializers of these names as inputs, and with these ranks for inputs that declare none."""
        key = (overridden, tuple(sorted(ranks.items())))
        if key not in self._variants:
            model = _onnx_models.edited(self._proto, overridden, ranks, {}) if overridden or ranks else self._proto
            self._variants[key] = _Variant(model, self._options, self._external_data_dir)
        return self._variants[key]

    def _bound_to(self, values: Mapping[str, Any], overridden: frozenset[str], ranks: Mapping[str, int]) -> _Variant:
        """The model with these inputs as constants. The one with the last values is kept."""
        key = (overridden, ranks, {name: (x.dtype.name, x.shape, x.tobytes()) for name, x in values.items()})
        if self._bound is None or self._bound[0] != key:
            model = _onnx_models.edited(self._proto, overridden, ranks, values)
            self._bound = (key, _Variant(model, self._options, self._external_data_dir))
        return self._bound[1]

    def _feeds(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if isinstance(inputs, Mapping):
            given = inputs
        elif isinstance(inputs, Sequence) and not isinstance(inputs, (str, bytes)):
            names = self._needed if len(inputs) == len(self._needed) else self._ports
            if len(inputs) > len(names):
                raise InvalidArgumentError(f"{len(inputs)} inputs were given, the model has {len(self._needed)}")
            given = dict(zip(names, inputs))
        else:
            raise InvalidArgumentError(f"inputs are a {type(inputs).__name__}, not arrays in a list or by name")
        feeds = {name: _array(name, value) for name, value in given.items() if value is not None}
        if missing := [name for name in self._needed if name not in feeds and name in self._read]:
            raise InvalidArgumentError(f"no value was given for input {', '.join(missing)}")
        if unknown := [str(name) for name in feeds if name not in self._ports]:
            raise InvalidArgumentError(f"the model has no input {', '.join(unknown)}")
        return feeds


class _Variant:
    """A loaded model, and its runner once shapes are known. Raises Refused for what is not supported."""

    def __init__(self, model: ModelProto, options: Mapping[str, Any], external_data_dir: Any) -> None:
        self._options = options
        self._model = _or_refused(_onnx_models.load, model, external_data_dir)
        self._runner: Runner | None = None

    def plan(self, shapes: Mapping[str, tuple[Any, ...]]) -> Runner:
        self._runner = _or_refused(self._model.runner, shapes=dict(shapes), **self._options)
        return self._runner

    def arrays(self, feeds: Mapping[str, Any]) -> list[Any]:
        arrays = [feeds.get(port.name) for port in self._model.inputs]
        for port, array in zip(self._model.inputs, arrays):
            if not port.unread:
                _check(port, array)
        return arrays

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        runner = self._runner or self.plan(
            {port.name: x.shape for port, x in zip(self._model.inputs, arrays) if x is not None}
        )
        outputs = _or_refused(runner, *arrays)
        return outputs if isinstance(outputs, tuple) else (outputs,)


class LensletBackend(Backend):
    """Devices are ONNX's "CPU", "CUDA" and "CUDA:1". `options` are always those of `prepare`."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **options: Any) -> bool:
        """Whether `prepare` accepts the model. A damaged model counts as accepted: `prepare` reports its error."""
        try:
            cls.prepare(model, device, **options)
        except Refused:
            return False
        except Error:
            return True
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> LensletRep:
        """Loads the model, and plans it if no dimension of an input is free. Later runs read `model`, too.

        Options: `threads`, `precision`, `algorithm` and `flush_denormals` of `lenslet.Model.runner`; and
        `external_data_dir`, the folder of external weights. Raises Refused for unsupported models; the library's other
        errors for a damaged model and an unusable device.
        """
        if not isinstance(model, ModelProto):
            raise TypeError(f"the model is a {type(model).__name__}, not a ModelProto")
        external_data_dir = options.pop("external_data_dir", None)
        if unknown := [name for name in options if name not in _OPTIONS + _NOT_OURS]:
            raise TypeError(f"prepare() takes no option {', '.join(unknown)}")
        ours = {name: value for name, value in options.items() if name in _OPTIONS}
        return LensletRep(model, _device(device), ours, external_data_dir)

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """`prepare` and `LensletRep.run`."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **options: Any
    ) -> tuple[Any, ...]:
        """Runs one node. `inputs`: arrays in order, with None or nothing for omitted ones; or a mapping from names.

        `outputs_info`: optional pairs of element type and shape, one for each output. `opset_version` is that of the
        node's domain, by default the newest that the package `onnx` knows.
        """
        opset = options.pop("opset_version", None)
        feeds = {name: _array(name, value) for name, value in _onnx_models.node_feeds(node, inputs).items()}
        model = _onnx_models.model_of_node(node, feeds, outputs_info, opset)
        return cls.run_model(model, feeds, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether lenslet can use the device here. ONNX's runner asks for each test, so the answer is cached."""
        return _is_usable(device)


@functools.lru_cache(maxsize=None)
def _is_usable(device: str) -> bool:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", [x], [y])
    probe = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 14)])
    try:
        LensletBackend.prepare(probe, device)
    except Error:
        return False
    return True


def _device(device: str) -> str:
    """lenslet's name of an ONNX device."""
    if not re.fullmatch(r"CPU(:0)?|CUDA(:[0-9]{1,3})?", device):
        raise InvalidArgumentError(f"device {device!r} is none of CPU, CUDA and CUDA:N")
    return "cpu" if device.startswith("CPU") else device.lower()


def _or_refused(call: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return call(*arguments, **options)
    except (UnsupportedError, LimitError) as error:
        raise Refused(str(error), error.details) from error


def _fixed(dim: Any) -> int | None:
    return int(dim.dim_value) if dim.HasField("dim_value") else None


def _array(name: str, value: Any) -> Any:
    """NumPy arrays contiguous, in native byte order, with clean unused bits; others unchanged."""
    if not hasattr(value, "dtype"):
        raise InvalidArgumentError(f"input {name}: is a {type(value).__name__}, not an array")
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.asarray(value, order="C")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if free := _FREE_BITS.get(array.dtype.name):
        # ml_dtypes ignores these bits, and ONNX leaves them undefined when unpacking.
        bits = array.view(np.int8 if array.dtype.name.startswith("int") else np.uint8)
        array = np.asarray(np.right_shift(np.left_shift(bits, free), free)).view(array.dtype)
    return array


def _read_names(graph: Any) -> set[str]:
    """Names of the values that nodes (including branches) read, and of the outputs."""
    read = {port.name for port in graph.output}
    for node in graph.node:
        read.update(node.input)
        for attribute in node.attribute:
            for branch in (attribute.g, *attribute.graphs):
                read |= _read_names(branch)
    return read


def _check(port: Port, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        return  # the library checks other arrays
    if array.dtype.name != port.dtype:
        raise InvalidArgumentError(f"input {port.name}: is of {array.dtype.name}, the model's is of {port.dtype}")
    if port.dtype == "float64" and np.any(np.isfinite(array) & (np.abs(array) > np.finfo(np.float32).max)):
        raise Refused(f"input {port.name}: holds values beyond float32, in which lenslet computes")


is_compatible = LensletBackend.is_compatible
prepare = LensletBackend.prepare
run_model = LensletBackend.run_model
run_node = LensletBackend.run_node
supports_device = LensletBackend.supports_device
