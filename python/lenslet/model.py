"""A network from an ONNX file."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

from . import _options as options
from . import _structs as structs
from . import check as layer_checks
from . import tables, verbs
from ._library import Handle, check, library, taken_json
from .check import LayerCheck
from .errors import InvalidArgumentError, UnsupportedError
from .ports import Port, ports_of, shown
from .runner import Runner

Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview]


class Model:
    """Immutable, used by any number of threads and runners at once.

    `source` is the path of an ONNX file, or its bytes. It is read and checked completely: FileError, InvalidModelError,
    and UnsupportedError, which lists every node that cannot run. `external_data_dir` is the folder of weight files, by
    default the model file's; `name` identifies bytes in messages. `overridden` names initializers that become required
    inputs.

    `inputs` and `outputs` are as declared by the file; outputs are completed by inference from the inputs.

    A Model is pickled as its absolute path, or its bytes, and read again where it is loaded.
    """

    path: Optional[str]
    inputs: Tuple[Port, ...]
    outputs: Tuple[Port, ...]

    def __init__(
        self,
        source: Source,
        *,
        name: Optional[str] = None,
        external_data_dir: Union[str, "os.PathLike[str]", None] = None,
        overridden: Sequence[str] = (),
    ) -> None:
        load = structs.made(structs.LoadOptions)
        if external_data_dir is not None:
            load.external_data_dir = options.encoded(os.fspath(external_data_dir), "external_data_dir")
        if name is not None:
            load.name = options.encoded(name, "name")
        load.overridden, load.overridden_count = options.names(overridden, "overridden")
        self._overridden = tuple(overridden)
        self._handle = Handle()
        self._bytes: Optional[bytes] = None
        self.path = None
        self._name = name
        self._external = None if external_data_dir is None else os.path.abspath(external_data_dir)
        self._file: Optional[str] = None  # absolute, so that a change of the working folder does not matter
        self._loaded_file: Optional[Tuple[int, ...]] = None
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._bytes = bytes(source)
            check(library.lenslet_model_load_bytes(self._bytes, len(self._bytes), load, ctypes.byref(self._handle)))
        elif isinstance(source, (str, os.PathLike)):
            self.path = os.fspath(source)
            self._file = os.path.abspath(self.path)
            self._loaded_file = _identity(self._file)
            check(library.lenslet_model_load(options.encoded(self.path, "the path"), load, ctypes.byref(self._handle)))
        else:
            raise InvalidArgumentError(f"a model is a path or bytes, no {type(source).__name__}")
        inputs, outputs = ctypes.c_size_t(), ctypes.c_size_t()
        check(library.lenslet_model_count(self._handle, inputs, outputs))
        self.inputs = ports_of(library.lenslet_model_input, self._handle, inputs.value)
        self.outputs = ports_of(library.lenslet_model_output, self._handle, outputs.value)

    def __repr__(self) -> str:
        return f"<lenslet.Model {self.path or self._name or 'of bytes'}: {shown(self.inputs)} -> {shown(self.outputs)}>"

    def _repr_html_(self) -> str:
        rows = [
            (kind, port.name, port.dtype, "any" if port.shape is None else " x ".join(str(dim or "?") for dim in port.shape))
            for kind, ports in (("input", self.inputs), ("output", self.outputs))
            for port in ports[: tables.SHOWN]
        ]
        name = tables.printable(str(self.path or self._name or "a model of bytes"))
        return tables.html_table(name, ("", "name", "type", "shape"), rows)

    def __reduce__(self) -> Tuple[Any, ...]:
        source = self._bytes if self._file is None else self._same_file()
        return _loaded, (type(self), source, self._name, self._external, self._overridden)

    def __copy__(self) -> Model:
        return self

    def __deepcopy__(self, _: object) -> Model:
        return self

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
        layer_algorithms: Optional[Mapping[str, str]] = None,
        strict: bool = False,
        disabled_passes: Sequence[str] = (),
        calibration: Any = None,
        input_values: Optional[Mapping[str, Any]] = None,
    ) -> Runner:
        """Plans the model and allocates its memory.

        `device`: "cpu", "cuda", "cuda:1", or "auto": cuda:0 if it can be used, else the CPU (LENSLET_DEVICE names
        another default). `threads`: including the caller's; 0: one for each core of this process. `batch`: images at
        once. `precision`: "fp32", "bf16", on CUDA also "tf32", "fp16"; None: fp32, or the file's own types. `shapes`:
        {"x": (1, 3, 48, 192)} for inputs with free dimensions besides the batch. `algorithm`: one for all convolutions
        that accept it. `other_shapes`: number of further sets of input shapes that are planned on demand and kept; 0:
        other shapes are refused. `flush_denormals`: on the CPU denormal numbers count as zero.

        `layer_algorithms`: {"Conv_7": "im2col"} for single layers, by their names in the plan; they override
        `algorithm`, and "" returns a layer to the rule. `strict`: a layer that refuses its forced algorithm is an
        error, else it keeps the rule's choice. `disabled_passes`: names of graph passes to omit. `calibration`: typical
        inputs on the host: one array, a list in the model's order, or a mapping. At fp16 the network is first computed
        on them in float32, and UnsupportedError names the layer that exceeds float16's range. `input_values`: whole
        inputs by name, for models whose shapes depend on an input's values (the target of a Reshape); runs still take
        these inputs, and refuse other values.
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
            layer_algorithms=layer_algorithms,
            strict=strict,
            disabled_passes=disabled_passes,
            calibration=calibration,
            input_values=input_values,
            ports=self.inputs,
        )
        return Runner(self._handle, made, len(self.inputs), len(self.outputs), other_shapes > 0)

    def plan(self, **how: Any) -> tables.Plan:
        """The plan of a runner with these arguments and its memory; nothing is allocated or packed. A dict that is shown
        as a summary and a table, as those of verify(), layers() and bench() are."""
        made = options.plan_options(**how, ports=self.inputs)
        return tables.Plan(taken_json(lambda text: library.lenslet_model_plan_json(self._handle, made, text)))

    def inspect(self, **how: Any) -> Dict[str, Any]:
        """Ports, operators, FLOPs, each convolution's candidates, memory: ``lenslet inspect --json``."""
        return self._verb("inspect", how)

    def verify(self, **how: Any) -> tables.Verified:
        """Compares each layer with a double-precision reference: ``lenslet verify --json``, whose "layers" is a list of
        dicts. "exceeded" is the number of layers beyond their tolerance, "different" the number of "outputs" that
        differ from the network as loaded. Inputs are random, or `inputs`, a mapping from names to arrays."""
        return tables.Verified(self._verb("verify", how))

    def check_layers(
        self,
        *,
        inputs: Any = None,
        seed: int = 1,
        outputs: bool = True,
        seconds: float = 0,
        **how: Any,
    ) -> List[LayerCheck]:
        """Compares each layer and the network's outputs with double-precision references: the rows of verify(), in this
        process.

        `inputs` are one array, a list in the model's order, or a mapping; None: random ones from `seed`. `outputs`:
        also compare those of the whole network. `seconds`: time for measuring each layer; 0: no times. `how` are the
        arguments of runner(); `algorithm` may be "all": each in turn, with a row for each layer that refuses it.
        """
        return layer_checks.check_layers(
            self._handle, self.inputs, inputs=inputs, seed=seed, outputs=outputs, seconds=seconds, **how
        )

    def layers(self, **how: Any) -> tables.Layers:
        """Each layer's algorithm, its reason, time, floor and error: ``lenslet layers --json``."""
        return tables.Layers(self._verb("layers", how))

    def bench(self, **how: Any) -> tables.Timed:
        """Times of whole runs in milliseconds: ``lenslet bench --json``, whose "results" is a list of dicts. `seconds`
        is the time for it; `per_layer` adds each layer's times."""
        return tables.Timed(self._verb("bench", how))

    def _verb(self, verb: str, how: Mapping[str, Any]) -> Dict[str, Any]:
        if missing := [name for name in self._overridden if name not in (how.get("inputs") or ())]:
            raise UnsupportedError(f"{verb} takes the file's own value of {', '.join(missing)} unless inputs has it")
        return verbs.run(verb, self._bytes, self._same_file(), self._external, how)

    def _is_another(self) -> bool:
        """Whether its path now has another file."""
        now = None if self._file is None else _identity(self._file)
        return now is not None and now != self._loaded_file

    def _same_file(self) -> Optional[str]:
        """The path for code that reads the file again."""
        if self._is_another():
            raise InvalidArgumentError(f"{self.path} has changed since the model was loaded; load it again")
        return self._file

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.lenslet_model_free(self._handle)


def _identity(file: str) -> Optional[Tuple[int, ...]]:
    """Changes when a file is written or replaced; None: there is no file."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _loaded(
    kind: Type[Model], source: Source, name: Optional[str], external: Optional[str], overridden: Sequence[str] = ()
) -> Model:
    """A Model from a pickle."""
    return kind(source, name=name, external_data_dir=external, overridden=overridden)
