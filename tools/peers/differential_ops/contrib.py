"""ONNX Runtime's own operators, of the domain com.microsoft, as written by its optimizer and its quantizer."""

import numpy

from .drawing import F32, I32, I8, U8, Redraw, broadcast_to, operator
from .graph import MICROSOFT
from .layers import factors, quantised, spatial_dims, window

EIGHT = (U8, I8)


def emit(d, op, inputs, outputs=1, **attributes):
    return d.emit(op, inputs, outputs, domain=MICROSOFT, **attributes)


def floats(d, dims, constant=0.5):
    if d.half:  # most of these operators take one type of floats
        raise Redraw
    return d.add(d.array(F32, dims), d.chance(constant))


@operator("FusedGemm")
def fused_gemm(d, op):
    m, n, k = (d.pick([1, 2, 3, 5, 8, 17]) for _ in range(3))
    trans_a, trans_b = d.pick([None, 0, 1]), d.pick([None, 0, 1])
    a = d.value([F32], dims=[k, m] if trans_a else [m, k])
    bias = [floats(d, d.pick([[], [n], [m, n], [1, n], [m, 1]]))] if d.chance(0.7) else []
    activation = d.pick(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Elu", "Softplus", "Softsign", "Selu", "ThresholdedRelu"])
    own = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",), "Selu": ("alpha", "gamma"),
           "ThresholdedRelu": ("alpha",)}.get(activation, ())  # fmt: skip
    emit(d, op, [a, floats(d, [n, k] if trans_b else [k, n]), *bias], transA=trans_a, transB=trans_b, alpha=d.pick([None, 0.5]),
         beta=d.pick([None, 2.0]), activation=activation, **{f"activation_{name}": d.pick([0.25, 0.5, 1.5]) for name in own})


@operator("FusedMatMul", "TransposeMatMul")
def fused_matmul(d, op):
    trans_a, trans_b = d.pick([None, 0, 1]), d.pick([None, 0, 1])
    m, n, k = (d.pick([1, 2, 3, 8, 17]) for _ in range(3))
    batch = d.dims(0, 2)
    other = broadcast_to(d, batch) if batch and d.chance(0.7) else []
    emit(d, op, [d.value([F32], dims=[*batch, *([k, m] if trans_a else [m, k])]),
                 floats(d, [*other, *([n, k] if trans_b else [k, n])])], transA=trans_a, transB=trans_b, alpha=d.pick([None, 0.5]))  # fmt: skip


@operator("BiasGelu", "FastGelu", "QuickGelu")
def gelu(d, op):
    a = d.value([F32], rank=(1, 4))
    bias = op == "BiasGelu" or op == "FastGelu" and d.chance(0.5)
    emit(d, op, [a] + ([floats(d, [d[a].shape[-1]])] if bias else []), alpha=d.pick([None, 0.5]) if op == "QuickGelu" else None)


@operator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_normalization(d, op):
    dims = [d.integer(1, 3), d.integer(1, 5), d.pick([2, 3, 8, 17])]
    a, row = d.value([F32], dims=dims), dims[-1:]
    inputs = [a, floats(d, d.pick([dims, dims, dims[1:], [1, *dims[1:]]]), 0.2), d.add(d.random.uniform(0.4, 1.6, row).astype(F32), True)]
    if op == "SkipLayerNormalization":
        inputs.append(floats(d, row) if d.chance(0.6) else "")
    inputs.append(floats(d, row) if d.chance(0.5) else "")
    emit(d, op, inputs, epsilon=d.pick([None, 1e-5, 1e-3]))


@operator("DynamicQuantizeMatMul", "MatMulIntegerToFloat")
def product_to_float(d, op):
    m, n, k = (d.pick([1, 2, 3, 8, 17]) for _ in range(3))
    columns = d.pick([[], [1], [n]])
    b = quantised(d, [k, n])
    kind = d[b].dtype.type
    b_scale = d.add(d.random.uniform(0.01, 0.1, columns).astype(F32), True)
    b_zero = d.add(d.random.integers(0, 9, columns).astype(kind), True) if d.chance(0.6) else ""
    bias = floats(d, [n]) if d.chance(0.5) else ""
    if op == "DynamicQuantizeMatMul":
        a = d.value([F32], dims=[*d.dims(0, 1), m, k])
        emit(d, op, [a, b, b_scale, b_zero, bias])
    else:
        a = quantised(d, [m, k])
        scale, zero = factors(d, kind=d[a].dtype.type)
        emit(d, op, [a, b, scale, b_scale, zero if d.chance(0.7) else "", b_zero, bias])


@operator("NhwcMaxPool")
def nhwc_max_pool(d, op):
    spatial = [d.integer(1, 12) for _ in range(d.pick([1, 2, 2, 3]))]
    given = window(d, spatial)
    if "auto_pad" not in given and d.chance(0.3):
        given["ceil_mode"] = 1
    emit(d, op, [quantised(d, [d.integer(1, 2), *spatial, d.pick([1, 3, 8, 17])])], **given)


@operator("QLinearAveragePool", "QLinearGlobalAveragePool")
def quantised_average(d, op):
    last, channels = d.chance(0.5), d.pick([1, 3, 8, 17])
    spatial = [d.integer(1, 12) for _ in range(d.pick([1, 2, 2, 3]) if "Global" in op else 2)]
    a = quantised(d, [d.integer(1, 2), *([*spatial, channels] if last else [channels, *spatial])])
    kind = d[a].dtype.type
    given = {} if "Global" in op else window(d, spatial, dilation=False)
    if given and d.chance(0.3):
        given["count_include_pad"] = 1
    emit(d, op, [a, *factors(d, kind=kind), *factors(d, kind=kind)], channels_last=int(last), **given)


@operator("FusedConv")
def fused_conv(d, op):
    channels, filters = d.integer(1, 8), d.integer(1, 8)
    a = d.value([F32], dims=[d.integer(1, 2), channels, *spatial_dims(d)])
    given = window(d, list(d[a].shape[2:]))
    w, bias = floats(d, [filters, channels, *given["kernel_shape"]], 0.9), floats(d, [filters]) if d.chance(0.6) else ""
    activation = d.pick(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip"])
    parameters = {"LeakyRelu": [0.25], "HardSigmoid": [0.25, 0.5], "Clip": [-0.5, 0.75]}.get(activation)
    emit(d, op, [a, w, bias], **given, activation=activation, activation_params=parameters)


# Elementwise, and moving elements.
@operator("QLinearAdd", "QLinearMul")
def quantised_binary(d, op):
    a = quantised(d, d.dims(1, 4))
    kind = d[a].dtype.type
    b = quantised(d, broadcast_to(d, d[a].shape), [kind])
    emit(d, op, [a, *factors(d, kind=kind), b, *factors(d, kind=kind), *factors(d, kind=kind)])


@operator("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax")
def quantised_unary(d, op):
    a = quantised(d, d.dims(2, 4))
    kind = d[a].dtype.type
    given = {"QLinearLeakyRelu": {"alpha": d.pick([0.01, 0.25])}, "QLinearSoftmax": {"axis": -1, "opset": 13}}.get(op, {})
    scale, zero = factors(d, kind=kind)
    if op != "QLinearLeakyRelu":  # of numbers up to 1
        scale = d.add(numpy.asarray(1 / 256, F32), True)
        zero = d.add(numpy.asarray(0 if kind == U8 else -128).astype(kind), True)
    emit(d, op, [a, *factors(d, kind=kind), scale, zero], **given)


@operator("QLinearConcat")
def quantised_concat(d, op):
    dims, kind = d.dims(1, 4), d.pick(EIGHT)
    axis = d.integer(0, len(dims) - 1)
    inputs = [*factors(d, kind=kind)]
    for _ in range(d.integer(1, 3)):
        inputs += [quantised(d, [d.integer(1, 5) if i == axis else size for i, size in enumerate(dims)], [kind]), *factors(d, kind=kind)]
    emit(d, op, inputs, axis=axis)


@operator("QLinearWhere")
def quantised_where(d, op):
    a = quantised(d, d.dims(1, 4))
    kind = d[a].dtype.type
    b = quantised(d, broadcast_to(d, d[a].shape), [kind])
    condition = d.new(d.array(bool, broadcast_to(d, d[a].shape)))
    emit(d, op, [condition, a, *factors(d, kind=kind), b, *factors(d, kind=kind), *factors(d, kind=kind)])


@operator("QGemm")
def quantised_gemm(d, op):
    m, n, k = (d.pick([1, 2, 3, 8, 17]) for _ in range(3))
    trans_b = d.pick([0, 1])
    a = quantised(d, [m, k])
    kind = d[a].dtype.type
    w = d.add(d.random.integers(-60, 61, [n, k] if trans_b else [k, n]).astype(I8), True)
    columns = [n] if d.chance(0.5) else []
    scales = d.add(d.random.uniform(0.01, 0.1, columns).astype(F32), True)
    bias = d.add(d.random.integers(-300, 300, [n]).astype(I32), True) if d.chance(0.6) else ""
    result = factors(d, kind=kind) if d.chance(0.7) else []
    emit(d, op, [a, *factors(d, kind=kind), w, scales, d.add(numpy.zeros(columns, I8), True), bias, *result], transB=trans_b,
         alpha=d.pick([None, 0.5]))
