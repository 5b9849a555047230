#!/usr/bin/env python3
"""Single operators on the CPU, lenslet beside ONNX Runtime, on inputs of 16 MiB of float32 (or as much work).

    op_speed.py LENSLET [--only REGEX] [--threads 2,1] [--rounds 5] [--seconds 0.2] [--csv FILE] [--json FILE]

A case is a model of one node. Both times are of whole runs, one after the other, from the same input arrays to the same
output arrays: neither loads, plans, allocates or copies, and each finds in the caches what its own last run left. The
output is never the input's memory. Rounds alternate (ours, theirs, ours ...) because shared machines drift; a round gives
its tenth percentile, the time when nobody else wanted the cores, and a cell is the median of the rounds with the least and
the greatest. The floor is the bytes that the steps must read and write over the copy bandwidth of the same threads, the
best that `lenslet layers` has measured so far. Worst ratio first.

Left out: operators that move nothing (Reshape, Identity ...) or make constants, and, by name at the end, what ONNX
Runtime refuses. `--only` is searched in "operator label". Needs lenslet (PYTHONPATH, LENSLET_LIBRARY) besides LENSLET.
"""

import pathlib
import re
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

try:
    import lenslet
    import numpy
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import timing
from lenslet import _options, _structs
from timing import Refused

F32, I64, I32, I8, U8, BOOL = numpy.float32, numpy.int64, numpy.int32, numpy.int8, numpy.uint8, numpy.bool_
IMAGE, BATCH, ROWS = (1, 64, 256, 256), (16, 64, 64, 64), (4096, 1024)  # 4 Mi elements each
VOLUME = (1, 16, 64, 64, 64)


OPSET = 21  # of newer ones ONNX Runtime has not every operator that it has of this one


def knows(op, opset):
    try:
        onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return False
    return True


class Drawn(NamedTuple):
    """An input with values between low and high. Arrays instead of it become constants."""

    shape: tuple
    low: float = -1
    high: float = 1
    kind: type = F32

    def draw(self, generator):
        if self.kind is BOOL:
            return generator.random(self.shape) < 0.5
        if self.kind is F32:
            return generator.uniform(self.low, self.high, self.shape).astype(F32)
        return generator.integers(int(self.low), int(self.high), self.shape).astype(self.kind)


class Case(NamedTuple):
    op: str
    label: str
    inputs: tuple
    outputs: int = 1
    attributes: dict = {}

    def model(self):
        names = [f"x{i}" if given is not None else "" for i, given in enumerate(self.inputs)]
        drawn = [(name, given) for name, given in zip(names, self.inputs) if isinstance(given, Drawn)]
        known = [numpy_helper.from_array(given, name) for name, given in zip(names, self.inputs)
                 if isinstance(given, numpy.ndarray)]  # fmt: skip
        outputs = [f"y{i}" for i in range(self.outputs)]
        graph = helper.make_graph(
            [helper.make_node(self.op, names, outputs, **self.attributes)], self.op,
            [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(numpy.dtype(given.kind)), given.shape)
             for name, given in drawn],
            [onnx.ValueInfoProto(name=name) for name in outputs], known)  # fmt: skip
        opset = OPSET if knows(self.op, OPSET) else onnx.defs.get_schema(self.op).since_version
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10 if opset < 23 else 11)
        return onnx.shape_inference.infer_shapes(model), dict(drawn)


def ints(*values):
    return numpy.asarray(values, I64)


def weights(*shape):
    return numpy.random.default_rng(2).uniform(-0.1, 0.1, shape).astype(F32)


def whole(low, high, kind, *shape):
    return numpy.random.default_rng(3).integers(low, high, shape).astype(kind)


def elementwise():
    ranges = {"Log": (0.1, 9), "Sqrt": (0, 9), "Reciprocal": (0.1, 2), "Acosh": (1, 9), "Softplus": (-9, 9), "Exp": (-9, 9),
              "Erf": (-3, 3), "Tanh": (-4, 4), "Sigmoid": (-9, 9), "Gelu": (-4, 4), "Mish": (-4, 4)}  # fmt: skip
    for op in """Relu LeakyRelu Sigmoid HardSigmoid HardSwish Tanh Elu Selu Softplus Mish Gelu Abs Neg Exp Log Sqrt Reciprocal
            Floor Ceil Erf Swish Celu Softsign ThresholdedRelu Shrink Sign Round Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh
            Acosh Atanh IsNaN IsInf""".split():
        yield Case(op, "", (Drawn(IMAGE, *ranges.get(op, (-1, 1))),))
    yield Case("Gelu", "tanh", (Drawn(IMAGE, -4, 4),), 1, {"approximate": "tanh"})
    yield Case("BitwiseNot", "int32", (Drawn(IMAGE, -99, 99, I32),))
    yield Case("Not", "bool", (Drawn((4, *IMAGE[1:]), kind=BOOL),))
    for op in "Add Sub Mul Div Max Min Pow Sum Mean Equal Less LessOrEqual Greater GreaterOrEqual".split():
        yield Case(op, "", (Drawn(IMAGE, 0.1, 2), Drawn(IMAGE, 0.1, 2)))
    yield Case("Mod", "fmod", (Drawn(IMAGE, 0.1, 2), Drawn(IMAGE, 0.1, 2)), 1, {"fmod": 1})
    yield Case("Mod", "int32", (Drawn(IMAGE, 1, 99, I32), Drawn(IMAGE, 1, 9, I32)))
    for op in ("Add", "Mul", "PRelu"):
        yield Case(op, "by channel", (Drawn(IMAGE), weights(64, 1, 1)))
    yield Case("Add", "by column", (Drawn(ROWS), weights(1024)))
    yield Case("Add", "int64", (Drawn(IMAGE, 0, 99, I64), Drawn(IMAGE, 0, 99, I64)))
    yield Case("Pow", "2", (Drawn(IMAGE), numpy.asarray(2, F32)))
    yield Case("Pow", "0.7", (Drawn(IMAGE, 0.1, 2), numpy.asarray(0.7, F32)))
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield Case(op, "int32", (Drawn(IMAGE, 0, 99, I32), Drawn(IMAGE, 0, 99, I32)))
    yield Case("BitShift", "uint32", (Drawn(IMAGE, 0, 99, numpy.uint32), Drawn(IMAGE, 0, 9, numpy.uint32)), 1, {"direction": "LEFT"})
    for op in ("And", "Or", "Xor"):
        yield Case(op, "bool", (Drawn((4, *IMAGE[1:]), kind=BOOL), Drawn((4, *IMAGE[1:]), kind=BOOL)))
    yield Case("Where", "", (Drawn(IMAGE, kind=BOOL), Drawn(IMAGE), Drawn(IMAGE)))
    yield Case("Where", "by channel, scalar", (Drawn((1, 64, 1, 1), kind=BOOL), Drawn(IMAGE), numpy.asarray(0, F32)))
    yield Case("Clip", "", (Drawn(IMAGE), numpy.asarray(-0.5, F32), numpy.asarray(0.5, F32)))
    for kind, name in ((I32, "int32"), (I64, "int64"), (U8, "uint8"), (numpy.float64, "float64"), (numpy.float16, "float16")):
        yield Case("Cast", f"to {name}", (Drawn(IMAGE, 0, 99),), 1, {"to": helper.np_dtype_to_tensor_dtype(numpy.dtype(kind))})
    yield Case("Cast", "from int64", (Drawn(IMAGE, 0, 99, I64),), 1, {"to": 1})
    yield Case("Cast", "to bool", (Drawn(IMAGE),), 1, {"to": 9})
    yield Case("Cast", "from bool", (Drawn(IMAGE, kind=BOOL),), 1, {"to": 1})
    yield Case("Cast", "int64 to bool", (Drawn(IMAGE, 0, 2, I64),), 1, {"to": 9})
    yield Case("Cast", "bool to int64", (Drawn(IMAGE, kind=BOOL),), 1, {"to": 7})
    yield Case("CastLike", "to int32", (Drawn(IMAGE, 0, 99), ints(0).astype(I32)))
    zero = numpy.asarray(128, U8)
    yield Case("QuantizeLinear", "uint8", (Drawn(IMAGE), numpy.asarray(0.01, F32), zero))
    yield Case("QuantizeLinear", "int8, by channel", (Drawn(IMAGE), abs(weights(64)) + F32(0.01), numpy.zeros(64, I8)), 1, {"axis": 1})
    yield Case("DequantizeLinear", "uint8", (Drawn(IMAGE, 0, 255, U8), numpy.asarray(0.01, F32), zero))
    yield Case("DequantizeLinear", "int8, by channel", (Drawn(IMAGE, -99, 99, I8), abs(weights(64)) + F32(0.01), numpy.zeros(64, I8)), 1, {"axis": 1})
    yield Case("DynamicQuantizeLinear", "", (Drawn(IMAGE),), 3)


def reductions():
    shapes = (("rows", ROWS, 1), ("columns", ROWS, 0), ("planes", IMAGE, (2, 3)), ("channels", IMAGE, 1), ("all", IMAGE, (0, 1, 2, 3)))
    for op in """ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSum
            ReduceLogSumExp""".split():
        low = 0.9 if op in ("ReduceProd", "ReduceLogSum") else -1
        for label, shape, axes in shapes[: 5 if op in ("ReduceMean", "ReduceMax") else 4]:
            yield Case(op, label, (Drawn(shape, low, 1.1), ints(*numpy.atleast_1d(axes))))
    for op in ("ReduceMin", "ReduceMax", "ReduceSum"):
        for size in (3, 16, 49):
            yield Case(op, f"rows of {size}", (Drawn((2**22 // size, size)), ints(1)))
    for op in ("ArgMax", "ArgMin", "Softmax", "LogSoftmax", "Hardmax"):
        for label, shape, axis in (("rows", ROWS, 1), ("channels", IMAGE, 1)):
            yield Case(op, label, (Drawn(shape),), 1, {"axis": axis})
    yield Case("Softmax", "rows of 49", (Drawn((85598, 49)),), 1, {"axis": 1})
    for op in ("CumSum", "CumProd"):
        for label, shape, axis in (("rows", ROWS, 1), ("columns", ROWS, 0)):
            yield Case(op, label, (Drawn(shape, 0.9, 1.1), numpy.array(axis, I64)))
    yield Case("TopK", "5 of rows of 1024", (Drawn(ROWS), ints(5)), 2)
    yield Case("TopK", "100 of rows of 65536", (Drawn((64, 65536)), ints(100)), 2)
    yield Case("TopK", "all of rows of 1024", (Drawn(ROWS), ints(1024)), 2)
    yield Case("TopK", "5 of 64 channels", (Drawn(IMAGE), ints(5)), 2, {"axis": 1})


def normalisations():
    yield Case("BatchNormalization", "", (Drawn(IMAGE), weights(64), weights(64), weights(64), abs(weights(64))))
    for label, shape in (("planes of 256x256", IMAGE), ("planes of 16x16", (64, 256, 16, 16))):
        yield Case("InstanceNormalization", label, (Drawn(shape), weights(shape[1]), weights(shape[1])))
        yield Case("GroupNormalization", label, (Drawn(shape), weights(shape[1]), weights(shape[1])), 1, {"num_groups": 32})
    for op in ("LayerNormalization", "RMSNormalization"):
        for size in (96, 1024):
            parameters = (weights(size),) * (2 if op[0] == "L" else 1)
            yield Case(op, f"rows of {size}", (Drawn((4096 * 1024 // size, size)), *parameters))
    for p in (1, 2):
        for label, shape, axis in (("rows", ROWS, 1), ("channels", IMAGE, 1)):
            yield Case("LpNormalization", f"p={p}, {label}", (Drawn(shape),), 1, {"p": p, "axis": axis})
    yield Case("MeanVarianceNormalization", "", (Drawn(BATCH),))
    yield Case("LRN", "5", (Drawn(IMAGE),), 1, {"size": 5})


def products():
    spatial = {"kernel_shape": [3, 3], "pads": [1] * 4}
    yield Case("Conv", "3-D, 16->16, 3x3x3", (Drawn(VOLUME), weights(16, 16, 3, 3, 3)), 1, {"pads": [1] * 6})
    yield Case("Conv", "3-D, 16->32, 1x1x1", (Drawn(VOLUME), weights(32, 16, 1, 1, 1)))
    yield Case("Conv", "1-D, 64->64, 3", (Drawn((4, 64, 16384)), weights(64, 64, 3)), 1, {"pads": [1, 1]})
    yield Case("ConvTranspose", "64->32, 2x2, stride 2", (Drawn((1, 64, 256, 256)), weights(64, 32, 2, 2)), 1, {"strides": [2, 2]})
    yield Case("ConvTranspose", "64->32, 4x4, stride 2", (Drawn((1, 64, 256, 256)), weights(64, 32, 4, 4)), 1, {"strides": [2, 2], "pads": [1] * 4})
    yield Case("ConvTranspose", "64->64, 3x3", (Drawn((1, 64, 256, 256)), weights(64, 64, 3, 3)), 1, {"pads": [1] * 4})
    yield Case("ConvTranspose", "depthwise, 4x4, stride 2", (Drawn((1, 64, 256, 256)), weights(64, 1, 4, 4)), 1, {"strides": [2, 2], "pads": [1] * 4, "group": 64})
    for label, shape, attributes in (("3x3", (64, 64, 3, 3), spatial), ("1x1", (64, 64, 1, 1), {}), ("depthwise 3x3", (64, 1, 3, 3), {**spatial, "group": 64})):
        yield Case("Conv", f"computed weights, {label}", (Drawn((1, 64, 128, 128)), Drawn(shape)), 1, attributes)
    yield Case("Conv", "computed weights, 512->512, 3x3 of 7x7", (Drawn((1, 512, 7, 7)), Drawn((512, 512, 3, 3))), 1, spatial)
    yield Case("ConvTranspose", "computed weights, 64->32, 4x4, stride 2", (Drawn((1, 64, 128, 128)), Drawn((64, 32, 4, 4))), 1, {"strides": [2, 2], "pads": [1] * 4})
    yield Case("DeformConv", "64->64, 3x3", (Drawn((1, 64, 128, 128)), weights(64, 64, 3, 3), Drawn((1, 18, 128, 128))), 1, spatial)
    yield Case("Gemm", "4096x1024 by 1024x256", (Drawn(ROWS), weights(1024, 256), weights(256)))
    yield Case("MatMul", "64 of 256x256", (Drawn((64, 256, 256)), Drawn((64, 256, 256))))
    for m, k, n in ((1, 1024, 1024), (4, 1024, 1024), (32, 512, 512), (1024, 64, 64), (197, 64, 197), (4096, 16, 16), (8, 8, 100000), (25, 25, 25)):
        yield Case("MatMul", f"computed B, {m}x{k}x{n}", (Drawn((m, k)), Drawn((k, n))))
    yield Case("MatMul", "computed B, 1024 of 16x32x16", (Drawn((1024, 16, 32)), Drawn((1024, 32, 16))))
    yield Case("MatMul", "computed B, 12 of 197x64x197", (Drawn((12, 197, 64)), Drawn((12, 64, 197))))
    for given in ({}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1}):
        yield Case("Gemm", f"computed B and C, 256x512x384 {' '.join(given)}".strip(),
                   (Drawn((512, 256) if "transA" in given else (256, 512)), Drawn((384, 512) if "transB" in given else (512, 384)), Drawn((256, 384))), 1, given)  # fmt: skip
    yield Case("Gemm", "computed B, 1x1024x1024", (Drawn((1, 1024)), Drawn((1024, 1024)), Drawn((1024,))))
    for equation, a, b in (("nctv,vw->nctw", (1, 64, 300, 25), (25, 25)), ("nkctv,kvw->nctw", (1, 3, 64, 300, 25), (3, 25, 25)),
                           ("bhqd,bhkd->bhqk", (1, 12, 197, 64), (1, 12, 197, 64)), ("bhqk,bkhd->bqhd", (1, 12, 197, 197), (1, 197, 12, 64)),
                           ("bchw,bkhw->bck", (1, 64, 56, 56), (1, 32, 56, 56)), ("ij,j->i", (2048, 1024), (1024,)), ("i,j->ij", (2048,), (2048,)),
                           ("bij,bij->bi", (8, 512, 512), (8, 512, 512)), ("bhwc,hkc->bhwk", (8, 14, 14, 64), (14, 14, 64))):  # fmt: skip
        yield Case("Einsum", equation, (Drawn(a), Drawn(b)), 1, {"equation": equation})
    yield Case("Einsum", "bij,bkj->bik", (Drawn((64, 256, 256)), Drawn((64, 256, 256))), 1, {"equation": "bij,bkj->bik"})
    one, zero = numpy.asarray(0.02, F32), numpy.asarray(120, U8)
    for label, channels, filters, size, kernel, group in (("64->64, 3x3", 64, 64, 128, 3, 1), ("256->256, 1x1", 256, 256, 64, 1, 1),
                                                          ("64, depthwise 3x3", 64, 64, 256, 3, 64)):  # fmt: skip
        given = {"pads": [kernel // 2] * 4, "group": group}
        w = whole(-60, 60, I8, filters, channels // group, kernel, kernel)
        x = Drawn((1, channels, size, size), 0, 255, U8)
        yield Case("QLinearConv", label, (x, one, zero, w, one, numpy.asarray(0, I8), one, zero, whole(-99, 99, I32, filters)), 1, given)
        yield Case("ConvInteger", label, (x, w, zero, numpy.asarray(0, I8)), 1, given)
    a = Drawn((1024, 1024), 0, 255, U8)
    b = whole(-60, 60, I8, 1024, 1024)
    yield Case("MatMulInteger", "1024x1024x1024", (a, b, zero))
    yield Case("QLinearMatMul", "1024x1024x1024", (a, one, zero, b, one, numpy.asarray(0, I8), one, zero))


def pools():
    for op in ("MaxPool", "AveragePool", "LpPool"):
        for label, given in (("2x2, stride 2", {"kernel_shape": [2, 2], "strides": [2, 2]}),
                             ("3x3, stride 2", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
                             ("3x3", {"kernel_shape": [3, 3], "pads": [1] * 4})):  # fmt: skip
            yield Case(op, label, (Drawn(IMAGE),), 1, given)
    for op, shape in (("AveragePool", (1, 256, 14, 14)), ("AveragePool", (8, 64, 28, 28)), ("MaxPool", (1, 256, 14, 14))):
        yield Case(op, f"2x2 of {'x'.join(map(str, shape))}", (Drawn(shape),), 1, {"kernel_shape": [2, 2], "strides": [2, 2]})
    yield Case("MaxPool", "2x2, with indices", (Drawn(IMAGE),), 2, {"kernel_shape": [2, 2], "strides": [2, 2]})
    yield Case("MaxPool", "3-D, 2x2x2", (Drawn(VOLUME),), 1, {"kernel_shape": [2] * 3, "strides": [2] * 3})
    yield Case("MaxPool", "1-D, 3, stride 2", (Drawn((4, 64, 16384)),), 1, {"kernel_shape": [3], "strides": [2]})
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield Case(op, "", (Drawn(IMAGE),))
    places = numpy.arange(64 * 256 * 256, dtype=I64).reshape(1, 64, 128, 2, 128, 2)[:, :, :, 0, :, 1]
    yield Case("MaxUnpool", "2x2", (Drawn((1, 64, 128, 128)), numpy.ascontiguousarray(places)), 1, {"kernel_shape": [2, 2], "strides": [2, 2]})
    yield Case("Col2Im", "3x3", (Drawn((1, 576, 16384)), ints(128, 128), ints(3, 3)), 1, {"pads": [1] * 4})


def movement():
    for perm in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2), (0, 2, 1, 3), (1, 0, 2, 3), (3, 2, 1, 0)):
        yield Case("Transpose", str(perm).replace(" ", ""), (Drawn((4, 64, 128, 128)),), 1, {"perm": perm})
    yield Case("Transpose", "(1,0)", (Drawn((2048, 2048)),), 1, {"perm": (1, 0)})
    yield Case("Transpose", "uint8 (0,2,3,1)", (Drawn((4, 64, 256, 256), 0, 255, U8),), 1, {"perm": (0, 2, 3, 1)})
    halves = (Drawn((4, 32, 128, 128)),) * 2
    yield Case("Concat", "channels", halves, 1, {"axis": 1})
    yield Case("Concat", "columns", halves, 1, {"axis": 3})
    yield Case("Concat", "columns of 1", (Drawn((2**20, 1)),) * 4, 1, {"axis": 1})
    yield Case("Split", "channels", (Drawn((4, 64, 128, 128)),), 2, {"axis": 1, "num_outputs": 2})
    yield Case("Split", "columns", (Drawn((4, 64, 128, 128)),), 2, {"axis": 3, "num_outputs": 2})
    for label, start, end, step, axis in (("channels", 16, 48, 1, 1), ("columns", 8, 120, 1, 3), ("every 2nd column", 0, 128, 2, 3),
                                          ("columns backwards", -1, -129, -1, 3), ("every 2nd row", 0, 128, 2, 2)):  # fmt: skip
        yield Case("Slice", label, (Drawn((4, 64, 128, 128)), ints(start), ints(end), ints(axis), ints(step)))
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield Case("Pad", mode, (Drawn(IMAGE), ints(0, 0, 3, 3, 0, 0, 3, 3), None), 1, {"mode": mode})
    yield Case("CenterCropPad", "", (Drawn(IMAGE), ints(1, 64, 224, 280)))
    yield Case("Expand", "rows", (Drawn((4096, 1)), ints(4096, 1024)))
    yield Case("Expand", "planes", (Drawn((1, 64, 1, 1)), ints(*IMAGE)))
    yield Case("Expand", "batch", (Drawn((1, 64, 64, 64)), ints(*BATCH)))
    yield Case("Tile", "columns", (Drawn((1, 64, 256, 128)), ints(1, 1, 1, 2)))
    yield Case("Tile", "channels", (Drawn((1, 32, 256, 256)), ints(1, 2, 1, 1)))
    for mode in ("DCR", "CRD"):
        yield Case("DepthToSpace", f"2, {mode}", (Drawn(IMAGE),), 1, {"blocksize": 2, "mode": mode})
    yield Case("SpaceToDepth", "2", (Drawn(IMAGE),), 1, {"blocksize": 2})
    yield Case("Gather", "rows", (Drawn(ROWS), Drawn((4096,), 0, 4096, I64)))
    yield Case("Gather", "columns", (Drawn(ROWS), Drawn((1024,), 0, 1024, I64)), 1, {"axis": 1})
    for axis in (0, 1):
        yield Case("GatherElements", f"axis {axis}", (Drawn(ROWS), Drawn(ROWS, 0, ROWS[axis], I64)), 1, {"axis": axis})
        yield Case("ScatterElements", f"axis {axis}", (Drawn(ROWS), Drawn((1024, 1024), 0, ROWS[axis], I64), Drawn((1024, 1024))), 1, {"axis": axis})
    yield Case("ScatterElements", "add", (Drawn(ROWS), Drawn((1024, 1024), 0, 1024, I64), Drawn((1024, 1024))), 1, {"axis": 1, "reduction": "add"})
    yield Case("GatherND", "elements", (Drawn(ROWS), Drawn((2**20, 2), 0, 1024, I64)))
    yield Case("GatherND", "rows", (Drawn(ROWS), Drawn((4096, 1), 0, 4096, I64)))
    yield Case("ScatterND", "rows", (Drawn(ROWS), Drawn((1024, 1), 0, 4096, I64), Drawn((1024, 1024))))
    yield Case("OneHot", "1024", (Drawn((4096,), 0, 1024, I64), ints(1024), numpy.asarray([0, 1], F32)))
    yield Case("Compress", "rows", (Drawn(ROWS), numpy.arange(4096) % 2 == 0), 1, {"axis": 0})
    yield Case("Compress", "elements", (Drawn(ROWS), numpy.arange(4096 * 1024) % 2 == 0))
    yield Case("Trilu", "", (Drawn((16, 512, 512)),))
    yield Case("EyeLike", "", (Drawn((2048, 2048)),))
    yield Case("ReverseSequence", "", (Drawn((256, 64, 256)), numpy.full(64, 200, I64)), 1, {"time_axis": 0, "batch_axis": 1})
    yield Case("NonZero", "", (Drawn(ROWS, 0, 2, I32),))
    yield Case("Range", "", (numpy.asarray(0, F32), Drawn((), 2**22, 2**22 + 0.5), numpy.asarray(1, F32)))


def images():
    for label, shape, scale in (("up 2", (1, 64, 128, 128), 2), ("down 2", (1, 64, 512, 512), 0.5), ("up 1.5", (1, 64, 168, 168), 1.5)):
        scales = numpy.asarray([1, 1, scale, scale], F32)
        for mode in ("nearest", "linear", "cubic"):
            yield Case("Resize", f"{mode}, {label}", (Drawn(shape), None, scales), 1, {"mode": mode})
        yield Case("Resize", f"nearest asymmetric floor, {label}", (Drawn(shape), None, scales), 1,
                   {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})  # fmt: skip
    yield Case("Resize", "linear align_corners, up 2", (Drawn((1, 64, 128, 128)), None, numpy.asarray([1, 1, 2, 2], F32)), 1,
               {"mode": "linear", "coordinate_transformation_mode": "align_corners"})  # fmt: skip
    yield Case("Resize", "linear, up 8, 21 channels", (Drawn((1, 21, 64, 64)), None, numpy.asarray([1, 1, 8, 8], F32)), 1, {"mode": "linear"})
    yield Case("Resize", "linear antialias, down 2", (Drawn((1, 3, 1024, 1024)), None, numpy.asarray([1, 1, 0.5, 0.5], F32)), 1, {"mode": "linear", "antialias": 1})
    for mode in ("linear", "nearest", "cubic"):
        yield Case("GridSample", mode, (Drawn(IMAGE), Drawn((1, 256, 256, 2))), 1, {"mode": mode})
    yield Case("GridSample", "linear, border", (Drawn(IMAGE), Drawn((1, 256, 256, 2), -1.2, 1.2)), 1, {"mode": "linear", "padding_mode": "border"})
    yield Case("AffineGrid", "", (Drawn((8, 2, 3)), ints(8, 3, 512, 512)))
    boxes = numpy.random.default_rng(4).uniform(0, 100, (256, 2)).astype(F32)
    boxes = numpy.concatenate([boxes, boxes + F32(60)], 1)
    for mode in ("avg", "max"):
        yield Case("RoiAlign", mode, (Drawn(IMAGE), boxes, numpy.zeros(256, I64)), 1, {"mode": mode, "output_height": 7, "output_width": 7, "sampling_ratio": 2})
    yield Case("NonMaxSuppression", "", (Drawn((1, 4096, 4), 0, 1), Drawn((1, 8, 4096), 0, 1), ints(100), numpy.asarray([0.5], F32), numpy.asarray([0.3], F32)))


def recurrent():
    """As large as in readers of text, whose input is both directions of the layer before."""
    for op, gates, given in (("LSTM", 4, {}), ("GRU", 3, {"linear_before_reset": 1}), ("GRU", 3, {}), ("RNN", 1, {})):
        for hidden in (48, 96, 256, 512):
            for seq, batch in ((20, 1), (100, 1), (40, 8)):
                for direction, d in (("bidirectional", 2), ("forward", 1)):
                    if (op, seq, d) != ("LSTM", seq, 2) and (seq, hidden) not in ((100, 96), (40, 256)):
                        continue
                    sizes = (weights(d, gates * hidden, 2 * hidden), weights(d, gates * hidden, hidden), weights(d, 2 * gates * hidden))
                    label = f"{hidden}, {seq} x {batch}, {direction}{', before reset' if given else ''}"
                    yield Case(op, label, (Drawn((seq, batch, 2 * hidden)), *sizes), 2, {"hidden_size": hidden, "direction": direction, **given})


def cases():
    for family in (elementwise, reductions, normalisations, products, pools, movement, images, recurrent):
        yield from family()


class Peer:
    """A session whose inputs and outputs are bound to arrays."""

    def __init__(self, model, feeds, threads):
        try:
            self.session = timing.onnxruntime_session(model, threads)
            self.binding = self.session.io_binding()
            for name, array in feeds.items():
                self.binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
            names = [port.name for port in self.session.get_outputs()]
            for name in names:
                self.binding.bind_output(name)
            self.session.run_with_iobinding(self.binding)
            self.outputs = {name: numpy.empty_like(value.numpy()) for name, value in zip(names, self.binding.get_outputs())}
            for name, array in self.outputs.items():
                self.binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        # onnxruntime's own exceptions share no base but Exception.
        except Exception as error:
            raise Refused(f"ONNX Runtime: {timing.first_line(error)}") from error

    def run(self):
        self.session.run_with_iobinding(self.binding)


def our_run(file, feeds, outputs, threads):
    """A run between the application's arrays, which nothing is copied to or from: no step writes over its input."""
    model = lenslet.Model(str(file))
    options = _options.plan_options(device="cpu", threads=threads, ports=model.inputs)
    options.flags |= _structs.PLAN_KEEP_ALL_VALUES
    runner = lenslet.Runner(model._handle, options, len(model.inputs), len(model.outputs), False)
    return lambda: runner(feeds, out=outputs)


def tenth_percentile(run, seconds):
    time.sleep(0.1)  # until the other's threads no longer spin in wait for work
    return float(numpy.percentile(timing.timed(run, seconds, warm_up=1), 10))


def measure(arguments, case, name, folder, copy):
    """`copy`: bandwidth in GB/s by threads, the best so far."""
    model, drawn = case.model()
    generator = numpy.random.default_rng(1)
    feeds = {port: given.draw(generator) for port, given in drawn.items()}
    file = folder / "model.onnx"
    onnx.save(model, file)
    files = []
    for port, array in feeds.items():
        numpy.save(folder / f"{port}.npy", array)
        files += ["--input", f"{port}={folder / port}.npy"]
    for threads in arguments.threads:
        peer = Peer(file, feeds, threads)
        limits = timing.lenslet(arguments.lenslet, "layers", file, "--no-errors", "--device", "cpu", "--threads", threads,
                                "--seconds", 0.01, "--warmup", 1, *files)  # fmt: skip
        if not limits["layers"]:
            raise Refused("lenslet has no step for it")
        run = our_run(file, feeds, peer.outputs, threads)
        ours, theirs = timing.in_turns({"lenslet": lambda: tenth_percentile(run, arguments.seconds),
                                         "onnxruntime": lambda: tenth_percentile(peer.run, arguments.seconds)}, arguments.rounds).values()  # fmt: skip
        copy[threads] = max(copy.get(threads, 0), limits["peak"]["copy_gb_per_s"])
        floor = sum(step["bytes"] for step in limits["layers"]) / copy[threads] / 1e6
        yield {"operator": name, "threads": threads, "lenslet_ms": ours, "onnxruntime_ms": theirs, "ratio": timing.ratio(ours, theirs),
               "floor_ms": floor, "percent_of_floor": round(100 * floor / statistics.median(ours))}  # fmt: skip


def main():
    parser = timing.options(__doc__, rounds=5, seconds=0.2)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--threads", default="2,1", type=timing.numbers)
    arguments = parser.parse_args()

    onnxruntime.set_default_logger_severity(4)
    results = timing.Results(
        arguments, f"Single operators on the CPU, 16 MiB of float32, beside ONNX Runtime {onnxruntime.__version__}.",
        "Milliseconds: median of the rounds' tenth percentiles, least, greatest. ratio: lenslet / ONNX Runtime. "
        "floor_ms: bytes / measured copy bandwidth.")  # fmt: skip
    refused, copy = [], {}
    for case in cases():
        name = f"{case.op} {case.label}".strip()
        if not re.search(arguments.only, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                for row in measure(arguments, case, name, pathlib.Path(folder), copy):
                    results.add(**row)
            except Refused as error:
                refused.append(f"{name}: {error}")
                print(f"left out: {refused[-1]}", flush=True)
    results.rows.sort(key=lambda row: -row["ratio"])
    results.write()
    print("\nWorst first:")
    for row in results.rows:
        results.show(row)
    above = sum(row["ratio"] > 1.2 for row in results.rows)
    print(f"\n{len(results.rows)} rows, {above} of them above 1.2; left out:" + "".join(f"\n- {line}" for line in refused))
    return 0 if results.rows else "no case was measured"


if __name__ == "__main__":
    sys.exit(main())
