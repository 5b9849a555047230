"""Tools for drawing a node: element types, the table of operators, valid axes and shapes.

OPERATORS[name](d, name) adds one node to the graph of a Drawer `d`. Shapes and attributes are within ONNX's limits; a
node that ONNX Runtime still refuses is drawn again.
"""

import numpy
import onnx

F32, F64, F16, BOOL = numpy.float32, numpy.float64, numpy.float16, numpy.bool_
I8, I16, I32, I64 = numpy.int8, numpy.int16, numpy.int32, numpy.int64
U8, U16, U32, U64 = numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64
SIGNED, UNSIGNED = (I8, I16, I32, I64), (U8, U16, U32, U64)
INTEGERS = SIGNED + UNSIGNED
NUMBERS = (F32, F32, F32, F64) + INTEGERS  # float32 as often as it is used
ANY = NUMBERS + (BOOL,)

OPERATORS = {}


class Redraw(Exception):
    """The drawn node is invalid; draw another."""


def operator(*names):
    def register(make):
        OPERATORS.update(dict.fromkeys(names, make))
        return make

    return register


def since(d, op):
    """The version of the operator that the graph's opset means."""
    try:
        return onnx.defs.get_schema(op, d.graph.opset).since_version
    except Exception as error:
        raise Redraw from error


def axis_of(d, rank, last=True):
    """An axis, counted from either end. `last`: False excludes rank itself."""
    axis = d.integer(0, rank - 1)
    return axis - rank if d.chance(0.4) else axis


def split_off(d, values, name, argument):
    """A value that became an input at some opset: (inputs, attributes)."""
    return ([d.known(values)], {}) if argument else ([], {name: list(values)})


def broadcast_to(d, dims):
    """Dimensions that broadcast with `dims`."""
    other = [1 if d.chance(0.25) else size for size in dims]
    other = other[d.integer(0, len(other)):] if d.chance(0.3) else other
    return [d.integer(1, 4)] + other if d.chance(0.1) and len(other) == len(dims) < 5 else other


def same_type(d, name, dims=None, fits=lambda array: True):
    """Another value of the same type, broadcast."""
    array = d[name]
    dims = broadcast_to(d, array.shape) if dims is None else dims
    found = [other for other, had in d.graph.arrays.items() if had.dtype == array.dtype and list(had.shape) == list(dims)
             and not other.startswith("c") and fits(had)]  # fmt: skip
    if found and d.chance(0.5):
        return d.pick(found)
    fresh = d.array(array.dtype, dims)
    if not fits(fresh):
        if array.dtype.kind not in "iuf":
            raise Redraw
        fresh = numpy.where(fresh == 0, array.dtype.type(3), abs(fresh))
    return d.new(fresh.astype(array.dtype))
