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
from .tables import Plan

Array = Any  # from NumPy, PyTorch, CuPy, or any with DLPack
Outputs = Union[Array, Tuple[Array, ...], Dict[str, Array]]
_from_buffer: Any = ctypes.c_char.from_buffer
_empty = np.empty
Observer = Callable[["LayerEvent"], Optional[bool]]


class LayerEvent(NamedTuple):
    """A completed step.

    ``ms`` is the time of the step alone on its device. ``inputs`` and ``outputs`` are copies, NCHW, None for an omitted
    optional input.
    """

    step: int
    name: str
    op: str
    algorithm: str
    ms: float
    inputs: Tuple[Optional[np.ndarray[Any, Any]], ...]
    outputs: Tuple[Optional[np.ndarray[Any, Any]], ...]


class _Planned:
    """A planned port in the form that is quickest to compare an array with."""

    def __init__(self, port: Port) -> None:
        self.name, self.unread = port.name, port.unread
        self.number = NUMBERS[port.dtype]
        known = port.shape is not None and all(isinstance(dim, int) for dim in port.shape)
        self.shape: Optional[Tuple[int, ...]] = tuple(int(dim) for dim in port.shape or ()) if known else None
        self.dtype: Optional[np.dtype[Any]]
        try:
            self.dtype = numpy_dtype(self.number)
        except UnsupportedError:  # matters only when an array is made
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
    """A planned model: algorithms chosen, weights packed, memory allocated. ``Model.runner()`` makes one.

    Calling it runs the network and releases the GIL meanwhile. A call during another thread's call is refused, so make
    one for each thread; they share the model's weights.
    """

    def __init__(self, model: Handle, options: structs.PlanOptions, inputs: int, outputs: int, late: bool) -> None:
        self._handle = Handle()
        check(library.lenslet_runner_create(model, ctypes.byref(options), ctypes.byref(self._handle)))
        # A caller takes this element out and puts it back. There is no lock, because a signal may raise after any call,
        # including acquire(), before the `try` that would release it. (From Python 3.11 on; older ones check for
        # signals anywhere.)
        self._turn = [None]
        self._plan: Optional[Plan] = None
        self._observer: Any = None
        self._counts = (inputs, outputs)
        self._in = [_Planned(port) for port in self.inputs]
        self._out = [_Planned(port) for port in self.outputs]
        # If a run decides shapes, the library allocates the outputs, and they are copied from there.
        self._late = late or any(port.shape is None for port in self._out)
        self._in_tensors = (structs.Tensor * inputs)()
        self._out_tensors = (structs.Tensor * outputs)()
        self._exact = [False] * inputs  # whether the struct has the planned type and shape: only the data is set
        self._as_planned = False  # whether the structs of outputs have the planned types and shapes, on the host
        self._options = structs.made(structs.RunOptions)
        # Cached views of the structs: indexing a ctypes array makes a new one each time.
        self._ins, self._outs = list(self._in_tensors), list(self._out_tensors)
        # The arguments of a run in one struct: ctypes takes 0.2 us for each argument.
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
        """As planned; if a run decides the shape, as of the last run."""
        return ports_of(library.lenslet_runner_output, self._still_open(), self._counts[1])

    @property
    def plan(self) -> Plan:
        """All decisions: steps with algorithm, reason and estimate, memory, device (``lenslet inspect --json``)."""
        handle = self._still_open()
        return Plan(taken_json(lambda text: library.lenslet_runner_plan_json(handle, text)))

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
        PyTorch, CuPy, or whatever NumPy takes by DLPack. Inputs that no node reads may be omitted, or None. The CPU
        reads arrays in place if they are aligned to 16 bytes, as all except slices are, else copies them; CUDA copies
        them on the device. Outputs are new arrays of the first input's kind, or `out`, which is filled in place.

        Returns an array, a tuple if the model has several outputs, or a dict by name if the inputs are a mapping.

        `cancel` ends the run from another thread. `stream` is a cudaStream_t after whose work a run on CUDA begins; the
        default is the current one of the arrays' library, PyTorch or CuPy. The results are complete when the call
        returns.

        Raises InvalidArgumentError for inputs that do not match, CancelledError, DeviceError.
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
            kept: List[Array] = []  # kept alive until the run is over
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
        """Calls ``observer(event)`` after each step of later runs; None removes the observer.

        An exception of the observer ends the run and is raised from it; returning True ends it with CancelledError.
        With an observer, steps that would run together run one by one.
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
        """Frees its memory and threads now. Later calls are refused."""
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
        """Replaces the others by None."""
        read = [number for number, planned in enumerate(self._in) if not planned.unread]
        if len(given) != len(read):
            raise InvalidArgumentError(f"{len(given)} inputs where the model has {len(self._in)}")
        arrays_of_all: List[Array] = [None] * len(self._in)
        for number, array in zip(read, given):
            arrays_of_all[number] = array
        return arrays_of_all

    def _describe_inputs(self, given: Sequence[Array], kept: List[Array]) -> Optional[Array]:
        """Returns the first input that is PyTorch's or CuPy's."""
        like: Optional[Array] = None
        for i, array in enumerate(given):
            planned = self._in[i]
            if type(array) is np.ndarray and array.dtype is planned.dtype and array.shape == planned.shape:
                # The common case, a third of a microsecond: from_buffer() accepts contiguous, writable arrays.
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
                array = np.empty(planned.shape or (), planned.dtype)  # nothing is read from it
            if like is None and arrays.library_of(array) is not None:
                like = array
            self._exact[i] = False
            tensor = self._ins[i]
            tensor.struct_size = ctypes.sizeof(structs.Tensor)
            kept.append(arrays.describe_any(tensor, array, planned.dtype, f"input {planned.name}"))
        return like

    def _make_outputs(self, like: Optional[Array], out: Any) -> List[Array]:
        """Makes and describes arrays for the results."""
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
        """The library checks type and shape."""
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
        """None: they are requested afterwards."""
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
    """Adapts an observer in Python to one in C."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.raised: Optional[BaseException] = None
        self._calls = self._called()
        next(self._calls)
        self.callback = structs.Observer(self._calls.send)

    def _called(self) -> Generator[int, Any, None]:
        """Exceptions must end the run; ctypes would print and ignore them. It is a generator because a pending signal
        raises where a call or a loop begins: before the first line of a function, where nothing catches it."""
        answer = 0
        while True:
            try:
                while True:
                    event = yield answer
                    answer = 1 if self.observer(_seen(event.contents)) else 0
            except GeneratorExit:
                return
            except BaseException as error:
                # Without this frame, which traceback.clear_frames() would clear.
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
