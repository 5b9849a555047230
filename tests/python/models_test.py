"""Models and their plans: loading, options, refusals."""

import json
import os
import pathlib
import pickle
import tempfile
import unittest

import lenslet
import numpy as np
from models import InFolder, written
from tiny_model import field, node


class Models(InFolder, unittest.TestCase):
    def test_ports(self):
        self.assertEqual(self.model.inputs, (lenslet.Port("image", "float32", ("N", 3, 224, 224)),))
        self.assertEqual(self.model.outputs, (lenslet.Port("scores", "float32", ("N", 3)),))
        runner = self.model.runner(device="cpu", batch=4)
        self.assertEqual(runner.inputs[0].shape, (4, 3, 224, 224))
        self.assertEqual(runner.outputs[0].shape, (4, 3))
        self.assertEqual(runner.device, "cpu")

    def test_tables_are_dicts_that_show_what_matters(self):
        plan = self.model.plan(device="cpu", threads=1)
        self.assertEqual(json.loads(json.dumps(plan)), plan)
        self.assertEqual(type(pickle.loads(pickle.dumps(plan))), lenslet.tables.Plan)
        self.assertIs(plan.rows, plan["steps"])
        self.assertRegex(plan.summary, rf"^cpu, fp32, 1 thread, {len(plan.rows)} steps, estimated [0-9.e-]+ ms, weights ")
        for shown in (repr(plan), plan._repr_html_()):
            self.assertIn(plan.rows[0]["name"], shown)
            self.assertLess(len(shown), 8000)
        layers = self.model.layers(device="cpu", threads=1, seconds=0.01)
        self.assertIn(f"{len(layers.rows)} layers, ", layers.summary)
        self.assertIn(f"0 of {len(layers.rows)} beyond their tolerance", repr(layers))
        self.assertRegex(self.model.verify(device="cpu").summary, "[1-9] checked, 0 exceeded, 0 unchecked, 0 different")
        timed = self.model.bench(device="cpu", threads=1, seconds=0.01)
        self.assertIn(f"{timed['results'][0]['ms']['median']:.4g}", repr(timed))

    def test_the_worst_layers_are_shown_first(self):
        good = [{"name": f"good {i}", "error": 1e-3, "tolerance": 1.0, "passed": True} for i in range(25)]
        bad = [{"name": "small", "error": 1e-5, "tolerance": 1e-6}, {"name": "endless", "error": "infinite", "tolerance": 1e-6}]
        shown = lenslet.tables.Verified(layers=good + bad)._shown()
        self.assertEqual([row["name"] for row in shown[:2]], ["endless", "small"])

    def test_tables_of_what_was_not_measured(self):
        layers = lenslet.tables.Layers(layers=[{"name": "x", "ms": 1.0}, {"name": "y", "ms": float("nan")}])
        self.assertEqual(layers.summary, "2 layers, 1 ms")
        self.assertNotIn("nan%", layers._repr_html_())
        for made in (lenslet.tables.Plan(memory=None), lenslet.tables.Timed(results=[{"model": "m"}]), lenslet.tables.Verified()):
            self.assertTrue(repr(made) and made._repr_html_())

    def test_tables_of_hostile_names(self):
        name = "<script>\u202e" + "x" * 1000
        relu = field(1, "x") + field(2, "y") + field(3, name) + field(4, "Relu")
        plan = lenslet.Model(written([relu], {"x": (1, [4])}, {"y": (1, [4])})).plan(device="cpu")
        for row in range(100):
            plan.rows.append({"name": f"row {row}", "estimated_us": 1e9 - row})
        self.assertTrue(repr(plan).endswith("and 81 more: .rows has all"), repr(plan))
        plan.rows[:] = [{**plan.rows[0], "reason": "\x1b[2J"}]
        for shown in (repr(plan), plan._repr_html_()):
            self.assertNotRegex(shown, "[\x1b\u202e]|x{100}")
            self.assertRegex(shown, r"script(>|&gt;)\\u202ex")
        self.assertNotIn("<script", plan._repr_html_())

    def test_models_and_classes_in_a_notebook(self):
        shown = self.model._repr_html_()
        self.assertRegex(shown, "input.*image.*float32.*N x 3 x 224 x 224.*output.*scores.*N x 3")
        name = "<script>\u202e"
        relu = field(1, "x") + field(2, "y") + field(3, "n") + field(4, "Relu")
        hostile = lenslet.Model(written([relu], {"x": (1, [4])}, {"y": (1, [4])}), name=name)
        self.assertIn("&lt;script&gt;\\u202e", hostile._repr_html_())
        photo = np.full((8, 8, 3), (250, 10, 10), np.uint8)
        classes = lenslet.Classifier(self.model, device="cpu", labels=[name, "b", "c"])(photo)
        self.assertIsInstance(classes, list)
        self.assertEqual(classes, pickle.loads(pickle.dumps(classes)))
        self.assertEqual(classes._repr_html_().count("<tr>"), 1 + len(classes))
        self.assertIn("&lt;script&gt;", classes._repr_html_())
        self.assertRegex(classes._repr_html_(), f"width:{classes[0].prob:.1%}")
        results = lenslet.classify_many([("<b>", photo), ("bad", b"no photo")], model=self.model, devices="cpu", labels=["a", "b", "c"])
        good, bad = (result._repr_html_() for result in results)
        self.assertIn("&lt;b&gt;: cpu", good)
        self.assertIn("bad: ", bad)

    def test_bytes_and_paths_are_the_same(self):
        data = (self.folder / "rgb.onnx").read_bytes()
        for source in (data, bytearray(data), memoryview(data), str(self.folder / "rgb.onnx")):
            np.testing.assert_array_equal(
                lenslet.Model(source).runner(device="cpu")(self.x), self.model.runner(device="cpu")(self.x)
            )

    def test_names_of_any_kind(self):
        data = (self.folder / "rgb.onnx").read_bytes()
        expected = self.model.runner(device="cpu", threads=1)(self.x)
        for name in ("模型 ü.onnx", "a b.onnx", "-dash.onnx", "=x=.onnx", "new\nline.onnx", os.fsdecode(b"\xff.onnx")):
            with self.subTest(ascii(name)), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder, name)
                file.write_bytes(data)
                model = lenslet.Model(file)
                np.testing.assert_array_equal(model.runner(device="cpu", threads=1)(self.x), expected)
                self.assertEqual(model.inspect(device="cpu")["inputs"][0]["name"], "image")
                self.assertEqual(pickle.loads(pickle.dumps(model)).path, str(file))
                self.assertEqual(lenslet.Card.of(model).found_by, "assumed")
                self.assertIn("image float32[N,3,224,224] -> scores float32[N,3]", repr(model))
                file.unlink()
                with self.assertRaises(lenslet.FileError):
                    lenslet.Model(file)

    def test_an_input_with_a_value_is_overridden(self):
        w = np.float32([1, -2, 3])
        ports = {"x": (1, ["N", 3]), "w": (1, [3])}
        value = field(1, 3) + field(2, 1) + field(8, "w") + field(9, w.tobytes())
        data = written([node("Sub", ["x", "w"], "y")], ports, {"y": (1, ["N", 3])}, [value])
        x, other = np.random.default_rng(5).random((2, 3), np.float32), np.float32([4, 5, 6])
        np.testing.assert_array_equal(lenslet.Model(data).runner(device="cpu", batch=2)(x), x - w)
        model = lenslet.Model(data, overridden=["w"])
        self.assertEqual([port.name for port in model.inputs], ["x", "w"])
        for same in (model, pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(same.runner(device="cpu", batch=2)(x, other), x - other)
        self.assertEqual(model.verify(device="cpu", inputs={"x": x, "w": other})["exceeded"], 0)
        for verb in (model.inspect, model.verify, model.layers, model.bench):
            with self.assertRaisesRegex(lenslet.UnsupportedError, "w"):
                verb(device="cpu")
        for wrong in (["x"], ["none"], "w", [3]):
            with self.assertRaises(lenslet.InvalidArgumentError):
                lenslet.Model(data, overridden=wrong)

    def test_a_model_stays_what_its_file_was(self):
        random = np.random.default_rng(7)
        weight = random.standard_normal(2500).astype(np.float32)

        def net(remark):
            tensor = field(1, weight.size) + field(2, 1) + field(12, "r" * remark) + field(9, weight.tobytes())
            constant = node("Constant", [], "w") + field(5, field(1, "value") + field(20, 4) + field(5, tensor))
            nodes = [constant, node("Add", ["x", "w"], "y")]
            return written(nodes, {"x": (1, ["N", 2500])}, {"y": (1, ["N", 2500])})

        # Data that is aligned in the file could be used from a mapping.
        data = next(data for data in map(net, range(4)) if data.index(weight.tobytes()) % 4 == 0)
        x = random.standard_normal((3, 2500)).astype(np.float32)
        expected = x + weight
        other = random.bytes(len(data))

        def overwrite(file):
            with open(file, "r+b") as stream:
                stream.write(other)

        def replace(file):
            file.with_suffix(".new").write_bytes(other)
            file.with_suffix(".new").replace(file)

        for change in (overwrite, replace, pathlib.Path.unlink, lambda file: os.truncate(file, 0)):
            with self.subTest(change), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder, "net.onnx")
                file.write_bytes(data)
                model = lenslet.Model(file)
                before = model.runner(device="cpu", threads=1)
                model.inspect()
                change(file)
                if file.exists():  # reading the file again reports that it is another one
                    for again in (model.inspect, lambda: pickle.dumps(model)):
                        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "has changed since"):
                            again()
                np.testing.assert_array_equal(before(x[:1]), expected[:1])
                np.testing.assert_array_equal(model.runner(device="cpu", threads=1)(x[:1]), expected[:1])
                np.testing.assert_array_equal(model.runner(device="cpu", batch=3)(x), expected)

    def test_errors_are_of_their_kinds(self):
        missing = self.folder / "none.onnx"
        with self.assertRaisesRegex(lenslet.FileError, "none.onnx.*No such file"):
            lenslet.Model(missing)
        self.assertTrue(issubclass(lenslet.FileError, OSError))
        with self.assertRaisesRegex(lenslet.InvalidModelError, "^mine"):
            lenslet.Model(b"no model at all", name="mine")
        with self.assertRaises(lenslet.InvalidModelError) as caught:
            lenslet.Model((self.folder / "rgb.onnx").read_bytes()[:-40])
        self.assertEqual(caught.exception.kind, "invalid model")
        for wrong in (3, None, 2.5, ["a"]):
            with self.assertRaises(lenslet.InvalidArgumentError):
                lenslet.Model(wrong)
        with self.assertRaises(lenslet.InvalidArgumentError):
            lenslet.Model("a\0b")

    def test_plan_allocates_nothing_and_is_the_runners(self):
        plan = self.model.plan(device="cpu", threads=1)
        self.assertEqual([step["op"] for step in plan["steps"]][-1], "Gemm")
        runner = self.model.runner(device="cpu", threads=1).plan
        for each in (plan, runner):
            each.pop("memory")
        self.assertEqual(plan, runner)

    def test_options_are_checked(self):
        for how in (
            {"threads": -1},
            {"threads": 4096},
            {"threads": "two"},
            {"batch": 0},
            {"device": "gpu"},
            {"device": "cpu\0"},
            {"precision": "fp7"},
            {"shapes": {"image": (1,) * 9}},
            {"shapes": {"photo": (1, 3, 224, 224)}},
            {"shapes": [("image", (1, 3, 224, 224))]},
            {"shapes": {"image": "1x3x224x224"}},
            {"shapes": {"image": None}},
            {"shapes": {"image": (1, 3, -1, 224)}},
            {"shapes": {"image": (1, 3, 2.5, 224)}},
            {"layer_algorithms": ["direct"]},
            {"input_values": [1]},
            {"batch": 10**30},
            {"batch": 2.0},
            {"device": None},
            {"other_shapes": -1},
        ):
            with self.subTest(how), self.assertRaises(lenslet.InvalidArgumentError):
                self.model.runner(**{"device": "cpu", **how})
        with self.assertRaises(lenslet.Error):
            self.model.runner(device="cpu", algorithm="no such thing")
        with self.assertRaises(TypeError):
            self.model.runner(colour="red")

    def test_ports_are_read_once(self):
        self.assertIs(self.model.inputs, self.model.inputs)

    def test_report(self):
        page = self.folder / "report.html"
        lenslet.report(self.folder / "rgb.onnx", page, precision=["fp32", "bf16"], threads=1, seconds=0)
        data = json.loads(page.read_text().split('<script type="application/json" id="data">')[1].split("</script>")[0])
        self.assertEqual([run["precision"] for run in data["runs"]], ["fp32", "bf16"])
        with self.assertRaisesRegex(lenslet.FileError, "cannot be written"):
            lenslet.report([self.folder / "rgb.onnx"], self.folder / "none" / "report.html")

    def test_quantize(self):
        net, out = self.folder / "segment.onnx", self.folder / "segment-int8.onnx"
        rows = lenslet.quantize(net, out, samples=[np.random.default_rng(1).random((1, 3, 5, 4), np.float32)], method="minmax")
        self.assertEqual({row["op"] for row in rows}, {"input", "Conv"})
        self.assertTrue(all(row["error"] < 0.02 and row["form"] == "int8" for row in rows), rows)
        with self.assertRaises(lenslet.InvalidArgumentError) as caught:
            lenslet.quantize(out, net, photos=[self.folder / "red.ppm"])
        self.assertIn("is quantised already", str(caught.exception))

    def test_layers_and_passes(self):
        """The plan follows the options; a layer that refuses keeps the rule's choice, or is an error."""
        how = {"device": "cpu", "threads": 1, "shapes": {"image": (1, 3, 16, 16)}}

        def planned(**more):
            return next(step for step in self.segment.plan(**how, **more)["steps"] if step["op"] == "Conv")

        conv = planned()
        accepted = [each["algorithm"] for each in conv["candidates"] if not each.get("refusal")]
        refusing = next(each["algorithm"] for each in conv["candidates"] if each.get("refusal"))
        self.assertGreater(len(accepted), 1)
        for algorithm in accepted:
            step = planned(layer_algorithms={conv["name"]: algorithm}, algorithm="direct")
            self.assertEqual(step["algorithm"], algorithm)
        step = planned(layer_algorithms={conv["name"]: ""}, algorithm=accepted[-1])
        self.assertEqual(step["algorithm"], conv["algorithm"])
        step = planned(layer_algorithms={conv["name"]: refusing})
        self.assertEqual(step["algorithm"], conv["algorithm"])
        for forced in ({"layer_algorithms": {conv["name"]: refusing}}, {"algorithm": refusing}):
            with self.subTest(forced), self.assertRaisesRegex(lenslet.UnsupportedError, refusing):
                self.segment.runner(**how, strict=True, **forced)
        runner = self.segment.runner(**how, layer_algorithms={conv["name"]: accepted[-1]}, disabled_passes=["fold_pad"])
        x = self.x[:, :, :16, :16]
        np.testing.assert_allclose(runner(x), 10 * x, rtol=2e-6)
        verified = self.segment.verify(**how, layer_algorithms={conv["name"]: accepted[-1]})
        self.assertEqual(verified["exceeded"], 0)
        self.assertIn(accepted[-1], [layer.get("algorithm") for layer in verified["layers"]])
        for wrong in (
            {"layer_algorithms": {"nowhere": "direct"}},
            {"layer_algorithms": {conv["name"]: "magic"}},
            {"layer_algorithms": {conv["name"]: 3}},
            {"layer_algorithms": {"a\0": "direct"}},
            {"disabled_passes": ["no_such_pass"]},
            {"disabled_passes": ["choose_kernels"]},
            {"disabled_passes": "fold_pad"},
            {"disabled_passes": [3]},
        ):
            with self.subTest(wrong), self.assertRaises(lenslet.InvalidArgumentError):
                self.segment.runner(**how, **wrong)
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "fuse_residual"):  # lists the existing names
            self.segment.runner(**how, disabled_passes=["no_such_pass"])

    def test_calibration(self):
        """The float16 value has the name of a Cast inserted by lenslet: the CPU also checks its input."""
        cast = node("Cast", ["x"], "x:float16", to=10)
        model = lenslet.Model(written([cast], {"x": (1, [4])}, {"x:float16": (10, [4])}))
        x = np.array([1, -2, 3e4, 4], np.float32)
        for good in (x, [x], (x,), {"x": x}, x[::-1], [[1, 2, 3, 4]]):
            y = model.runner(device="cpu", calibration=good)(x)
        self.assertEqual(y.dtype, np.float16)
        x[2] = -70000
        for beyond in (x, {"x": x}):
            with self.assertRaisesRegex(lenslet.UnsupportedError, "input 'x' reaches 7e.04 on the calibration inputs"):
                model.runner(device="cpu", calibration=beyond)
        for wrong in ([x, x], {"y": x}, x.astype(np.float64), x[:2], "x", object()):
            with self.subTest(type(wrong)), self.assertRaises(lenslet.Error):
                model.runner(device="cpu", calibration=wrong)

    def test_input_values(self):
        nodes = [node("Reshape", ["x", "shape"], "y")]
        model = lenslet.Model(written(nodes, {"x": (1, [6]), "shape": (7, [2])}, {"y": (1, ["H", "W"])}))
        x, shape = np.arange(6, dtype=np.float32), np.array([3, 2])
        runner = model.runner(device="cpu", input_values={"shape": shape})
        shape[:] = 2, 3
        self.assertEqual(runner.outputs[0].shape, (3, 2))
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "another value"):
            runner(x, shape)
        np.testing.assert_array_equal(runner(x, np.array([3, 2])), x.reshape(3, 2))
        self.assertEqual(model.plan(device="cpu", input_values={"shape": [1, 6]})["outputs"][0]["shape"], [1, 6])
        for wrong in ({"z": shape}, {"shape": np.array([2.0, 3.0])}, {"shape": "2x3"}, {"shape": np.array([4, 4])}):
            with self.subTest(wrong), self.assertRaises(lenslet.Error):
                model.runner(device="cpu", input_values=wrong)

    def test_verbs(self):
        verified = self.model.verify(device="cpu", threads=1, inputs={"image": self.x})
        self.assertEqual(verified["exceeded"], 0)
        self.assertTrue(all(layer["passed"] for layer in verified["layers"]))
        self.assertEqual(self.model.inspect(device="cpu")["inputs"][0]["name"], "image")
        timed = lenslet.Model((self.folder / "rgb.onnx").read_bytes()).bench(device="cpu", seconds=0.01, threads=[1])
        self.assertGreater(timed["results"][0]["ms"]["median"], 0)
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "nothing"):
            self.model.verify(shapes={"nothing": (1, 2)})


if __name__ == "__main__":
    unittest.main()
