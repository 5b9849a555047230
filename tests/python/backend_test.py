"""lenslet.backend: ONNX's own runner with it, and its other promises. Skips by name without onnx."""

import importlib.util
import os
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "scripts"))

HAS_ONNX = importlib.util.find_spec("onnx") is not None
if HAS_ONNX:
    import lenslet
    import ml_dtypes
    import onnx
    import onnx_runner
    from lenslet import _onnx_models, backend
    from onnx import TensorProto, helper, numpy_helper
    from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

needs_onnx = unittest.skipUnless(HAS_ONNX, "onnx is not installed")

# Expected results that ONNX has corrected since: {the first correct release: cases}.
MENDED = {(1, 21): "test_l2normalization_axis_0", (1, 22): r"test_qlinearmatmul_[23]D_int8_float\d+"}
# Number of passing cases of onnx 1.23.2 on the CPU (docs/conformance.md); later releases have more.
AT_LEAST = {"node": 1492, "light": 9, "simple": 7, "pytorch-converted": 82, "pytorch-operator": 31}


def floats(name, shape, dtype=1):
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(nodes, inputs, outputs, opset=17, **of_graph):
    graph = helper.make_graph(nodes, "g", inputs, outputs, **of_graph)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def relu(shape=(2, 3), dtype=1):
    return model_of([helper.make_node("Relu", ["x"], ["y"])], [floats("x", shape, dtype)], [floats("y", shape, dtype)])


def identity(shape, dtype):
    node = helper.make_node("Identity", ["x"], ["y"])
    return model_of([node], [floats("x", shape, dtype)], [floats("y", shape, dtype)], opset=25)


class _Case(unittest.TestCase):
    """An unexpected Refused is a failure here, although it is a SkipTest."""

    def _callTestMethod(self, method):
        try:
            method()
        except backend.Refused as refused:
            raise AssertionError(f"refused: {refused}") from refused


@needs_onnx
class OnnxRunner(_Case):
    @classmethod
    def setUpClass(cls):
        version = tuple(map(int, onnx.__version__.split(".")[:2]))
        wrong = [pattern for release, pattern in MENDED.items() if version < release]
        cls.is_newest = version >= (1, 23)
        cls.cases = [case for case in onnx_runner.run(backend)
                     if not any(re.fullmatch(pattern, case["case"]) for pattern in wrong)]  # fmt: skip

    def test_nothing_fails(self):
        failed = [f"{c['suite']}/{c['case']}: {c['reason']}" for c in self.cases if c["status"] == "failed"]
        self.assertEqual(failed, [], f"{len(failed)} failed")

    def test_passes_what_the_document_says(self):
        for suite, least in AT_LEAST.items():
            passed = sum(case["suite"] == suite and case["status"] == "passed" for case in self.cases)
            self.assertGreaterEqual(passed, least if self.is_newest else least * 0.7, suite)

    def test_refusals_are_skipped_for_a_reason_of_the_librarys(self):
        status = {case["case"]: case["status"] for case in self.cases}
        for name, expected in (("loop11", "skipped"), ("gru_defaults", "passed"), ("relu", "passed")):
            self.assertEqual(status[f"test_{name}"], expected, name)
        for case in self.cases:
            if case["status"] == "skipped":
                self.assertRegex(
                    case["reason"],
                    r"not supported|only .* (is|are) supported|must be|beyond float32|differ in the number of bits"
                    r"|^Not compatible",
                    case,
                )


@needs_onnx
class Prepare(_Case):
    def test_refuses_what_lenslet_refuses(self):
        model = model_of([helper.make_node("Bernoulli", ["x"], ["y"])], [floats("x", [2])], [floats("y", [2])])
        with self.assertRaisesRegex(backend.Refused, "Bernoulli.*not supported") as caught:
            backend.prepare(model)
        self.assertIsInstance(caught.exception, lenslet.UnsupportedError)
        self.assertIsInstance(caught.exception, unittest.SkipTest)
        # ONNX's runner would count it as passed.
        self.assertNotIsInstance(caught.exception, BackendIsNotSupposedToImplementIt)
        self.assertIsInstance(caught.exception.__cause__, lenslet.UnsupportedError)
        self.assertFalse(backend.is_compatible(model))
        self.assertTrue(backend.is_compatible(relu()))

    def test_refuses_strings(self):
        node = helper.make_node("Identity", ["x"], ["y"])
        model = model_of([node], [floats("x", [2], TensorProto.STRING)], [floats("y", [2], TensorProto.STRING)])
        with self.assertRaisesRegex(backend.Refused, "string"):
            backend.prepare(model)
        with self.assertRaisesRegex(backend.Refused, "string"):
            backend.run_node(node, [np.array(["a", "b"], dtype=object)])

    def test_refuses_sequences_and_optionals(self):
        x = onnx.helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])
        node = helper.make_node("SequenceLength", ["x"], ["y"])
        with self.assertRaisesRegex(backend.Refused, "sequence"):
            backend.prepare(model_of([node], [x], [floats("y", [], TensorProto.INT64)]))
        optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
        node = helper.make_node("OptionalHasElement", ["x"], ["y"])
        model = model_of([node], [helper.make_value_info("x", optional)], [floats("y", [], TensorProto.BOOL)], opset=18)
        self.assertFalse(backend.is_compatible(model))

    def test_damaged_models_are_no_refusals(self):
        model = relu()
        model.graph.node[0].input[0] = "nobody"
        with self.assertRaises(lenslet.InvalidModelError) as caught:
            backend.prepare(model)
        self.assertNotIsInstance(caught.exception, unittest.SkipTest)
        self.assertTrue(backend.is_compatible(model))

    def test_devices(self):
        for device in ("CPU", "CPU:0"):
            self.assertTrue(backend.supports_device(device))
            np.testing.assert_array_equal(backend.run_model(relu([1]), [np.float32([-1])], device)[0], [0])
        for device in ("cpu", "GPU", "CUDA:", "CUDA:-1", "CUDA:999", "CUDA:1000", "", "auto", "CUDA\n"):
            self.assertFalse(backend.supports_device(device), device)
        for device in ("GPU", "auto"):
            with self.assertRaisesRegex(lenslet.InvalidArgumentError, "none of CPU, CUDA and CUDA:N"):
                backend.prepare(relu(), device)
        if not backend.supports_device("CUDA"):
            with self.assertRaises(lenslet.Error) as caught:
                backend.prepare(relu(), "CUDA")
            self.assertNotIsInstance(caught.exception, backend.Refused)  # invalid inputs

    def test_options(self):
        self.assertIsNotNone(backend.prepare(relu(), threads=1, flush_denormals=True, rtol=1e-3, atol=1e-7))
        with self.assertRaisesRegex(TypeError, "no option thread$"):
            backend.prepare(relu(), thread=1)
        with self.assertRaisesRegex(TypeError, "no option n"):
            backend.prepare(relu()).run([np.zeros([2, 3], np.float32)], n=1)
        with self.assertRaisesRegex(TypeError, "not a ModelProto"):
            backend.prepare(relu().SerializeToString())


@unittest.skipUnless(HAS_ONNX and backend.supports_device("CUDA"), "onnx or a usable CUDA device is not there")
class OnCuda(_Case):
    def test_names(self):
        for device in ("CUDA", "CUDA:0"):
            outputs = backend.run_model(relu(["N", 3]), [np.float32([[-1, 0, 1]])], device)
            np.testing.assert_array_equal(outputs.y, [[0, 0, 1]])

    def test_onnx_runner(self):
        cases = onnx_runner.run(backend, "CUDA", "test_(relu|conv|basic_conv|maxpool|constant_pad|softmax|gemm)")
        self.assertEqual([case for case in cases if case["status"] == "failed"], [])
        self.assertGreater(sum(case["status"] == "passed" for case in cases), 40)


@needs_onnx
class Run(_Case):
    def test_inputs_by_order_and_by_name(self):
        sub = helper.make_node("Sub", ["a", "b"], ["0"])
        rep = backend.prepare(model_of([sub], [floats("a", [2]), floats("b", [2])], [floats("0", [2])]))
        a, b = np.float32([5, 6]), np.float32([1, 2])
        for inputs in ([a, b], (a, b), {"b": b, "a": a}):
            outputs = rep.run(inputs)
            self.assertIsInstance(outputs, tuple)
            np.testing.assert_array_equal(outputs[0], [4, 4])
            np.testing.assert_array_equal(outputs["0"], [4, 4])
        self.assertEqual(backend.prepare(relu()).run(np.zeros([2, 3], np.float32)).y.shape, (2, 3))

    def test_an_input_that_nothing_reads(self):
        nodes = [helper.make_node("Relu", ["x"], ["y"])]
        for shape in ([2], ["N"]):
            ports = [floats("label", [1]), floats("x", shape)]
            rep = backend.prepare(model_of(nodes, ports, [floats("y", shape)]))
            x, label = np.float32([-1, 2]), np.float32([3])
            for inputs in ({"x": x}, [label, x], [None, x], {"label": label, "x": x}):
                np.testing.assert_array_equal(rep.run(inputs)[0], [0, 2])
            with self.assertRaises(lenslet.InvalidArgumentError):
                rep.run({"label": label})

    def test_outputs_are_the_callers(self):
        rep = backend.prepare(relu([2]))
        (first,) = rep.run([np.float32([1, 2])])
        rep.run([np.float32([3, 4])])
        np.testing.assert_array_equal(first, [1, 2])

    def test_wrong_inputs(self):
        rep = backend.prepare(relu())
        good = np.zeros([2, 3], np.float32)
        for inputs, why in (
            ([], "no value was given for input x"),
            ([good, good], "2 inputs were given, the model has 1"),
            ({"z": good}, "no value"),
            ({"x": good, "z": good}, "no input z"),
            (None, "NoneType"),
            ("x", "str"),
            ([[1.0, 2.0]], "a list, not an array"),
            ([3.0], "a float, not an array"),
            ([good.astype(np.float64)], "float64"),
            ([good.astype(object)], "object"),
            ([np.array([["a"] * 3] * 2)], "str"),
            ([np.zeros([2, 4], np.float32)], r"\[2,4\]"),
            ([np.zeros([6], np.float32)], r"\[6\]"),
        ):
            with self.subTest(why), self.assertRaisesRegex(lenslet.InvalidArgumentError, why):
                rep.run(inputs)
        np.testing.assert_array_equal(rep.run([good])[0], good)

    def test_free_dimensions(self):
        rep = backend.prepare(relu(["N", 3, "H", "W"]))
        for shape in ((1, 3, 4, 5), (2, 3, 4, 5), (1, 3, 7, 1), (0, 3, 4, 5), *((1, 3, 1, w) for w in range(2, 24))):
            x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
            np.testing.assert_array_equal(rep.run([x])[0], np.maximum(x, 0))

    def test_ranks_that_are_not_declared(self):
        model = model_of([helper.make_node("Relu", ["x"], ["y"])], [floats("x", None)], [floats("y", None)])
        rep = backend.prepare(model)
        for shape in ((), (3,), (2, 3), (3,)):
            np.testing.assert_array_equal(rep.run([np.full(shape, -1, np.float32)])[0], np.zeros(shape))

    def test_scalars_and_empty_tensors(self):
        for shape in ((), (0,), (2, 0, 3)):
            out = backend.run_model(relu(shape), [np.full(shape, 2, np.float32)])[0]
            self.assertEqual((type(out), out.shape, out.dtype), (np.ndarray, shape, np.float32))
        self.assertEqual(backend.run_model(relu([]), [np.float32(-2)])[0], 0)

    def test_arrays_with_gaps_and_of_other_byte_order(self):
        rep = backend.prepare(relu())
        x = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-2]
        for array in (x, x.astype(">f4"), np.asfortranarray(x)):
            np.testing.assert_array_equal(rep.run([array])[0], x)

    def test_element_types(self):
        for name in ("FLOAT DOUBLE FLOAT16 BFLOAT16 INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64 BOOL "
                     "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT4E2M1 INT4 UINT4").split():  # fmt: skip
            with self.subTest(name):
                kind = getattr(TensorProto, name)
                dtype = helper.tensor_dtype_to_np_dtype(kind)
                for shape in ((3,), (), (0, 2)):
                    x = np.full(shape, 1, dtype)
                    out = backend.run_model(identity(shape, kind), [x])[0]
                    self.assertEqual((out.dtype, out.shape), (x.dtype, x.shape))
                    np.testing.assert_array_equal(out.astype(np.float32), x.astype(np.float32))

    def test_four_bits_as_onnx_unpacks_them(self):
        # Neither onnx nor ml_dtypes sign-extends into the rest of the byte.
        for name, values in (("INT4", [-8, -1, 7]), ("UINT4", [15, 8, 1])):
            kind = getattr(TensorProto, name)
            packed = numpy_helper.to_array(helper.make_tensor("x", kind, [3], values))
            dirty = (packed.view(np.uint8) | 0xF0).view(packed.dtype)
            cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
            model = model_of([cast], [floats("x", [3], kind)], [floats("y", [3])], opset=21)
            for x in (packed, dirty):
                np.testing.assert_array_equal(backend.run_model(model, [x])[0], values)

    def test_float16_and_bfloat16_are_computed(self):
        for dtype, kind in ((np.float16, TensorProto.FLOAT16), (ml_dtypes.bfloat16, TensorProto.BFLOAT16)):
            x = np.array([[-1.5, 0, 2.25]], dtype)
            (out,) = backend.run_model(relu([1, 3], kind), [x])
            self.assertEqual(out.dtype, x.dtype)
            np.testing.assert_array_equal(out.astype(np.float32), [[0, 0, 2.25]])

    def test_numbers_beyond_float32_are_refused(self):
        rep = backend.prepare(relu([2], TensorProto.DOUBLE))
        np.testing.assert_array_equal(rep.run([np.array([np.inf, -1])])[0], [np.inf, 0])
        with self.assertRaisesRegex(backend.Refused, "beyond float32"):
            rep.run([np.array([1e200, 1])])

    def test_no_inputs(self):
        model = model_of([helper.make_node("Constant", [], ["y"], value_float=3.0)], [], [floats("y", [])])
        self.assertEqual(backend.run_model(model, [])[0], 3)

    def test_an_input_that_is_an_output(self):
        (out,) = backend.run_model(model_of([], [floats("x", [2])], [floats("x", [2])]), [np.float32([1, 2])])
        np.testing.assert_array_equal(out, [1, 2])

    def test_values_that_decide_whether_it_is_done(self):
        # As with Pad on CUDA: a constant is accepted, a run-time value is refused by the plan.
        nodes = [helper.make_node("Pad", ["x", "pads", "value"], ["y"])]
        inputs = [floats("x", [1, 2]), floats("pads", [4], TensorProto.INT64), floats("value", [])]
        model = model_of(nodes, inputs, [floats("y", None)])
        x, pads = np.float32([[1, 2]]), np.array([0, 1, 0, 0])
        planned = lenslet.Model.runner

        def picky(model, **options):
            if "value" in options["shapes"]:
                raise lenslet.UnsupportedError("the constant value is computed by the run")
            return planned(model, **options)

        with mock.patch.object(lenslet.Model, "runner", picky):
            rep = backend.prepare(model)
            for value in (7, 7, 8):
                np.testing.assert_array_equal(rep.run([x, pads, np.float32(value)])[0], [[value, 1, 2]])
            with self.assertRaisesRegex(lenslet.InvalidArgumentError, "float64"):
                rep.run([x, pads, np.float64(7)])
        with mock.patch.object(lenslet.Model, "runner", side_effect=lenslet.UnsupportedError("never")):
            with self.assertRaisesRegex(backend.Refused, "never"):
                backend.prepare(model).run([x, pads, np.float32(7)])
            with self.assertRaisesRegex(backend.Refused, "never"):
                backend.prepare(relu())  # has no short input

    def test_precision_of_a_gpu_is_refused_on_the_cpu(self):
        with self.assertRaisesRegex(backend.Refused, "fp16"):
            backend.prepare(relu(), precision="fp16")


@needs_onnx
class Models(_Case):
    def weighted(self, as_input=True):
        weight = numpy_helper.from_array(np.float32([10, 20]), "w")
        inputs = [floats("w", [2])] * as_input + [floats("x", [2])]
        return model_of([helper.make_node("Add", ["x", "w"], ["y"])], inputs, [floats("y", [2])], initializer=[weight])

    def test_initializers_that_are_inputs(self):
        rep = backend.prepare(self.weighted())
        x, w = np.float32([1, 2]), np.float32([3, 4])
        np.testing.assert_array_equal(rep.run([x])[0], [11, 22])
        np.testing.assert_array_equal(rep.run([w, x])[0], [4, 6])
        np.testing.assert_array_equal(rep.run({"x": x})[0], [11, 22])
        np.testing.assert_array_equal(rep.run({"x": x, "w": w})[0], [4, 6])
        np.testing.assert_array_equal(rep.run([None, x])[0], [11, 22])
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "no input w"):
            backend.run_model(self.weighted(as_input=False), {"x": x, "w": w})

    def test_omitted_optional_inputs(self):
        clip = helper.make_node("Clip", ["x", "", "top"], ["y"])
        model = model_of([clip], [floats("x", [2]), floats("top", [])], [floats("y", [2])])
        np.testing.assert_array_equal(backend.run_model(model, [np.float32([-5, 5]), np.float32(1)])[0], [-5, 1])

    def test_functions(self):
        add = helper.make_node("Add", ["a", "a"], ["b"])
        function = helper.make_function("of.mine", "Twice", ["a"], ["b"], [add], [helper.make_opsetid("", 17)])
        graph = helper.make_graph([helper.make_node("Twice", ["x"], ["y"], domain="of.mine")], "g",
                                  [floats("x", [2])], [floats("y", [2])])  # fmt: skip
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("of.mine", 1)]
        model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
        np.testing.assert_array_equal(backend.run_model(model, [np.float32([1, 2])])[0], [2, 4])

    def test_external_data(self):
        with tempfile.TemporaryDirectory(prefix="lenslet-backend-test-") as folder:
            onnx.save(self.weighted(), os.path.join(folder, "m.onnx"), save_as_external_data=True, location="w.bin",
                      size_threshold=0)  # fmt: skip
            model = onnx.load(os.path.join(folder, "m.onnx"), load_external_data=False)
            rep = backend.prepare(model, external_data_dir=folder)
            np.testing.assert_array_equal(rep.run([np.float32([1, 2])])[0], [11, 22])
            with self.assertRaises(lenslet.Error):
                backend.prepare(model)
            whole = onnx.load(os.path.join(folder, "m.onnx"))
        np.testing.assert_array_equal(backend.run_model(whole, [np.float32([1, 2])])[0], [11, 22])

    def test_weights_that_one_message_does_not_hold(self):
        w = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32)
        product = helper.make_node("MatMul", ["x", "w"], ["y"])
        weights = [numpy_helper.from_array(w, "w")]
        model = model_of([product], [floats("x", [1, 64])], [floats("y", [1, 64])], initializer=weights)
        x = np.ones([1, 64], np.float32)
        expected = backend.run_model(model, [x])[0]
        too_large = len(model.SerializeToString()) - 1
        honest = _onnx_models._serialized

        def limited(message):
            data = honest(message)
            return data if len(data) <= too_large else None

        with mock.patch.object(_onnx_models, "_serialized", limited):
            np.testing.assert_array_equal(backend.run_model(model, [x])[0], expected)
            model.doc_string = "x" * (2 * too_large)
            with self.assertRaisesRegex(backend.Refused, "2 GiB"):
                backend.prepare(model)


@needs_onnx
class RunNode(_Case):
    def test_by_order_by_name_and_left_out(self):
        node = helper.make_node("Clip", ["x", "", "top"], ["y"])
        x, top = np.float32([-5, 5]), np.float32(1)
        for inputs in ([x, top], [x, None, top], {"x": x, "top": top}):
            outputs = backend.run_node(node, inputs)
            np.testing.assert_array_equal(outputs["y"], [-5, 1])
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "3 inputs were given|none is given|no value"):
            backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [x, x, x])
        np.testing.assert_array_equal(backend.run_node(helper.make_node("Add", ["x", "x"], ["y"]), [x])[0], x + x)

    def test_types_of_outputs(self):
        x = np.array([1.5, -2], ml_dtypes.bfloat16)
        node = helper.make_node("Relu", ["x"], ["y"])
        for info in (None, [(x.dtype, x.shape)]):
            (out,) = backend.run_node(node, [x], outputs_info=info)
            self.assertEqual((out.dtype, out.shape), (x.dtype, x.shape))
        values, indices = backend.run_node(helper.make_node("TopK", ["x", "k"], ["v", "i"]),
                                           [np.float32([1, 3, 2]), np.array([2])])  # fmt: skip
        np.testing.assert_array_equal(values, [3, 2])
        np.testing.assert_array_equal(indices, [1, 2])
        self.assertEqual(indices.dtype, np.int64)

    def test_opset_version(self):
        x = np.float32([[1, 2], [3, 4]])
        node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
        new, old = (backend.run_node(node, [x], opset_version=version)[0] for version in (13, 11))
        self.assertAlmostEqual(float(new.sum()), 2, 5)
        self.assertAlmostEqual(float(old.sum()), 1, 5)  # flattens all axes from 0 on


if __name__ == "__main__":
    unittest.main()
