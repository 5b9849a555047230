"""Cases in which lenslet and ONNX Runtime may disagree, with reasons; and the operators that are exact."""

import numpy
from onnx import helper

from .drawing import F32, F64, I32, I64, U32, U64

# Exact nodes: a graph of only these must agree in every element.
EXACT = set("""Relu Abs Neg Sign BitwiseNot Not IsNaN IsInf BitwiseAnd BitwiseOr BitwiseXor BitShift And Or Xor Equal Less
LessOrEqual Greater GreaterOrEqual Where Clip Max Min ArgMax ArgMin TopK MaxPool GlobalMaxPool Pad Transpose Concat Split Slice
Gather GatherElements GatherND OneHot Compress Trilu EyeLike CenterCropPad Expand Tile DepthToSpace SpaceToDepth
NhwcMaxPool ReverseSequence Reshape Flatten Squeeze Unsqueeze Identity Dropout Shape Size Constant ConstantOfShape Range NonZero Floor Ceil
Round ThresholdedRelu Hardmax ReduceMax ReduceMin Scatter""".split())

RECURRENT = ("LSTM", "GRU", "RNN")

# Operators whose later inputs are floats that determine shapes.
SHAPED_BY_FLOATS = ("Resize", "Upsample", "Range")


def attribute(node, name, default=None):
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def arrays_of(graph, node):
    return [graph.arrays[name] for name in [*node.input, *node.output] if name]


def has_nan(graph, node):
    return any(array.dtype.kind == "f" and numpy.isnan(array).any() for array in arrays_of(graph, node))


def not_finite(graph, node):
    return any(array.dtype.kind == "f" and not numpy.isfinite(array).all() for array in arrays_of(graph, node))


def overflows(graph, node):
    """32- and 64-bit integer arithmetic far from 0."""
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
    """tf_crop_and_resize by scales, one of which gives a rounded length."""
    if node.op_type != "Resize" or attribute(node, "coordinate_transformation_mode") != b"tf_crop_and_resize":
        return False
    scales = graph.arrays[node.input[2]] if len(node.input) > 2 and node.input[2] else ()
    axes = attribute(node, "axes", range(len(scales)))
    shape = graph.arrays[node.input[0]].shape
    return any(shape[axis] * float(scale) % 1 != 0 for axis, scale in zip(axes, scales))


def corners_of_integers(graph, node):
    """The same for align_corners and integers, which are truncated: no reference can agree with lenslet there."""
    if node.op_type != "Resize" or attribute(node, "coordinate_transformation_mode") != b"align_corners" or attribute(node, "mode") != b"linear":
        return False
    scales = graph.arrays[node.input[2]] if len(node.input) > 2 and node.input[2] else ()
    axes = attribute(node, "axes", range(len(scales)))
    array = graph.arrays[node.input[0]]
    return array.dtype.kind in "iu" and any(array.shape[axis] * float(scale) % 1 != 0 for axis, scale in zip(axes, scales))


def rounds_ties(graph, node):
    """Resize, nearest, by a scale or of a region that float32 does not represent exactly, or centred on a rounded length."""
    if node.op_type not in ("Resize", "Upsample") or attribute(node, "mode", b"nearest") != b"nearest":
        return False
    scales = [graph.arrays[name] for name in node.input[1:] if name and graph.arrays[name].dtype == F32][-1:]
    given, made = (numpy.asarray(graph.arrays[name].shape) for name in (node.input[0], node.output[0]))
    by_size = not scales or len(scales[0]) in (0, 2 * len(given)) or len(node.input) > 3 and node.input[3]
    scale = made / given if by_size else scales[0].astype(F64)
    crops = attribute(node, "coordinate_transformation_mode") == b"tf_crop_and_resize"
    region = graph.arrays[node.input[1]].astype(F64) if crops else numpy.zeros(0)
    rounds = attribute(node, "coordinate_transformation_mode") == b"half_pixel_symmetric" and (scale * given[-len(scale):] % 1).any()
    return bool(rounds or (scale * 8 % 1).any() or (region * 8 % 1).any())


def by_zero(graph, node):
    return {"Div": 1, "Mod": 1, "Reciprocal": 0}.get(node.op_type) is not None and any(
        array.dtype.kind == "f" and (array == 0).any() for array in [graph.arrays[node.input[-1]]])


def spatial_of(graph, node):
    shape = graph.arrays[node.input[0]].shape
    return shape[1:-1] if node.op_type.startswith("Nhwc") or attribute(node, "channels_last") else shape[2:]


def same_skips(graph, node):
    """SAME windows whose strides skip elements at the ends: the pads become negative."""
    if b"SAME" not in attribute(node, "auto_pad", b"") or "Transpose" in node.op_type:
        return False
    weights = graph.arrays[node.input[1]].shape[2:] if "Conv" in node.op_type else ()
    kernel, spatial = attribute(node, "kernel_shape", weights), spatial_of(graph, node)
    ones = [1] * len(spatial)
    return any((-(-size // s) - 1) * s + (k - 1) * d + 1 < size - 1 for size, s, k, d in
               zip(spatial, attribute(node, "strides", ones), kernel, attribute(node, "dilations", ones)))  # fmt: skip


def beyond_float32(graph, node):
    """A float beyond float32's range, or too near to 0 for its 24 bits."""
    def some(array):
        size = numpy.abs(array[numpy.isfinite(array)].astype(F64))
        return array.dtype.kind == "f" and bool((size > 3.4e38).any() or ((size > 0) & (size < 1.2e-38)).any())
    return any(some(array) for array in arrays_of(graph, node) if array.dtype.kind == "f")


def same_leaves_gaps(graph, node):
    """ConvTranspose, SAME: strides times input exceed the reach of input and kernel, so that pads would be negative."""
    spatial = graph.arrays[node.input[0]].shape[2:]
    kernel = graph.arrays[node.input[1]].shape[2:]
    ones = [1] * len(spatial)
    strides, dilations, more = (attribute(node, name, rest) for name, rest in
                                (("strides", ones), ("dilations", ones), ("output_padding", [0] * len(spatial))))  # fmt: skip
    return any((size - 1) * s + o + (k - 1) * d + 1 < size * s for size, s, o, k, d in zip(spatial, strides, more, kernel, dilations))


def window_fits(graph, node):
    """With pads; ONNX Runtime gives an output of 1 where ONNX's formula gives none."""
    kernel, spatial = attribute(node, "kernel_shape"), spatial_of(graph, node)
    pads, dilations = attribute(node, "pads", [0] * 2 * len(spatial)), attribute(node, "dilations", [1] * len(spatial))
    return attribute(node, "auto_pad", b"") in (b"SAME_UPPER", b"SAME_LOWER") or all(
        size + low + high > dilation * (k - 1)
        for size, low, high, dilation, k in zip(spatial, pads, pads[len(spatial):], dilations, kernel))


def lacks_numbers(graph, node):
    """A recurrent operator without the alpha or beta of one of its functions."""
    names, of_both = attribute(node, "activations", []), (b"Affine", b"ScaledTanh")
    lists = (("activation_alpha", (*of_both, b"ThresholdedRelu")), ("activation_beta", of_both))
    return node.op_type in RECURRENT and any(name in takers and not attribute(node, key) for key, takers in lists for name in names)


# What the two may disagree on, and why it is not drawn: properties that a node and its arrays must not have. The texts
# appear in docs/conformance.md.
EXCLUSIONS = (
    ("ThresholdedRelu, FusedGemm's too, and Shrink of NaN: ONNX Runtime gives 0, lenslet NaN, as of every activation",
     lambda g, n: n.op_type in ("ThresholdedRelu", "Shrink") and has_nan(g, n)
     or attribute(n, "activation") == b"ThresholdedRelu" and not_finite(g, n)),
    ("Det of infinities, NaN in lenslet: ONNX Runtime and NumPy give an infinity or NaN, each by where they stand",
     lambda g, n: n.op_type == "Det" and numpy.isinf(g.arrays[n.input[0]]).any()),
    ("Resize, Upsample and LRN of NaN and infinities: ONNX Runtime counts pixels of weight 0, and spreads a NaN to the channels "
     "after it", lambda g, n: n.op_type in ("Resize", "Upsample", "LRN") and not_finite(g, n)),
    ("tf_crop_and_resize along an axis that keeps its size: ONNX Runtime does not crop it", crop_keeps_size),
    ("nearest Resize by scales, or of regions, that are no multiples of 1/8, or half_pixel_symmetric to a rounded length: where a "
     "tie falls, their rounding decides", rounds_ties),
    ("convolutions with NaN or infinite weights: over padding one makes NaN of them, the other leaves them out",
     lambda g, n: "Conv" in n.op_type and not numpy.isfinite(g.arrays[n.input[1]].astype(F64)).all()),
    ("integers that may overflow, which ONNX leaves open: ONNX Runtime sums some of them in floats", overflows),
    ("floats divided by 0: the sign of a zero, which ONNX does not speak of, decides which infinity comes out", by_zero),
    ("auto_pad SAME with strides of kernel + 2 and more: ONNX Runtime's pads are then negative, lenslet's 0, as TensorFlow's",
     lambda g, n: same_skips(g, n)),
    ("pools with auto_pad SAME and dilations: ONNX Runtime's pads leave the dilations out, ONNX's formula has them",
     lambda g, n: n.op_type in ("MaxPool", "AveragePool", "LpPool", "NhwcMaxPool") and b"SAME" in attribute(n, "auto_pad", b"")
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
     lambda g, n: n.op_type in ("MaxPool", "AveragePool", "LpPool", "NhwcMaxPool", "QLinearAveragePool") and not window_fits(g, n)),
    ("the mask of Dropout before opset 12, which ONNX leaves open at inference",
     lambda g, n: n.op_type == "Dropout" and len(n.output) > 1 and g.opset < 12),
    ("Col2Im of 3 axes: ONNX Runtime's result is not that of ONNX's reference",
     lambda g, n: n.op_type == "Col2Im" and len(g.arrays[n.input[1]]) > 2),
    ("AffineGrid with align_corners over a size of 1: ONNX Runtime takes another point than ONNX's reference",
     lambda g, n: n.op_type == "AffineGrid" and attribute(n, "align_corners") and 1 in g.arrays[n.input[1]][2:]),
    ("tf_crop_and_resize by scales whose lengths are no integers: ONNX Runtime divides by the rounded length, ONNX's reference, as "
     "lenslet, by the scale times the size", crop_rounds_length),
    ("LSTM, GRU and RNN of NaN and infinities: ONNX Runtime's Sigmoid and Tanh of NaN are numbers, lenslet's NaN",
     lambda g, n: n.op_type in RECURRENT and not_finite(g, n)),
    ("LSTM, GRU and RNN whose states are below 0.001, where ONNX Runtime errs by 1e-8",
     lambda g, n: n.op_type in RECURRENT and 0 < max(abs(g.arrays[name]).max(initial=0) for name in n.output if name) < 1e-3),
    ("LSTM, GRU and RNN with Affine, ScaledTanh or ThresholdedRelu without alpha and beta: ONNX Runtime takes 0, lenslet what "
     "operators of these names take",
     lacks_numbers),
    ("align_corners of integers by such scales, likewise", corners_of_integers),
    ("DynamicQuantizeLinear of nothing but zeros: the scale is ONNX's formula's 0 in lenslet, 1 in ONNX Runtime, 1/255 in ONNX's "
     "reference, and 0 is what dequantising gives in all",
     lambda g, n: n.op_type == "DynamicQuantizeLinear" and not g.arrays[n.input[0]].any()),
    ("DynamicQuantizeLinear and DynamicQuantizeMatMul of NaN and infinities, for which there is no scale: ONNX Runtime's extrema drop "
     "a NaN or not by where it stands",
     lambda g, n: n.op_type.startswith("DynamicQuantize") and not numpy.isfinite(g.arrays[n.input[0]]).all()),
    ("ArgMax and ArgMin over an axis of no elements: there is no index to give, and lenslet refuses",
     lambda g, n: n.op_type in ("ArgMax", "ArgMin") and g.arrays[n.input[0]].shape[attribute(n, "axis", 0)] == 0),
)  # fmt: skip


def excluded(graph, node):
    """Why a node is excluded, or None. It gets all values."""
    return next((why for why, is_so in EXCLUSIONS if is_so(graph, node)), None)
