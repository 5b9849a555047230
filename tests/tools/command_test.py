"""The verbs of the built command, from outside: exit codes, the one line on stderr, JSON, files written.

LENSLET_COMMAND is the command; LENSLET_SHARED the shared acceptance data, if it is there. The models are written here,
field by field, with the writer of the install tests: nothing but Python's standard library is needed.
"""

import array
import ast
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "install"))
from tiny_model import field, initializer, node  # noqa: E402

COMMAND = os.environ["LENSLET_COMMAND"]
SHARED = pathlib.Path(os.environ.get("LENSLET_SHARED") or ROOT.parent / "shared" / "data")
FLOAT, INT64 = 1, 7
# Enough for the command, its threads and the small models; an allocation by a lying header is far beyond.
ADDRESS_SPACE = None if os.environ.get("LENSLET_SANITIZE") else 2 << 30


def lenslet(*arguments, limited=False, timeout=300, device="cpu"):
    """On the CPU, so that machines with a GPU see the same; `device`: what "--device" falls back to."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "LENSLET_DEVICE": device},
        preexec_fn=limit if limited and ADDRESS_SPACE else None,
    )


def port(name, element, dims):
    shape = b"".join(field(1, field(2, dim) if isinstance(dim, str) else field(1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, element) + field(2, shape)))


def model(nodes, inputs, outputs, initializers=()):
    graph = b"".join(field(1, n) for n in nodes) + field(2, "graph")
    graph += b"".join(field(5, i) for i in initializers)
    graph += b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs)
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))  # IR 8, opset 13


def tensor_pb(name, dims, values, element=FLOAT):
    raw = struct.pack(f"<{len(values)}{'f' if element == FLOAT else 'q'}", *values)
    return b"".join(field(1, dim) for dim in dims) + field(2, element) + field(8, name) + field(9, raw)


def write_npy(file, shape, values, descr="<f4"):
    header = repr({"descr": descr, "fortran_order": False, "shape": tuple(shape)}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    code = {"<f4": "f", "<f8": "d", "<i8": "q"}[descr]
    data = array.array(code, values).tobytes()
    file.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def read_npy(file):
    data = file.read_bytes()
    end = 10 + struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:end].decode())
    return header["shape"], list(array.array({"<f4": "f", "<i8": "q"}[header["descr"]], data[end:]))


def noise(count, seed):
    """Reproducible values in [-1, 1)."""
    values = []
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append((seed >> 11) / 2**52 - 1)
    return values


def conv_net():
    """x[N,3,12,10] -> Conv 3x3 -> Relu -> Conv 1x1 -> GlobalAveragePool -> Flatten -> y[N,5]"""
    return model(
        [
            node("Conv", ["x", "w1", "b1"], "c1"),
            node("Relu", ["c1"], "r1"),
            node("Conv", ["r1", "w2"], "c2"),
            node("GlobalAveragePool", ["c2"], "p"),
            node("Flatten", ["p"], "y"),
        ],
        [port("x", FLOAT, ["N", 3, 12, 10])],
        [port("y", FLOAT, ["N", 5])],
        [
            initializer("w1", [8, 3, 3, 3], noise(216, 1)),
            initializer("b1", [8], noise(8, 2)),
            initializer("w2", [5, 8, 1, 1], noise(40, 3)),
        ],
    )


class Verb(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lenslet-command-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.net = self.write("net.onnx", conv_net())

    def write(self, name, data):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    def fails(self, code, text, *arguments, **options):
        """Exit status, and one line on stderr that says `text`."""
        done = lenslet(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertTrue(done.stderr.startswith("lenslet: error: "), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual(done.stdout, "")

    def passes(self, *arguments, code=0):
        done = lenslet(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def json_of(self, *arguments, code=0):
        return json.loads(self.passes(*arguments, "--json", code=code))


class CommandLine(Verb):
    def test_usage_errors(self):
        self.fails(2, "--nonsense", "run", self.net, "--nonsense")
        self.fails(2, "subcommand", "dance")
        self.fails(2, "subcommand")
        self.fails(2, "model", "inspect")
        self.fails(2, "threads", "bench", self.net, "--threads", "-1")
        self.fails(2, "no convolution algorithm", "inspect", self.net, "--conv-algorithm", "nonsense")

    def test_help(self):
        top = self.passes("--help")
        self.assertIn("Exit codes:", top)
        for verb in ("classify", "run", "check", "inspect", "verify", "bench", "devices"):
            self.assertIn(verb, top)
            text = self.passes(verb, "--help")
            self.assertIn(f"Examples:\n  lenslet {verb}", text)
            self.assertIn("--json", text)

    def test_bad_models_and_files(self):
        bad = self.write("bad.onnx", b"this is no model")
        nodes = [node("Wibble", ["x"], "y")]
        unknown = self.write("unknown.onnx", model(nodes, [port("x", FLOAT, [2])], [port("y", FLOAT, [2])]))
        for verb in ("run", "inspect", "verify", "bench"):
            self.fails(3, f"{bad.name}: ", verb, bad)
            self.fails(3, "Wibble", verb, unknown)
            self.fails(4, "missing.onnx: ", verb, self.folder / "missing.onnx")
            self.fails(4, "folder", verb, self.folder)

    def test_one_error_counts_every_node_that_cannot_run(self):
        nodes = [node("Wibble", ["x"], "a"), node("Relu", ["a"], "b"), node("Wobble", ["b"], "y")]
        file = self.write("two.onnx", model(nodes, [port("x", FLOAT, [2])], [port("y", FLOAT, [2])]))
        done = lenslet("inspect", file)
        self.assertEqual(done.returncode, 3)
        self.assertTrue(done.stderr.startswith("lenslet: error: "))
        for op in ("Wibble", "Wobble"):
            self.assertIn(op, done.stderr)

    def test_choice_of_device(self):
        x = self.write("x.npy", b"")
        write_npy(x, (1, 3, 12, 10), [0.5] * 360)
        for verb in (["inspect", self.net], ["bench", self.net], ["verify", self.net], ["run", self.net, "--input", x]):
            self.fails(5, "cuda:99999", *verb, "--device", "cuda:99999")
            self.fails(2, "unknown device 'tpu'", *verb, "--device", "tpu")
            self.fails(2, "precision", *verb, "--precision", "fp8")
            self.fails(3, "tf32", *verb, "--precision", "tf32")
        self.fails(5, "cuda:99999", "check", self.folder, "--device", "cuda:99999")
        self.fails(5, "cuda:99999", "inspect", self.net, device="cuda:99999")
        # "auto": one line where a build that knows CUDA has no use for it, none otherwise.
        document = self.json_of("devices")
        usable = any(entry["usable"] for entry in document["devices"][1:])
        done = lenslet("inspect", self.net, "--json", device="auto")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["plan"]["device"], "cuda:0" if usable else "cpu")
        if usable or not document["cuda"]["built"]:
            self.assertEqual(done.stderr, "")
        else:
            self.assertRegex(done.stderr, r"^lenslet: device auto: using the CPU: .+\n$")

    def test_devices(self):
        document = self.json_of("devices")
        cpu = document["devices"][0]
        self.assertEqual((cpu["id"], cpu["usable"], cpu["runs_models"]), ("cpu", True, True))
        self.assertGreater(cpu["cores"], 0)
        self.assertEqual(set(document["cuda"]), {"built", "runtime", "driver", "built_for", "reason"})
        self.assertIn("cpu", self.passes("devices"))


class Run(Verb):
    def setUp(self):
        super().setUp()
        # Sub: exchanged inputs would show.
        ports = [port("a", FLOAT, ["N", 2]), port("b", FLOAT, ["N", 2])]
        nodes = [node("Sub", ["a", "b"], "a/b:0")]
        self.sub = self.write("sub.onnx", model(nodes, ports, [port("a/b:0", FLOAT, ["N", 2])]))
        self.a, self.b = self.folder / "a.npy", self.folder / "b.npy"
        write_npy(self.a, (3, 2), [5, 6, 7, 8, 9, 10])
        write_npy(self.b, (3, 2), [1, 2, 3, 4, 5, 7])
        self.out = self.folder / "out"

    def run_sub(self, *inputs):
        listed = [text for name in inputs for text in ("--input", name)]
        return self.json_of("run", self.sub, *listed, "--output-dir", self.out)

    def test_npy_pb_and_names(self):
        pb = self.write("b.pb", tensor_pb("whatever", [3, 2], [1, 2, 3, 4, 5, 7]))
        expected = ((3, 2), [4, 4, 4, 4, 4, 3])
        for inputs in ([self.a, self.b], [self.a, pb], [f"b={self.b}", f"a={self.a}"], [f"b={pb}", self.a]):
            document = self.run_sub(*inputs)
            output = document["outputs"][0]
            self.assertEqual(output["name"], "a/b:0")
            self.assertEqual((output["type"], output["shape"]), ("float32", [3, 2]))
            self.assertEqual((output["min"], output["max"], output["nan"]), (3, 4, 0))
            file = pathlib.Path(output["file"])
            self.assertEqual(file.parent, self.out)
            self.assertEqual(read_npy(file), expected)
            file.unlink()
        text = self.passes("run", self.sub, "--input", self.a, "--input", self.b, "--output-dir", self.out)
        self.assertRegex(text, r"a/b:0: float32 \[3,2\] min 3 mean 3\.83333 max 4 -> ")

    def test_doubles_are_converted(self):
        write_npy(self.b, (3, 2), [1, 2, 3, 4, 5, 7], "<f8")
        self.run_sub(self.a, self.b)
        self.assertEqual(read_npy(self.out / "a_b_0.npy")[1], [4, 4, 4, 4, 4, 3])

    def test_what_is_wrong_is_named(self):
        def refused(code, text, *inputs):
            listed = [part for name in inputs for part in ("--input", name)]
            self.fails(code, text, "run", self.sub, *listed, "--output-dir", self.out)

        wide = self.folder / "wide.npy"
        write_npy(wide, (3, 4), range(12))
        refused(2, "input b: shape [3,4] does not fit the declared [N,2]", self.a, wide)
        one = self.folder / "one.npy"
        write_npy(one, (1, 2), range(2))
        refused(2, "dimension N is", self.a, one)
        integers = self.folder / "integers.npy"
        write_npy(integers, (3, 2), range(6), "<i8")
        refused(2, "int64", self.a, integers)
        refused(2, "no --input for b", self.a)
        refused(2, "one input too many", self.a, self.b, self.a)
        refused(2, "given twice", f"a={self.a}", f"a={self.b}")
        refused(2, ".npy or .pb", self.a, self.write("b.txt", b"1 2"))
        refused(4, "missing.npy: ", self.a, self.folder / "missing.npy")
        cut = self.write("cut.npy", self.b.read_bytes()[:-1])
        done = lenslet("run", self.sub, "--input", self.a, "--input", cut, "--output-dir", self.out)
        self.assertIn(done.returncode, (3, 4))
        self.assertIn("cut.npy: ", done.stderr)
        self.assertFalse(self.out.exists())

    def test_input_whose_value_is_a_shape(self):
        ports = [port("x", FLOAT, [2, 6]), port("shape", INT64, [2])]
        nodes = [node("Reshape", ["x", "shape"], "y")]
        file = self.write("reshape.onnx", model(nodes, ports, [port("y", FLOAT, [4, 3])]))
        x, shape = self.folder / "x.npy", self.folder / "shape.npy"
        write_npy(x, (2, 6), range(12))
        write_npy(shape, (2,), [4, -1], "<i8")
        self.passes("run", file, "--input", x, "--input", shape, "--output-dir", self.out)
        self.assertEqual(read_npy(self.out / "y.npy"), ((4, 3), list(range(12))))
        write_npy(shape, (2,), [5, -1], "<i8")
        self.fails(3, "Reshape", "run", file, "--input", x, "--input", shape, "--output-dir", self.out)


class Check(Verb):
    def case(self, name, op="Relu", expected=(0, 2, 0)):
        folder = pathlib.Path("cases") / name
        nodes = [node(op, ["x"], "y")]
        self.write(folder / "model.onnx", model(nodes, [port("x", FLOAT, [3])], [port("y", FLOAT, [3])]))
        self.write(folder / "test_data_set_0" / "input_0.pb", tensor_pb("x", [3], [-1, 2, -3]))
        self.write(folder / "test_data_set_0" / "output_0.pb", tensor_pb("y", [3], expected))
        return self.folder / folder

    def test_counts_and_exit_codes(self):
        good, unknown = self.case("good"), self.case("unknown", op="Wibble")
        text = self.passes("check", good)
        self.assertEqual(text, f"passed      {good}\n1 passed, 0 failed, 0 unsupported\n")
        text = self.passes("check", good, unknown)
        self.assertIn("Wibble", text)
        self.assertTrue(text.endswith("1 passed, 0 failed, 1 unsupported\n"), text)

        bad = self.case("bad", expected=(0, 2.01, 0))
        document = self.json_of("check", self.folder / "cases", code=1)
        self.assertEqual((document["passed"], document["failed"], document["unsupported"]), (1, 1, 1))
        by_case = {entry["case"]: entry for entry in document["cases"]}
        self.assertEqual(by_case[str(good)]["status"], "passed")
        # Equal bits, equal digests: of outputs, not of what was expected.
        (digest,) = by_case[str(good)]["digests"]
        self.assertRegex(digest, "^[0-9a-f]{16}$")
        self.assertEqual(by_case[str(bad)]["digests"], [digest])
        self.assertEqual(by_case[str(bad)]["status"], "failed")
        self.assertIn("[1]: 2 where 2.0", by_case[str(bad)]["reason"])
        self.assertEqual(by_case[str(unknown)]["status"], "unsupported")
        # The tolerance is the caller's.
        self.passes("check", bad, "--rtol", "0.01")
        self.passes("check", bad, code=1)

    def test_what_is_no_case(self):
        (self.folder / "empty").mkdir()
        self.fails(2, "no model.onnx", "check", self.folder / "empty")
        self.fails(4, "is not a folder", "check", self.folder / "nowhere")
        case = self.case("no_data")
        (case / "test_data_set_0" / "output_0.pb").unlink()
        self.passes("check", case, code=1)


class Inspect(Verb):
    def test_json(self):
        document = self.json_of("inspect", self.net, "--batch", "4", "--threads", "2")
        self.assertEqual(document["parameters"], 216 + 8 + 40)
        self.assertEqual(document["inputs"], [{"name": "x", "dtype": "float32", "dims": ["N", 3, 12, 10]}])
        plan = document["plan"]
        self.assertEqual(plan["threads"], 2)
        self.assertEqual(plan["inputs"], [{"name": "x", "shape": [4, 3, 12, 10]}])
        self.assertEqual(plan["outputs"], [{"name": "y", "shape": [4, 5]}])
        convolutions = [step for step in plan["steps"] if step["op"] == "Conv"]
        self.assertEqual(len(convolutions), 2)
        for step, macs in zip(convolutions, (4 * 8 * 10 * 8 * 27, 4 * 5 * 10 * 8 * 8)):
            self.assertAlmostEqual(step["flops"] / (2 * macs), 1, delta=0.1)  # bias and activation are counted too
        names = None
        for step in convolutions:
            candidates = step["candidates"]
            names = names or [candidate["algorithm"] for candidate in candidates]
            self.assertEqual([candidate["algorithm"] for candidate in candidates], names)
            chosen = [c for c in candidates if c["algorithm"] == step["algorithm"]]
            self.assertEqual(len(chosen), 1)
            self.assertNotIn("refusal", chosen[0])
            for candidate in candidates:
                self.assertTrue(candidate.get("refusal") or candidate["tolerance"] > 0, candidate)
        # Neither is depthwise, and only the first is 3x3.
        refusals = [[c["algorithm"] for c in step["candidates"] if "refusal" in c] for step in convolutions]
        for refused in refusals:
            self.assertIn("depthwise", refused)
            self.assertNotIn("direct", refused)
        self.assertIn("winograd_f4", refusals[1])
        self.assertNotIn("winograd_f4", refusals[0])
        memory = plan["memory"]
        self.assertGreaterEqual(memory["peak_bytes"], memory["lower_bound_bytes"])
        self.assertGreaterEqual(memory["activation_sum_bytes"], memory["activation_bytes"])
        for place in plan["placements"]:
            self.assertEqual(place["offset"] % 64, 0)
            self.assertLessEqual(place["offset"] + place["bytes"], memory["peak_bytes"])

    def test_text_and_memory_map(self):
        text = self.passes("inspect", self.net)
        self.assertIn("264 parameters", text)
        self.assertIn("refuses:", text)
        self.assertNotIn("  steps        value", text)
        self.assertIn("  steps        value", self.passes("inspect", self.net, "--memory-map"))

    def test_every_stage(self):
        done = lenslet("inspect", self.net, "--after", "nonsense")
        self.assertEqual(done.returncode, 2)
        stages = done.stderr.strip().split("stages: ")[1].split(", ")
        self.assertGreater(len(stages), 10)
        dumps = {}
        for stage in stages:
            dumps[stage] = self.passes("inspect", self.net, "--after", stage)
            self.assertTrue(dumps[stage].startswith("graph "), stage)
            self.assertIn("Conv(", dumps[stage])
        self.assertIn("Relu(", dumps["load"])
        self.assertNotIn("Relu(", dumps["fuse_activation"])
        self.assertEqual(self.json_of("inspect", self.net, "--after", "infer")["dump"], dumps["infer"])

    def test_shape(self):
        ports = [port("x", FLOAT, ["N", 3, "H", "W"])]
        nodes = [node("Conv", ["x", "w"], "y")]
        weights = [initializer("w", [4, 3, 3, 3], noise(108, 5))]
        file = self.write("free.onnx", model(nodes, ports, [port("y", FLOAT, ["N", 4, "P", "Q"])], weights))
        self.fails(2, "give a shape for each input with free dimensions: x [N,3,H,W]", "inspect", file)
        plan = self.json_of("inspect", file, "--shape", "x=2x3x9x7")["plan"]
        self.assertEqual(plan["outputs"], [{"name": "y", "shape": [2, 4, 7, 5]}])
        for bad in ("x", "x=", "x=1x3xAx7", "x=1x3x-9x7", "z=1x3x9x7", "x=1x4x9x7"):
            done = lenslet("inspect", file, "--shape", bad)
            self.assertEqual(done.returncode, 2, bad)


class Verify(Verb):
    def test_every_algorithm_holds(self):
        document = self.json_of("verify", self.net, "--conv-algorithm", "all", "--random", "7", "--batch", "2")
        self.assertEqual((document["exceeded"], document["unchecked"]), (0, 0))
        self.assertEqual(document["checked"], len(document["layers"]))
        algorithms = {layer["algorithm"] for layer in document["layers"] if "algorithm" in layer}
        self.assertLessEqual({"direct", "im2col", "winograd_f2", "winograd_f4", "winograd_f6"}, algorithms)
        self.assertTrue(all(layer["passed"] and layer["error"] <= layer["tolerance"] for layer in document["layers"]))
        self.assertIn("0 exceeded", self.passes("verify", self.net))

    def test_it_can_fail(self):
        # Beyond float32, within double: the layer is infinitely wrong, and verify must say so.
        ports = [port("x", FLOAT, [4])]
        file = self.write("square.onnx", model([node("Mul", ["x", "x"], "y")], ports, [port("y", FLOAT, [4])]))
        x = self.folder / "x.npy"
        write_npy(x, (4,), [1, 2, 3, 1e30])
        document = self.json_of("verify", file, "--input", x, code=1)
        self.assertEqual((document["checked"], document["exceeded"]), (1, 1))
        self.assertEqual((document["layers"][0]["error"], document["layers"][0]["passed"]), ("infinite", False))
        self.assertIn("EXCEEDED", self.passes("verify", file, "--input", x, code=1))
        write_npy(x, (4,), [1, 2, 3, 4])
        self.passes("verify", file, "--input", x)


class Bench(Verb):
    def test_json(self):
        options = ("--batch", "1,2", "--threads", "1", "--seconds", "0.01", "--per-layer")
        document = self.json_of("bench", self.net, *options)
        self.assertGreater(document["peak"]["fma_gflops"], 0)
        self.assertGreater(document["peak"]["copy_gb_per_s"], 0)
        self.assertEqual([result["batch"] for result in document["results"]], [1, 2])
        for result in document["results"]:
            ms = result["ms"]
            self.assertTrue(0 < ms["p10"] <= ms["median"] <= ms["p90"], ms)
            self.assertGreaterEqual(result["runs"], 5)
            self.assertEqual(result["threads"], 1)
            self.assertGreater(result["gflops"], 0)
            self.assertGreater(result["percent_of_fma_peak"], 0)
            convolutions = [layer for layer in result["layers"] if layer["op"] == "Conv"]
            self.assertEqual(len(convolutions), 2)
            self.assertTrue(all(layer["algorithm"] and layer["ms"] > 0 for layer in convolutions))
        without = self.json_of("bench", self.net, "--seconds", "0", "--threads", "1")
        self.assertEqual(without["results"][0]["layers"], [])

    def test_text_and_refusals(self):
        text = self.passes("bench", self.net, "--seconds", "0", "--threads", "1", "--per-layer")
        self.assertIn("median ms", text)
        self.assertIn("layers at batch 1", text)
        for batch in ("0", "-1", "x", ""):
            self.assertEqual(lenslet("bench", self.net, "--batch", batch, "--seconds", "0").returncode, 2, batch)


class WithPhotos(Verb):
    def setUp(self):
        super().setUp()
        subprocess.run([sys.executable, ROOT / "tests/install/tiny_model.py", self.folder], check=True)
        self.model = ("classify", "--model", self.folder / "rgb.onnx", "--labels", self.folder / "rgb.txt")


class Classify(WithPhotos):
    def test_json_schema(self):
        bad = self.write("bad.jpg", b"no picture")
        done = lenslet(*self.model, "--top", "2", "--json", self.folder / "red.ppm", bad, self.folder / "blue.ppm")
        self.assertEqual(done.returncode, 1)
        document = json.loads(done.stdout)
        self.assertEqual(set(document), {"model", "device", "results"})
        self.assertEqual((document["model"], document["device"]), (str(self.folder / "rgb.onnx"), "cpu"))
        red, failed, blue = document["results"]
        for result, name, label in ((red, "red.ppm", "red"), (blue, "blue.ppm", "blue")):
            self.assertEqual(set(result), {"file", "top", "ms"})
            self.assertEqual(result["file"], str(self.folder / name))
            self.assertEqual(set(result["ms"]), {"decode", "preprocess", "inference"})
            self.assertEqual([set(top) for top in result["top"]], [{"index", "label", "prob"}] * 2)
            self.assertEqual(result["top"][0]["label"], label)
            self.assertGreater(result["top"][0]["prob"], result["top"][1]["prob"])
        self.assertEqual(set(failed), {"file", "error"})
        self.assertIn(f"{bad}: ", done.stderr)


class SharedData(WithPhotos):
    """Files out of the shared acceptance data."""

    def setUp(self):
        if not SHARED.is_dir():
            self.skipTest("shared/data is not on this machine")
        super().setUp()

    def test_damaged_pictures(self):
        files = sorted((SHARED / "images/bad").iterdir())
        self.assertGreaterEqual(len(files), 9)
        for file in files:
            done = lenslet(*self.model, file, limited=True, timeout=60)
            self.assertEqual(done.returncode, 1, (file, done.returncode, done.stderr))
            self.assertIn(f"{file}: ", done.stderr)
            self.assertNotIn("out of memory", done.stderr)

    def test_bad_models(self):
        files = sorted((SHARED / "bad-models").glob("*.onnx"))
        self.assertEqual(len(files), 20)
        for file in files:
            done = lenslet("inspect", file, limited=True, timeout=60)
            self.assertEqual(done.returncode, 3, (file, done.returncode, done.stderr))
            self.assertTrue(done.stderr.startswith("lenslet: error: "), done.stderr)
            self.assertIn(f"{file.name}: ", done.stderr.split("\n")[0])
            self.assertNotIn("out of memory", done.stderr)

    def test_verify_small_models(self):
        for name in ("mnist-cntk", "cifar10-cnn4", "cifar10-resnet20"):
            document = self.json_of("verify", SHARED / "models" / f"{name}.onnx", "--conv-algorithm", "all")
            self.assertEqual((document["exceeded"], document["unchecked"]), (0, 0), name)
            self.assertGreater(document["checked"], 10)


if __name__ == "__main__":
    unittest.main()
