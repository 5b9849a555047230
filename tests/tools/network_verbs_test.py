"""The verbs inspect, verify, bench and classify, from outside: JSON, what is printed, exit codes. And the shared
acceptance data, where it is there."""

import json
import math
import os
import subprocess
import sys
import unittest
import unittest.mock

from command import (
    ADDRESS_SPACE, FLOAT, ROOT, SHARED, Verb, field, initializer, lenslet, model, node, noise, port, write_npy,
)


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
        self.assertNotIn("  steps        value", text)
        self.assertIn("  steps        value", self.passes("inspect", self.net, "--memory-map"))

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

    def test_one_algorithm(self):
        self.fails(3, "winograd_f4 refuses", "verify", self.net, "--conv-algorithm", "winograd_f4")
        where = ("verify", self.net, "--conv-algorithm", "winograd_f4", "--where-accepted")
        algorithms = [layer.get("algorithm") for layer in self.json_of(*where)["layers"] if layer["op"] == "Conv"]
        self.assertEqual(len(algorithms), 2)
        self.assertEqual(algorithms.count("winograd_f4"), 1)

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

    def test_infinities_and_nan(self):
        # As the reference has them: agreement, told, for every algorithm.
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
                # Where Winograd makes NaN of what the reference has otherwise, it says so; f2 keeps a NaN to its windows.
                spread = layer["algorithm"].startswith("winograd") and (
                    not math.isnan(value) or layer["algorithm"] != "winograd_f2"
                )
                self.assertEqual("made_nan" in layer, spread, layer)
            write_npy(x, (1, 3, 12, 10), [value] * 360)
            self.assertEqual(self.json_of("verify", self.net, "--conv-algorithm", "all", "--input", x)["exceeded"], 0)
        write_npy(x, (1, 3, 12, 10), values[:65] + [math.nan] + values[66:])
        text = self.passes("verify", self.net, "--conv-algorithm", "all", "--input", x)
        self.assertRegex(text, r"winograd_f4 .* ok; \d+ infinite or NaN by the reference; \d+ made NaN by winograd_f4")
        self.assertIn("0 exceeded", text)
        # A NaN without one among the inputs is an error: here inf - inf, of squares that only double holds.
        ports = [port("x", FLOAT, [4])]
        nodes = [node("Mul", ["x", "x"], "square"), node("Sub", ["square", "square"], "y")]
        file = self.write("lost.onnx", model(nodes, ports, [port("y", FLOAT, [4])]))
        write_npy(x, (4,), [1, 2, 3, 1e30])
        layers = self.json_of("verify", file, "--input", x, code=1)["layers"]
        self.assertEqual([layer["passed"] for layer in layers], [False, True])
        self.assertEqual(layers[1]["not_finite"], 1)


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
        # The list ends at its option: what follows is the model.
        document = self.json_of("bench", "--seconds", "0", "--threads", "1", "--batch", "1,2", self.net)
        self.assertEqual([result["batch"] for result in document["results"]], [1, 2])

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
        # A configuration that the kernel would not take by itself.
        one = (*options, "--algorithm", "im2col")
        (row,) = self.json_of(*one, "--config", "rows=7 whole=no")["problems"][0]["algorithms"]
        self.assertEqual((row["algorithm"], row["config"]), ("im2col", "rows=7 whole=no"))
        self.assertLessEqual(row["error"], row["tolerance"])
        self.assertNotIn("estimated_us", row)
        self.assertIn("rows=7 whole=no", self.passes(*one, "--config", "rows=7 whole=no"))
        self.fails(2, "rows=0", *one, "--config", "rows=0 whole=no", "--json")
        self.fails(2, "--config", *options, "--config", "rows=7 whole=no")
        self.fails(2, "im2col", *options, "--algorithm", "nonsense")
        self.fails(2, "precision", *options, "--precision", "fp8")


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
        self.assertEqual(set(document), {"model", "device", "preparation", "assumed", "results"})
        self.assertIn("RGB", document["preparation"])
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

    def test_preparation_on_the_command_line(self):
        red = self.folder / "red.ppm"

        def preparation(*options):
            done = lenslet(*self.model, "--json", *options, red)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        plain = preparation()
        changed = preparation("--mean", "1,2,3", "--std", "4", "--scale", "2", "--bgr")
        self.assertIn("(pixel * 2 - [1, 2, 3]) / [4, 4, 4]", changed["preparation"])
        self.assertIn("BGR", changed["preparation"])
        self.assertNotEqual(plain["preparation"], changed["preparation"])
        self.assertEqual(plain["assumed"], changed["assumed"])
        # Blue and red changed places.
        self.assertEqual(preparation("--bgr")["results"][0]["top"][0]["label"], "blue")
        self.fails(2, "2 values", *self.model, "--mean", "1,2", red)
        self.fails(2, "0", *self.model, "--std", "0", red)
        self.fails(2, "number", *self.model, "--mean", "nan", red)
        self.fails(2, "size", *self.model, "--size", "1,2,3", red)
        wrong_size = lenslet(*self.model, "--size", "9", red)
        self.assertEqual(wrong_size.returncode, 2)
        self.assertIn("[9, 9] contradicts", wrong_size.stderr)

    def test_what_is_no_classifier(self):
        nodes = [node("Relu", ["x"], "y")]
        file = self.write("picture.onnx", model(nodes, [port("x", FLOAT, [1, 3, 4, 4])], [port("y", FLOAT, [1, 3, 4, 4])]))
        done = lenslet("classify", "--model", file, self.folder / "red.ppm")
        self.assertEqual(done.returncode, 3)
        self.assertIn("[1,3,4,4] is no list of classes", done.stderr)

    def test_scores_that_are_no_probabilities(self):
        card = {"input": {"size": [4, 4]}, "output": {"softmax": False}}
        nodes = [node("GlobalAveragePool", ["x"], "y")]
        file = self.write("scores.onnx", model(nodes, [port("x", FLOAT, [1, 3, 4, 4])], [port("y", FLOAT, [1, 3, 1, 1])]))
        self.write("scores.card.json", json.dumps(card).encode())
        options = ("classify", "--model", file, self.folder / "red.ppm")
        done = lenslet(*options)
        self.assertNotIn("%", done.stdout)
        self.assertRegex(done.stdout, r"score +\d+")
        top = json.loads(lenslet(*options, "--json").stdout)["results"][0]["top"][0]
        self.assertEqual(set(top), {"index", "label", "score"})

    def test_names_of_imagenet_are_assumed(self):
        axis = field(5, field(1, "axis") + field(3, 1) + field(20, 2))  # an INT attribute
        nodes = [node("GlobalAveragePool", ["x"], "p"), node("Concat", ["p"] * 500, "y") + axis]
        file = self.write("many.onnx", model(nodes, [port("x", FLOAT, [1, 3, 4, 4])], [port("y", FLOAT, [1, 1500, 1, 1])]))
        options = ("classify", "--model", file, self.folder / "red.ppm", "--json")
        self.write("imagenet-labels.txt", "".join(f"name{i}\n" for i in range(1000)).encode())

        def labels(offset):
            card = {"input": {"size": [4, 4]}, "output": {"softmax": True, "class_offset": offset}}
            self.write("many.card.json", json.dumps(card).encode())
            with unittest.mock.patch.dict(os.environ, LENSLET_CACHE=str(self.folder)):
                done = lenslet(*options)
            return [top["label"] for top in json.loads(done.stdout)["results"][0]["top"]], done.stderr

        names, note = labels(500)
        self.assertTrue(all(name.startswith("name") for name in names), names)
        self.assertIn("assuming ImageNet's", note)
        names, note = labels(0)
        self.assertEqual(set(names), {""})
        self.assertNotIn("ImageNet's", note)

    def test_bad_links_do_not_end_a_folder(self):
        photos = self.folder / "photos"
        photos.mkdir()
        (self.folder / "red.ppm").rename(photos / "red.ppm")
        (photos / "loop.ppm").symlink_to("loop.ppm")
        (photos / "nowhere.ppm").symlink_to("missing")
        done = lenslet(*self.model, "--json", photos)
        self.assertEqual(done.returncode, 1, done.stderr)
        loop, nowhere, red = json.loads(done.stdout)["results"]
        self.assertIn("symbolic links", loop["error"])
        self.assertEqual(nowhere["error"], "there is no such file")
        self.assertEqual(red["top"][0]["label"], "red")

    def test_what_is_no_card(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for file, reason in ((fifo, "no regular file"), (self.folder, "a folder"), ("/proc/version", "as in /proc")):
            if not os.path.exists(file):
                continue
            for option in ("--card", "--labels"):
                done = lenslet(*self.model[:3], option, file, self.folder / "red.ppm")
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn(reason, done.stderr)


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
            done = lenslet(*self.model, file, limited=ADDRESS_SPACE, timeout=60)
            self.assertEqual(done.returncode, 1, (file, done.returncode, done.stderr))
            self.assertIn(f"{file}: ", done.stderr)
            self.assertNotIn("out of memory", done.stderr)

    def test_bad_models(self):
        files = sorted((SHARED / "bad-models").glob("*.onnx"))
        self.assertEqual(len(files), 20)
        for file in files:
            done = lenslet("inspect", file, limited=ADDRESS_SPACE, timeout=60)
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
