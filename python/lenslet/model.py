"""A network out of an ONNX file."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, Optional, Tuple, Union

from . import _options as options
from . import _structs as structs
from . import verbs
from ._library import Handle, check, library, taken_json
from .errors import InvalidArgumentError
from .ports import Port, port_of
from .runner import Runner

Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview]


class Model:
    """Immutable, used by any number of threads and runners at once.

    `source` is the path of an ONNX file, or its bytes. It is read and checked wholly: FileError, InvalidModelError, and
    UnsupportedError, which lists every node that cannot run. `external_data_dir` is where files with weights lie, by
    default the model file's own folder; `name` stands for bytes in messages.
    """

    path: Optional[str]

    def __init__(
        self,
        source: Source,
        *,
        name: Optional[str] = None,
        external_data_dir: Union[str, "os.PathLike[str]", None] = None,
    ) -> None:
        load = structs.made(structs.LoadOptions)
        if external_data_dir is not None:
            load.external_data_dir = options.encoded(os.fspath(external_data_dir), "external_data_dir")
        if name is not None:
            load.name = options.encoded(name, "name")
        self._handle = Handle()
        self._bytes: Optional[bytes] = None
        self.path = None
        self._external = external_data_dir
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._bytes = bytes(source)
            check(library.lenslet_model_load_bytes(self._bytes, len(self._bytes), load, ctypes.byref(self._handle)))
        elif isinstance(source, (str, os.PathLike)):
            self.path = os.fspath(source)
            check(library.lenslet_model_load(options.encoded(self.path, "the path"), load, ctypes.byref(self._handle)))
        else:
            raise InvalidArgumentError(f"a model is a path or bytes, no {type(source).__name__}")
        inputs, outputs = ctypes.c_size_t(), ctypes.c_size_t()
        check(library.lenslet_model_count(self._handle, inputs, outputs))
        self._counts = (inputs.value, outputs.value)

    @property
    def inputs(self) -> Tuple[Port, ...]:
        """As the file declares them."""
        ask = library.lenslet_model_input
        return tuple(port_of(lambda port, i=i: ask(self._handle, i, port)) for i in range(self._counts[0]))  # type: ignore[misc]

    @property
    def outputs(self) -> Tuple[Port, ...]:
        """As the file declares them, filled in where that follows from the inputs."""
        ask = library.lenslet_model_output
        return tuple(port_of(lambda port, i=i: ask(self._handle, i, port)) for i in range(self._counts[1]))  # type: ignore[misc]

    def runner(
        self,
        *,
        device: str = "auto",
        threads: int = 0,
        batch: int = 1,
        precision: Optional[str] = None,
        shapes: Optional[options.Shapes] = None,
        algorithm: Optional[str] = None,
        other_shapes: int = 0,
        flush_denormals: bool = False,
    ) -> Runner:
        """Plans the model and takes memory for it.

        `device`: "cpu", "cuda", "cuda:1", or "auto": cuda:0 where it can be used, else the CPU (LENSLET_DEVICE names
        another default). `threads`: the caller's included; 0: as many as this process has cores. `batch`: images at
        once. `precision`: "fp32", on CUDA also "tf32", "fp16", "bf16"; None: fp32, or what the weights are of. `shapes`:
        {"x": (1, 3, 48, 192)} for inputs with free dimensions besides the batch. `algorithm`: one for all convolutions
        that accept it. `other_shapes`: how many further sets of input shapes a plan is made and kept for, as they come;
        0: other shapes are refused. `flush_denormals`: on the CPU denormal numbers count as zero.
        """
        made = options.plan_options(
            device=device,
            threads=threads,
            batch=batch,
            precision=precision,
            shapes=shapes,
            algorithm=algorithm,
            other_shapes=other_shapes,
            flush_denormals=flush_denormals,
        )
        return Runner(self._handle, made, self._counts[0], self._counts[1], other_shapes > 0)

    def plan(self, **how: Any) -> Dict[str, Any]:
        """What a runner with these arguments will do and need; nothing is allocated or prepared for it."""
        made = options.plan_options(**how)
        result: Dict[str, Any] = taken_json(lambda text: library.lenslet_model_plan_json(self._handle, made, text))
        return result

    def inspect(self, **how: Any) -> Dict[str, Any]:
        """Ports, operators, FLOPs, each convolution's candidates, memory: ``lenslet inspect --json``."""
        return verbs.run("inspect", self._bytes, self.path, self._external, how)

    def verify(self, **how: Any) -> Dict[str, Any]:
        """Each layer against double precision: ``lenslet verify --json``, whose "layers" is a list of dicts. "exceeded" is
        how many are beyond their tolerance. Inputs are random, or `inputs`, a mapping from names to arrays."""
        return verbs.run("verify", self._bytes, self.path, self._external, how)

    def layers(self, **how: Any) -> Dict[str, Any]:
        """Each layer's algorithm, why, time, floor and error: ``lenslet layers --json``."""
        return verbs.run("layers", self._bytes, self.path, self._external, how)

    def bench(self, **how: Any) -> Dict[str, Any]:
        """Times of whole runs, in milliseconds: ``lenslet bench --json``, whose "results" is a list of dicts. `seconds`
        to spend on it, `per_layer` for each layer's."""
        return verbs.run("bench", self._bytes, self.path, self._external, how)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.lenslet_model_free(self._handle)
