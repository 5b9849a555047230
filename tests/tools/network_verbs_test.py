"""The verbs inspect, verify, diff, layers and bench as programs: JSON, printed text, exit codes."""

import csv
import json
import math
import os
import re
import shlex
import struct
import unittest

from command import FLOAT, Verb, initializer, lenslet, model, node, noise, port, read_npy, write_npy
from tiny_model import field


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
            self.assertAlmostEqual(step["flops"] / (2 * macs), 1, delta=0.1)  # bias and activation count, too
        names = None
        for step in convolutions:
            candidates = step["candidates"]
            names = names or [candidate["algorithm"] for candidate in candidates]
            self.assertEqual([candidate["algorithm"] for candidate in candidates], names)
            chosen = [c for c in candidates if c["algorithm"] == step["algorithm"]]
            self.assertEqual(len(chosen), 1)
            self.assertNotIn("refusal", chosen[0])
            for candidate in candidates:
                if "refusal" in candidate:
                    continue
                self.assertGreater(candidate["tolerance"], 0)
                self.assertGreater(candidate["estimated_us"], 0)
                self.assertGreaterEqual(candidate["neighbours_us"], 0)
                self.assertIn("config", candidate)
            self.assertEqual(step["config"], chosen[0]["config"])
            self.assertEqual(step["estimated_us"], chosen[0]["estimated_us"])
        # Neither is depthwise, and only the first is 3x3.
        refusals = [[c["algorithm"] for c in step["candidates"] if "refusal" in c] for step in convolutions]
        for refused in refusals:
            self.assertIn("depthwise", refused)
            self.assertNotIn("direct", refused)
        self.assertIn("winograd_f4", refusals[1])
        self.assertNotIn("winograd_f4", refusals[0])
        self.assertTrue(all(output["layout"] for step in plan["steps"] for output in step["outputs"]))
        self.assertGreaterEqual(plan["explicit_paddings"], 0)
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
        heads = r"\n *offset +bytes +steps value\n"
        self.assertNotRegex(text, heads)
        self.assertRegex(self.passes("inspect", self.net, "--memory-map"), heads)

    def test_inputs_that_nothing_reads_and_first_dimensions_that_are_no_batch(self):
        """A net for four images with a free first dimension, beside a label."""
        weights = initializer("w", [4, 2], noise(8, 1))
        ports = [port("label", FLOAT, [2]), port("x", FLOAT, ["frames", 6])]
        nodes = [node("Transpose", ["x"], "t"), node("MatMul", ["t", "w"], "y")]
        net = self.write("four.onnx", model(nodes, ports, [port("y", FLOAT, [6, 2])], [weights]))
        hint = "input x [frames,6] was taken for a batch of 1: --batch or --shape"
        for verb in ("inspect", "verify", "bench", "layers"):
            self.fails(3, hint, verb, net)
            for options in (("--batch", "4"), ("--shape", "x=4x6")):
                done = lenslet(verb, net, *options, "--device", "cpu")
                self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("label float32 [2], planned [2]; no node reads it", self.passes("inspect", net, "--batch", "4"))
        write_npy(self.folder / "x.npy", [4, 6], noise(24, 2))
        self.passes("run", net, "--input", self.folder / "x.npy", "--output-dir", self.folder)
        self.assertEqual(read_npy(self.folder / "y.npy")[0], (6, 2))

    def test_inputs_that_nothing_reads_of_types_that_no_tensor_has(self):
        """Strings, a sequence, no type at all: not listed. Without a shape: listed, and optional."""
        types = {
            "strings": field(1, field(1, 8) + field(2, field(1, field(2, "N")))),
            "a sequence": field(4, field(1, field(1, field(1, 1)))),
            "untyped": b"",
            "of any element": field(1, field(2, field(1, field(2, "N")))),
            "without a shape": field(1, field(1, FLOAT)),
        }
        nodes = [node("GlobalAveragePool", ["x"], "mean"), node("Flatten", ["mean"], "y")]
        write_npy(self.folder / "image.npy", [1, 3, 4, 4], noise(48, 3))
        write_npy(self.folder / "label.npy", [2], [1, 2])
        for what, kind in types.items():
            label = field(1, "label") + field(2, kind)
            for inputs in ([label, port("x", FLOAT, ["N", 3, 4, 4])], [port("x", FLOAT, ["N", 3, 4, 4]), label]):
                net = self.write("label.onnx", model(nodes, inputs, [port("y", FLOAT, ["N", 3])]))
                with self.subTest(what):
                    seen = self.passes("inspect", net, "--batch", "2")
                    self.assertEqual("label float32 [], planned []; no node reads it" in seen, what == "without a shape")
                    self.passes("verify", net)
                    both = [f"--input={name}={self.folder / file}.npy" for name, file in (("x", "image"), ("label", "label"))]
                    for given in ([both[:1], both] if what == "without a shape" else [both[:1]]):
                        self.passes("run", net, *given, "--output-dir", self.folder)
                        means = [sum(noise(48, 3)[16 * c : 16 * c + 16]) / 16 for c in range(3)]
                        for mean, y in zip(means, read_npy(self.folder / "y.npy")[1], strict=True):
                            self.assertAlmostEqual(mean, y, delta=1e-6)
            nodes_of_it = [*nodes, node("Identity", ["label"], "z")]
            net = self.write("read.onnx", model(nodes_of_it, [port("x", FLOAT, [1, 3, 4, 4]), label], [port("z", FLOAT, [])]))
            self.fails(3, "input 'label'", "inspect", net)

    def test_every_stage(self):
        done = lenslet("inspect", self.net, "--after", "nonsense")
        self.assertEqual(done.returncode, 2)
        stages = done.stderr.strip().split("{")[1].rstrip("}").split(",")
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
        shapes = "give a shape for each input with free dimensions: x [N,3,H,W] (--shape x=1x3x?x?)"
        # What is known is printed, and the command that plans it.
        self.fails(2, shapes, "inspect", file, "--json")
        done = lenslet("inspect", file)
        self.assertEqual((done.returncode, done.stderr), (2, lenslet("inspect", file, "--json").stderr))
        known = done.stdout
        self.assertIn("input x float32 [N,3,H,W]\noutput y float32 [N,4,P,Q]\n", known)
        words = shlex.split(known.splitlines()[-1].partition(": ")[2])
        self.assertEqual(words, ["lenslet", "inspect", str(file), "--shape", "x=1x3x<H>x<W>"])
        numbers = [re.sub("<.>", "9", word) for word in words[1:]]
        self.assertIn("planned [1,3,9,9]", self.passes(*numbers))
        text = self.passes("inspect", file, "--shape", "x=1x3x9x7")
        self.assertIn("x float32 [N,3,H,W], planned [1,3,9,7]; free: N (--batch), H, W (--shape)\n", text)
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
        # The outputs of all, for each algorithm and the rest.
        outputs = document["outputs"]
        self.assertEqual(document["different"], 0)
        self.assertLessEqual(algorithms, {output.get("conv_algorithm") for output in outputs} | {"packed", "few_rows"})
        for output in outputs:
            self.assertEqual((output["name"], output["passed"]), ("y", True))
            self.assertLess(0, output["error"])
            self.assertLess(output["error"], output["tolerance"])
            self.assertLess(output["tolerance"], 0.1)
        self.assertIn("1 outputs compared with the file's network in double precision, 0 differ", self.passes("verify", self.net))

    def test_sparse_results(self):
        # A detector's head: one score near 1 among a hundred thousand of 1e-9, each accurate to float32's last digits.
        count = 100000
        ports = [port("x", FLOAT, [count])]
        file = self.write("scores.onnx", model([node("Sigmoid", ["x"], "y")], ports, [port("y", FLOAT, [count])]))
        x = self.folder / "x.npy"
        values = [-20 + value for value in noise(count, 9)]
        values[777], values[4242] = 1.3, 0.4
        write_npy(x, (count,), values)
        layer = self.json_of("verify", file, "--input", x)["layers"][0]
        self.assertLess(layer["error"], 1e-6)

    def test_one_algorithm(self):
        self.fails(3, "winograd_f4 refuses", "verify", self.net, "--conv-algorithm", "winograd_f4", "--strict")
        where = ("verify", self.net, "--conv-algorithm", "winograd_f4")
        done = lenslet(*where, "--json")
        self.assertIn("1 layer keeps the rule's choice (", done.stderr)
        algorithms = [layer.get("algorithm") for layer in json.loads(done.stdout)["layers"] if layer["op"] == "Conv"]
        self.assertEqual(len(algorithms), 2)
        self.assertEqual(algorithms.count("winograd_f4"), 1)

    def test_it_can_fail(self):
        # Beyond float32, within double: the layer has an infinite error, and verify must report it.
        ports = [port("x", FLOAT, [4])]
        file = self.write("square.onnx", model([node("Mul", ["x", "x"], "y")], ports, [port("y", FLOAT, [4])]))
        x = self.folder / "x.npy"
        write_npy(x, (4,), [1, 2, 3, 1e30])
        document = self.json_of("verify", file, "--input", x, code=1)
        self.assertEqual((document["checked"], document["exceeded"], document["different"]), (1, 1, 1))
        self.assertEqual((document["layers"][0]["error"], document["layers"][0]["passed"]), ("infinite", False))
        self.assertIn("EXCEEDED", self.passes("verify", file, "--input", x, code=1))
        write_npy(x, (4,), [1, 2, 3, 4])
        self.passes("verify", file, "--input", x)

    def test_infinities_and_nan(self):
        # Equal to the reference: reported as agreement for every algorithm.
        x = self.folder / "x.npy"
        values = noise(3 * 12 * 10, 5)
        for value in (math.nan, math.inf, -math.inf):
            write_npy(x, (1, 3, 12, 10), values[:65] + [value] + values[66:])
            document = self.json_of("verify", self.net, "--conv-algorithm", "all", "--input", x)
            self.assertEqual((document["exceeded"], document["unchecked"]), (0, 0))
            first = [layer for layer in document["layers"] if layer["name"] == document["layers"][0]["name"]]
            self.assertGreater(len(first), 3)
            for layer in first:
                self.assertGreater(layer["not_finite"], 0, layer)
                # Where Winograd spreads a NaN to other outputs, it is reported; f2 keeps a NaN within its windows.
                spread = layer["algorithm"].startswith("winograd") and (
                    not math.isnan(value) or layer["algorithm"] != "winograd_f2"
                )
                self.assertEqual("made_nan" in layer, spread, layer)
            write_npy(x, (1, 3, 12, 10), [value] * 360)
            self.assertEqual(self.json_of("verify", self.net, "--conv-algorithm", "all", "--input", x)["exceeded"], 0)
        write_npy(x, (1, 3, 12, 10), values[:65] + [math.nan] + values[66:])
        text = self.passes("verify", self.net, "--conv-algorithm", "all", "--input", x, "--wide")
        self.assertRegex(text, r"winograd_f4 .* ok; \d+ infinite or NaN by the reference; \d+ made NaN by winograd_f4")
        self.assertIn("0 exceeded", text)
        # A NaN without one among the inputs is an error: here inf - inf, from squares that only double represents.
        ports = [port("x", FLOAT, [4])]
        nodes = [node("Mul", ["x", "x"], "square"), node("Sub", ["square", "square"], "y")]
        file = self.write("lost.onnx", model(nodes, ports, [port("y", FLOAT, [4])]))
        write_npy(x, (4,), [1, 2, 3, 1e30])
        layers = self.json_of("verify", file, "--input", x, code=1)["layers"]
        self.assertEqual([layer["passed"] for layer in layers], [False, True])
        self.assertEqual(layers[1]["not_finite"], 1)


class Diff(Verb):
    def setUp(self):
        super().setUp()
        self.x, self.dump = self.folder / "x.npy", self.folder / "dump"
        write_npy(self.x, (1, 3, 12, 10), noise(360, 8))

    def rows(self, document):
        return {row["name"]: row for row in document["values"]}

    def test_settings_of_one_model(self):
        other = ("diff", self.net, "--against-conv-algorithm", "direct", "--against-threads", "1")
        document = self.json_of(*other, "--conv-algorithm", "im2col", "--threads", "2")
        self.assertEqual((document["beyond"], document["first"]), (0, None))
        self.assertEqual((document["only_in_model"], document["only_in_against"]), (0, 0))
        names = [row["name"] for row in document["values"]]
        self.assertEqual((names[0], names[-1]), ("r1", "y"))
        self.assertEqual(document["compared"], len(names))
        # Sums in another order: rounding, which a small tolerance finds.
        errors = [row["error"] for row in document["values"]]
        self.assertTrue(0 < max(errors) < 1e-5, errors)
        strict = self.json_of(*other, "--conv-algorithm", "im2col", "--tolerance", "0", code=1)
        self.assertEqual(strict["first"], next(row["name"] for row in strict["values"] if row["error"] > 0))
        same = self.json_of("diff", self.net, "--against", self.net, "--tolerance", "0")
        self.assertTrue(all(row["error"] == 0 for row in same["values"]))

    def test_outputs_of_another_layout(self):
        ports = [port("x", FLOAT, [1, 3, 12, 10])], [port("y", FLOAT, [1, 8, 10, 8])]
        weights = [initializer("w", [8, 3, 3, 3], noise(216, 1))]
        file = self.write("conv.onnx", model([node("Conv", ["x", "w"], "y")], *ports, weights))
        packed = ("--conv-algorithm", "direct_packed", "--strict")
        self.assertIn("y:nchw", self.passes("inspect", file, *packed, "--after", "plan"))
        document = self.json_of("diff", file, *packed, "--against-conv-algorithm", "direct")
        self.assertEqual([(row["name"], row["op"]) for row in document["values"]], [("y", "Conv")])
        self.assertEqual((document["only_in_model"], document["only_in_against"]), (0, 0))

    def test_where_two_models_part(self):
        weights = struct.pack("<40f", *noise(40, 3))
        changed = struct.pack("<40f", *[value * (1.01 if i == 7 else 1) for i, value in enumerate(noise(40, 3))])
        self.assertIn(weights, self.net.read_bytes())
        other = self.write("other.onnx", self.net.read_bytes().replace(weights, changed))
        document = self.json_of("diff", self.net, "--against", other, code=1)
        rows = self.rows(document)
        self.assertEqual((document["first"], rows["r1"]["error"]), ("c2", 0))
        self.assertTrue(1e-4 < rows["c2"]["error"] < 0.1 and rows["c2"]["parts"], rows)
        self.assertEqual(rows["c2"]["op"], "Conv")
        text = self.passes("diff", self.net, "--against", other, code=1)
        self.assertRegex(text, r"(?m)^c2 .* Conv .* <- parts here$")
        self.assertIn("the first: c2; ", text)
        self.assertEqual(self.json_of("diff", self.net, "--against", other, "--tolerance", "0.5")["first"], None)

    def test_values_of_a_folder(self):
        self.passes("run", self.net, "--input", self.x, "--all-values", self.dump, "--output-dir", self.folder)
        document = self.json_of("diff", self.net, "--against", self.dump, "--tolerance", "0")
        self.assertEqual((document["beyond"], document["only_in_against"]), (0, 0))
        shape, values = read_npy(self.dump / "c2.npy")
        rms = math.sqrt(sum(value * value for value in values) / len(values))
        values[11] += 0.5 * rms
        write_npy(self.dump / "c2.npy", shape, values)
        (self.dump / "r1.npy").rename(self.dump / "renamed.npy")
        document = self.json_of("diff", self.net, "--against", self.dump, code=1)
        rows = self.rows(document)
        self.assertEqual((document["first"], document["only_in_model"], document["only_in_against"]), ("c2", 1, 1))
        self.assertAlmostEqual(rows["c2"]["error"], 0.5, delta=0.01)
        self.assertFalse(rows["y"]["parts"])
        write_npy(self.dump / "y.npy", (5, 1), read_npy(self.dump / "y.npy")[1])
        write_npy(self.dump / "c2.npy", shape, [math.nan if i == 3 else value for i, value in enumerate(values)])
        rows = self.rows(self.json_of("diff", self.net, "--against", self.dump, code=1))
        self.assertEqual((rows["y"]["shapes"], rows["c2"]["error"]), ("[1,5] against [5,1]", "infinite"))
        # Inputs come from the folder unless given.
        write_npy(self.x, (1, 3, 12, 10), noise(360, 9))
        self.json_of("diff", self.net, "--against", self.dump, "--input", self.x, code=1)
        (self.dump / "x.npy").unlink()
        self.fails(2, "there is no x.npy of the model's input", "diff", self.net, "--against", self.dump)

    def test_what_makes_no_sense(self):
        self.fails(2, "--against is missing", "diff", self.net)
        self.dump.mkdir()
        self.fails(2, "--against is a folder", "diff", self.net, "--against", self.dump, "--against-threads", "1")
        self.fails(2, "no value of", "diff", self.net, "--against", self.dump, "--input", self.x)
        self.fails(2, "--scale", "diff", self.net, "--against", self.net, "--input", self.x, "--scale", "1")
        ports = [port("a", FLOAT, [2]), port("b", FLOAT, [2])], [port("c", FLOAT, [2])]
        two = self.write("two.onnx", model([node("Add", ["a", "b"], "c")], *ports))
        self.fails(2, "different inputs: x float32 [N,3,12,10] against a", "diff", self.net, "--against", two)
        self.fails(2, "--against-precision", "diff", self.net, "--against-precision", "fp8")
        self.fails(4, "missing.onnx", "diff", self.net, "--against", self.folder / "missing.onnx")


class Layers(Verb):
    short = ("--seconds", "0", "--threads", "1")

    def layers(self, *options, code=0):
        return self.json_of("layers", self.net, *self.short, *options, code=code)["layers"]

    def test_json(self):
        document = self.json_of("layers", self.net, *self.short)
        self.assertGreater(document["peak"]["fma_gflops"], 0)
        self.assertEqual(document["threads"], 1)
        convolutions = [row for row in document["layers"] if row["op"] == "Conv"]
        self.assertEqual(len(convolutions), 2)
        planned = {step["name"]: step for step in self.json_of("inspect", self.net, "--threads", "1")["plan"]["steps"]}
        for row in convolutions:
            step = planned[row["name"]]
            self.assertEqual((row["algorithm"], row["reason"], row["problem"], row["bytes"]),
                             (step["algorithm"], step["reason"], step["problem"], step["bytes"]))
            self.assertIn(f"then {row['runner_up']} ", row["reason"])
            self.assertTrue(0 < row["p10_ms"] <= row["ms"] <= row["p90_ms"], row)
            self.assertGreater(row["floor_ms"], 0)
            self.assertAlmostEqual(row["percent_of_floor"], 100 * row["floor_ms"] / row["ms"])
            self.assertEqual("above_100_because" in row, row["percent_of_floor"] > 100)
            self.assertTrue(0 < row["error"] <= row["tolerance"], row)
            # `bench conv` can read the problem's text.
            again = self.json_of("bench", "conv", "--problem", row["problem"], *self.short)["problems"][0]
            self.assertEqual(again["problem"], row["problem"])
            self.assertEqual(again["algorithms"][0]["algorithm"], row["algorithm"])
        self.assertFalse(any("error" in row for row in self.layers("--no-errors")))

    def test_order(self):
        for key, member in (("time", "ms"), ("bytes", "bytes")):
            values = [row[member] for row in self.layers("--no-errors", "--sort", key)]
            self.assertEqual(values, sorted(values, reverse=True))
        shares = [row["percent_of_floor"] for row in self.layers("--no-errors", "--sort", "share")]
        self.assertEqual(shares, sorted(shares))
        self.fails(2, "--sort", "layers", self.net, "--sort", "nonsense")

    def test_one_layer(self):
        names = [row["name"] for row in self.layers("--no-errors")]
        text = self.passes("layers", self.net, "--layer", names[-1], *self.short)
        self.assertTrue(text.startswith(f"{names[-1]}: "), text)
        self.assertIn("of an element's terms, tolerance", text)
        self.assertEqual([row["name"] for row in self.layers("--layer", names[1], "--layer", names[0])],
                         [names[1], names[0]])
        for wrong in (("--layer", "nobody"), ("--layer", names[0], "--layer", "nobody")):  # before an hour of measuring
            self.fails(2, "no layer is called 'nobody'", "layers", self.net, *wrong, "--seconds", "3600")

    def test_what_to_do(self):
        first = next(row["name"] for row in self.layers("--no-errors") if row["op"] == "Conv")
        options = ("--no-errors", "--conv-algorithm", f"{first}=direct", *self.short)
        document = self.json_of("layers", self.net, *options)
        (forced,) = [row for row in document["layers"] if row["name"] == first]
        self.assertRegex(forced["advice"], "^Forced by --conv-algorithm; without it .* is likely faster.$")
        (said,) = [one for one in document["advice"] if one["text"] == forced["advice"]]
        self.assertEqual([document["layers"][i] for i in said["layers"]], [forced])
        self.assertEqual(said["ms"], forced["ms"])
        self.assertIn(f"what to do {forced['advice']}", " ".join(self.passes("layers", self.net, "--layer", first, *options).split()))
        self.assertRegex(self.passes("layers", self.net, *options), rf"what to do\n(- .*\n.*)*- {forced['advice']}\n.* most in {first}\n")

    def test_one_algorithm_for_one_layer(self):
        convolutions = [row for row in self.layers("--no-errors") if row["op"] == "Conv"]
        other = convolutions[0]["runner_up"]
        forced = self.layers("--no-errors", "--conv-algorithm", f"{convolutions[0]['name']}={other}")
        forced = [(row["algorithm"], row["reason"]) for row in forced if row["op"] == "Conv"]
        self.assertEqual(forced, [(other, "forced"), (convolutions[1]["algorithm"], convolutions[1]["reason"])])
        # A layer that refuses keeps the rule's choice, which is reported; --strict makes it an error.
        wanted = ("layers", self.net, *self.short, "--conv-algorithm", f"{convolutions[0]['name']}=depthwise")
        done = lenslet(*wanted)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 layer keeps the rule's choice", done.stderr)
        self.assertIn("depthwise refuses: ", lenslet(*wanted, "--wide").stdout)
        self.fails(3, "depthwise refuses", *wanted, "--strict")
        self.fails(2, "no step that has algorithms is called 'nobody'", *wanted[:-1], "nobody=direct")
        self.fails(2, "no algorithm of Conv is called 'x'", *wanted[:-1], f"{convolutions[0]['name']}=x")

    def test_csv(self):
        rows = list(csv.DictReader(self.passes("layers", self.net, "--csv", *self.short).splitlines()))
        self.assertEqual([row["name"] for row in rows], [row["name"] for row in self.layers()])
        self.assertTrue(all(float(row["ms"]) > 0 for row in rows))
        self.assertIn(", then ", next(row["reason"] for row in rows if row["op"] == "Conv"))
        self.fails(2, "--csv", "layers", self.net, "--csv", "--json")
        fewer = list(csv.reader(self.passes("layers", self.net, "--csv", "--no-errors", *self.short).splitlines()))
        self.assertEqual(fewer[0], list(rows[0]))  # whatever the layers are
        members = set().union(*self.layers())
        self.assertLessEqual(members, set(rows[0]))
        self.fails(2, "exclude", "layers", self.net, "--no-errors", "--sort", "error")

    def test_trace(self):
        file = self.folder / "trace.json"
        self.passes("layers", self.net, "--no-errors", "--trace", file, *self.short)
        events = json.loads(file.read_text())["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        self.assertEqual(list(lanes.values()), [f"thread {n}" for n in lanes])
        names = [row["name"] for row in self.layers("--no-errors")]
        self.assertEqual([*dict.fromkeys(event["name"] for event in slices if "args" in event)], names)
        self.assertTrue(all(event["args"]["name"] == event["name"] for event in slices if "args" in event))
        for before, after in zip(slices, slices[1:]):
            if before["tid"] == after["tid"]:
                self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 1e-6)
        missing = self.folder / "none" / "t.json"
        self.fails(4, "cannot be written", "layers", self.net, "--trace", missing, "--seconds", "3600")
        # A reader of the old file still gets all of it.
        with file.open() as old:
            before = os.fstat(old.fileno()).st_ino
            self.passes("layers", self.net, "--no-errors", "--trace", file, *self.short)
            self.assertEqual(json.load(old)["traceEvents"], events)
            self.assertNotEqual(file.stat().st_ino, before)


class Bench(Verb):
    def test_json(self):
        options = ("--batch", "1,2", "--threads", "1", "--seconds", "0.01", "--per-layer")
        document = self.json_of("bench", self.net, *options)
        self.assertEqual([result["batch"] for result in document["results"]], [1, 2])
        for result in document["results"]:
            ms = result["ms"]
            self.assertTrue(0 < ms["p10"] <= ms["median"] <= ms["p90"], ms)
            self.assertGreaterEqual(result["runs"], 5)
            self.assertEqual(result["threads"], 1)
            self.assertGreater(result["peak"]["fma_gflops"], 0)
            self.assertGreater(result["peak"]["copy_gb_per_s"], 0)
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
        self.assertIn("layers of net.onnx at batch 1, 1 threads", text)
        for batch in ("0", "-1", "x", ""):
            self.assertEqual(lenslet("bench", self.net, "--batch", batch, "--seconds", "0").returncode, 2, batch)
        # The list ends with its option: the model follows.
        document = self.json_of("bench", "--seconds", "0", "--threads", "1", "--batch", "1,2", self.net)
        self.assertEqual([result["batch"] for result in document["results"]], [1, 2])

    def test_many_models_and_threads(self):
        options = ("--seconds", "0", "--threads", "1,2", "--warmup", "1", "--batch", "1,2")
        document = self.json_of("bench", self.net, self.net, *options)
        rows = [(row["model"], row["batch"], row["threads"]) for row in document["results"]]
        self.assertEqual(rows, 2 * [("net.onnx", batch, threads) for batch in (1, 2) for threads in (1, 2)])
        text = self.passes("bench", self.net, self.net, "--seconds", "0", "--threads", "1,2")
        self.assertEqual(text.count("net.onnx"), 4)
        self.assertEqual(text.count("measured limits with"), 2)
        # One that cannot run does not stop the others; of one that is missing none is timed.
        damaged = self.write("damaged.onnx", b"\xff")
        done = lenslet("bench", damaged, self.net, "--seconds", "0", "--threads", "1", "--json")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("damaged.onnx", done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["results"]), 1)
        done = self.fails(4, "nothing.onnx: cannot be opened", "bench", self.net, self.folder / "nothing.onnx")
        self.assertEqual(lenslet("bench", self.net, self.folder / "nothing.onnx").stdout, "")
        for wrong in ("0", "-1", "x"):
            self.assertEqual(lenslet("bench", self.net, "--warmup", wrong).returncode, 2)

    def test_where_it_was_measured(self):
        for verb in (("bench", self.net, "--seconds", "0"), ("inspect", self.net), ("verify", self.net), ("devices",)):
            machine = self.json_of(*verb)["machine"]
            self.assertRegex(machine["lenslet"], r"^\d+\.\d+\.\d+$")
            self.assertRegex(machine["commit"], r"^([0-9a-f]{7,}(-dirty)?)?$")
            self.assertGreater(machine["cores"], 0)
            self.assertGreater(machine["threads"], 0)
            self.assertTrue({"cpu", "instruction_set"} <= machine.keys())

    def test_plans_of_a_gpu_that_is_not_there(self):
        options = ("bench", "conv", "--drawn", "20", "--plans", "--json")
        for profile, precision in (("h200", "fp16"), ("h100", "tf32"), ("a100", "bf16")):
            lines = self.passes(*options, "--profile", profile, "--precision", precision).splitlines()
            problems = [json.loads(line) for line in lines]
            self.assertEqual([problem["name"] for problem in problems], [f"drawn.1.{i}" for i in range(20)])
            for problem in problems:
                offered = [row for row in problem["algorithms"] if "refused" not in row]
                chosen = [row for row in offered if row["chosen"]]
                self.assertEqual(len(chosen), 1, problem)
                cost = lambda row: row["estimated_us"] + row["neighbours_us"]
                self.assertEqual(cost(chosen[0]), min(map(cost, offered)))
            hopper = {row["algorithm"] for problem in problems for row in problem["algorithms"]
                      if row["algorithm"].startswith("wgmma") and "refused" not in row}
            self.assertEqual(bool(hopper), profile != "a100")
        text = self.passes(*options[:-1], "--profile", "h200", "--algorithm", "implicit_gemm", "--wide")
        head, rows = text.splitlines()[:4], text.splitlines()[4:]
        self.assertRegex(head[0], r"^NVIDIA H200 in fp32, not measured: [\d.]+ TFLOP/s, \d+ GB/s")
        self.assertEqual(len(rows), 20)
        for row in rows:
            if "refused" not in row:
                self.assertRegex(row, r"implicit_gemm(?: \*)? +[\d.]+ +[\d.]+ +(?:flops|bytes) +[\d.e-]+ tile=")
        self.fails(3, "the CPU computes in fp32 and bf16, not fp16; --plans --profile h100", "bench", "conv", "--drawn", "1", "--plans",
                   "--device", "cpu", "--precision", "fp16")
        self.fails(2, "--plans", "bench", "conv", "--drawn", "1", "--profile", "h200")

    def test_plans_of_every_configuration(self):
        options = ("bench", "conv", "--problem", "64,128,28,28,128,3,3,1,1", "--plans", "--profile", "h200", "--precision",
                   "fp16", "--json")
        (problem,) = map(json.loads, self.passes(*options, "--configs").splitlines())
        (best,) = map(json.loads, self.passes(*options).splitlines())
        rows = [row for row in problem["algorithms"] if row["algorithm"] == "wgmma_gemm"]
        self.assertEqual(rows[0], next(row for row in best["algorithms"] if row["algorithm"] == "wgmma_gemm"))
        self.assertEqual([row["chosen"] for row in rows], [True] + [False] * (len(rows) - 1))
        self.assertIn("tile=64x32 split_k=8", [row["config"] for row in rows])
        times = [row["estimated_us"] for row in rows]
        self.assertEqual(times, sorted(times))
        self.fails(2, "--plans", "bench", "conv", "--drawn", "1", "--configs")

    def test_single_convolutions(self):
        options = ("bench", "conv", "--problem", "1,8,10,9,8,3,3,1,1", "--threads", "1", "--seconds", "0")
        every = self.json_of(*options, "--all-algorithms")["problems"][0]
        self.assertGreater(every["floor_us"], 0)
        chosen = [row for row in every["algorithms"] if row["chosen"]]
        self.assertEqual(len(chosen), 1)
        self.assertEqual(self.json_of(*options)["problems"][0]["algorithms"][0]["algorithm"], chosen[0]["algorithm"])
        for row in every["algorithms"]:
            self.assertTrue("refused" in row or row["us"] > 0 and row["estimated_us"] > 0, row)
            self.assertTrue("refused" in row or row["error"] <= row["tolerance"], row)
        # A configuration that is not the kernel's own choice.
        one = (*options, "--algorithm", "im2col")
        (row,) = self.json_of(*one, "--config", "rows=7 whole=no")["problems"][0]["algorithms"]
        self.assertEqual((row["algorithm"], row["config"]), ("im2col", "rows=7 whole=no"))
        self.assertLessEqual(row["error"], row["tolerance"])
        self.assertNotIn("estimated_us", row)
        self.assertIn("rows=7 whole=no", self.passes(*one, "--wide", "--config", "rows=7 whole=no"))
        self.fails(2, "rows=0", *one, "--config", "rows=0 whole=no", "--json")
        self.fails(2, "--config", *options, "--config", "rows=7 whole=no")
        self.fails(2, "im2col", *options, "--algorithm", "nonsense")
        self.fails(2, "precision", *options, "--precision", "fp8")


if __name__ == "__main__":
    unittest.main()
