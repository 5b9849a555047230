"""Reads PyTorch's legacy (pre-zip) checkpoint files without PyTorch and without trusting them.

The file is a sequence: a magic number, a protocol number, a dict about the writing system, the state dict, the list of
storage keys (five pickles), then each storage as an int64 count and its raw little-endian elements. A pickle can run
any code, so the opcodes are scanned before anything is executed, and the unpickler knows four names: an ordered dict,
a tensor made of a storage, and the two storage types. A state dict holds tensors and nothing else.
"""

import collections
import io
import math
import pickle
import pickletools

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
MAX_FILE_BYTES = 1 << 30
MAX_OPCODES = 1_000_000
MAX_RANK = 8

# What PyTorch writes with protocol 2 for a state dict, and nothing that could build another object.
ALLOWED_OPCODES = frozenset(
    "PROTO STOP MARK GLOBAL REDUCE BUILD BINPERSID NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINUNICODE "
    "EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS "
    "BINPUT LONG_BINPUT BINGET LONG_BINGET".split()
)


class CheckpointError(ValueError):
    """The file is not a legacy checkpoint that holds tensors only."""


class _StorageType:
    """Stands for torch.FloatStorage and the like; cannot be called, so REDUCE on it fails."""

    __slots__ = ("dtype", "itemsize")

    def __init__(self, dtype, itemsize):
        self.dtype, self.itemsize = dtype, itemsize


class _Storage:
    __slots__ = ("kind", "elems", "data")

    def __init__(self, kind, elems):
        self.kind, self.elems, self.data = kind, elems, None


class _TensorReference:
    """A tensor whose storage has not been read yet."""

    __slots__ = ("storage", "offset", "shape", "strides")

    def __init__(self, storage, offset, shape, strides):
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides

    def array(self):
        import numpy as np  # here, so that everything that refuses can be tested without it

        data = np.frombuffer(self.storage.data, self.storage.kind.dtype)
        if 0 in self.shape:
            return np.empty(self.shape, data.dtype)
        strides = [stride * data.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(data[self.offset :], self.shape, strides).copy()


def _is_count(value):
    return type(value) is int and 0 <= value < 1 << 40


def _rebuild_tensor(*arguments):
    if len(arguments) != 6:
        raise CheckpointError("a tensor is built from %d arguments instead of 6" % len(arguments))
    storage, offset, shape, strides, _requires_grad, _hooks = arguments
    if not isinstance(storage, _Storage) or type(shape) is not tuple or type(strides) is not tuple:
        raise CheckpointError("a tensor is not made of a storage, a shape and strides")
    if len(shape) != len(strides) or len(shape) > MAX_RANK:
        raise CheckpointError("a tensor has %d dimensions and %d strides" % (len(shape), len(strides)))
    if not all(map(_is_count, (offset, *shape, *strides))):
        raise CheckpointError("a tensor's offset, shape or strides are not counts")
    last = offset + sum((dim - 1) * stride for dim, stride in zip(shape, strides))
    if 0 not in shape and (last >= storage.elems or math.prod(shape) > storage.elems):
        raise CheckpointError("a tensor of shape %s reaches outside its storage of %d" % (shape, storage.elems))
    return _TensorReference(storage, offset, shape, strides)


_GLOBALS = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch", "FloatStorage"): _StorageType("<f4", 4),
    ("torch", "LongStorage"): _StorageType("<i8", 8),
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, storages, file_bytes):
        super().__init__(file)
        self._storages, self._bytes_left = storages, file_bytes

    def find_class(self, module, name):
        try:
            return _GLOBALS[module, name]
        except KeyError:
            raise CheckpointError("the pickle names %s.%s, which is no tensor" % (module, name)) from None

    def persistent_load(self, reference):
        if type(reference) is not tuple or len(reference) != 6 or reference[0] != "storage":
            raise CheckpointError("a persistent reference is not a storage")
        _, kind, key, _location, elems, view = reference
        if not isinstance(kind, _StorageType) or type(key) is not str or not _is_count(elems) or view is not None:
            raise CheckpointError("a storage is described in an unknown way")
        known = self._storages.get(key)
        if known is None:
            self._bytes_left -= elems * kind.itemsize
            if self._bytes_left < 0:
                raise CheckpointError("the storages are larger than the file")
            known = self._storages[key] = _Storage(kind, elems)
        if known.kind is not kind or known.elems != elems:
            raise CheckpointError("storage %s is described in two ways" % key)
        return known


def _check_opcodes(file):
    """Walks one pickle without executing it; leaves the position where it was."""
    start = file.tell()
    for count, (opcode, argument, _position) in enumerate(pickletools.genops(file)):
        if opcode.name not in ALLOWED_OPCODES:
            raise CheckpointError("the pickle uses opcode %s" % opcode.name)
        if count > MAX_OPCODES or (opcode.name == "LONG_BINPUT" and argument > MAX_OPCODES):
            raise CheckpointError("the pickle is too long")
    file.seek(start)


def _load(file, storages, file_bytes):
    try:
        _check_opcodes(file)
        return _Unpickler(file, storages, file_bytes).load()
    except CheckpointError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise CheckpointError("damaged pickle: %s" % error) from None


def _read_storages(file, keys, storages):
    if type(keys) is not list or len(set(map(str, keys))) != len(keys) or set(keys) != set(storages):
        raise CheckpointError("the list of storages does not fit the tensors")
    for key in keys:
        storage = storages[key]
        if int.from_bytes(file.read(8), "little", signed=True) != storage.elems:
            raise CheckpointError("storage %s has another size than its tensors say" % key)
        storage.data = file.read(storage.elems * storage.kind.itemsize)
        if len(storage.data) != storage.elems * storage.kind.itemsize:
            raise CheckpointError("the file ends inside storage %s" % key)


def read_state_dict(path):
    """The tensors of the checkpoint by name, as numpy arrays of float32 or int64."""
    with open(path, "rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise CheckpointError("the file is larger than %d bytes" % MAX_FILE_BYTES)
    return parse_state_dict(content)


def parse_state_dict(content):
    """The same from bytes."""
    file, storages = io.BytesIO(content), {}
    if _load(file, {}, 0) != MAGIC or _load(file, {}, 0) != PROTOCOL:
        raise CheckpointError("this is no PyTorch checkpoint of the legacy format")
    system = _load(file, {}, 0)
    if type(system) is not dict or system.get("little_endian") is not True:
        raise CheckpointError("the checkpoint was not written on a little-endian machine")
    state = _load(file, storages, len(content))
    _read_storages(file, _load(file, {}, 0), storages)
    if file.read(1):
        raise CheckpointError("bytes follow the last storage")
    if not isinstance(state, dict):
        raise CheckpointError("the checkpoint is no state dict")
    for name, value in state.items():
        if type(name) is not str or not isinstance(value, _TensorReference):
            raise CheckpointError("entry %.80r of the state dict is no tensor" % (name,))
    return {name: value.array() for name, value in state.items()}
