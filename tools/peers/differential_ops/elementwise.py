"""Elementwise operators, including conversions and quantisation, and reductions of an axis."""

import numpy
from onnx import helper

from .drawing import (
    ANY, BOOL, F32, F64, I16, I32, I64, I8, INTEGERS, NUMBERS, SIGNED, U16, U8, UNSIGNED, Redraw, axis_of,
    broadcast_to, operator, same_type, since, split_off,
)  # fmt: skip

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


def add_chain(d, v):
    """Elementwise nodes that follow each other, as `fuse_elementwise` merges them; their operands broadcast to v."""
    for _ in range(d.integer(1, 6)):
        if d.chance(0.4):
            (v,) = d.emit(d.pick(["Relu", "Sigmoid", "Tanh", "Abs", "Neg", "LeakyRelu", "Erf"]), [v])
        elif d.chance(0.15):
            (v,) = d.emit("Pow", [v, d.add(numpy.asarray(2, d[v].dtype), True)])
        else:
            dims = [1 if d.chance(0.5) else size for size in d[v].shape][d.integer(0, max(0, d[v].ndim - 1)):]
            other = d.add(d.array(d[v].dtype.type, d.pick([dims, d[v].shape])), d.chance(0.5))
            (v,) = d.emit(d.pick(["Add", "Sub", "Mul", "Max", "Min"]), swapped(d, v, other))


@operator("Add", "Sub", "Mul")
def arithmetic(d, op):
    a = d.value(NUMBERS)
    (y,) = d.emit(op, swapped(d, a, same_type(d, a)))
    if d[y].dtype.kind == "f" and d.chance(0.3):
        add_chain(d, y)


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


def cosine_attention(d):
    """Attention between unit rows of Q and K with a factor for each head, as in Swin V2."""
    kind, (n, heads, queries, keys, size) = d.float_type(), d.dims(5, 5)
    q, k, v = (d.new(d.array(kind, [n, heads, tokens, size])) for tokens in (queries, keys, keys))
    spelled, epsilon = d.pick(["Expand", "Div", "Reciprocal"]), d.add(numpy.asarray(d.pick([1e-3, 1.5]), kind), True)
    axes, given = ([d.add(numpy.asarray([-1], I64), True)], {}) if d.graph.opset >= 18 else ([], {"axes": [-1]})

    def unit(x):
        (norm,) = d.emit(d.pick(["Clip", "Max"]), [*d.emit("ReduceL2", [x, *axes], keepdims=1, **given), epsilon])
        if spelled == "Reciprocal":
            return d.emit("Mul", [x, *d.emit("Reciprocal", [norm])])
        if spelled == "Expand":
            (norm,) = d.emit("Expand", [norm, d.add(numpy.asarray(d[x].shape, I64), True)])
        return d.emit("Div", [x, norm])

    (turned,) = d.emit("Transpose", unit(k) if d.chance(0.8) else [k], perm=[0, 1, 3, 2])
    (scores,) = d.emit("MatMul", [*(unit(q) if d.chance(0.8) else [q]), turned])
    factors = d.add(d.random.uniform(1, 8, [heads, 1, 1]).astype(kind), d.chance(0.8))
    (scores,) = d.emit("Mul", [scores, factors])
    if d.chance(0.6):
        (scores,) = d.emit("Add", [scores, d.add(d.array(kind, [heads, queries, keys]), True)])
    d.emit("MatMul", [*d.emit("Softmax", [scores], axis=-1), v])


@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(d, op):
    if op == "Softmax" and d.graph.opset >= 13 and d.chance(0.3):
        return cosine_attention(d)
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
