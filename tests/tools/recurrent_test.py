"""Readers of text (convolutions, two bidirectional recurrent layers, a classifier for each step), as exported by
PyTorch and Keras, compared with ONNX Runtime."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

LENSLET = os.environ["LENSLET_COMMAND"]
F32, I32, I64 = numpy.float32, numpy.int32, numpy.int64
HIDDEN, CLASSES = 24, 11


class Net:
    """Nodes and constants of a model with one input, images."""

    def __init__(self, dims, seed):
        self.dims, self.random = dims, numpy.random.default_rng(seed)
        self.nodes, self.constants, self.last = [], [], "x"

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(numpy.asarray(array), name))
        return name

    def ints(self, *values):
        return self.constant(numpy.asarray(values, I64))

    def weights(self, *dims, scale=None):
        scale = scale or 1 / numpy.sqrt(dims[-1])
        return self.constant(self.random.uniform(-scale, scale, dims).astype(F32))

    def node(self, op, inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def then(self, op, *more, **attributes):
        self.last = self.node(op, [self.last, *more], **attributes)
        return self.last

    def features(self):
        """[N,1,16,32] to [N,32,1,8]."""
        for channels, before in ((16, 1), (32, 16)):
            self.then("Conv", self.weights(channels, before, 3, 3, scale=0.4), pads=[1] * 4)
            self.then("Relu")
            self.then("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        self.then("Conv", self.weights(32, 32, 4, 1, scale=0.1))

    def model(self, opset=17):
        graph = helper.make_graph(self.nodes, "reader", [helper.make_tensor_value_info("x", 1, self.dims)],
                                  [helper.make_tensor_value_info(self.last, 1, None)], self.constants)  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def of_pytorch(op, baked, seed, **attributes):
    """nn.LSTM(bidirectional=True), steps first; states of zeros, constant or made from the batch size."""
    net = Net([1 if baked else "N", 1, 16, 32], seed)
    net.features()
    net.then("Squeeze", net.ints(2))
    net.then("Transpose", perm=[2, 0, 1])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    for size in (32, 2 * HIDDEN):
        if baked:
            state = net.constant(numpy.zeros((2, 1, HIDDEN), F32))
        else:
            batch = net.node("Gather", [net.node("Shape", [net.last]), net.ints(1)])
            state = net.node("ConstantOfShape", [net.node("Concat", [net.ints(2), batch, net.ints(HIDDEN)], axis=0)])
        inputs = [net.last, net.weights(2, gates * HIDDEN, size), net.weights(2, gates * HIDDEN, HIDDEN),
                  net.weights(2, 2 * gates * HIDDEN, scale=0.2), "", state]  # fmt: skip
        net.last = net.node(op, inputs + [state] * (op == "LSTM"), 3 if op == "LSTM" else 2, hidden_size=HIDDEN,
                            direction="bidirectional", **attributes)[0]  # fmt: skip
        net.then("Transpose", perm=[0, 2, 1, 3])
        net.then("Reshape", net.ints(0, 0, -1))
    if baked:  # y.view(steps * batch, -1) before nn.Linear
        net.then("Reshape", net.ints(8, 2 * HIDDEN))
        net.then("Gemm", net.weights(CLASSES, 2 * HIDDEN), net.weights(CLASSES), transB=1)
        net.then("Reshape", net.ints(8, 1, CLASSES))
    else:
        net.then("MatMul", net.weights(2 * HIDDEN, CLASSES))
        net.then("Add", net.weights(CLASSES))
    net.then("Softmax", axis=2)
    return net.model()


def of_keras(op, seed, **attributes):
    """tf2onnx: channels last, batch first, a node for each direction, lengths from the batch size, last the final
    state."""
    net = Net(["N", 16, 32, 1], seed)
    net.then("Transpose", perm=[0, 3, 1, 2])
    net.features()
    net.then("Transpose", perm=[0, 2, 3, 1])
    net.then("Reshape", net.ints(-1, 8, 32))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    for size, sequences in ((32, True), (2 * HIDDEN, False)):
        net.then("Transpose", perm=[1, 0, 2])
        batch = net.node("Slice", [net.node("Shape", [net.last]), net.ints(1), net.ints(2), net.ints(0)])
        lengths = net.node("Cast", [net.node("Expand", [net.ints(8), batch])], to=6)
        parts = []
        for direction in ("forward", "reverse"):
            y, y_h = net.node(op, [net.last, net.weights(1, gates * HIDDEN, size), net.weights(1, gates * HIDDEN, HIDDEN),
                                   net.weights(1, 2 * gates * HIDDEN, scale=0.2), lengths], 2, hidden_size=HIDDEN,
                              direction=direction, **attributes)  # fmt: skip
            if not sequences:
                net.nodes[-1].output[0] = ""
            parts.append(net.node("Squeeze", [y, net.ints(1)] if sequences else [y_h, net.ints(0)]))
        net.last = net.node("Concat", parts, axis=2 if sequences else 1)
        if sequences:
            net.then("Transpose", perm=[1, 0, 2])
    net.then("Gemm", net.weights(CLASSES, 2 * HIDDEN), net.weights(CLASSES), transB=1)
    net.then("Softmax", axis=1)
    return net.model()


def theirs(model, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


class Readers(unittest.TestCase):
    def ours(self, model, x):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "net.onnx").write_bytes(model.SerializeToString())
            numpy.save(path / "x.npy", x)
            done = subprocess.run([LENSLET, "run", "net.onnx", "--input", "x.npy", "--output-dir", "out", "--device", "cpu"],
                                  cwd=path, text=True, capture_output=True)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            return numpy.load(next((path / "out").glob("*.npy")))

    def check(self, model, dims, baked=False):
        random = numpy.random.default_rng(5)
        for batch in (1, 3):
            x = random.normal(size=(batch, *dims)).astype(F32)
            # A model for one image at a time, whose result has the images in the second dimension.
            wanted = numpy.concatenate([theirs(model, image[None]) for image in x], 1) if baked else theirs(model, x)
            got = self.ours(model, x)
            self.assertEqual(got.shape, wanted.shape)
            self.assertLess(abs(got - wanted).max(), 2e-6)
            self.assertGreater(wanted.std(), 1e-3)

    def test_pytorch(self):
        self.check(of_pytorch("LSTM", False, 1), (1, 16, 32))
        self.check(of_pytorch("GRU", False, 2, linear_before_reset=1), (1, 16, 32))
        self.check(of_pytorch("RNN", False, 3, activations=["Relu", "Relu"]), (1, 16, 32))

    def test_pytorch_of_one_image(self):
        self.check(of_pytorch("LSTM", True, 4), (1, 16, 32), True)
        self.check(of_pytorch("GRU", True, 5, linear_before_reset=1), (1, 16, 32), True)

    def test_keras(self):
        self.check(of_keras("LSTM", 6), (16, 32, 1))
        hard = {"activations": ["HardSigmoid", "Tanh", "Tanh"], "activation_alpha": [0.2], "activation_beta": [0.5]}
        self.check(of_keras("LSTM", 7, **hard), (16, 32, 1))
        self.check(of_keras("GRU", 8), (16, 32, 1))


    def test_shared_case(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        folders = [place / "shared" / "data" / "faults" / "lstm_bidirectional" for place in (root, root.parent)]
        folder = next((folder for folder in folders if folder.exists()), None)
        if folder is None:
            self.skipTest("shared/data/faults/lstm_bidirectional is not on this machine")
        done = subprocess.run([LENSLET, "check", folder, "--device", "cpu"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
