"""The command line and its failures: exit codes, the one line on stderr, no files left behind."""

import json
import os
import re
import struct
import subprocess
import sys
import unittest
import zlib

from command import (
    ADDRESS_SPACE, FLOAT, ROOT, Verb, at_terminal, lenslet, model, node, port, read_npy, tensor_pb, write_npy,
)


class CommandLine(Verb):
    def test_usage_errors(self):
        self.fails(2, "--nonsense", "run", self.net, "--nonsense")
        verbs = "there are: classify, detect, card, run, check, inspect, verify, diff, quantize, layers, report, bench, scan, devices"
        self.fails(2, f"there is no verb 'dance'; {verbs}", "dance", self.net)
        self.fails(2, "--presicion (did you mean --precision?)", "inspect", self.net, "--presicion", "bf16")
        self.fails(2, "--treads=2 (did you mean --threads?)", "bench", "conv", "--treads=2")
        self.fails(2, f"there is no verb 'clasify' (did you mean classify?); {verbs}", "clasify", self.net)
        self.assertRegex(self.passes("--version"), r"^lenslet \d+\.\d+\.\d+( \([0-9a-f]{7,}(-dirty)?\))?\n"
                         r"pictures: (libjpeg-turbo [\d.]+, libpng [\d.]+|stb_image)(, libwebp [\d.]+)?(, libheif [\d.]+)?$")
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
        # Decimal, even with leading zeros.
        self.assertEqual(self.json_of("inspect", self.net, "--threads", "010")["plan"]["threads"], 10)

    def test_one_line_means_one_line(self):
        """Control characters in names do not reach the terminal, and JSON is UTF-8."""
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
        def fixed(batch, *ops):
            ports = [port("x", FLOAT, [batch, 3, 4, 4])], [port("y", FLOAT, ["A", "B"])]
            names = ["x", *(f"v{i}" for i in range(len(ops))), "y"]
            nodes = [node(op, [names[i]], names[i + 1]) for i, op in enumerate(("Flatten", *ops))]
            return self.write(f"{'-'.join(ops)}{batch}.onnx", model(nodes, *ports))

        self.fails(2, "fixed batch of 2: ask for no other", "inspect", fixed(2, "Relu"), "--batch", "4")
        self.passes("inspect", fixed(2, "Relu"))
        self.passes("inspect", fixed(1, "Transpose"), "--batch", "4")
        mixing = fixed(1, "Transpose", "Softmax")
        why = "cannot run with a batch of 4: node softmax (Softmax): bakes in batch 1"
        self.fails(3, why, "inspect", mixing, "--batch", "4")
        self.fails(3, "ask for a batch of 1", "inspect", mixing, "--batch", "4")

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
        # "auto" on request prints a line in builds with CUDA that cannot use it, otherwise none. A script without a
        # device, or with one by the variable, gets none.
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
        known = re.search(r"\(available: (.+)\)", refused).group(1).split(", ")
        self.fails(2, "unknown or unavailable instruction set 'AVX9'", "devices", "--instruction-set", "AVX9")
        self.assertIn(self.json_of("devices")["devices"][0]["architecture"], known)
        for name in known:
            limited = self.json_of("devices", "--instruction-set", name)["devices"][0]
            self.assertEqual(limited["architecture"], name)
            # Plans, packed weights and kernels all use it.
            self.assertIn("0 exceeded", self.passes("--instruction-set", name, "verify", self.net))


class Failures(Verb):
    """Failures in every verb: output that cannot be written, memory that runs out."""

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
            last = done.stderr.splitlines()[-1]  # classify prints notes
            self.assertEqual(last, f"lenslet: error: standard output cannot be written: {reason}", arguments)

    def test_closed_streams(self):
        verbs = self.every_verb()
        for arguments in [*verbs, *((*verb, "--json") for verb in verbs), ("--help",), ("run", "--help")]:
            done = lenslet(*arguments, closed=[1])
            self.assertEqual(done.returncode, 4, (arguments, done.stderr))
            last = done.stderr.splitlines()[-1]
            self.assertEqual(last, "lenslet: error: standard output cannot be written: Bad file descriptor")
            self.assertEqual(lenslet(*arguments, closed=[0, 1, 2]).returncode, 4, arguments)
            # The lost text is a note: classify prints some.
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
            # An earlier error takes precedence.
            done = lenslet("inspect", self.folder / "missing.onnx", stdout=full)
            self.assertEqual(done.returncode, 4)
            self.assertIn("missing.onnx: ", done.stderr)
            self.assertEqual(lenslet("dance", stdout=full).returncode, 2)
            # On stderr, classify's note.
            done = lenslet(*self.every_verb()[0], before=lambda: os.dup2(full.fileno(), 2))
            self.assertEqual(done.returncode, 4)
            self.assertIn("red", done.stdout)

    def test_reader_that_has_gone(self):
        read, write = os.pipe()
        os.close(read)
        self.addCleanup(os.close, write)
        for arguments in (*self.every_verb(), ("--help",), ("run", "--help"), ("inspect", self.net, "--json")):
            done = lenslet(*arguments, stdout=write)  # as `| head` does: no error
            self.assertEqual(done.returncode, 141, (arguments, done.stderr))
            self.assertNotIn("error", done.stderr)

    def test_memory_that_runs_out(self):
        if ADDRESS_SPACE is None:
            self.skipTest("a sanitizer needs the address space")
        # The arena; the reference's doubles; and stacks of threads.
        self.fails(3, "no memory", "bench", self.net, "--batch", "10000000", "--threads", "1", limited=ADDRESS_SPACE)
        self.fails(3, "out of memory", "verify", self.net, "--batch", "150000", "--threads", "1", limited=ADDRESS_SPACE)
        self.fails(3, "thread", "bench", self.net, "--threads", "1024", limited=ADDRESS_SPACE)
        # A photo within the limits: not its fault.
        side = 6000
        header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        pixels = zlib.compress(bytes(side * (3 * side + 1)), 1)
        png = b"\x89PNG\r\n\x1a\n"
        for name, data in ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")):
            png += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        photo = self.write("black.png", png)
        classify = self.every_verb()[0][:5]
        done = lenslet(*classify, photo, "--threads", "1", limited=120 << 20)
        self.assertEqual((done.returncode, done.stderr.splitlines()[-1]), (3, "lenslet: error: out of memory"))
        self.assertEqual(lenslet(*classify, photo, "--threads", "1").returncode, 0)


if __name__ == "__main__":
    unittest.main()
