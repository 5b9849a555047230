"""The command line itself, and the verbs run and check, from outside: exit codes, the one line on stderr, JSON, files
written."""

import ctypes
import json
import os
import pathlib
import re
import resource
import struct
import subprocess
import sys
import unittest
import zlib

from command import (
    ADDRESS_SPACE, FLOAT, INT64, ROOT, Verb, at_terminal, field, lenslet, model, node, noise, port, read_npy, read_png,
    tensor_pb, write_npy, write_ppm,
)


class CommandLine(Verb):
    def test_usage_errors(self):
        self.fails(2, "--nonsense", "run", self.net, "--nonsense")
        verbs = "there are: classify, card, run, check, inspect, verify, diff, layers, bench, scan, devices"
        self.fails(2, f"there is no verb 'dance'; {verbs}", "dance", self.net)
        self.fails(2, f"there is no verb 'clasify' (did you mean classify?); {verbs}", "clasify", self.net)
        self.assertRegex(self.passes("--version"), r"^lenslet \d+\.\d+\.\d+( \([0-9a-f]{7,}(-dirty)?\))?$")
        bare = lenslet()
        self.assertEqual((bare.returncode, bare.stdout), (2, ""))
        self.assertIn("Usage:", bare.stderr)
        self.assertIn(f"a verb is missing; {verbs}", bare.stderr.splitlines()[-1])
        self.fails(2, f"there is no verb '--nonsense'; {verbs}", "--nonsense")
        self.fails(2, "model", "inspect")
        self.fails(2, "threads", "bench", self.net, "--threads", "-1")
        self.fails(2, "no convolution algorithm", "inspect", self.net, "--conv-algorithm", "nonsense")

    def test_numbers(self):
        short = ("--seconds", "0", "--threads", "1")
        conv = ("bench", "conv", "--problem", "1,4,5,5,4,3,3")
        whole = ("-1", "1.5", "1e3", "nan", "0x10", "99999999999999999999", " 1")
        for option, values, verb in (
            ("--seconds", ("nan", "-nan", "inf", "-1", "3601", "1s"), ("bench", self.net)),
            ("--seconds", ("nan", "inf", "-1"), conv),
            ("--rtol", ("nan", "inf", "1e400", "-1", "x"), ("check", self.folder)),
            ("--atol", ("nan", "inf", "1e400", "-1", "x"), ("check", self.folder)),
            ("--random", whole, ("verify", self.net)),
            ("--batch", ("0", *whole), ("verify", self.net)),
            ("--batch", ("0", *whole), ("inspect", self.net)),
            ("--batch", ("0", "1,-1", *whole), ("bench", self.net, *short)),
            ("--batch", ("0", "1,-1", *whole), (*conv, *short)),
            ("--batch", ("0", "1025", *whole), ("classify", self.net)),
            ("--top", ("0", *whole), ("classify", self.net)),
            ("--threads", ("1025", *whole), ("inspect", self.net)),
        ):
            for value in values:
                self.fails(2, f"{option}: '{value.split(',')[-1]}' is no ", *verb, option, value)
        self.fails(2, "stride -1", "bench", "conv", "--problem", "1,4,5,5,4,3,3,-1", *short)
        # Decimal, whatever it starts with.
        self.assertEqual(self.json_of("inspect", self.net, "--threads", "010")["plan"]["threads"], 10)

    def test_one_line_means_one_line(self):
        """Whatever names hold, nothing of it reaches the terminal, and JSON is UTF-8."""
        evil = os.fsdecode(b"e\n  \x1b[31m\xff.onnx")
        shown = "e\\n  \\x1b[31m\\xff"
        self.fails(4, shown, "inspect", self.folder / evil)
        self.fails(4, shown, "classify", self.folder / evil, "--model", self.folder / evil)
        self.fails(4, shown, "check", self.folder / evil)
        self.fails(2, shown, evil)
        self.fails(2, shown, "inspect", self.net, evil)
        self.fails(2, shown, "inspect", self.net, "--after", evil)
        self.fails(2, shown, "inspect", self.net, "--shape", evil)
        self.fails(2, shown, "run", self.net, "--input", f"{evil}=x.npy")
        self.fails(4, shown, "run", self.net, "--input", self.folder / f"{evil}.npy")
        self.fails(2, shown, "bench", "conv", "--set", evil)
        file = self.write(evil, self.net.read_bytes())
        x = self.folder / "x.npy"
        write_npy(x, (1, 3, 12, 10), [0.5] * 360)
        for verb in (
            ("inspect", file),
            ("inspect", file, "--after", "load"),
            ("verify", file),
            ("layers", file, "--seconds", "0"),
            ("bench", file, "--seconds", "0", "--threads", "1"),
            ("run", file, "--input", x, "--output-dir", self.folder / evil.replace(".", "_")),
        ):
            document = self.json_of(*verb)
            self.assertEqual(document.get("results", [document])[0]["model"], "e\n  \x1b[31m\ufffd.onnx")
            text = self.passes(*verb)
            self.assertNotIn("\x1b", text)
        case = self.folder / evil.replace(".", "_")
        self.write(case / "model.onnx", b"no model")
        text = self.passes("check", case, code=1)
        self.assertEqual(text.count("\n"), 2)
        self.assertIn(shown, text)

    def test_names_that_are_empty(self):
        for verb in ("run", "inspect", "verify"):
            self.fails(2, "empty", verb, "")
        self.fails(2, "PHOTO: the name is empty", "classify", "")
        self.fails(2, "CASE_DIR: the name is empty", "check", "")
        self.fails(2, "--output-dir: the name is empty", "run", self.net, "--output-dir", "")

    def test_colour(self):
        missing = ("inspect", self.folder / "missing.onnx")
        self.assertIn("lenslet: \x1b[31merror:\x1b[0m ", at_terminal(*missing)[1])
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}):
            code, text = at_terminal(*missing, **variables)
            self.assertEqual(code, 4)
            self.assertNotIn("\x1b", text)
            self.assertIn("lenslet: error: ", text)
        self.assertIn("\x1b[31m", at_terminal(*missing, NO_COLOR="")[1])
        self.assertNotIn("\x1b", lenslet(*missing).stderr)

    def test_files_that_hide_their_size(self):
        if not os.path.exists("/proc/version"):
            self.skipTest("there is no /proc")
        self.fails(4, "as in /proc", "inspect", "/proc/version")

    def test_batches(self):
        def fixed(batch, op):
            ports = [port("x", FLOAT, [batch, 3, 4, 4])], [port("y", FLOAT, ["A", "B"])]
            nodes = [node("Flatten", ["x"], "a"), node(op, ["a"], "y")]
            return self.write(f"{op}{batch}.onnx", model(nodes, *ports))

        self.fails(2, "fixed batch of 2: ask for no other", "inspect", fixed(2, "Relu"), "--batch", "4")
        self.passes("inspect", fixed(2, "Relu"))
        why = "cannot run with a batch of 4: node transpose (Transpose): bakes in batch 1"
        self.fails(3, why, "inspect", fixed(1, "Transpose"), "--batch", "4")
        self.fails(3, "ask for a batch of 1", "inspect", fixed(1, "Transpose"), "--batch", "4")

    def test_help(self):
        top = self.passes("--help")
        self.assertIn("Exit codes:", top)
        for verb in ("classify", "run", "check", "inspect", "verify", "diff", "layers", "bench", "devices"):
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
        first, *listed = done.stderr.splitlines()
        self.assertIn("2 reasons", first)
        self.assertEqual(len(listed), 2, listed)
        self.assertIn("(Wibble x1, Wobble x1)", first)
        for op, line in zip(("Wibble", "Wobble"), listed):
            self.assertRegex(line, f"^  .*{op}")
        many = [node("Wibble", ["x"], f"a{i}") for i in range(20)] + [node("Relu", ["a0"], "y")]
        file = self.write("many.onnx", model(many, [port("x", FLOAT, [2])], [port("y", FLOAT, [2])]))
        first, *listed = lenslet("inspect", file).stderr.splitlines()
        self.assertIn("(Wibble x20)", first)
        self.assertEqual(len(listed), 9)
        self.assertEqual(listed[-1], "  and 12 more; --all lists them")
        for options in (("inspect", file, "--all"), ("--all", "inspect", file)):
            self.assertEqual(len(lenslet(*options).stderr.splitlines()), 21)

    def test_files_that_are_mistaken_for_models(self):
        for name, data, words in (("net.pth", b"PK\x03\x04rest", "torch.onnx.export"),
                                  ("old.pth", b"\x80\x02}q", "pickle"),
                                  ("net.tflite", b"\x1c\0\0\0TFL3", "tf2onnx"),
                                  ("net.h5", b"\x89HDF\r\n\x1a\n", "HDF5"),
                                  ("x.npy", b"\x93NUMPY\x01\0", "NumPy"),
                                  ("w.safetensors", b"\x40\0\0\0\0\0\0\0{\"a\":1}", "safetensors"),
                                  ("net.xml", b"<?xml version='1.0'?>", "OpenVINO")):
            self.fails(3, words, "inspect", self.write(name, data))

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
        # "auto", asked for: one line where a build that knows CUDA has no use for it, none otherwise. A script that asks
        # for nothing, or for everything by the variable, has none.
        document = self.json_of("devices")
        usable = any(entry["usable"] for entry in document["devices"][1:])
        for options, device, asked in ((["--device", "auto"], None, True), ([], None, False), ([], "auto", False)):
            done = lenslet("inspect", self.net, "--json", *options, device=device)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["plan"]["device"], "cuda:0" if usable else "cpu")
            if usable:
                note = document["devices"][1]["note"]
                self.assertEqual(done.stderr, note and f"lenslet: cuda:0: {note}\n")
            elif not document["cuda"]["built"] or not asked:
                self.assertEqual(done.stderr, "")
            else:
                self.assertRegex(done.stderr, r"^lenslet: device auto: using the CPU: .+\n$")
        if not usable and document["cuda"]["built"]:
            self.assertIn("device auto: using the CPU", at_terminal("inspect", self.net)[1])
            self.assertNotIn("device auto", at_terminal("inspect", self.net, LENSLET_DEVICE="auto")[1])

    def test_devices(self):
        document = self.json_of("devices")
        cpu = document["devices"][0]
        self.assertEqual((cpu["id"], cpu["usable"], cpu["runs_models"]), ("cpu", True, True))
        self.assertGreater(cpu["cores"], 0)
        self.assertEqual(set(document["cuda"]), {"built", "runtime", "driver", "built_for", "reason"})
        self.assertIn("cpu", self.passes("devices"))

    def test_instruction_sets(self):
        refused = lenslet("devices", "--instruction-set", "AVX9").stderr
        known = re.search(r"this CPU has \((.+)\)", refused).group(1).split(", ")
        self.fails(2, "instruction set 'AVX9' is none that kernels were made for", "devices", "--instruction-set", "AVX9")
        self.assertIn(self.json_of("devices")["devices"][0]["architecture"], known)
        for name in known:
            limited = self.json_of("devices", "--instruction-set", name)["devices"][0]
            self.assertEqual(limited["architecture"], name)
            # Plans, prepared weights and kernels are all of that one.
            self.assertIn("0 exceeded", self.passes("--instruction-set", name, "verify", self.net))


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

    def test_points(self):
        # Rows as long as the input's, whatever the first bytes look like: these begin as a bitmap does.
        points = self.write("b.bin", b"BM\0\0" + struct.pack("<5f", 2, 3, 4, 5, 7))
        output = self.run_sub(self.a, points)["outputs"][0]
        self.assertEqual(output["shape"], [3, 2])
        self.assertEqual(read_npy(pathlib.Path(output["file"]))[1][1:], [4, 4, 4, 4, 3])
        for wrong, words in ((self.write("c.bin", points.read_bytes()[:-1]), "23 bytes are no whole number of points"),
                             (self.folder / "missing.bin", "no such file")):
            done = lenslet("run", self.sub, "--input", self.a, "--input", wrong, "--output-dir", self.out)
            self.assertIn(words, done.stderr)
            self.assertNotEqual(done.returncode, 0)
        flat = self.write("flat.onnx", model([node("Neg", ["x"], "y")], [port("x", FLOAT, ["N"])],
                                             [port("y", FLOAT, ["N"])]))
        done = lenslet("run", flat, "--input", points, "--output-dir", self.out)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a file of points is for inputs [points, columns], and x is [N]", done.stderr)

    def test_scans(self):
        file, again, other = (self.folder / name for name in ("a.bin", "b.npy", "c.npy"))
        options = ["--rings", 8, "--steps", 100]
        text = self.passes("scan", file, *options)
        points = int(re.search(r"a\.bin: (\d+) points of 4 float32", text)[1])
        self.assertTrue(400 < points <= 800, text)
        self.assertEqual(file.stat().st_size, points * 16)
        self.passes("scan", again, *options)
        self.passes("scan", other, *options, "--seed", 2, "--columns", 5, "--sweeps", 2)
        shape, values = read_npy(again)
        self.assertEqual(shape, (points, 4))
        self.assertEqual(tuple(values), struct.unpack(f"<{points * 4}f", file.read_bytes()))
        shape, _ = read_npy(other)
        self.assertEqual(shape[1], 5)
        self.assertGreater(shape[0], points)
        for wrong in (["x.txt"], ["x.bin", "--columns", 6], ["x.bin", "--rings", 0],
                      ["x.bin", "--rings", 1 << 20, "--steps", 1 << 20]):
            done = lenslet("scan", *wrong)
            self.assertEqual(done.returncode, 2, wrong)
        self.assertFalse(pathlib.Path("x.bin").exists())

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
        refused(2, "one input too many: the model has a float32 [N,2], b float32 [N,2]", self.a, self.b, self.a)
        refused(2, "no input is called 'c'; the model has a float32 [N,2], b float32 [N,2]", self.a, f"c={self.b}")
        refused(2, "given twice", f"a={self.a}", f"a={self.b}")
        refused(2, ".npy, .pb or .bin", self.a, self.write("b.txt", b"1 2"))
        refused(4, "missing.npy: ", self.a, self.folder / "missing.npy")
        cut = self.write("cut.npy", self.b.read_bytes()[:-1])
        done = lenslet("run", self.sub, "--input", self.a, "--input", cut, "--output-dir", self.out)
        self.assertIn(done.returncode, (3, 4))
        self.assertIn("cut.npy: ", done.stderr)
        self.assertFalse(self.out.exists())

    def test_outputs_are_written_wholly_or_not_at_all(self):
        self.run_sub(self.a, self.b)
        before = (self.out / "a_b_0.npy").read_bytes()

        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        inputs = ("--input", self.b, "--input", self.a)
        for folder in (self.out, self.folder / "new"):
            text = "a_b_0.npy: cannot be written: File too large"
            self.fails(4, text, "run", self.sub, *inputs, "--output-dir", folder, before=small_files)
        self.assertEqual((self.out / "a_b_0.npy").read_bytes(), before)
        self.assertEqual(os.listdir(self.out), ["a_b_0.npy"])
        self.assertEqual(os.listdir(self.folder / "new"), [])

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


class Pictures(Verb):
    """run with pictures as inputs and outputs."""

    UINT8 = 2

    def setUp(self):
        super().setUp()
        self.pixels = [int(127.5 * (value + 1)) for value in noise(5 * 4 * 3, 9)]
        self.photo = self.folder / "photo.ppm"
        write_ppm(self.photo, 5, 4, self.pixels)
        self.png = self.folder / "out.png"

    def one_node(self, name, dims, element=FLOAT, op="Identity", out=None, more=b""):
        ports = [port("x", element, dims)], [port("y", out or element, [f"d{i}" for i in range(4)])]
        return self.write(name, model([node(op, ["x"], "y") + more], *ports))

    def run_picture(self, file, *options, photo=None):
        """The one line on stderr."""
        done = lenslet("run", file, "--input", photo or self.photo, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def values(self, file, *options, photo=None):
        self.run_picture(file, "--output-dir", self.folder / "values", *options, photo=photo)
        return read_npy(self.folder / "values" / "y.npy")

    def test_as_large_as_it_is(self):
        file = self.one_node("free.onnx", ["N", 3, "H", "W"])
        shape, values = self.values(file)
        self.assertEqual(shape, (1, 3, 5, 4))
        for i, value in enumerate(self.pixels):  # H x W x C
            self.assertAlmostEqual(values[i % 3 * 20 + i // 3], value / 255, places=6)
        words = "lenslet: no card says how x takes a picture: RGB 5x4 NCHW, not resized, (pixel * 0.00392157"
        self.assertIn(words, self.run_picture(file, "--output", self.png))
        self.assertEqual(read_png(self.png), ((5, 4, 3), self.pixels))
        self.assertEqual(self.values(file, "--size", "7,9")[0], (1, 3, 7, 9))
        # What was written is read again, whatever it is called.
        self.png.rename(named := self.folder / "picture.npy")
        self.run_picture(file, "--output", self.png, photo=named)
        self.assertEqual(read_png(self.png)[1], self.pixels)

    def test_preparation(self):
        file = self.one_node("fixed.onnx", [1, 3, 5, 4])
        said = ("--scale", "0.5", "--mean", "1,2,3", "--std", "4", "--bgr")
        values = self.values(file, *said)[1]
        for i, value in enumerate(self.pixels):
            c = 2 - i % 3
            self.assertAlmostEqual(values[c * 20 + i // 3], (value * 0.5 - (c + 1)) / 4, places=5)
        # A card beside the model says the same, and nothing is said of it; the command line stands above it.
        card = {"input": {"size": [5, 4], "channels": "BGR"}, "resize": {"mode": "stretch"},
                "normalize": {"scale": 0.5, "mean": [1, 2, 3], "std": [4, 4, 4]}}  # fmt: skip
        beside = self.write("fixed.card.json", json.dumps(card).encode())
        self.assertEqual(self.values(file)[1], values)
        self.assertIn("beyond 0 to 2.55 and", self.run_picture(file, "--output", self.png, "--output-scale", "100"))
        self.assertNotEqual(self.values(file, "--mean", "0")[1], values)
        beside.rename(other := self.folder / "other.card.json")
        self.assertEqual(self.values(file, "--card", other)[1], values)
        gray = self.one_node("gray.onnx", [1, 1, 5, 4])
        self.assertEqual(self.values(gray)[0], (1, 1, 5, 4))
        self.run_picture(gray, "--output", self.png)
        self.assertEqual(read_png(self.png)[0], (5, 4, 1))

    def test_bytes_and_channels_last(self):
        file = self.one_node("bytes.onnx", [1, 5, 4, 3], self.UINT8)
        self.assertIn("NHWC, not resized, (pixel * 1 -", self.run_picture(file, "--output", self.png))
        self.assertEqual(read_png(self.png), ((5, 4, 3), self.pixels))
        shape, values = self.values(self.one_node("last.onnx", ["N", "H", "W", 3]), "--scale", "1")
        self.assertEqual((shape, values), ((1, 5, 4, 3), self.pixels))

    def test_values_beyond(self):
        file = self.one_node("free.onnx", ["N", 3, "H", "W"])
        note = self.run_picture(file, "--output", self.png, "--output-scale", "1000", "--card", self.write(
            "c.card.json", b'{"input": {"size": [5, 4]}, "normalize": {"scale": 0.00392156862745098}}'))  # fmt: skip
        self.assertRegex(note, r"^lenslet: output y: \d+ of 60 values are beyond 0 to 0.255 and were clamped")
        expected = [min(255, round(value / 255 * 1000)) for value in self.pixels]
        self.assertTrue(all(abs(a - b) <= 1 for a, b in zip(read_png(self.png)[1], expected)))
        # Of 60 values none may be beyond, unseen: a hundredth is below one.
        self.assertNotIn("beyond", self.run_picture(file, "--output", self.png, "--output-scale", "255"))

    def test_classes_are_colours(self):
        axis = field(5, field(1, "axis") + field(3, 1) + field(20, 2))
        file = self.one_node("classes.onnx", ["N", 3, "H", "W"], op="ArgMax", out=INT64, more=axis)
        self.run_picture(file, "--output", f"y={self.png}")
        colours = ((0, 0, 0), (128, 0, 0), (0, 128, 0))  # PASCAL VOC's first
        triples = [self.pixels[i : i + 3] for i in range(0, 60, 3)]
        expected = [level for triple in triples for level in colours[triple.index(max(triple))]]
        self.assertEqual(read_png(self.png), ((5, 4, 3), expected))
        self.fails_after_note("these are classes", file, "--output", self.png, "--output-scale", "1")

    def fails_after_note(self, text, file, *options):
        done = lenslet("run", file, "--input", self.photo, *options)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn(text, done.stderr.splitlines()[-1])

    def test_what_is_refused(self):
        file = self.one_node("free.onnx", ["N", 3, "H", "W"])
        fixed = self.one_node("fixed.onnx", [1, 3, 6, 6])
        run = ("run", file, "--input", self.photo)
        self.fails(2, "wanted FILE.png", *run, "--output", "out.jpg")
        self.fails(2, "no output is called 'z'; the model has y", *run, "--output", "z=out.png")
        self.fails(2, "no --output asks", *run, "--output-scale", "2")
        self.fails(2, "--size 5,5 contradicts the input x [1,3,6,6]", "run", fixed, "--input", self.photo, "--size", "5")
        self.fails(2, "2 values", *run, "--mean", "1,2")
        self.fails(2, "takes 2 pictures at once", "run", self.one_node("two.onnx", [2, 3, 5, 4]), "--input", self.photo)
        self.fails(2, "neither 1 nor 3 channels", "run", self.one_node("four.onnx", [1, 4, 5, 7]), "--input", self.photo)
        self.fails(2, "takes none", "run", self.one_node("flat.onnx", [1, 60]), "--input", self.photo)
        self.fails(2, "int64", "run", self.one_node("int.onnx", [1, 3, 5, 4], INT64), "--input", self.photo)
        self.fails(1, "GIF is not read", "run", file, "--input", self.write("a.png", b"GIF89a and more bytes"))
        self.fails(4, "no such file", "run", file, "--input", self.folder / "missing.jpg")
        self.fails(1, "cut short", "run", file, "--input", self.write("cut.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF"))
        x = self.folder / "x.npy"
        write_npy(x, (1, 3, 2, 2), range(12))
        self.fails(2, "--scale says how pictures are prepared", "run", file, "--input", x, "--scale", "1")
        four = self.one_node("matrix.onnx", [2, 2])
        write_npy(x, (2, 2), range(4))
        self.fails(2, "no output shows a picture", "run", four, "--input", x, "--output", self.png)
        done = lenslet(*run, "--output", self.folder / "none" / "a.png")
        self.assertEqual(done.returncode, 4)
        self.assertIn("a.png: cannot be written: No such file", done.stderr)
        self.assertFalse(self.png.exists())

    def test_all_values(self):
        x = self.folder / "x.npy"
        write_npy(x, (1, 3, 12, 10), noise(360, 4))
        values = self.folder / "values"
        self.passes("run", self.folder / "net.onnx", "--input", x, "--all-values", values, "--output-dir", self.folder)
        self.assertLessEqual({"x.npy", "c2.npy", "p.npy", "y.npy"}, set(os.listdir(values)))
        self.assertEqual(read_npy(values / "x.npy"), read_npy(x))
        self.assertEqual(read_npy(values / "y.npy"), read_npy(self.folder / "y.npy"))
        self.assertEqual(read_npy(values / "c2.npy")[0], (1, 5, 10, 8))


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

    def test_folders_that_cannot_be_read_count(self):
        good = self.case("good")
        (self.folder / "cases" / "link").mkdir()
        (self.folder / "cases" / "link" / "model.onnx").symlink_to("model.onnx")
        text = self.passes("check", self.folder / "cases", code=1)
        self.assertIn(f"passed      {good}\nfailed      {self.folder}/cases/link: ", text)
        self.assertIn("1 passed, 1 failed, 0 unsupported", text)

    def test_folders_without_permission_count(self):
        closed = self.case("good").parent / "closed" / "inner"
        closed.mkdir(parents=True)
        closed.chmod(0)
        self.addCleanup(closed.chmod, 0o700)

        def without_capabilities():  # root may read everything
            for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
                ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP, before exec

        probe = [sys.executable, "-c", "import os, sys; os.listdir(sys.argv[1])", closed]
        if subprocess.run(probe, stderr=subprocess.DEVNULL, preexec_fn=without_capabilities).returncode == 0:
            self.skipTest("this user may read everything")
        text = self.passes("check", self.folder / "cases", code=1, before=without_capabilities)
        self.assertIn(f"failed      {closed}: inner cannot be read: Permission denied\n", text)
        self.assertIn("1 passed, 1 failed, 0 unsupported", text)


class Failures(Verb):
    """What no verb can help: output that nobody can take, memory that runs out."""

    def every_verb(self):
        subprocess.run([sys.executable, ROOT / "tests/install/tiny_model.py", self.folder], check=True)
        x = self.folder / "x.npy"
        write_npy(x, (1, 3, 12, 10), [0.5] * 360)
        case = self.folder / "case"
        self.write("case/model.onnx", model([node("Relu", ["x"], "y")], [port("x", FLOAT, [3])], [port("y", FLOAT, [3])]))
        self.write("case/test_data_set_0/input_0.pb", tensor_pb("x", [3], [-1, 2, -3]))
        self.write("case/test_data_set_0/output_0.pb", tensor_pb("y", [3], [0, 2, 0]))
        red = ("--labels", self.folder / "rgb.txt", self.folder / "red.ppm")
        short = ("--seconds", "0", "--threads", "1")
        return [
            ("classify", "--model", self.folder / "rgb.onnx", *red),
            ("run", self.net, "--input", x, "--output-dir", self.folder),
            ("check", case),
            ("inspect", self.net),
            ("inspect", self.net, "--after", "plan"),
            ("verify", self.net),
            ("layers", self.net, *short),
            ("bench", self.net, *short),
            ("bench", "conv", "--problem", "1,4,5,5,4,3,3", *short),
            ("devices",),
        ]

    def unwritable(self, stdout, reason):
        verbs = self.every_verb()
        helps = [("--help",), *((verb[0], "--help") for verb in verbs)]
        for arguments in [*verbs, *((*verb, "--json") for verb in verbs), *helps]:
            done = lenslet(*arguments, stdout=stdout)
            self.assertEqual(done.returncode, 4, (arguments, done.stderr))
            last = done.stderr.splitlines()[-1]  # classify has notes
            self.assertEqual(last, f"lenslet: error: standard output cannot be written: {reason}", arguments)

    def test_closed_streams(self):
        verbs = self.every_verb()
        for arguments in [*verbs, *((*verb, "--json") for verb in verbs), ("--help",), ("run", "--help")]:
            done = lenslet(*arguments, closed=[1])
            self.assertEqual(done.returncode, 4, (arguments, done.stderr))
            last = done.stderr.splitlines()[-1]
            self.assertEqual(last, "lenslet: error: standard output cannot be written: Bad file descriptor")
            self.assertEqual(lenslet(*arguments, closed=[0, 1, 2]).returncode, 4, arguments)
            # Lost is what was to be said there: classify has notes.
            done = lenslet(*arguments, closed=[2])
            self.assertEqual(done.returncode, 4 if arguments[0] == "classify" else 0, arguments)
            self.assertNotEqual(done.stdout, "")
        for closed in ([1], [2], [0, 1, 2]):
            self.assertEqual(lenslet("dance", closed=closed).returncode, 2)
            self.assertEqual(lenslet("inspect", self.folder / "bad.onnx", closed=closed).returncode, 4)
        self.assertEqual(read_npy(self.folder / "y.npy")[0], (1, 5))

    def test_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full")
        with open("/dev/full", "w") as full:
            self.unwritable(full, "No space left on device")
            # An error that comes first stays the error.
            done = lenslet("inspect", self.folder / "missing.onnx", stdout=full)
            self.assertEqual(done.returncode, 4)
            self.assertIn("missing.onnx: ", done.stderr)
            self.assertEqual(lenslet("dance", stdout=full).returncode, 2)
            # On stderr, the note of classify.
            done = lenslet(*self.every_verb()[0], before=lambda: os.dup2(full.fileno(), 2))
            self.assertEqual(done.returncode, 4)
            self.assertIn("red", done.stdout)

    def test_reader_that_has_gone(self):
        read, write = os.pipe()
        os.close(read)
        self.addCleanup(os.close, write)
        self.unwritable(write, "Broken pipe")

    def test_memory_that_runs_out(self):
        if ADDRESS_SPACE is None:
            self.skipTest("a sanitizer needs the address space")
        # The arena, the reference's doubles, which are another matter, and stacks of threads.
        self.fails(3, "no memory", "bench", self.net, "--batch", "10000000", "--threads", "1", limited=ADDRESS_SPACE)
        self.fails(3, "out of memory", "verify", self.net, "--batch", "150000", "--threads", "1", limited=ADDRESS_SPACE)
        self.fails(3, "thread", "bench", self.net, "--threads", "1024", limited=ADDRESS_SPACE)
        # A photo within the limits: no fault of its own.
        side = 6000
        header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        pixels = zlib.compress(bytes(side * (3 * side + 1)), 1)
        png = b"\x89PNG\r\n\x1a\n"
        for name, data in ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")):
            png += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        photo = self.write("black.png", png)
        classify = self.every_verb()[0][:5]
        done = lenslet(*classify, photo, "--threads", "1", limited=150 << 20)
        self.assertEqual((done.returncode, done.stderr.splitlines()[-1]), (3, "lenslet: error: out of memory"))
        self.assertEqual(lenslet(*classify, photo, "--threads", "1").returncode, 0)


if __name__ == "__main__":
    unittest.main()
