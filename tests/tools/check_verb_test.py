"""lenslet check, run as a program."""

import ctypes
import pathlib
import struct
import subprocess
import sys
import unittest

from command import FLOAT, SHARED, Verb, model, node, port, tensor_pb


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
        # Equal bits give equal digests: of outputs, not of the expected values.
        (digest,) = by_case[str(good)]["digests"]
        self.assertRegex(digest, "^[0-9a-f]{16}$")
        self.assertEqual(by_case[str(bad)]["digests"], [digest])
        self.assertEqual(by_case[str(bad)]["status"], "failed")
        self.assertIn("[1]: 2 where 2.0", by_case[str(bad)]["reason"])
        self.assertEqual(by_case[str(unknown)]["status"], "unsupported")
        # The caller sets the tolerance.
        self.passes("check", bad, "--rtol", "0.01")
        self.passes("check", bad, code=1)

    def test_each_pass_left_out(self):
        def single(value):
            return struct.unpack("<f", struct.pack("<f", value))[0]

        # A factor folded into the weight rounds differently from one after the product.
        weight, factor = single(0.7), single(0.3)
        for k in range(1, 100):
            x = single(k / 7)
            folded = single(x * single(weight * factor))
            if folded != single(single(x * weight) * factor):
                break
        folder = pathlib.Path("cases") / "folded"
        nodes = [node("Gemm", ["x", "w"], "product"), node("Mul", ["product", "factor"], "y")]
        constants = [tensor_pb("w", [1, 1], [weight]), tensor_pb("factor", [], [factor])]
        self.write(folder / "model.onnx", model(nodes, [port("x", FLOAT, [1, 1])], [port("y", FLOAT, [1, 1])], constants))
        self.write(folder / "test_data_set_0" / "input_0.pb", tensor_pb("x", [1, 1], [x]))
        self.write(folder / "test_data_set_0" / "output_0.pb", tensor_pb("y", [1, 1], [folded]))
        exactly = ("check", self.folder / folder, "--rtol", "0", "--atol", "0")
        self.passes(*exactly)
        self.assertIn("failed      ", text := self.passes(*exactly, "--each-pass", code=1))
        self.assertIn("without fold_scale: test_data_set_0: output y: 1 of 1 elements differ", text)
        self.passes("check", self.folder / folder, "--each-pass")

    def test_a_value_of_the_file_that_the_data_override(self):
        nodes = [node("Mul", ["w", "w"], "square"), node("Add", ["x", "square"], "y")]
        ports = [port("x", FLOAT, [2]), port("w", FLOAT, [2])]
        folder = self.folder / "overridden"
        self.write(folder / "model.onnx", model(nodes, ports, [port("y", FLOAT, [2])], [tensor_pb("w", [2], [1, 2])]))
        data = folder / "test_data_set_0"
        self.write(data / "input_0.pb", tensor_pb("x", [2], [10, 20]))
        self.write(data / "output_0.pb", tensor_pb("y", [2], [11, 24]))
        self.passes("check", folder)
        self.write(data / "input_1.pb", tensor_pb("w", [2], [3, -5]))
        self.passes("check", folder, code=1)
        self.write(data / "output_0.pb", tensor_pb("y", [2], [19, 45]))
        self.passes("check", folder)
        self.write(data / "input_1.pb", tensor_pb("square", [2], [3, -5]))
        self.assertIn("has 2 inputs, the model 1", self.passes("check", folder, code=1))

    def test_inputs_that_nothing_reads(self):
        for given in ({"x"}, {"x", "label"}):
            folder = pathlib.Path("cases") / "-".join(sorted(given))
            inputs = [port("label", FLOAT, [1]), port("x", FLOAT, [3])]
            self.write(folder / "model.onnx", model([node("Relu", ["x"], "y")], inputs, [port("y", FLOAT, [3])]))
            data = folder / "test_data_set_0"
            for number, name in enumerate(sorted(given)):
                values = [-1, 2, -3] if name == "x" else [5]
                self.write(data / f"input_{number}.pb", tensor_pb(name, [len(values)], values))
            self.write(data / "output_0.pb", tensor_pb("y", [3], [0, 2, 0]))
        self.assertIn("2 passed, 0 failed", self.passes("check", self.folder / "cases"))

    def test_shared_faults(self):
        """Small files that used to be refused, or computed in float16 (shared/data/faults)."""
        folder = SHARED / "faults"
        if not folder.is_dir():
            self.skipTest("shared/data/faults is not on this machine")
        names = ("question_mark_dims", "unknown_named_dims_of_two_inputs", "baked_batch4", "leftover_label")
        names += ("fp16_weights_cast_to_fp32_conv", "fp16_weights_cast_to_fp32_gemm")
        self.assertIn("6 passed, 0 failed, 0 unsupported", self.passes("check", *(folder / name for name in names)))

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


if __name__ == "__main__":
    unittest.main()
