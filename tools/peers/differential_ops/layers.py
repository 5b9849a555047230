"""Normalisations, products and windows, quantised ones too."""

import numpy

from .drawing import F32, F64, I32, I64, I8, U32, U64, U8, Redraw, axis_of, broadcast_to, operator, since
from .graph import MICROSOFT


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
    (y,) = d.emit(op, [a, *channel_parameters(d, [d[a].shape[1]], 2)], epsilon=d.pick([None, 1e-3]))
    if d.chance(0.3):
        d.emit("Relu", [y])


@operator("LayerNormalization", "RMSNormalization")
def layer_norm(d, op):
    a = d.value(rank=(1, 4))
    axis = axis_of(d, d[a].ndim)
    row = list(d[a].shape[axis % d[a].ndim:])
    scale, bias = (channel_parameters(d, broadcast_to(d, row) if d.chance(0.3) else row, 1)[0] for _ in range(2))
    inputs = [a, scale] + ([bias] if op == "LayerNormalization" and d.chance(0.7) else [])
    outputs = d.pick([1, 1, 3]) if op == "LayerNormalization" else 1
    y, *_ = d.emit(op, inputs, outputs, axis=axis, epsilon=d.pick([None, 1e-3]))
    if d.chance(0.3):
        d.emit("Add", d.pick([[y, a], [a, y]]))


@operator("GroupNormalization")
def group_norm(d, op):
    groups, each = d.integer(1, 4), d.integer(1, 3)
    a = d.value(dims=[d.integer(1, 2), groups * each, *d.dims(1, 2)])
    (y,) = d.emit(op, [a, *channel_parameters(d, [groups * each if since(d, op) >= 21 else groups], 2)], num_groups=groups)
    if d.chance(0.3):
        d.emit("Relu", [y])


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


def add_branches(d, a, y, given, group):
    """Sums y, a convolution of a, with others of the same strides, and with a itself where the shapes are equal."""
    spatial, out, rank = d[a].shape[2:], d[y].shape[2:], d[a].ndim - 2
    strides = given.get("strides", [1] * rank)
    terms = [y]
    for _ in range(d.integer(1, 3)):
        if d[a].shape == d[y].shape and d.chance(0.4):
            (same,) = d.emit("BatchNormalization", [a, *channel_parameters(d, [d[a].shape[1]], 4, d[a].dtype)]) if d.chance(0.7) else [a]
            terms.append(same)
            continue
        kernel = [d.pick([1, 1, 3]) for _ in range(rank)]
        pads = [(o - 1) * s + k - size for o, s, k, size in zip(out, strides, kernel, spatial)]
        # Where less than the image is read, nothing is padded, and what a stride leaves over does not matter.
        if any(p <= -s for p, s in zip(pads, strides)):
            continue
        begins = [d.integer(0, max(0, p)) if d.chance(0.3) else (max(0, p) + 1) // 2 for p in pads]
        groups = d.pick([1, group, group])
        weights = d.add(d.array(d[a].dtype.type, [d[y].shape[1], d[a].shape[1] // groups, *kernel]), True)
        terms += d.emit("Conv", [a, weights], kernel_shape=kernel, strides=strides, group=groups,
                        pads=begins + [max(0, p) - b for p, b in zip(pads, begins)])  # fmt: skip
    if d.chance(0.5):
        d.emit("Sum", terms)
        return
    for term in terms[1:]:
        y = d.emit(d.pick(["Add", "Add", "Sub"]), [y, term])[0]


def join_branches(d, a, y, given, kernel):
    """Concat of y, a convolution of a, and another of the same windows, and what branches of it take."""
    weights = d.add(d.array(d[a].dtype.type, [d.integer(1, 8), d[a].shape[1], *kernel]), True)
    (other,) = d.emit("Conv", [a, weights], **given)
    (y,) = d.emit("Concat", [y, other], axis=d.pick([1, 1, 1 - d[a].ndim]))
    if d.chance(0.7):
        (y,) = d.emit("BatchNormalization", [y, *channel_parameters(d, [d[y].shape[1]], 4, d[a].dtype)])
    if d.chance(0.7):
        d.emit("Relu", [y])


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
    (y,) = d.emit(op, [a, weights, *bias], **given, group=group if group > 1 or d.chance(0.5) else None)
    if op == "Conv" and d.chance(0.25):
        add_branches(d, a, y, given, group)
    elif op == "Conv" and d.chance(0.2):
        join_branches(d, a, y, given, kernel)


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
    a = d.value((F32, F32, F32, F64, I32, I64, U32, U64), rank=(1, 4))
    k, n = d[a].shape[-1], d.pick([1, 2, 3, 8, 17])
    batch = broadcast_to(d, d[a].shape[:-2]) if d[a].ndim > 2 or d.chance(0.2) else []
    (y,) = d.emit(op, [a, d.new(d.array(d[a].dtype, [*batch, k, n] if d.chance(0.85) else [k]))])
    # Tokens as rows.
    if d[y].ndim == 3 and d[y].dtype.type == d.float_type() and 0 not in d[y].shape and d.chance(0.5):
        (rows,) = d.emit("Flatten", [y], axis=2)
        (rows,) = d.emit("BatchNormalization", [rows, *channel_parameters(d, [d[y].shape[2]], 4)])
        d.emit("Reshape", [rows, d.add(numpy.array([-1, *d[y].shape[1:]], numpy.int64), True)])


@operator("Det")
def det(d, op):
    n = d.integer(1, 6)
    d.emit(op, [d.value(dims=[*d.dims(0, 2), n, n])])


@operator("Einsum")
def einsum(d, op):
    equation, dims = d.pick([("ij,jk->ik", "ij jk"), ("bij,bjk->bik", "bij bjk"), ("ij->ji", "ij"), ("ii->i", "ii"),
                             ("bhwc,hkc->bhwk", "bhwc hkc"), ("i,i->", "i i"), ("ijk->ik", "ijk"), ("ij,kj", "ij kj"),
                             ("...ij,...jk->...ik", "bij bjk"), ("bhwc,ck->bhwk", "bhwc ck"), ("bchw,ck->bkhw", "bchw ck"),
                             ("bchw,jw->bchj", "bchw jw"), ("bhwc,bhwc->bhwc", "bhwc bhwc"), ("bhwc,c->bhw", "bhwc c"),
                             ("bhwc,b->bhwc", "bhwc b"), ("bhwi,bhwj->bhij", "bhwi bhwj")])  # fmt: skip
    sizes = {letter: d.integer(1, 5) for letter in "bijkhwc"}
    kind = [d.pick((F32, F32, F64, I32, I64))]
    d.emit(op, [d.value(kind, dims=[sizes[letter] for letter in term]) for term in dims.split()], equation=equation)


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
    a = quantised(d, [d.integer(1, 2), channels, *spatial_dims(d)])
    given = window(d, d[a].shape[2:])
    w = d.add(d.random.integers(-60, 61, [filters, channels, *given["kernel_shape"]]).astype(I8), True)
    scales = d.add(d.random.uniform(0.01, 0.1, [filters] if d.chance(0.5) else []).astype(F32), True)
    zero = d.add(numpy.zeros(d[scales].shape, I8), True)
    bias = [d.add(d.random.integers(-300, 300, [filters]).astype(I32), True)] if d.chance(0.5) else []
    kind = d[a].dtype.type
    inputs = [*factors(d, kind=kind), w, scales, zero, *factors(d, kind=kind), *bias]
    if d.chance(0.3):
        last = d.new(numpy.ascontiguousarray(numpy.moveaxis(d[a], 1, -1)))
        d.emit(op, [last, *inputs], domain=MICROSOFT, channels_last=1, **given)
    else:
        d.emit(op, [a, *inputs], **given)


@operator("ConvInteger")
def conv_integer(d, op):
    channels, filters = d.integer(1, 8), d.integer(1, 8)
    a = quantised(d, [d.integer(1, 2), channels, *spatial_dims(d)])
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


# Recurrent layers. ONNX Runtime has no layout 1.
ACTIVATIONS = {"Relu": (0, 0), "Tanh": (0, 0), "Sigmoid": (0, 0), "Affine": (1, 1), "LeakyRelu": (1, 0), "ThresholdedRelu": (1, 0),
               "ScaledTanh": (1, 1), "HardSigmoid": (1, 1), "Elu": (1, 0), "Softsign": (0, 0), "Softplus": (0, 0)}  # fmt: skip


@operator("LSTM", "GRU", "RNN")
def recurrent(d, op):
    seq, batch, size, hidden = d.integer(1, 9), d.integer(1, 4), d.integer(1, 20), d.pick([1, 3, 8, 16, 17, 40])
    direction = d.pick(["forward", "reverse", "bidirectional", None])
    gates, functions = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}[op]
    directions = 2 if direction == "bidirectional" else 1
    a = d.value(rank=(3, 3)) if d.chance(0.3) else d.value(dims=[seq, batch, size])
    seq, batch, size = d[a].shape

    def some(*dims, constant=0.9):
        return d.add((d.random.uniform(-1, 1, dims) / numpy.sqrt(hidden)).astype(d[a].dtype), d.chance(constant))

    def maybe(make):
        return make() if d.chance(0.5) else ""

    inputs = [a, some(directions, gates * hidden, size), some(directions, gates * hidden, hidden),
              maybe(lambda: some(directions, 2 * gates * hidden)),
              maybe(lambda: d.known(d.random.integers(0, seq + 1, [batch]), I32)),
              maybe(lambda: some(directions, batch, hidden, constant=0.3))]  # fmt: skip
    given = {"direction": direction, "hidden_size": hidden, "clip": d.pick([None, None, 0.3, 2.0]),
             "linear_before_reset": d.pick([None, 0, 1]), "input_forget": d.pick([None, 0, 1])}  # fmt: skip
    if op == "LSTM":
        inputs += [maybe(lambda: some(directions, batch, hidden, constant=0.3)), maybe(lambda: some(directions, 3 * hidden))]
    if d.chance(0.6):
        # Gates that are 0 at 0 give products of rounding errors.
        names = [d.pick(list(ACTIVATIONS) if i % functions or functions == 1 else ["Sigmoid", "HardSigmoid", "Affine", "Softplus"])
                 for i in range(directions * functions)]
        given["activations"] = names
        for i, key in enumerate(("activation_alpha", "activation_beta")):
            # ONNX Runtime has other defaults for some if it is omitted.
            count = sum(ACTIVATIONS[name][i] for name in names)
            given[key] = [float(value) for value in d.random.uniform(0.1, 0.9, count)] or None
    d.emit(op, inputs, d.integer(1, 3 if op == "LSTM" else 2), **given)


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


@operator("GlobalLpPool")
def global_lp_pool(d, op):
    d.emit(op, [d.value(rank=(3, 5))], p=d.pick([None, 1, 2, 3]))


@operator("MaxUnpool")
def max_unpool(d, op):
    a = d.value(dims=[d.integer(1, 2), d.integer(1, 4), *[d.integer(2, 9) for _ in range(d.pick([1, 2, 2, 3]))]])
    size = d.integer(1, 2)
    given = {"kernel_shape": [size] * (d[a].ndim - 2), "strides": [size] * (d[a].ndim - 2)}
    d.emit(op, d.emit("MaxPool", [a], 2, **given), **given)


@operator("DeformConv")
def deformed(d, op):
    groups, offsets = d.pick([1, 1, 2]), d.pick([1, 1, 2])
    channels, filters = 2 * d.integer(1, 3), 2 * d.integer(1, 3)
    a = d.value([F32], dims=[d.integer(1, 2), channels, d.integer(3, 8), d.integer(3, 8)])
    kernel, pads = [d.integer(1, 3), d.integer(1, 3)], [d.integer(0, 1) for _ in range(4)]
    made = [size + pads[i] + pads[i + 2] - k + 1 for i, (size, k) in enumerate(zip(d[a].shape[2:], kernel))]
    w = d.add(d.array(F32, [filters, channels // groups, *kernel]), d.chance(0.9))
    offset = d.new(d.array(F32, [d[a].shape[0], 2 * offsets * kernel[0] * kernel[1], *made]))
    bias = d.add(d.array(F32, [filters]), True) if d.chance(0.5) else ""
    mask = d.new(d.array(F32, [d[a].shape[0], offsets * kernel[0] * kernel[1], *made])) if d.chance(0.5) else ""
    d.emit(op, [a, w, offset, bias, mask], kernel_shape=kernel, pads=pads, group=groups, offset_group=offsets)


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
