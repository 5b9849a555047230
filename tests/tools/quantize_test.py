"""The verb quantize: the file it writes, the layer that it blames, and its refusals. Beside ONNX Runtime if that is
installed."""

import json
import os
import pathlib
import random
import signal
import subprocess
import time
import unittest

from command import COMMAND, FLOAT, SHARED, Verb, WithPhotos, initializer, lenslet, model, node, noise, port, read_npy, write_npy
from read_png import read_png
from tiny_model import field

SANITIZED = os.environ.get("LENSLET_SANITIZE")


def named(name, *arguments, **attributes):
    return node(*arguments, **attributes) + field(3, name)


def chain(bad=None, height=6, width=5):
    """Four 1x1 convolutions, each with a Relu, and a mean. Channel 7 is always 0. `bad`: this convolution has weights of
    1e4 for it, which change nothing but the steps in which 8 bits store the others."""
    nodes, weights, value = [], [], "x"
    for i in range(4):
        w, b = noise(56, i + 1) + [0.0] * 8, noise(7, i + 9) + [-1.0]
        if i == bad:
            w[7:56:8] = [1e4] * 7
        weights += [initializer(f"w{i}", [8, 8, 1, 1], w), initializer(f"b{i}", [8], b)]
        nodes += [named(f"c{i}", "Conv", [value, f"w{i}", f"b{i}"], f"y{i}"), named(f"r{i}", "Relu", [f"y{i}"], f"z{i}")]
        value = f"z{i}"
    nodes.append(named("mean", "GlobalAveragePool", [value], "y"))
    return model(nodes, [port("x", FLOAT, ["N", 8, height, width])], [port("y", FLOAT, ["N", 8, 1, 1])], weights)


class Quantize(Verb):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out.onnx"
        self.samples = []
        for seed in range(4):
            self.samples.append(self.folder / f"{seed}.npy")
            write_npy(self.samples[-1], [1, 8, 6, 5], noise(210, seed + 50) + [0.0] * 30)

    def quantize(self, net, *options):
        return self.json_of("quantize", net, "-o", self.out, *options, "--inputs", *self.samples)

    def values(self, net):
        self.passes("run", net, "--input", self.samples[0], "--output-dir", self.folder / "values")
        return read_npy(self.folder / "values" / "y.npy")[1]

    def error(self, net):
        exact, got = self.values(net), self.values(self.out)
        return (sum((a - b) ** 2 for a, b in zip(exact, got)) / sum(a * a for a in exact)) ** 0.5

    def test_the_file_and_its_report(self):
        net, report = self.write("chain.onnx", chain()), self.folder / "report.json"
        for options in ((), ("--activations", "int8"), ("--method", "minmax"), ("--method", "entropy"), ("--method", "percentile")):
            document = self.quantize(net, *options, "--report", report)
            self.assertLess(self.error(net), 0.03, options)
            self.assertAlmostEqual(document["error"], self.error(net), delta=0.02)
        self.assertEqual({row["name"] for row in document["layers"]}, {"x", "c0", "c1", "c2", "c3"})
        errors = [row["error"] for row in document["layers"]]
        self.assertEqual(errors, sorted(errors, reverse=True))
        self.assertEqual(json.loads(report.read_text())["layers"], document["layers"])
        self.assertNotIn(b"w0_scale", net.read_bytes())
        self.assertIn(b"w0_scale", self.out.read_bytes())
        text = self.passes("quantize", net, "-o", self.out, "--inputs", *self.samples)
        self.assertLessEqual(max(map(len, text.splitlines()[:-2])), 80, text)
        self.fails(2, "is quantised already", "quantize", self.out, "-o", net, "--inputs", *self.samples)

    def test_bias_correction(self):
        """Where x is 1 everywhere, all that rounded weights do is to shift each channel."""
        weights = [initializer("w", [2, 8, 1, 1], noise(16, 3)), initializer("b", [2], noise(2, 4))]
        nodes = [node("Conv", ["x", "w", "b"], "c"), node("GlobalAveragePool", ["c"], "y")]
        net = self.write("one.onnx", model(nodes, [port("x", FLOAT, ["N", 8, 6, 5])], [port("y", FLOAT, ["N", 2, 1, 1])], weights))
        self.samples = self.samples[:1]
        write_npy(self.samples[0], [1, 8, 6, 5], [1.0] * 240)
        errors = []
        for options in ((), ("--no-bias-correction",)):
            # Without the output's own rounding: int8 weights of this layer alone.
            errors.append({row["name"]: row["error"] for row in self.quantize(net, *options, "--method", "minmax")["layers"]}["conv"])
        self.assertLessEqual(errors[0], errors[1])

    def test_a_bad_layer_is_named_first(self):
        for bad in range(4):
            net = self.write("bad.onnx", chain(bad))
            document = self.quantize(net)
            self.assertEqual(document["layers"][0]["name"], f"c{bad}")
            self.assertGreater(document["error"], 0.1)
            document = self.quantize(net, "--budget", "0.05")
            self.assertEqual(document["layers"][0]["form"], "float: budget")
            self.assertLess(document["error"], 0.05)
            self.assertNotIn(f"w{bad}_scale".encode(), self.out.read_bytes())
            document = self.quantize(net, "--keep", f"c{bad}")
            self.assertNotIn(f"c{bad}", [row["name"] for row in document["layers"]])
            self.assertNotIn(f"w{bad}_scale".encode(), self.out.read_bytes())
            self.assertIn(f"w{(bad + 1) % 4}_scale".encode(), self.out.read_bytes())

    def test_refusals(self):
        net = self.write("chain.onnx", chain())
        quantize = ("quantize", net, "-o", self.out)
        self.fails(2, "either --photos or --inputs", *quantize)
        self.fails(2, "--keep c9: no node has this name", *quantize, "--keep", "c9", "--inputs", *self.samples)
        self.fails(2, "--skip-op LRN", *quantize, "--skip-op", "LRN", "--inputs", *self.samples)
        self.fails(2, "no layer to quantise", *quantize, "--skip-op", "Conv", "--inputs", *self.samples)
        self.fails(2, "every layer loses more", *quantize, "--budget", "0", "--inputs", *self.samples)
        self.fails(4, "none/out.onnx: cannot be written", *quantize[:2], "-o", self.folder / "none" / "out.onnx", "--inputs", *self.samples)
        self.fails(2, "the model itself", *quantize[:2], "-o", net, "--inputs", *self.samples)
        write_npy(self.samples[2], [1, 8, 6, 5], [float("nan")] * 240)
        self.fails(2, "infinite or NaN", *quantize[:2], "-o", self.folder / "nan.onnx", "--inputs", *self.samples)
        self.fails(3, "", "quantize", self.samples[0], "-o", self.out, "--inputs", *self.samples)
        relu = model([node("Relu", ["x"], "y")], [port("x", FLOAT, [1, 8])], [port("y", FLOAT, [1, 8])])
        self.fails(2, "no layer to quantise", "quantize", self.write("relu.onnx", relu), "-o", self.out, "--inputs", *self.samples)
        newer = chain().replace(field(8, field(2, 13)), field(8, field(2, 22)))
        self.fails(3, "opset 22", "quantize", self.write("newer.onnx", newer), "-o", self.out, "--inputs", *self.samples)
        self.assertFalse(self.out.exists() or (self.folder / "nan.onnx").exists())

    def long_work(self):
        """A command of some seconds, and the file of its calibration."""
        net = self.write("chain.onnx", chain(height=128, width=128))
        write_npy(self.samples[0], [1, 8, 128, 128], noise(8 << 14, 3))
        return [COMMAND, "quantize", net, "-o", self.out, "--inputs", *self.samples[:1] * (60 if SANITIZED else 600)], self.folder / "out.calibration.json"

    def test_stopped_by_a_signal(self):
        command, saved = self.long_work()
        for wait in (0.3, 1.0):
            child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
            time.sleep(wait)
            child.send_signal(signal.SIGINT)
            begin = time.monotonic()
            notes = child.communicate()[1]
            self.assertLess(time.monotonic() - begin, 1 if SANITIZED is None else 20)
            self.assertIn(child.returncode, (130, -signal.SIGINT), notes)  # the latter: before it listened
            self.assertFalse(self.out.exists())
            self.assertEqual(list(self.folder.glob(".lenslet-*")), [])
            if child.returncode == 130:
                self.assertIn(b"goes on from" if saved.exists() else b"nothing was written", notes)

    def test_killed_and_continued(self):
        """However often it is killed, the file is the one of a run that was not."""
        command, saved = self.long_work()
        self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
        expected, draw = self.out.read_bytes(), random.Random(7)
        self.assertFalse(saved.exists())
        self.out.unlink()
        for _ in range(3):
            child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
            while not saved.exists() and child.poll() is None:
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.1))
            child.kill()
            child.communicate()
            if saved.exists():
                json.loads(saved.read_text())
            self.assertIn(self.out.read_bytes() if self.out.exists() else expected, (expected,))
        self.assertFalse(self.out.exists())
        copy = self.folder / "copy.npy"  # the same samples as another file, as lenslet.quantize() writes them
        copy.write_bytes(self.samples[0].read_bytes())
        again = [copy if option == self.samples[0] else option for option in command]
        done = subprocess.run(again, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("going on behind", done.stderr)
        self.assertEqual(self.out.read_bytes(), expected)
        self.assertFalse(saved.exists())

    def test_a_damaged_calibration_is_named(self):
        command, saved = self.long_work()
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while not saved.exists() and child.poll() is None:
            time.sleep(0.01)
        child.kill()
        child.wait()
        good = json.loads(saved.read_text())
        value = next(iter(good["values"]))
        for name, bad in (("done", 601), ("done", -1), ("runs", "x"), ("made_by", "x"), ("values", {}), ("means", {value: [None]}),
                           ("rows", {"c0": -1}), ("values", {**good["values"], value: {**good["values"][value], "width": 0.3}}),
                           ("values", {**good["values"], value: {**good["values"][value], "bins": [[4096, 1]]}})):  # fmt: skip
            saved.write_text(json.dumps({**good, name: bad}))
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, (name, bad, done.stderr))
            self.assertIn(f"{saved}: cannot be continued from: {name}", done.stderr)
        saved.write_text("{")
        self.fails(2, "its JSON is damaged; delete it to begin anew", *command[1:])
        # Of other photos: begun anew, which the file says.
        saved.write_text(json.dumps({**good, "key": "0"}))
        done = lenslet("quantize", command[2], "-o", self.out, "--inputs", self.samples[0])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("beginning anew", done.stderr)


class QuantizeWithPhotos(WithPhotos):
    def test_photos(self):
        out, photos = self.folder / "out.onnx", self.folder / "photos"
        photos.mkdir()
        self.fails_at_last(4, "photos", "quantize", self.folder / "rgb.onnx", "-o", out, "--photos", photos)
        (self.folder / "red.ppm").rename(photos / "red.ppm")
        done = lenslet("quantize", self.folder / "rgb.onnx", "-o", out, "--photos", photos, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["samples"], 1)
        (photos / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        done = lenslet("quantize", self.folder / "rgb.onnx", "-o", out, "--photos", photos, "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("bad.png", done.stderr)
        top = []
        for file in (self.folder / "rgb.onnx", out):
            done = lenslet("classify", "--model", file, "--labels", self.folder / "rgb.txt", "--json", photos / "red.ppm")
            top.append(json.loads(done.stdout)["results"][0]["top"][0]["label"])
        self.assertEqual(top[0], top[1])

    def fails_at_last(self, code, text, *arguments):
        done = lenslet(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr.splitlines()[-1])


class QuantizeBesideOnnxRuntime(Verb):
    @classmethod
    def setUpClass(cls):
        try:
            import numpy
            import onnx
            import onnxruntime
        except ImportError as error:
            raise unittest.SkipTest(f"ONNX Runtime: {error}") from error
        cls.np, cls.onnx, cls.ort = numpy, onnx, onnxruntime
        if not (SHARED / "models").is_dir():
            raise unittest.SkipTest("shared/data is not here")

    def picture(self, name):
        if name == "mnist-cntk":
            data = (SHARED / "images/mnist/digit3_0.pgm").read_bytes()[-784:]
            return self.np.frombuffer(data, "uint8").reshape(1, 1, 28, 28).astype("float32") / 255
        (height, width, _), pixels = read_png(next((SHARED / "images/cifar10").glob("*.png")))
        x = self.np.frombuffer(bytes(pixels), "uint8").reshape(1, height, width, 3).transpose(0, 3, 1, 2) / 255
        mean, std = ([0.5] * 3, [0.5] * 3) if name == "cifar10-cnn4" else ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        return ((x - self.np.reshape(mean, (3, 1, 1))) / self.np.reshape(std, (3, 1, 1))).astype("float32")

    def test_the_same_classes(self):
        """Files of opset 8 to 10: with Dropout, a BatchNormalization behind each convolution, a MatMul."""
        for name, folder in (("mnist-cntk", "mnist"), ("cifar10-cnn4", "cifar10"), ("cifar10-resnet20", "cifar10")):
            net, out = SHARED / "models" / f"{name}.onnx", self.folder / f"{name}.onnx"
            done = lenslet("quantize", net, "--photos", SHARED / "images" / folder, "-o", out, "--blame-photos", "1", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.onnx.checker.check_model(str(out), full_check=True)
            sessions = [self.session(file) for file in (net, out)]
            port = sessions[0].get_inputs()[0]
            x = self.picture(name)
            exact, theirs = (session.run(None, {port.name: x})[0] for session in sessions)
            self.np.save(self.folder / "x.npy", x)
            lenslet("run", out, "--input", self.folder / "x.npy", "--output-dir", self.folder / name)
            ours = self.np.load(next(pathlib.Path(self.folder / name).glob("*.npy")))
            self.assertEqual(ours.argmax(), theirs.argmax())
            self.assertEqual(ours.argmax(), exact.argmax())
            self.assertLess(self.np.abs(ours - theirs).max(), 0.05 * self.np.abs(exact).max())

    def session(self, file):
        """Of ONNX Runtime, with sums of products that do not saturate at 16 bits on CPUs with AVX2 alone."""
        options = self.ort.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", "1")
        return self.ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def hard_net(self, opset=13, weights=None, extra=(), inits=(), functions=(), branch=None):
        """x -> Conv -> mean -> If (y = mean or mean + 1)."""
        o, h, np = self.onnx.helper, self.onnx.numpy_helper, self.np
        w = h.from_array(np.random.default_rng(3).normal(size=(4, 3, 3, 3)).astype("float32"), "w")
        f = self.onnx.TensorProto.FLOAT
        one = o.make_tensor("one", f, [1], [1.0])
        then = o.make_graph([o.make_node("Identity", ["m"], ["t"])], "then", [], [o.make_tensor_value_info("t", f, None)])
        other = branch or o.make_graph([o.make_node("Add", ["m", "one"], ["c_quantized"])], "else", [],
                                       [o.make_tensor_value_info("c_quantized", f, None)], [one])  # fmt: skip
        nodes = [*extra, o.make_node("Conv", ["x", weights or "w"], ["c"], name="conv"),
                 o.make_node("Conv", ["c", "w2"], ["d"], name="conv2"), o.make_node("GlobalAveragePool", ["d"], ["m"]),
                 o.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other)]  # fmt: skip
        yes = o.make_tensor("yes", self.onnx.TensorProto.BOOL, [], [False])
        w2 = h.from_array(np.random.default_rng(4).normal(size=(4, 4, 1, 1)).astype("float32"), "w2")
        graph = o.make_graph(nodes, "g", [o.make_tensor_value_info("x", f, [1, 3, 8, 8])], [o.make_tensor_value_info("y", f, None)],
                             [w2, yes, *([] if weights == "k" else [w]), *inits])  # fmt: skip
        imports = [o.make_opsetid("", opset), *([o.make_opsetid("mine", 1)] if functions else [])]
        return o.make_model(graph, opset_imports=imports, ir_version=8, functions=list(functions)), w

    def check_hard(self, net, folder=None):
        """Quantised, and run by ONNX Runtime from another folder to nearly the same values."""
        folder = folder or self.folder
        file, out = folder / "hard.onnx", self.folder / "elsewhere" / "out.onnx"
        out.parent.mkdir(exist_ok=True)
        if net is not None:
            self.onnx.save(net, file)
        x = self.np.random.default_rng(5).normal(size=(1, 3, 8, 8)).astype("float32")
        self.np.save(self.folder / "x.npy", x)
        done = lenslet("quantize", file, "--inputs", self.folder / "x.npy", "-o", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"w_scale", out.read_bytes().replace(b"k_scale", b"w_scale"))
        exact, ours = (self.session(each).run(None, {"x": x})[0] for each in (file, out))
        self.assertLess(self.np.abs(exact - ours).max(), 0.05 * self.np.abs(exact).max() + 0.02)

    def test_names_in_branches(self):
        """c_quantized is taken, in a branch."""
        self.check_hard(self.hard_net()[0])

    def test_identity_of_weights(self):
        self.check_hard(self.hard_net(weights="i", extra=[self.onnx.helper.make_node("Identity", ["w"], ["i"])])[0])

    def test_functions_of_old_opsets(self):
        o = self.onnx.helper
        function = o.make_function("mine", "Twice", ["a"], ["b"], [o.make_node("Add", ["a", "a"], ["b"])], [o.make_opsetid("", 12)])
        extra = [o.make_node("Twice", ["x"], ["unused"], domain="mine")]
        self.onnx.save(self.hard_net(12, extra=extra, functions=[function])[0], self.folder / "old.onnx")
        self.np.save(self.folder / "x.npy", self.np.zeros((1, 3, 8, 8), "float32"))
        self.fails(3, "the functions in this file of opset 12", "quantize", self.folder / "old.onnx", "--inputs", self.folder / "x.npy",
                   "-o", self.folder / "out.onnx")  # fmt: skip

    def test_external_data(self):
        """Of an initializer without a length, with another's data behind it; of a Constant; in a branch."""
        o, tensor = self.onnx.helper, self.onnx.TensorProto

        def outside(t, length):
            data, at = t.raw_data, (self.folder / "data").stat().st_size if (self.folder / "data").exists() else 0
            with (self.folder / "data").open("ab") as stream:
                stream.write(data)
            t.ClearField("raw_data")
            t.data_location = tensor.EXTERNAL
            for key, value in (("location", "data"), ("offset", str(at)), *([("length", str(len(data)))] if length else [])):
                t.external_data.add(key=key, value=value)
            return t

        net, _ = self.hard_net()
        outside(next(i for i in net.graph.initializer if i.name == "w"), False)
        with (self.folder / "data").open("ab") as stream:
            stream.write(b"more")
        self.check_hard(net)
        _, w = self.hard_net()
        constant = o.make_node("Constant", [], ["k"], value=outside(w, True))
        self.check_hard(self.hard_net(weights="k", extra=[constant])[0])
        one = self.onnx.numpy_helper.from_array(self.np.ones(1, "float32"), "one")
        other = o.make_graph([o.make_node("Add", ["m", "one"], ["e"])], "else", [], [o.make_tensor_value_info("e", tensor.FLOAT, None)], [outside(one, True)])  # fmt: skip
        self.check_hard(self.hard_net(branch=other)[0])


if __name__ == "__main__":
    unittest.main()
