"""Runs a planned model."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, Generator, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays as arrays
from . import _structs as structs
from ._dtypes import NUMBERS, numpy_dtype
from ._library import Handle, check, last_error, library, taken_json, text_of
from ._options import whole
from .cancel import Cancel
from .errors import InvalidArgumentError, UnsupportedError, stays_here
from .ports import Port, ports_of

Array = Any  # of NumPy, PyTorch, CuPy, or with DLPack
Outputs = Union[Array, Tuple[Array, ...], Dict[str, Array]]
_from_buffer: Any = ctypes.c_char.from_buffer
_empty = np.empty
Observer = Callable[["LayerEvent"], Optional[bool]]


class LayerEvent(NamedTuple):
    """A step that has been done.

    ``ms`` is the time of the step alone on its device. ``inputs`` and ``outputs`` are copies, NCHW, None for an optional
    input that is left out.
    """

    step: int
    name: str
    op: str
    algorithm: str
    ms: float
    inputs: Tuple[Optional[np.ndarray[Any, Any]], ...]
    outputs: Tuple[Optional[np.ndarray[Any, Any]], ...]


class _Planned:
    """A port as planned: what an array is compared with, in the form that takes the least time."""

    def __init__(self, port: Port) -> None:
        self.name, self.unread = port.name, port.unread
        self.number = NUMBERS[port.dtype]
        known = port.shape is not None and all(isinstance(dim, int) for dim in port.shape)
        self.shape: Optional[Tuple[int, ...]] = tuple(int(dim) for dim in port.shape or ()) if known else None
        self.dtype: Optional[np.dtype[Any]]
        try:
            self.dtype = numpy_dtype(self.number)
        except UnsupportedError:  # matters where an array of it is to be made
            self.dtype = None
        self.size = 0
        if self.shape is not None:
            self.size = int(library.lenslet_dtype_bytes(self.number))
            for dim in self.shape:
                self.size *= dim

    def fill(self, tensor: structs.Tensor) -> None:
        tensor.struct_size = ctypes.sizeof(structs.Tensor)
        if self.shape is not None:
            itemsize = int(library.lenslet_dtype_bytes(self.number))
            arrays.describe(tensor, 0, self.number, self.shape, itemsize, structs.ON_HOST, self.name)


class Runner:
    """A model, planned: algorithms chosen, weights transformed, memory laid out. ``Model.runner()`` makes one.

    Calling it runs the network; the GIL is released meanwhile. One thread at a time: a call that comes while another
    works is refused. Make one for each thread; they share the model's weights.
    """

    def __init__(self, model: Handle, options: structs.PlanOptions, inputs: int, outputs: int, late: bool) -> None:
        self._handle = Handle()
        check(library.lenslet_runner_create(model, ctypes.byref(options), ctypes.byref(self._handle)))
        # An element that who comes in takes out. No lock: a signal may raise behind a call, that of acquire() too, and
        # before the `try` that would release it. (From Python 3.11 on; older ones look for signals anywhere.)
        self._turn = [None]
        self._plan: Optional[Dict[str, Any]] = None
        self._observer: Any = None
        self._counts = (inputs, outputs)
        self._in = [_Planned(port) for port in self.inputs]
        self._out = [_Planned(port) for port in self.outputs]
        # Where a run decides shapes, the library has room for the outputs, and they are copied from there.
        self._late = late or any(port.shape is None for port in self._out)
        self._in_tensors = (structs.Tensor * inputs)()
        self._out_tensors = (structs.Tensor * outputs)()
        self._exact = [False] * inputs  # whether the struct has the planned type and shape, so that data alone is set
        self._as_planned = False  # whether the structs of outputs have the planned types and shapes, on the host
        self._options = structs.made(structs.RunOptions)
        # Views of the structs, for an array of ctypes makes one each time that it is asked.
        self._ins, self._outs = list(self._in_tensors), list(self._out_tensors)
        # What a run is given, in one struct: ctypes takes 0.2 us for each argument.
        self._call = structs.Call(
            runner=self._handle.value,
            inputs=ctypes.addressof(self._in_tensors),
            input_count=inputs,
            outputs=None if self._late else ctypes.addressof(self._out_tensors),
            output_count=0 if self._late else outputs,
        )
        self._call_at = ctypes.addressof(self._call)
        self._run = library.lenslet_python_run

    @property
    def inputs(self) -> Tuple[Port, ...]:
        """As planned."""
        return ports_of(library.lenslet_runner_input, self._still_open(), self._counts[0])

    @property
    def outputs(self) -> Tuple[Port, ...]:
        """As planned; of an output whose shape a run decides, as of the last run."""
        return ports_of(library.lenslet_runner_output, self._still_open(), self._counts[1])

    @property
    def plan(self) -> Dict[str, Any]:
        """Everything that was decided: steps with algorithm, reason and estimate, memory, device; as ``lenslet inspect
        --json`` prints it."""
        handle = self._still_open()
        result: Dict[str, Any] = taken_json(lambda text: library.lenslet_runner_plan_json(handle, text))
        return result

    @property
    def device(self) -> str:
        """ "cpu" or "cuda:0"."""
        if self._plan is None:
            self._plan = self.plan
        return str(self._plan["device"])

    def __call__(
        self,
        *inputs: Array,
        out: Union[Array, Sequence[Array], Mapping[str, Array], None] = None,
        cancel: Optional[Cancel] = None,
        stream: Optional[int] = None,
    ) -> Outputs:
        """Runs the network.

        Inputs are arrays of the planned type and shape, in the model's order, or one mapping from names: of NumPy,
        PyTorch, CuPy, or whatever NumPy takes by DLPack. Those that no node reads may be left out, or None. The CPU reads them where they lie if they are aligned to 16
        bytes, as all but slices are, else copies them; CUDA copies them on the device. Outputs are fresh arrays of the
        kind of the first input, or `out`, which is filled in place.

        Returns an array, a tuple where the model has several outputs, or a dict by name where a mapping came in.

        `cancel` ends the run from another thread. `stream` is a cudaStream_t behind which a run on CUDA begins; by
        default the current one of PyTorch or CuPy, whose arrays came. The results are there when the call returns.

        Raises InvalidArgumentError for inputs that do not fit, CancelledError, DeviceError.
        """
        try:
            del self._turn[0]
        except IndexError:
            raise InvalidArgumentError("the runner is at work: another thread is in it, or its own observer") from None
        try:
            if not self._as_planned:
                self._reset_outputs()
            named = len(inputs) == 1 and type(inputs[0]) is not np.ndarray and isinstance(inputs[0], Mapping)
            given = self._by_name(inputs[0]) if named else inputs
            if len(given) != len(self._in):
                given = self._of_those_read(given)
            kept: List[Array] = []  # what has to live until the run is over
            like = self._describe_inputs(given, kept)
            if like is not None and stream is None:
                stream = arrays.current_stream(given)
            wanted = self._late_outputs(out) if self._late else self._make_outputs(like, out)
            if cancel is None and stream is None:
                status = self._run(self._call_at)
            else:
                status = self._run_with(cancel, stream)
            if status != 0:
                self._raise(status)
            if wanted is not None:
                results = wanted
            else:
                results = self._computed() if out is None else self._into(self._computed(), out)
        finally:
            self._turn.append(None)
        if named:
            return {planned.name: result for planned, result in zip(self._out, results)}
        return results[0] if len(results) == 1 else tuple(results)

    def observe(self, observer: Optional[Observer]) -> None:
        """Calls ``observer(event)`` after each step of later runs; None: no longer.

        What it raises comes out of the run, which then ends; True ends it with CancelledError. Steps that run together
        otherwise run one by one with it.
        """
        if observer is not None and not callable(observer):
            raise InvalidArgumentError(f"an observer is a function, no {type(observer).__name__}")
        try:
            del self._turn[0]
        except IndexError:
            raise InvalidArgumentError("the runner is at work: an observer cannot be changed now") from None
        try:
            made = _Observed(observer) if observer is not None else None
            callback = made.callback if made is not None else structs.Observer()
            check(library.lenslet_python_observe(self._still_open(), callback))
            self._observer = made
        finally:
            self._turn.append(None)

    def close(self) -> None:
        """Gives its memory and threads back now. What is asked of it afterwards is refused."""
        if self._handle:
            self._call.runner = None
            library.lenslet_runner_free(self._handle)
            self._handle = Handle()

    def __repr__(self) -> str:
        names = ", ".join(planned.name for planned in self._in)
        return f"<lenslet.Runner of {names}{'' if self._handle else ', closed'}>"

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise stays_here("Runner", "send its Model, and call runner() where it is used, once for each worker")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.lenslet_runner_free(self._handle)

    def _still_open(self) -> Handle:
        if not self._handle:
            raise InvalidArgumentError("the Runner is closed")
        return self._handle

    def _by_name(self, given: Mapping[str, Array]) -> List[Array]:
        wanted = {planned.name for planned in self._in if not planned.unread}
        if not wanted <= set(given) <= {planned.name for planned in self._in}:
            names = ", ".join(planned.name for planned in self._in)
            raise InvalidArgumentError(f"inputs {', '.join(map(str, given))} where the model has {names}")
        return [given.get(planned.name) for planned in self._in]

    def _of_those_read(self, given: Sequence[Array]) -> List[Array]:
        """None in place of the others."""
        read = [number for number, planned in enumerate(self._in) if not planned.unread]
        if len(given) != len(read):
            raise InvalidArgumentError(f"{len(given)} inputs where the model has {len(self._in)}")
        arrays_of_all: List[Array] = [None] * len(self._in)
        for number, array in zip(read, given):
            arrays_of_all[number] = array
        return arrays_of_all

    def _describe_inputs(self, given: Sequence[Array], kept: List[Array]) -> Optional[Array]:
        """The first of them that is PyTorch's or CuPy's."""
        like: Optional[Array] = None
        for i, array in enumerate(given):
            planned = self._in[i]
            if type(array) is np.ndarray and array.dtype is planned.dtype and array.shape == planned.shape:
                # The common case, a third of a microsecond: from_buffer() takes what is contiguous and not read-only.
                try:
                    data = ctypes.addressof(_from_buffer(array))
                except (TypeError, ValueError, BufferError):
                    pass
                else:
                    if not self._exact[i]:
                        planned.fill(self._ins[i])
                        self._exact[i] = True
                    self._ins[i].data = data
                    kept.append(array)
                    continue
            if array is None and planned.unread:
                array = np.empty(planned.shape or (), planned.dtype)  # of which nothing is read
            if like is None and arrays.library_of(array) is not None:
                like = array
            self._exact[i] = False
            tensor = self._ins[i]
            tensor.struct_size = ctypes.sizeof(structs.Tensor)
            kept.append(arrays.describe_any(tensor, array, planned.dtype, f"input {planned.name}"))
        return like

    def _make_outputs(self, like: Optional[Array], out: Any) -> List[Array]:
        """Arrays for the results, described."""
        if out is not None:
            return self._describe_out(out)
        results: List[Array] = []
        for planned, tensor in zip(self._out, self._outs):
            shape, dtype = planned.shape, planned.dtype
            assert shape is not None
            if like is not None:
                array = arrays.fresh_like(like, planned.number, shape)
                arrays.describe_any(tensor, array, None, planned.name, True)
                self._as_planned = False
            else:
                array = _empty(shape, dtype or numpy_dtype(planned.number))
                tensor.data = arrays.address(array) if planned.size else None
            results.append(array)
        return results

    def _run_with(self, cancel: Optional[Cancel], stream: Optional[int]) -> int:
        if cancel is not None and not isinstance(cancel, Cancel):
            raise InvalidArgumentError(f"cancel is a {type(cancel).__name__}, no lenslet.Cancel")
        self._options.cancel = None if cancel is None else cancel._handle
        self._options.cuda_stream = None if stream is None else whole(stream, "stream", 0, 2**64 - 1)
        self._call.options = ctypes.addressof(self._options)
        try:
            return int(self._run(self._call_at))
        finally:
            self._call.options = None

    def _out_list(self, out: Any) -> List[Array]:
        if isinstance(out, Mapping):
            if set(out) != {planned.name for planned in self._out}:
                raise InvalidArgumentError(f"out names {', '.join(map(str, out))}, which are not the model's outputs")
            return [out[planned.name] for planned in self._out]
        listed = list(out) if isinstance(out, (list, tuple)) else [out]
        if len(listed) != len(self._out):
            raise InvalidArgumentError(f"out has {len(listed)} arrays where the model has {len(self._out)} outputs")
        return listed

    def _describe_out(self, out: Any) -> List[Array]:
        """Type and shape are the library's to judge."""
        listed = [out] if type(out) is np.ndarray and len(self._out) == 1 else self._out_list(out)
        for planned, tensor, array in zip(self._out, self._outs, listed):
            if type(array) is np.ndarray and array.dtype is planned.dtype and array.shape == planned.shape:
                try:
                    tensor.data = ctypes.addressof(_from_buffer(array))
                    continue
                except (TypeError, ValueError, BufferError):
                    pass
            self._as_planned = False
            arrays.describe_any(tensor, array, None, f"out {planned.name}", True)
        return listed

    def _reset_outputs(self) -> None:
        for planned, tensor in zip(self._out, self._outs):
            planned.fill(tensor)
        self._as_planned = True

    def _late_outputs(self, out: Any) -> Optional[List[Array]]:
        """None: they are asked for afterwards."""
        if out is not None:
            self._out_list(out)
        return None

    def _computed(self) -> List[Array]:
        result = structs.made(structs.Tensor)
        computed = []
        for i in range(len(self._out)):
            check(library.lenslet_runner_result(self._handle, i, result))
            computed.append(arrays.copied(result))
        return computed

    def _into(self, results: List[Array], out: Any) -> List[Array]:
        listed = self._out_list(out)
        for planned, result, array in zip(self._out, results, listed):
            if not isinstance(array, np.ndarray) or array.shape != result.shape or array.dtype != result.dtype:
                raise InvalidArgumentError(
                    f"out {planned.name} has to be a NumPy array of {result.dtype}{list(result.shape)}"
                )
            np.copyto(array, result)
        return listed

    def _raise(self, status: int) -> None:
        error = last_error(status)
        self._still_open()
        observed = self._observer
        if observed is not None and observed.raised is not None:
            raised, observed.raised = observed.raised, None
            raise raised
        raise error


class _Observed:
    """An observer in Python as one in C."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.raised: Optional[BaseException] = None
        self._calls = self._called()
        next(self._calls)
        self.callback = structs.Observer(self._calls.send)

    def _called(self) -> Generator[int, Any, None]:
        """What is raised ends the run; ctypes would print it and go on. A generator, as a signal that came meanwhile
        raises where a call begins, or a loop: before the first line of a function, where nothing catches it."""
        answer = 0
        while True:
            try:
                while True:
                    event = yield answer
                    answer = 1 if self.observer(_seen(event.contents)) else 0
            except GeneratorExit:
                return
            except BaseException as error:
                # Without this frame, which traceback.clear_frames() would end.
                self.raised = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
                answer = 1


def _seen(given: Any) -> LayerEvent:
    return LayerEvent(
        int(given.step),
        text_of(given.name),
        text_of(given.op),
        text_of(given.algorithm),
        float(given.ms),
        _values(library.lenslet_event_input, given.values, int(given.inputs)),
        _values(library.lenslet_event_output, given.values, int(given.outputs)),
    )


def _values(ask: Any, values: Any, count: int) -> Tuple[Optional[np.ndarray[Any, Any]], ...]:
    found: List[Optional[np.ndarray[Any, Any]]] = []
    for i in range(count):
        tensor = structs.made(structs.Tensor)
        check(ask(values, i, tensor))
        found.append(None if tensor.rank < 0 else arrays.copied(tensor))
    return tuple(found)
