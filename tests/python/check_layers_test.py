"""check_layers: comparisons with double-precision references, as rows."""

import dataclasses
import json
import math
import unittest

import lenslet
import numpy as np
from models import InFolder, written
from tiny_model import initializer, node


def drawn(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Networks(InFolder, unittest.TestCase):
    def test_every_layer_and_the_output(self):
        rows = self.model.check_layers(device="cpu", seconds=1e-3)
        self.assertEqual([row.op for row in rows if row.kind == "layer" and row.op == "Gemm"], ["Gemm"])
        self.assertEqual([row.name for row in rows if row.kind == "output"], ["scores"])
        for row in rows:
            self.assertTrue(row.judged and row.passed, str(row))
            self.assertLessEqual(row.error, row.tolerance)
            self.assertEqual((row.device, row.precision), ("cpu", "fp32"))
        self.assertGreater(next(row for row in rows if row.op == "GlobalAveragePool").ms, 0)
        self.assertEqual(next(row for row in rows if row.op == "GlobalAveragePool").input_shapes, ((1, 3, 224, 224),))

    def test_as_the_command_says(self):
        verified = self.segment.verify(algorithm="all", shapes={"image": (1, 3, 9, 7)}, device="cpu")
        rows = self.segment.check_layers(algorithm="all", shapes={"image": (1, 3, 9, 7)}, device="cpu")
        layers = [(row.name, row.algorithm, row.error) for row in rows if row.kind == "layer"]
        found = [(layer["name"], layer.get("algorithm", ""), layer["error"]) for layer in verified["layers"]]
        self.assertEqual(layers, found)
        outputs = [(row.forced, row.error, row.tolerance) for row in rows if row.kind == "output"]
        found = [(row.get("conv_algorithm", ""), row["error"], row["tolerance"]) for row in verified["outputs"]]
        self.assertEqual(outputs, found)
        refusals = {row.algorithm: row.refusal for row in rows if row.kind == "refusal"}
        self.assertTrue(refusals and all(refusals.values()))
        self.assertFalse(set(refusals) & {algorithm for _, algorithm, _ in layers if algorithm})

    def test_own_inputs(self):
        x = drawn(1, 3, 9, 7)
        first, *others = [
            [row.error for row in self.segment.check_layers(inputs=given, device="cpu", outputs=False)]
            for given in (x, [x], {"image": x.astype("f8")})
        ]
        self.assertEqual(others, [first, first])
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "inputs names y; the inputs are image"):
            self.segment.check_layers(inputs={"y": x}, device="cpu")
        x[0, 1, 2, 3] = math.nan
        rows = self.segment.check_layers(inputs=x, device="cpu", outputs=False, algorithm="im2col")
        self.assertTrue(all(row.passed for row in rows))
        self.assertEqual([row.not_finite for row in rows if row.op == "Conv"], [3])

    def test_a_run_that_computes_wrongly(self):
        """Denormal numbers count as zero in the run, but not in the reference."""
        x = np.full((1, 3, 9, 7), 1e-40, np.float32)
        rows = lenslet.check_layer("Mul", {}, [x, np.float32([1e30])], device="cpu", seconds=0)
        self.assertTrue(all(row.passed for row in rows))
        model = lenslet.Model(multiply_by(1e30))
        self.assertTrue(all(row.passed for row in model.check_layers(inputs=x, device="cpu")))
        wrong = [row for row in model.check_layers(inputs=x, device="cpu", flush_denormals=True) if not row.passed]
        self.assertEqual({row.kind for row in wrong}, {"layer", "output"})
        self.assertIn("EXCEEDED", str(wrong[0]))


def multiply_by(factor):
    ports = [1, [1, 3, 9, 7]]
    return written([node("Mul", ["x", "w"], "y")], {"x": ports}, {"y": ports}, [initializer("w", [1], [factor])])


class Layers(unittest.TestCase):
    def conv(self, attributes=None, **how):
        attributes = {"pads": [1, 1, 1, 1]} if attributes is None else attributes
        return lenslet.check_layer("Conv", attributes, [drawn(1, 8, 12, 10), drawn(16, 8, 3, 3)], device="cpu", **how)

    def test_each_kernel(self):
        rows = self.conv(seconds=1e-3)
        ran = [row for row in rows if row.kind == "layer"]
        self.assertGreater(len(ran), 3)
        for row in ran:
            self.assertTrue(row.judged and row.passed, str(row))
            self.assertTrue(0 < row.error <= row.tolerance and row.ms > 0 and row.runs >= 3, str(row))
            self.assertEqual(row.output_shapes, ((1, 16, 12, 10),))
        refusals = [row.refusal for row in rows if row.algorithm == "depthwise"]
        self.assertEqual(refusals, ["groups differ from the input channels"])
        self.assertEqual([row.algorithm for row in self.conv(algorithm="im2col", seconds=0)], ["im2col"])

    def test_attributes_of_each_kind(self):
        voxels = {"voxel_size": [1.0] * 3, "range_min": [0.0] * 3, "range_max": [4.0, 3, 2]}
        for op, attributes, inputs, how in [
            ("LeakyRelu", {"alpha": 0.25}, [drawn(3, 5)], {}),
            ("Resize", {"mode": "linear"}, [drawn(1, 2, 6, 5), None, None, np.int64([1, 2, 9, 11])], {}),
            ("ConstantOfShape", {"value": np.float32([3])}, [np.int64([2, 3])], {}),
            ("TopK", {"axis": 0}, [drawn(9, 4), np.int64([3])], {"outputs": 2}),
            ("Add", {}, [drawn(9, 4), drawn(4, seed=2)], {"run_inputs": 2}),
            ("SparseVoxelize", voxels, [np.abs(drawn(50, 4))], {"domain": "lenslet", "outputs": 2}),
        ]:
            with self.subTest(op):
                rows = lenslet.check_layer(op, attributes, inputs, device="cpu", seconds=0, **how)
                self.assertTrue(any(row.judged for row in rows), rows)
                self.assertTrue(all(row.passed for row in rows), rows)

    def test_what_makes_no_sense(self):
        def layer(op, *inputs, device="cpu"):
            return lambda: lenslet.check_layer(op, {}, inputs, device=device)

        for call, kind, words in [
            (lambda: self.conv({"padz": [1]}), lenslet.UnsupportedError, "attribute 'padz' is not supported"),
            (lambda: self.conv({"pads": [[1]]}), lenslet.InvalidArgumentError, "attribute pads is a list"),
            (lambda: self.conv({"pads": math.nan}), lenslet.InvalidArgumentError, "attribute pads is a float"),
            (lambda: self.conv(algorithm="im3col"), lenslet.InvalidArgumentError, "no algorithm is called 'im3col'"),
            (lambda: self.conv(algorithm="depthwise"), lenslet.UnsupportedError, "depthwise refuses: groups differ"),
            (lambda: self.conv(seconds=-1), lenslet.InvalidArgumentError, "seconds is -1"),
            (layer("Conv", drawn(1, 8, 9, 9)), lenslet.InvalidModelError, "has 1 inputs"),
            (layer("Convolve", drawn(3)), lenslet.UnsupportedError, "Convolve"),
            (layer("Relu", drawn(3), device="tpu"), lenslet.InvalidArgumentError, "'tpu'"),
        ]:
            with self.subTest(words), self.assertRaises(kind) as caught:
                call()
            self.assertIn(words, str(caught.exception))

    def test_rows_are_plain_data(self):
        row = self.conv(algorithm="im2col", seconds=0)[0]
        self.assertEqual(json.loads(json.dumps(dataclasses.asdict(row)))["algorithm"], "im2col")
        self.assertTrue(str(row).startswith("Conv (by im2col on cpu, [1,8,12,10],[16,8,3,3] -> [1,16,12,10]): error "))


if __name__ == "__main__":
    unittest.main()
