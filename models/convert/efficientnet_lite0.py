"""EfficientNet-Lite0 as an ONNX graph: the published state dict in, a model file out.

Architecture: Tan and Le, "EfficientNet" (2019), in its Lite variant: no squeeze-excite, ReLU6 instead of swish, stem and
head of fixed width. BatchNormalization is kept as nodes: folding it is the runtime's work.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE_SIZE = 224
CLASSES = 1000
EPSILON = 1e-3
OPSET = 13
IR_VERSION = 7

# (repeats, kernel, stride of the first, expansion, input channels, output channels)
STAGES = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)


def same_pads(size, kernel, stride):
    """TensorFlow's SAME padding of one dimension: (before, after), the odd one after."""
    output = -(-size // stride)
    total = max((output - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class _Builder:
    """Appends nodes in the order of execution and takes weights out of the state dict."""

    def __init__(self, state):
        self.state = dict(state)
        self.nodes, self.weights = [], []
        self.value, self.size = "input", IMAGE_SIZE
        self._constant("relu6_min", np.float32(0))
        self._constant("relu6_max", np.float32(6))

    def _constant(self, name, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))

    def _weight(self, name, shape):
        array = self.state.pop(name, None)
        if array is None:
            raise ValueError("the state dict has no %s" % name)
        if array.shape != tuple(shape) or array.dtype != np.float32:
            raise ValueError("%s is %s %s instead of float32 %s" % (name, array.dtype, array.shape, tuple(shape)))
        if not np.isfinite(array).all():
            raise ValueError("%s holds values that are not finite" % name)
        self._constant(name, np.ascontiguousarray(array))
        return name

    def _add(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        self.value = output

    def conv(self, name, norm, channels, filters, kernel=1, stride=1, groups=1):
        before, after = same_pads(self.size, kernel, stride)
        weight = self._weight(name + ".weight", (filters, channels // groups, kernel, kernel))
        self._add(
            "Conv", [self.value, weight], name.lstrip("_") + ".conv",
            kernel_shape=[kernel, kernel], strides=[stride, stride], group=groups,
            pads=[before, before, after, after],
        )  # fmt: skip
        parts = ("weight", "bias", "running_mean", "running_var")
        norm_inputs = [self._weight("%s.%s" % (norm, part), (filters,)) for part in parts]
        self.state.pop(norm + ".num_batches_tracked", None)
        self._add("BatchNormalization", [self.value, *norm_inputs], norm.lstrip("_") + ".norm", epsilon=EPSILON)
        self.size = -(-self.size // stride)

    def relu6(self):
        self._add("Clip", [self.value, "relu6_min", "relu6_max"], self.value + ".relu6")

    def block(self, index, kernel, stride, expansion, channels, filters):
        prefix, shortcut, inner = "_blocks.%d." % index, self.value, channels * expansion
        if expansion != 1:
            self.conv(prefix + "_expand_conv", prefix + "_bn0", channels, inner)
            self.relu6()
        self.conv(prefix + "_depthwise_conv", prefix + "_bn1", inner, inner, kernel, stride, groups=inner)
        self.relu6()
        self.conv(prefix + "_project_conv", prefix + "_bn2", inner, filters)
        if stride == 1 and channels == filters:
            self._add("Add", [self.value, shortcut], prefix.lstrip("_") + "add")

    def head(self, channels, features):
        self.conv("_conv_head", "_bn1", channels, features)
        self.relu6()
        self._add("GlobalAveragePool", [self.value], "pool")
        self._add("Flatten", [self.value], "features", axis=1)
        matrix = self._weight("_fc.weight", (CLASSES, features))
        self._add("Gemm", [self.value, matrix, self._weight("_fc.bias", (CLASSES,))], "logits", transB=1)


def build(state):
    """The checked ONNX model of the state dict {name: array}. ValueError when a weight is missing, odd or left over."""
    builder = _Builder(state)
    builder.conv("_conv_stem", "_bn0", 3, 32, kernel=3, stride=2)
    builder.relu6()
    index = 0
    for repeats, kernel, stride, expansion, channels, filters in STAGES:
        for repeat in range(repeats):
            first = repeat == 0
            builder.block(index, kernel, stride if first else 1, expansion, channels if first else filters, filters)
            index += 1
    builder.head(320, 1280)
    if builder.state:
        raise ValueError("the state dict also has %s, which EfficientNet-Lite0 does not" % min(builder.state))

    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        builder.nodes, "efficientnet-lite0",
        [port("input", TensorProto.FLOAT, ["N", 3, IMAGE_SIZE, IMAGE_SIZE])],
        [port("logits", TensorProto.FLOAT, ["N", CLASSES])],
        builder.weights,
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="lenslet"
    )
    onnx.checker.check_model(model, full_check=True)
    return model
