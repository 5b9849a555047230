"""The operators that differential.py draws: OPERATORS[name](d, name) adds one node to the graph of a Drawer `d`.

Shapes and attributes are drawn within what ONNX allows; what ONNX Runtime refuses all the same is drawn again.
"""

import numpy
import onnx
from onnx import helper

F32, F64, F16, BOOL = numpy.float32, numpy.float64, numpy.float16, numpy.bool_
I8, I16, I32, I64 = numpy.int8, numpy.int16, numpy.int32, numpy.int64
U8, U16, U32, U64 = numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64
SIGNED, UNSIGNED = (I8, I16, I32, I64), (U8, U16, U32, U64)
INTEGERS = SIGNED + UNSIGNED
NUMBERS = (F32, F32, F32, F64) + INTEGERS  # float32 as often as it is used
ANY = NUMBERS + (BOOL,)

OPERATORS = {}


class Redraw(Exception):
    """What was drawn is no node; draw another."""


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
    """An axis, counted from either end. `last`: rank itself is none."""
    axis = d.integer(0, rank - 1)
    return axis - rank if d.chance(0.4) else axis


def split_off(d, values, name, argument):
    """What became an input at some opset: (inputs, attributes)."""
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


# Elementwise.
UNARY = {
    "LeakyRelu": {"alpha": (0.01, 0.9)}, "Elu": {"alpha": (0.3, 2)}, "Selu": {"alpha": (0.5, 2), "gamma": (0.5, 2)},
    "HardSigmoid": {"alpha": (0.1, 0.5), "beta": (0.1, 0.6)}, "Celu": {"alpha": (0.3, 2)}, "ThresholdedRelu": {"alpha": (-0.5, 2)},
    "Shrink": {"lambd": (0.1, 1), "bias": (-0.5, 0.5)}, "Swish": {"alpha": (0.5, 2)},
}  # fmt: skip
PLAIN = """Sigmoid HardSwish Tanh Softplus Mish Exp Log Sqrt Reciprocal Floor Ceil Erf Softsign Round Sin Cos Tan Asin Acos
Atan Sinh Cosh Asinh Acosh Atanh""".split()


@operator(*UNARY, *PLAIN)
def unary(d, op):
    ranges = UNARY.get(op, {})
    given = {name: round(float(d.random.uniform(*ends)), 3) for name, ends in ranges.items() if d.chance(0.6)}
    d.emit(op, [d.value((F32, F32, F32, F64))], **given)


@operator("Gelu")
def gelu(d, op):
    d.emit(op, [d.value()], approximate=d.pick([None, "none", "tanh"]))


@operator("Relu", "Abs", "Neg", "Sign")
def unary_numbers(d, op):
    d.emit(op, [d.value((F32, F32, F64) + SIGNED)])


@operator("BitwiseNot")
def bitwise_not(d, op):
    d.emit(op, [d.value(INTEGERS)])


@operator("Not")
def negation(d, op):
    d.emit(op, [d.value([BOOL])])


@operator("IsNaN", "IsInf")
def classify(d, op):
    d.emit(op, [d.value((F32, F64))], detect_negative=d.pick([None, 0, 1]), detect_positive=d.pick([None, 0, 1]))


def swapped(d, a, b):
    return [a, b] if d.chance(0.5) else [b, a]


@operator("Add", "Sub", "Mul")
def arithmetic(d, op):
    a = d.value(NUMBERS)
    d.emit(op, swapped(d, a, same_type(d, a)))


@operator("Div")
def division(d, op):
    a = d.value(NUMBERS)
    d.emit(op, [a, same_type(d, a, fits=lambda array: array.dtype.kind == "f" or array.all())])


@operator("Mod")
def modulo(d, op):
    a = d.value(NUMBERS)
    fmod = 1 if d[a].dtype.kind == "f" else d.integer(0, 1)
    d.emit(op, [a, same_type(d, a, fits=lambda array: array.all())], fmod=fmod)


@operator("PRelu")
def prelu(d, op):
    a = d.value(rank=(1, 4))
    dims = [1 if d.chance(0.3) else size for size in d[a].shape][d.integer(0, d[a].ndim - 1):]
    d.emit(op, [a, same_type(d, a, dims)])


@operator("Pow")
def power(d, op):
    a = d.value((F32, F32, F64, I32, I64))
    dims = broadcast_to(d, d[a].shape)
    if d[a].dtype.kind == "f":
        exponent = d.new(d.array(d[a].dtype, dims)) if d.chance(0.4) else d.add(
            numpy.full(dims if d.chance(0.3) else [], d.pick([0, 0.5, 1, 2, 3, -1])).astype(d[a].dtype), d.chance(0.7))
    else:
        exponent = d.new(d.random.integers(0, 4, dims).astype(d.pick([d[a].dtype, I32, I64])))
    d.emit(op, [a, exponent])


@operator("Max", "Min", "Sum", "Mean")
def variadic(d, op):
    a = d.value(NUMBERS if op in ("Max", "Min") else (F32, F32, F64))
    d.emit(op, [a] + [same_type(d, a) for _ in range(d.integer(0, 3))])


@operator("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(d, op):
    a = d.value(INTEGERS)
    d.emit(op, swapped(d, a, same_type(d, a)))


@operator("BitShift")
def shift(d, op):
    a = d.value(UNSIGNED)
    by = d.random.integers(0, 8, broadcast_to(d, d[a].shape)).astype(d[a].dtype)
    d.emit(op, [a, d.new(by)], direction=d.pick(["LEFT", "RIGHT"]))


@operator("And", "Or", "Xor")
def logic(d, op):
    a = d.value([BOOL])
    d.emit(op, swapped(d, a, same_type(d, a)))


@operator("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def comparison(d, op):
    a = d.value(NUMBERS + (BOOL,) if op == "Equal" else NUMBERS)
    d.emit(op, swapped(d, a, same_type(d, a)))


@operator("Where")
def where(d, op):
    a = d.value(ANY)
    b = same_type(d, a)
    c = d.value([BOOL], dims=broadcast_to(d, d[a].shape))
    d.emit(op, [c, *swapped(d, a, b)])


@operator("Clip")
def clip(d, op):
    if since(d, op) < 11:
        d.emit(op, [d.value()], min=d.pick([None, -0.5]), max=d.pick([None, 0.7]))
        return
    a = d.value(NUMBERS)
    kind = d[a].dtype
    low = d.add(numpy.asarray(0 if kind.kind == "u" else -1).astype(kind), d.chance(0.7)) if d.chance(0.7) else ""
    high = d.add(numpy.asarray(d.integer(1, 3)).astype(kind), d.chance(0.7)) if d.chance(0.7) else ""
    d.emit(op, [a, low, high])


def castable(d, a, to):
    """Out-of-range floats have no defined integer."""
    array, kind = d[a].astype(F64), numpy.dtype(to)
    if kind.kind in "iu" and d[a].dtype.kind == "f":
        limits = numpy.iinfo(kind)
        if not numpy.isfinite(array).all() or array.min(initial=0) <= limits.min - 1 or array.max(initial=0) >= min(limits.max + 1, 2**62):
            raise Redraw
    return kind


@operator("Cast")
def cast(d, op):
    a = d.value(ANY)
    d.emit(op, [a], to=helper.np_dtype_to_tensor_dtype(castable(d, a, d.pick(d.types(ANY)))))


@operator("CastLike")
def cast_like(d, op):
    a = d.value(ANY)
    like = d.value(ANY)
    castable(d, a, d[like].dtype)
    d.emit(op, [a, like])


def scale_and_zero(d, rank_dims, axis, kind):
    """A scale and a zero point, for the tensor or each index of an axis."""
    dims = [rank_dims[axis]] if axis is not None else []
    scale = d.add(numpy.asarray(d.random.uniform(0.02, 0.3, dims), F32), d.chance(0.8))
    zero = d.add(numpy.asarray(0 if kind == I32 else d.random.integers(0, 9, dims)).astype(kind) * numpy.ones(dims, kind), d.chance(0.8))
    return scale, zero


def quantisation_axis(d, op, a):
    if since(d, op) < 13 or d[a].ndim == 0 or d.chance(0.5):
        return None, {}
    axis = axis_of(d, d[a].ndim)
    return axis, {"axis": axis}


@operator("QuantizeLinear")
def quantize(d, op):
    a = d.value([F32])
    axis, given = quantisation_axis(d, op, a)
    kinds = (I8, U8) if since(d, op) < 21 else (I8, U8, I16, U16)
    scale, zero = scale_and_zero(d, d[a].shape, axis, d.pick(kinds))
    if numpy.isnan(d[a]).any() or d[scale].dtype != d[a].dtype:
        raise Redraw
    d.emit(op, [a, scale, zero if d.chance(0.8) else ""], **given)


@operator("DequantizeLinear")
def dequantize(d, op):
    a = d.value((I8, U8, I8, U8, I32) if since(d, op) < 21 else (I8, U8, I16, U16, I32))
    axis, given = quantisation_axis(d, op, a)
    scale, zero = scale_and_zero(d, d[a].shape, axis, d[a].dtype.type)
    d.emit(op, [a, scale, zero if d.chance(0.8) else ""], **given)


# Reductions.
@operator("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1", "ReduceL2",
          "ReduceLogSum", "ReduceLogSumExp")  # fmt: skip
def reduction(d, op):
    a = d.value((F32, F32, F32, F64, I32, I64, I8, U8))
    rank = d[a].ndim
    axes = sorted(d.random.permutation(rank)[: d.integer(1, max(rank, 1))].tolist()) if rank else []
    axes = [axis - rank if d.chance(0.3) else axis for axis in axes]
    inputs, given = ([], {}) if not axes or d.chance(0.15) else split_off(d, axes, "axes", since(d, op) >= (13 if op == "ReduceSum" else 18))
    d.emit(op, [a, *inputs], **given, keepdims=d.pick([None, 0, 1]),
           noop_with_empty_axes=d.pick([None, None, 0, 1]) if inputs or not given else None)


@operator("ArgMax", "ArgMin")
def arg(d, op):
    a = d.value((F32, F32, F64, I32, I8, U8), rank=(1, 4))
    d.emit(op, [a], axis=d.pick([None, axis_of(d, d[a].ndim)]), keepdims=d.pick([None, 0, 1]), select_last_index=d.pick([None, 0, 1]))


@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(d, op):
    a = d.value(rank=(2, 4))
    d.emit(op, [a], axis=d.pick([None, axis_of(d, d[a].ndim)]))


@operator("CumSum", "CumProd")
def cumulate(d, op):
    a = d.value((F32, F32, F64, I32, I64), rank=(1, 4))
    axis = d.known(axis_of(d, d[a].ndim), d.pick([I32, I64]))
    d.emit(op, [a, axis], exclusive=d.pick([None, 0, 1]), reverse=d.pick([None, 0, 1]))


@operator("TopK")
def top_k(d, op):
    a = d.value((F32, F32, F64, I32, I64), rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    k = d.integer(1, d[a].shape[axis])
    inputs, given = ([d.known([k])], {}) if since(d, op) >= 10 else ([], {"k": k})
    d.emit(op, [a, *inputs], 2, **given, axis=axis, largest=d.pick([None, 0, 1]))


# Normalisation.
def channel_parameters(d, dims, count, kind=None):
    return [d.add(d.random.uniform(0.4, 1.6, dims).astype(kind or d.float_type()), d.chance(0.8)) for _ in range(count)]


@operator("BatchNormalization")
def batch_norm(d, op):
    a = d.value(rank=(2, 4))
    d.emit(op, [a, *channel_parameters(d, [d[a].shape[1]], 4)], epsilon=d.pick([None, 1e-3]), momentum=d.pick([None, 0.5]))


@operator("InstanceNormalization")
def instance_norm(d, op):
    a = d.value(rank=(3, 4))
    d.emit(op, [a, *channel_parameters(d, [d[a].shape[1]], 2)], epsilon=d.pick([None, 1e-3]))


@operator("LayerNormalization", "RMSNormalization")
def layer_norm(d, op):
    a = d.value(rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    scale, bias = channel_parameters(d, d[a].shape[axis % d[a].ndim:], 2)
    inputs = [a, scale] + ([bias] if op == "LayerNormalization" and d.chance(0.7) else [])
    d.emit(op, inputs, d.pick([1, 1, 3]) if op == "LayerNormalization" else 1, axis=axis, epsilon=d.pick([None, 1e-3]))


@operator("GroupNormalization")
def group_norm(d, op):
    groups, each = d.integer(1, 4), d.integer(1, 3)
    a = d.value(dims=[d.integer(1, 2), groups * each, *d.dims(1, 2)])
    d.emit(op, [a, *channel_parameters(d, [groups * each if since(d, op) >= 21 else groups], 2)], num_groups=groups)


@operator("LpNormalization")
def lp_norm(d, op):
    a = d.value(rank=(1, 4))
    d.emit(op, [a], axis=axis_of(d, d[a].ndim), p=d.pick([None, 1, 2]))


@operator("MeanVarianceNormalization")
def mean_variance(d, op):
    a = d.value(rank=(4, 4))
    d.emit(op, [a], axes=d.pick([None, [0, 2, 3], [2, 3], [1]]))


@operator("LRN")
def lrn(d, op):
    a = d.value(rank=(3, 4))
    d.emit(op, [a], size=d.pick([1, 3, 5]), alpha=d.pick([None, 0.01, 0.5]), beta=d.pick([None, 0.5]), bias=d.pick([None, 2.0]))


# Products.
def window(d, spatial, kernel=None, pads=True, dilation=True):
    rank = len(spatial)
    if 0 in spatial:
        raise Redraw
    kernel = kernel or [d.integer(1, min(size, 4)) for size in spatial]
    given = {"kernel_shape": kernel}
    if d.chance(0.6):
        given["strides"] = [d.integer(1, 3) for _ in range(rank)]
    if dilation and d.chance(0.3):
        given["dilations"] = [d.integer(1, 2) for _ in range(rank)]
    if d.chance(0.2):
        given["auto_pad"] = d.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif pads and d.chance(0.6):
        given["pads"] = [d.integer(0, size - 1) for size in kernel * 2]
    return given


def spatial_dims(d):
    rank = d.pick([2, 2, 2, 2, 1, 3])
    return [d.integer(1, 14 if rank < 3 else 5) for _ in range(rank)]


@operator("Conv", "ConvTranspose")
def convolution(d, op):
    group = d.pick([1, 1, 1, 2, 3])
    each, filters = d.pick([1, 2, 3, 5, 8, 16]), d.pick([1, 1, 2, 4, 7, 8, 16])
    if d.chance(0.15):
        each, filters, group = 1, 1, d.integer(2, 17)
    a = d.value(dims=[d.integer(1, 2), each * group, *spatial_dims(d)]) if d.chance(0.7) else d.value(rank=(3, 5))
    if d[a].shape[1] != each * group:
        group, each = 1, d[a].shape[1]
    spatial = list(d[a].shape[2:])
    given = window(d, spatial)
    kernel = given["kernel_shape"]
    dims = [group * filters, each, *kernel] if op == "Conv" else [group * each, filters, *kernel]
    weights = d.add((d.array(d.float_type(), dims) / numpy.sqrt(each * numpy.prod(kernel))).astype(d.float_type()), d.chance(0.9))
    bias = [d.add(d.array(d.float_type(), [group * filters]), d.chance(0.9))] if d.chance(0.6) else []
    if op == "ConvTranspose":
        if d.chance(0.3):
            strides = given.setdefault("strides", [2] * len(kernel))
            given["output_padding"] = [d.integer(0, stride - 1) for stride in strides]
        elif d.chance(0.15):
            given.pop("pads", None)
            strides, dilations = given.get("strides", [1] * 9), given.get("dilations", [1] * 9)
            given["output_shape"] = [max(1, (size - 1) * s + (k - 1) * di + 1 - d.integer(0, k - 1))
                                     for size, s, di, k in zip(spatial, strides, dilations, kernel)]  # fmt: skip
    if d.chance(0.2):
        given.pop("kernel_shape")
    d.emit(op, [a, weights, *bias], **given, group=group if group > 1 or d.chance(0.5) else None)


@operator("Gemm")
def gemm(d, op):
    m, n, k = (d.pick([1, 2, 3, 5, 8, 17]) for _ in range(3))
    trans_a, trans_b = d.pick([None, 0, 1]), d.pick([None, 0, 1])
    a = d.value(dims=[k, m] if trans_a else [m, k])
    b = d.new(d.array(d[a].dtype, [n, k] if trans_b else [k, n]))
    bias = [d.new(d.array(d[a].dtype, d.pick([[], [n], [m, n], [1, n], [m, 1]])))] if d.chance(0.7) else []
    if not bias and since(d, op) < 11:
        raise Redraw
    d.emit(op, [a, b, *bias], transA=trans_a, transB=trans_b, alpha=d.pick([None, 0.5]), beta=d.pick([None, 2.0]))


@operator("MatMul")
def matmul(d, op):
    a = d.value(rank=(1, 4))
    k, n = d[a].shape[-1], d.pick([1, 2, 3, 8, 17])
    batch = broadcast_to(d, d[a].shape[:-2]) if d[a].ndim > 2 or d.chance(0.2) else []
    d.emit(op, [a, d.new(d.array(d[a].dtype, [*batch, k, n] if d.chance(0.85) else [k]))])


@operator("Einsum")
def einsum(d, op):
    equation, dims = d.pick([("ij,jk->ik", "ij jk"), ("bij,bjk->bik", "bij bjk"), ("ij->ji", "ij"), ("ii->i", "ii"),
                             ("bhwc,hkc->bhwk", "bhwc hkc"), ("i,i->", "i i"), ("ijk->ik", "ijk"), ("ij,kj", "ij kj"),
                             ("...ij,...jk->...ik", "bij bjk")])  # fmt: skip
    sizes = {letter: d.integer(1, 5) for letter in "bijkhwc"}
    d.emit(op, [d.value(dims=[sizes[letter] for letter in term]) for term in dims.split()], equation=equation)


# Quantised products.
def quantised(d, dims, kinds=(U8, I8)):
    kind = d.pick(kinds)
    return d.new(d.random.integers(0 if kind == U8 else -90, 200 if kind == U8 else 91, dims).astype(kind))


def factors(d, count=1, kind=U8, constant=True):
    scale = d.add(numpy.asarray(d.random.uniform(0.01, 0.1), F32), constant)
    return scale, d.add(numpy.asarray(d.integer(0, 9)).astype(kind), constant)


@operator("QLinearConv")
def qlinear_conv(d, op):
    channels, filters = d.integer(1, 8), d.integer(1, 8)
    a = quantised(d, [d.integer(1, 2), channels, d.integer(2, 9), d.integer(2, 9)])
    given = window(d, d[a].shape[2:])
    w = d.add(d.random.integers(-60, 61, [filters, channels, *given["kernel_shape"]]).astype(I8), True)
    scales = d.add(d.random.uniform(0.01, 0.1, [filters] if d.chance(0.5) else []).astype(F32), True)
    zero = d.add(numpy.zeros(d[scales].shape, I8), True)
    bias = [d.add(d.random.integers(-300, 300, [filters]).astype(I32), True)] if d.chance(0.5) else []
    kind = d[a].dtype.type
    d.emit(op, [a, *factors(d, kind=kind), w, scales, zero, *factors(d, kind=kind), *bias], **given)


@operator("ConvInteger")
def conv_integer(d, op):
    channels, filters = d.integer(1, 8), d.integer(1, 8)
    a = quantised(d, [d.integer(1, 2), channels, d.integer(2, 9), d.integer(2, 9)])
    given = window(d, d[a].shape[2:])
    w = d.add(d.random.integers(0, 61, [filters, channels, *given["kernel_shape"]]).astype(d[a].dtype), True)
    zeros = [d.add(numpy.asarray(3).astype(d[a].dtype), True)] if d.chance(0.6) else []
    d.emit(op, [a, w, *zeros], **given)


@operator("MatMulInteger", "QLinearMatMul")
def matmul_integer(d, op):
    a = quantised(d, d.dims(2, 3))
    b = quantised(d, [d[a].shape[-1], d.integer(1, 7)], [d[a].dtype.type])
    kind = d[a].dtype.type
    if op == "QLinearMatMul":
        d.emit(op, [a, *factors(d, kind=kind), b, *factors(d, kind=kind), *factors(d, kind=kind)])
    else:
        d.emit(op, [a, b] + [d.add(numpy.asarray(d.integer(0, 5)).astype(kind), True) for _ in range(d.integer(0, 2))])


@operator("DynamicQuantizeLinear")
def dynamic_quantize(d, op):
    d.emit(op, [d.value([F32])], 3)


# Pools.
@operator("MaxPool", "AveragePool", "LpPool")
def pool(d, op):
    a = d.value((F32, F32, F32, F64) + ((I8, U8) if op == "MaxPool" and since(d, op) >= 12 else ()),
                dims=[d.integer(1, 2), d.pick([1, 2, 3, 8, 17]), *spatial_dims(d)])  # fmt: skip
    given = window(d, d[a].shape[2:], dilation=op != "AveragePool" or since(d, op) >= 19)
    if "auto_pad" not in given and d.chance(0.3):
        given["ceil_mode"] = 1
    given["count_include_pad"] = d.pick([None, 0, 1])
    given["p"] = d.pick([None, 1, 2, 3])
    d.emit(op, [a], d.pick([1, 1, 2]) if op == "MaxPool" and since(d, op) >= 8 else 1, **given)


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(d, op):
    d.emit(op, [d.value(rank=(3, 5))])


@operator("Col2Im")
def col2im(d, op):
    image = [d.integer(3, 8) for _ in range(d.pick([2, 2, 1, 3]))]
    block = [d.integer(1, 3) for _ in image]
    given = {"strides": [d.integer(1, 2) for _ in image], "pads": [d.integer(0, 1) for _ in image * 2],
             "dilations": [d.integer(1, 2) if size > 4 else 1 for size in image]}  # fmt: skip
    columns = 1
    for i, size in enumerate(image):
        columns *= max(0, (size + given["pads"][i] + given["pads"][i + len(image)] - given["dilations"][i] * (block[i] - 1) - 1)
                       // given["strides"][i] + 1)  # fmt: skip
    a = d.value(dims=[d.integer(1, 2), d.integer(1, 3) * int(numpy.prod(block)), columns])
    d.emit(op, [a, d.known(image), d.known(block)], **given)


# Moving elements.
@operator("Pad")
def pad(d, op):
    a = d.value(ANY if since(d, op) >= 13 else (F32,), rank=(1, 4))
    mode = d.pick([None, "constant", "reflect", "edge"] + (["wrap"] if since(d, op) >= 19 else []))
    ends = [d.integer(0, 3) for _ in range(2 * d[a].ndim)]
    if d.chance(0.15):
        ends = [end - 2 for end in ends]
    if d[a].size == 0 or any(low + high + size < 1 for low, high, size in zip(ends, ends[d[a].ndim:], d[a].shape)):
        raise Redraw
    if mode == "reflect":
        ends = [min(end, size - 1) for end, size in zip(ends, d[a].shape * 2)]
    if since(d, op) < 11:
        d.emit(op, [a], pads=ends, mode=mode, value=d.pick([None, 0.5]))
        return
    value = d.add(d.array(d[a].dtype, []), True) if mode in (None, "constant") and d.chance(0.5) else ""
    axes = ""
    if since(d, op) >= 18 and d.chance(0.3):
        chosen = d.random.permutation(d[a].ndim)[: d.integer(1, d[a].ndim)].tolist()
        ends = [ends[axis] for axis in chosen] + [ends[axis + d[a].ndim] for axis in chosen]
        axes = d.known(chosen)
    d.emit(op, [a, d.known(ends), value, axes], mode=mode)


@operator("Transpose")
def transpose(d, op):
    a = d.value(ANY, rank=(1, 5))
    d.emit(op, [a], perm=d.pick([None, d.random.permutation(d[a].ndim).tolist()]))


@operator("Concat")
def concat(d, op):
    a = d.value(ANY, rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    others = []
    for _ in range(d.integer(0, 3)):
        dims = list(d[a].shape)
        dims[axis] = d.integer(0 if d.chance(0.1) else 1, 5)
        others.append(same_type(d, a, dims))
    d.emit(op, [*others, a] if d.chance(0.5) else [a, *others], axis=axis)


@operator("Split")
def split(d, op):
    a = d.value(ANY, rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    size = d[a].shape[axis]
    parts = d.integer(1, min(size, 4)) if size else 1
    cuts = sorted(d.integer(0, size) for _ in range(parts - 1))
    sizes = numpy.diff([0, *cuts, size]).tolist()
    inputs, given = split_off(d, sizes, "split", since(d, op) >= 13)
    if since(d, op) >= 18 and d.chance(0.4):
        inputs, given = [], {"num_outputs": parts}
    elif size % parts == 0 and since(d, op) < 18 and d.chance(0.4):
        inputs, given = [], {}
    d.emit(op, [a, *inputs], parts, **given, axis=axis)


@operator("Slice")
def slices(d, op):
    a = d.value(ANY, rank=(1, 4))
    axes = d.random.permutation(d[a].ndim)[: d.integer(1, d[a].ndim)].tolist()
    steps = [d.pick([1, 1, 1, 2, 3, -1, -2]) for _ in axes] if since(d, op) >= 10 else [1] * len(axes)
    starts, ends = [], []
    for axis, step in zip(axes, steps):
        size = d[a].shape[axis]
        low, high = d.integer(-size, size), d.pick([d.integer(0, size), size, 2**31 - 1, -1])
        starts.append(low if step > 0 else d.pick([size - 1, -1, 2**31 - 1]))
        ends.append(high if step > 0 else d.pick([0, -size - 1, -(2**31)]))
    if since(d, op) < 10:
        d.emit(op, [a], starts=starts, ends=ends, axes=axes)
        return
    kind = d.pick([I32, I64])
    if d.chance(0.2) and steps == [1] * len(axes) and axes == list(range(len(axes))):
        d.emit(op, [a, d.known(starts, kind), d.known(ends, kind)])
    else:
        axes = [axis - d[a].ndim if d.chance(0.3) else axis for axis in axes]
        d.emit(op, [a, d.known(starts, kind), d.known(ends, kind), d.known(axes, kind), d.known(steps, kind)])


def indices(d, dims, size, negative=True):
    if size == 0:
        raise Redraw
    return d.new(d.random.integers(-size if negative else 0, size, dims).astype(d.pick([I64, I64, I32])))


@operator("Gather")
def gather(d, op):
    a = d.value(ANY, rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    d.emit(op, [a, indices(d, d.dims(0, 2, 4), d[a].shape[axis], since(d, op) >= 11)], axis=axis)


@operator("GatherElements")
def gather_elements(d, op):
    a = d.value(ANY, rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    dims = [d.integer(1, size) if size else 0 for size in d[a].shape]
    dims[axis] = d.integer(1, 5)
    d.emit(op, [a, indices(d, dims, d[a].shape[axis])], axis=axis)


def tuples(d, shape, count, depth):
    parts = [d.random.integers(0, max(size, 1), count) for size in shape[:depth]]
    if 0 in shape[:depth]:
        raise Redraw
    return numpy.stack(parts, -1).astype(I64)


@operator("GatherND")
def gather_nd(d, op):
    a = d.value(ANY, rank=(1, 4))
    batch = d.integer(0, min(d[a].ndim - 1, 1)) if since(d, op) >= 12 else 0
    depth = d.integer(1, d[a].ndim - batch)
    given = tuples(d, d[a].shape[batch:], [*d[a].shape[:batch], *d.dims(0 if batch else 1, 2, 3)], depth)
    d.emit(op, [a, d.new(given)], batch_dims=batch or None)


@operator("ScatterElements", "Scatter")
def scatter_elements(d, op):
    a = d.value(ANY, rank=(1, 3))
    axis = axis_of(d, d[a].ndim)
    dims = [d.integer(1, size) if size else 0 for size in d[a].shape]
    if 0 in dims:
        raise Redraw
    size = d[a].shape[axis]
    reduction = d.pick([None, None, "none"] + (["add", "mul"] if since(d, op) >= 16 else []) + (["max", "min"] if since(d, op) >= 18 else []))
    if op == "Scatter" or d[a].dtype.kind == "b":
        reduction = None
    if reduction in (None, "none"):  # no two alike
        dims[axis] = min(dims[axis], size)
        where = numpy.argsort(d.random.random([*dims[:axis % len(dims)], size, *dims[axis % len(dims) + 1:]]), axis).take(range(dims[axis]), axis)
    else:
        dims[axis] = d.integer(1, 5)
        where = d.random.integers(-size, size, dims)
    where = d.new(numpy.ascontiguousarray(where).astype(d.pick([I64, I32])))
    d.emit(op, [a, where, d.new(d.array(d[a].dtype, dims))], axis=axis, reduction=reduction)


@operator("ScatterND")
def scatter_nd(d, op):
    a = d.value(ANY, rank=(1, 4))
    depth = d.integer(1, d[a].ndim)
    where = tuples(d, d[a].shape, [d.integer(1, 4)], depth)
    reduction = d.pick([None, "none"] + (["add", "mul"] if since(d, op) >= 16 else []) + (["max", "min"] if since(d, op) >= 18 else []))
    if d[a].dtype.kind == "b":
        reduction = None
    if reduction in (None, "none"):
        where = numpy.unique(where, axis=0)
    updates = d.new(d.array(d[a].dtype, [len(where), *d[a].shape[depth:]]))
    d.emit(op, [a, d.new(where), updates], reduction=reduction)


@operator("OneHot")
def one_hot(d, op):
    where = d.value((I64, I32, F32), rank=(1, 3), fits=lambda array: array.dtype.kind != "f" or (array == numpy.round(array)).all())
    depth = d.known(d.integer(1, 8), d.pick([I64, I32]))
    d.emit(op, [where, depth, d.add(d.array(d.pick([F32, I32, I64]), [2]), d.chance(0.7))], axis=d.pick([None, axis_of(d, d[where].ndim + 1)]))


@operator("Compress")
def compress(d, op):
    a = d.value(ANY, rank=(1, 4))
    axis = d.pick([None, axis_of(d, d[a].ndim)])
    length = d[a].size if axis is None else d[a].shape[axis]
    if length == 0:
        raise Redraw
    d.emit(op, [a, d.known(d.random.random(d.integer(1, max(1, length))) < 0.5, BOOL)], axis=axis)


@operator("Trilu")
def trilu(d, op):
    a = d.value(ANY, rank=(2, 4))
    d.emit(op, [a] + ([d.known(d.integer(-4, 4))] if d.chance(0.6) else []), upper=d.pick([None, 0, 1]))


@operator("EyeLike")
def eye_like(d, op):
    a = d.value(ANY, rank=(2, 2))
    d.emit(op, [a], k=d.pick([None, d.integer(-3, 3)]), dtype=d.pick([None, 1, 7]))


@operator("CenterCropPad")
def center_crop_pad(d, op):
    a = d.value(ANY, rank=(1, 4))
    axes = d.pick([None, d.random.permutation(d[a].ndim)[: d.integer(1, d[a].ndim)].tolist()])
    d.emit(op, [a, d.known([d.integer(1, 8) for _ in (axes or range(d[a].ndim))])], axes=axes)


@operator("Expand")
def expand(d, op):
    a = d.value(ANY, rank=(0, 4))
    dims = [d.integer(1, 4) if size == 1 else d.pick([1, size]) for size in d[a].shape]
    d.emit(op, [a, d.known([d.integer(1, 3)] * d.integer(0, 1) + dims)])


@operator("Tile")
def tile(d, op):
    a = d.value(ANY, rank=(1, 4))
    d.emit(op, [a, d.known([d.integer(0 if d.chance(0.05) else 1, 3) for _ in d[a].shape])])


@operator("DepthToSpace", "SpaceToDepth")
def depth_space(d, op):
    b = d.integer(1, 3)
    n, c, h, w = (d.integer(1, 3) for _ in range(4))
    a = d.value((F32, F32, F64), dims=[n, c * b * b, h, w] if op == "DepthToSpace" else [n, c, h * b, w * b])
    d.emit(op, [a], blocksize=b, mode=d.pick([None, "DCR", "CRD"]))


@operator("ReverseSequence")
def reverse_sequence(d, op):
    a = d.value(ANY, rank=(2, 4))
    time = d.integer(0, 1)
    if 0 in d[a].shape[:2]:
        raise Redraw
    lengths = [d.integer(1, d[a].shape[time]) for _ in range(d[a].shape[1 - time])]
    d.emit(op, [a, d.known(lengths)], time_axis=time, batch_axis=1 - time)


# Images.
@operator("Resize", "Upsample")
def resize(d, op):
    types = (F32, F32, F32, U8, I8, I32) if since(d, op) >= 11 else (F32,)
    a = d.value(types, dims=[d.integer(1, 2), d.integer(1, 4), *(d.integer(1, 8) for _ in range(d.pick([1, 2, 2, 2])))])
    mode = d.pick([None, "nearest", "linear"] + (["cubic"] if since(d, op) >= 11 else []))
    scales = [1.0, 1.0] + [d.pick([0.3, 0.5, 0.75, 1, 1.5, 2, 2.6, 3]) for _ in range(d[a].ndim - 2)]
    if op == "Upsample":
        scales = [max(1.0, scale) for scale in scales]
        if since(d, op) < 9:
            d.emit(op, [a], mode=mode, scales=scales)
        else:
            d.emit(op, [a, d.known(scales, F32)], mode=mode)
        return
    if since(d, op) < 11:
        d.emit(op, [a, d.known(scales, F32)], mode=mode)
        return
    sizes = [max(1, int(size * scale)) for size, scale in zip(d[a].shape, scales)]
    given = {"mode": mode, "nearest_mode": d.pick([None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]) if mode in (None, "nearest") else None,
             "coordinate_transformation_mode": d.pick([None, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
                                                      + (["half_pixel_symmetric"] if since(d, op) >= 19 else [])
                                                      + (["tf_half_pixel_for_nn"] if since(d, op) < 13 else [])
                                                      + (["tf_crop_and_resize"] if since(d, op) >= 11 else []))}  # fmt: skip
    if mode == "cubic":
        given.update(cubic_coeff_a=d.pick([None, -0.5]), exclude_outside=d.pick([None, 0, 1]))
    if since(d, op) >= 18 and mode in ("linear", "cubic") and d.chance(0.3):
        given["antialias"] = 1
    roi = ""
    if given["coordinate_transformation_mode"] == "tf_crop_and_resize":
        begin = [0.0, 0.0] + [d.pick([0.0, 0.2]) for _ in sizes[2:]]
        roi = d.known(begin + [1.0, 1.0] + [d.pick([0.7, 1.0, 1.2]) for _ in sizes[2:]], F32)
        given["extrapolation_value"] = d.pick([None, 9.0])
    elif since(d, op) < 13:
        roi = d.add(numpy.zeros(0, F32), True)
    by_size = d.chance(0.4)
    if since(d, op) >= 18 and not roi and d.chance(0.3):
        given["axes"] = list(range(2, d[a].ndim))
        sizes, scales = sizes[2:], scales[2:]
        if by_size and d.chance(0.3):
            given["keep_aspect_ratio_policy"] = d.pick(["stretch", "not_larger", "not_smaller"])
    no_scales = d.add(numpy.zeros(0, F32), True) if since(d, op) < 13 and by_size else ""
    d.emit(op, [a, roi, no_scales, d.known(sizes)] if by_size else [a, roi, d.known(scales, F32)], **given)


@operator("GridSample")
def grid_sample(d, op):
    a = d.value(dims=[d.integer(1, 2), d.integer(1, 3), d.integer(1, 6), d.integer(1, 6)])
    grid = d.new(d.random.uniform(-1.2, 1.2, [d[a].shape[0], d.integer(1, 4), d.integer(1, 4), 2]).astype(d[a].dtype))
    modes = ["bilinear", "nearest", "bicubic"] if since(d, op) < 20 else ["linear", "nearest", "cubic"]
    d.emit(op, [a, grid], mode=d.pick([None, *modes]), padding_mode=d.pick([None, "zeros", "border", "reflection"]),
           align_corners=d.pick([None, 0, 1]))  # fmt: skip


@operator("AffineGrid")
def affine_grid(d, op):
    n = d.integer(1, 2)
    rank = d.pick([2, 2, 3])
    a = d.value(dims=[n, rank, rank + 1])
    d.emit(op, [a, d.known([n, d.integer(1, 3), *(d.integer(1, 5) for _ in range(rank))])], align_corners=d.pick([None, 0, 1]))


@operator("RoiAlign")
def roi_align(d, op):
    a = d.value(dims=[d.integer(1, 2), d.integer(1, 4), d.integer(4, 12), d.integer(4, 12)])
    count = d.integer(1, 3)
    corners = d.random.uniform(0, 8, [count, 2])
    boxes = d.new(numpy.concatenate([corners, corners + d.random.uniform(0.5, 8, [count, 2])], 1).astype(d[a].dtype))
    batch = d.new(d.random.integers(0, d[a].shape[0], count).astype(I64))
    d.emit(op, [a, boxes, batch], mode=d.pick([None, "avg", "max"]), output_height=d.integer(1, 4), output_width=d.integer(1, 4),
           sampling_ratio=d.pick([None, 0, 1, 2]), spatial_scale=d.pick([None, 1.0, 0.5]),
           coordinate_transformation_mode=d.pick([None, "half_pixel", "output_half_pixel"]))  # fmt: skip


@operator("NonMaxSuppression")
def nms(d, op):
    n, boxes, classes = d.integer(1, 2), d.integer(1, 12), d.integer(1, 3)
    corners = d.random.uniform(0, 1, [n, boxes, 2])
    given = d.new(numpy.concatenate([corners, corners + d.random.uniform(0.1, 0.7, [n, boxes, 2])], 2).astype(F32))
    scores = d.new(d.random.random([n, classes, boxes]).astype(F32))
    d.emit(op, [given, scores, d.add(numpy.asarray([d.integer(1, 5)], I64), True), d.add(numpy.asarray([0.4], F32), True),
                d.add(numpy.asarray([0.3], F32), True)], center_point_box=d.pick([None, 0, 1]))  # fmt: skip


@operator("NonZero")
def non_zero(d, op):
    d.emit(op, [d.value((F32, I32, I64, BOOL), rank=(1, 3))])


# Shapes and constants.
@operator("Reshape")
def reshape(d, op):
    a = d.value(ANY, rank=(0, 5))
    left, dims = d[a].size, []
    while left > 1 and len(dims) < 4:
        dims.append(d.pick([size for size in range(1, left + 1) if left % size == 0]))
        left //= dims[-1]
    dims = dims + [left] if left != 1 or d.chance(0.2) else dims
    if dims and d[a].size and d.chance(0.4):
        dims[d.integer(0, len(dims) - 1)] = -1
    elif dims and d[a].ndim and dims[0] == d[a].shape[0]:
        dims[0] = 0
    d.emit(op, [a, d.known(dims)], allowzero=d.pick([None, None, 0]))


@operator("Flatten")
def flatten(d, op):
    a = d.value(ANY, rank=(1, 5))
    d.emit(op, [a], axis=d.pick([None, d.integer(0, d[a].ndim), -1 if since(d, op) >= 11 else 0]))


@operator("Squeeze")
def squeeze(d, op):
    a = d.value(ANY, rank=(1, 5), fits=lambda array: 1 in array.shape)
    ones = [axis for axis, size in enumerate(d[a].shape) if size == 1]
    chosen = ones[: d.integer(1, len(ones))]
    if since(d, op) >= 11:
        chosen = [axis - d[a].ndim if d.chance(0.3) else axis for axis in chosen]
    inputs, given = split_off(d, chosen, "axes", since(d, op) >= 13) if d.chance(0.8) else ([], {})
    d.emit(op, [a, *inputs], **given)


@operator("Unsqueeze")
def unsqueeze(d, op):
    a = d.value(ANY, rank=(0, 4))
    count = d.integer(1, 2)
    chosen = d.random.permutation(d[a].ndim + count)[:count].tolist()
    if since(d, op) >= 11 and d.chance(0.3):
        chosen = [axis - d[a].ndim - count for axis in chosen]
    inputs, given = split_off(d, chosen, "axes", since(d, op) >= 13)
    d.emit(op, [a, *inputs], **given)


@operator("Identity", "Size")
def plain(d, op):
    d.emit(op, [d.value(ANY)])


@operator("Dropout")
def dropout(d, op):
    given = {"ratio": 0.3} if since(d, op) < 12 else {}
    d.emit(op, [d.value()], d.pick([1, 1, 2]), **given)


@operator("Shape")
def shape(d, op):
    a = d.value(ANY, rank=(1, 5))
    d.emit(op, [a], start=d.pick([None, d.integer(-2, 2)]), end=d.pick([None, d.integer(-1, 3)]))


@operator("Constant")
def constant(d, op):
    given = {"value": onnx.numpy_helper.from_array(d.array(d.pick(d.types(ANY)), d.dims(0, 3)))}
    if since(d, op) >= 12 and d.chance(0.4):
        given = d.pick([{"value_float": 0.5}, {"value_int": 3}, {"value_floats": [1.0, 2.5]}, {"value_ints": [4, 5, 6]}])
    d.emit(op, [], **given)


@operator("ConstantOfShape")
def constant_of_shape(d, op):
    value = onnx.numpy_helper.from_array(numpy.asarray([2]).astype(d.pick(ANY)))
    d.emit(op, [d.known(d.dims(0, 3))], value=d.pick([None, value]))


@operator("Range")
def ranged(d, op):
    kind = d.pick([F32, F64, I32, I64])
    start, step = d.integer(-5, 5), d.pick([1, 2, 3, -1, -2])
    end = start + step * d.integer(0, 7) + d.integer(0, 1)
    d.emit(op, [d.known(value, kind) for value in (start, end, step)])


@operator("SwiGLU")
def swiglu(d, op):
    a = d.value(rank=(1, 4), fits=lambda array: array.shape[-1] % 2 == 0)
    d.emit(op, [a])


# Nodes that round nothing: a graph of these alone must agree to the last element.
EXACT = set("""Relu Abs Neg Sign BitwiseNot Not IsNaN IsInf BitwiseAnd BitwiseOr BitwiseXor BitShift And Or Xor Equal Less
LessOrEqual Greater GreaterOrEqual Where Clip Max Min ArgMax ArgMin TopK MaxPool GlobalMaxPool Pad Transpose Concat Split Slice
Gather GatherElements GatherND OneHot Compress Trilu EyeLike CenterCropPad Expand Tile DepthToSpace SpaceToDepth
ReverseSequence Reshape Flatten Squeeze Unsqueeze Identity Dropout Shape Size Constant ConstantOfShape Range NonZero Floor Ceil
Round ThresholdedRelu Hardmax ReduceMax ReduceMin Scatter""".split())

# Their inputs after the first are floats that decide shapes.
SHAPED_BY_FLOATS = ("Resize", "Upsample", "Range")

# What the two may disagree on, and why it is not drawn: what a node and its arrays must not be. The texts stand in
# docs/conformance.md.
def has_nan(graph, node):
    return any(array.dtype.kind == "f" and numpy.isnan(array).any() for array in arrays_of(graph, node))


def arrays_of(graph, node):
    return [graph.arrays[name] for name in [*node.input, *node.output] if name]


def not_finite(graph, node):
    return any(array.dtype.kind == "f" and not numpy.isfinite(array).all() for array in arrays_of(graph, node))


def overflows(graph, node):
    """Arithmetic of integers of 32 and 64 bits far from 0."""
    arithmetic = node.op_type.startswith("Reduce") or node.op_type in ("Add", "Sub", "Mul", "Pow", "CumSum", "Neg", "Abs", "Mod", "Div")
    return arithmetic and any(array.dtype in (I32, I64, U32, U64) and array.size and float(numpy.abs(array.astype(F64)).max()) > 2**15
                              for array in (graph.arrays[name] for name in node.input if name))  # fmt: skip


def crop_keeps_size(graph, node):
    """tf_crop_and_resize along an axis that keeps its size."""
    if node.op_type != "Resize" or attribute(node, "coordinate_transformation_mode") != b"tf_crop_and_resize":
        return False
    given, made = (graph.arrays[name] for name in (node.input[0], node.output[0]))
    return any(a == b for a, b in list(zip(given.shape, made.shape))[2:])


def crop_rounds_length(graph, node):
    """tf_crop_and_resize by scales, of which one makes a length that is rounded."""
    if node.op_type != "Resize" or attribute(node, "coordinate_transformation_mode") != b"tf_crop_and_resize":
        return False
    scales = graph.arrays[node.input[2]] if len(node.input) > 2 and node.input[2] else ()
    axes = attribute(node, "axes", range(len(scales)))
    shape = graph.arrays[node.input[0]].shape
    return any(shape[axis] * float(scale) % 1 != 0 for axis, scale in zip(axes, scales))


def rounds_ties(graph, node):
    """Resize, nearest, by a scale, or of a region, that float32 does not have exactly."""
    if node.op_type not in ("Resize", "Upsample") or attribute(node, "mode", b"nearest") != b"nearest":
        return False
    scales = [graph.arrays[name] for name in node.input[1:] if name and graph.arrays[name].dtype == F32][-1:]
    given, made = (numpy.asarray(graph.arrays[name].shape) for name in (node.input[0], node.output[0]))
    by_size = not scales or len(scales[0]) in (0, 2 * len(given)) or len(node.input) > 3 and node.input[3]
    scale = made / given if by_size else scales[0].astype(F64)
    crops = attribute(node, "coordinate_transformation_mode") == b"tf_crop_and_resize"
    region = graph.arrays[node.input[1]].astype(F64) if crops else numpy.zeros(0)
    return bool((scale * 8 % 1).any() or (region * 8 % 1).any())


def by_zero(graph, node):
    return {"Div": 1, "Mod": 1, "Reciprocal": 0}.get(node.op_type) is not None and any(
        array.dtype.kind == "f" and (array == 0).any() for array in [graph.arrays[node.input[-1]]])


def same_skips(graph, node):
    """SAME windows whose strides leave elements out at the ends: the pads come out negative."""
    if b"SAME" not in attribute(node, "auto_pad", b"") or "Transpose" in node.op_type:
        return False
    weights = graph.arrays[node.input[1]].shape[2:] if "Conv" in node.op_type else ()
    kernel, spatial = attribute(node, "kernel_shape", weights), graph.arrays[node.input[0]].shape[2:]
    ones = [1] * len(spatial)
    return any((-(-size // s) - 1) * s + (k - 1) * d + 1 < size - 1 for size, s, k, d in
               zip(spatial, attribute(node, "strides", ones), kernel, attribute(node, "dilations", ones)))  # fmt: skip


def beyond_float32(graph, node):
    """Or too near to 0 for its 24 bits."""
    def some(array):
        size = numpy.abs(array[numpy.isfinite(array)].astype(F64))
        return array.dtype.kind == "f" and bool((size > 3.4e38).any() or ((size > 0) & (size < 1.2e-38)).any())
    return any(some(array) for array in arrays_of(graph, node) if array.dtype.kind == "f")


def same_leaves_gaps(graph, node):
    """ConvTranspose, SAME: strides times input is more than input and kernel reach, so that pads would be negative."""
    spatial = graph.arrays[node.input[0]].shape[2:]
    kernel = graph.arrays[node.input[1]].shape[2:]
    ones = [1] * len(spatial)
    strides, dilations, more = (attribute(node, name, rest) for name, rest in
                                (("strides", ones), ("dilations", ones), ("output_padding", [0] * len(spatial))))  # fmt: skip
    return any((size - 1) * s + o + (k - 1) * d + 1 < size * s for size, s, o, k, d in zip(spatial, strides, more, kernel, dilations))


def attribute(node, name, default=None):
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def window_fits(graph, node):
    """With pads; ONNX Runtime gives an output of 1 where ONNX's formula gives none."""
    kernel, spatial = attribute(node, "kernel_shape"), graph.arrays[node.input[0]].shape[2:]
    pads, dilations = attribute(node, "pads", [0] * 2 * len(spatial)), attribute(node, "dilations", [1] * len(spatial))
    return attribute(node, "auto_pad", b"") in (b"SAME_UPPER", b"SAME_LOWER") or all(
        size + low + high > dilation * (k - 1)
        for size, low, high, dilation, k in zip(spatial, pads, pads[len(spatial):], dilations, kernel))


EXCLUSIONS = (
    ("ThresholdedRelu and Shrink of NaN: ONNX Runtime gives 0, lenslet NaN, as of every activation",
     lambda g, n: n.op_type in ("ThresholdedRelu", "Shrink") and has_nan(g, n)),
    ("Resize, Upsample and LRN of NaN and infinities: ONNX Runtime counts pixels of weight 0, and spreads a NaN to the channels "
     "after it", lambda g, n: n.op_type in ("Resize", "Upsample", "LRN") and not_finite(g, n)),
    ("tf_crop_and_resize along an axis that keeps its size: ONNX Runtime does not crop it", crop_keeps_size),
    ("nearest Resize by scales, or of regions, that are no multiples of 1/8: where a tie falls, their rounding decides", rounds_ties),
    ("convolutions with NaN or infinite weights: over padding one makes NaN of them, the other leaves them out",
     lambda g, n: "Conv" in n.op_type and not numpy.isfinite(g.arrays[n.input[1]].astype(F64)).all()),
    ("integers that may overflow, which ONNX leaves open: ONNX Runtime sums some of them in floats", overflows),
    ("floats divided by 0: the sign of a zero, which ONNX does not speak of, decides which infinity comes out", by_zero),
    ("auto_pad SAME with strides of kernel + 2 and more: ONNX Runtime's pads are then negative, lenslet's 0, as TensorFlow's",
     lambda g, n: same_skips(g, n)),
    ("pools with auto_pad SAME and dilations: ONNX Runtime's pads leave the dilations out, ONNX's formula has them",
     lambda g, n: n.op_type in ("MaxPool", "AveragePool", "LpPool") and b"SAME" in attribute(n, "auto_pad", b"")
     and any(d > 1 for d in attribute(n, "dilations", []))),
    ("numbers beyond float32, in which lenslet computes float64, or below its normal range", beyond_float32),
    ("ConvTranspose with auto_pad SAME whose output is larger than the kernel reaches: ONNX's negative pads are split either way",
     lambda g, n: n.op_type == "ConvTranspose" and b"SAME" in attribute(n, "auto_pad", b"") and same_leaves_gaps(g, n)),
    ("cubic GridSample beyond the border, padded by border or reflection: ONNX's reference moves the point, as lenslet does, "
     "ONNX Runtime each pixel around it, as PyTorch does",
     lambda g, n: n.op_type == "GridSample" and b"cubic" in attribute(n, "mode", b"") and attribute(n, "padding_mode", b"zeros") != b"zeros"),
    ("reductions of NaN: ONNX Runtime's extrema drop it or not by where it stands, ONNX's reference keeps it, as lenslet does",
     lambda g, n: n.op_type in ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "MaxPool", "GlobalMaxPool", "TopK", "Hardmax", "RoiAlign",
                              "ScatterElements", "ScatterND") and has_nan(g, n)),
    ("pools whose window is larger than the padded input: ONNX Runtime gives an element where ONNX's formula gives none",
     lambda g, n: n.op_type in ("MaxPool", "AveragePool", "LpPool") and not window_fits(g, n)),
    ("the mask of Dropout before opset 12, which ONNX leaves open at inference",
     lambda g, n: n.op_type == "Dropout" and len(n.output) > 1 and g.opset < 12),
    ("Col2Im of 3 axes: ONNX Runtime's result is not that of ONNX's reference",
     lambda g, n: n.op_type == "Col2Im" and len(g.arrays[n.input[1]]) > 2),
    ("AffineGrid with align_corners over a size of 1: ONNX Runtime takes another point than ONNX's reference",
     lambda g, n: n.op_type == "AffineGrid" and attribute(n, "align_corners") and 1 in g.arrays[n.input[1]][2:]),
    ("tf_crop_and_resize by scales whose lengths are no integers: ONNX Runtime divides by the rounded length, ONNX's reference, as "
     "lenslet, by the scale times the size", crop_rounds_length),
    ("DynamicQuantizeLinear of nothing but zeros: the scale is ONNX's formula's 0 in lenslet, 1 in ONNX Runtime, 1/255 in ONNX's "
     "reference, and 0 is what dequantising gives in all; and of NaN and infinities, for which there is no scale",
     lambda g, n: n.op_type == "DynamicQuantizeLinear" and (not_finite(g, n) or not g.arrays[n.input[0]].any())),
    ("ArgMax and ArgMin over an axis of no elements: there is no index to give, and lenslet refuses",
     lambda g, n: n.op_type in ("ArgMax", "ArgMin") and g.arrays[n.input[0]].shape[attribute(n, "axis", 0)] == 0),
)  # fmt: skip


def excluded(graph, node):
    """Why a node is not drawn, or None. It sees all values."""
    return next((why for why, is_so in EXCLUSIONS if is_so(graph, node)), None)
