"""The verbs classify and card, run as programs; also on the shared acceptance data, if it exists."""

import csv
import io
import json
import math
import os
import pathlib
import subprocess
import threading
import unittest
import unittest.mock

from command import (
    ADDRESS_SPACE, COMMAND, FLOAT, SHARED, WithPhotos, at_terminal, initializer, lenslet, model, node, port,
    tensor_pb, write_ppm,
)
from tiny_model import INT64, field

REDUCED = "LENSLET_TEST_REDUCED" in os.environ


class Classify(WithPhotos):
    def test_json_schema(self):
        bad = self.write("bad.jpg", b"no picture")
        done = lenslet(*self.model, "--top", "2", "--json", self.folder / "red.ppm", bad, self.folder / "blue.ppm")
        self.assertEqual(done.returncode, 1)
        document = json.loads(done.stdout)
        self.assertEqual(set(document), {"model", "device", "preparation", "assumed", "card", "results", "machine"})
        self.assertEqual((document["assumed"], document["card"]), (True, None))
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

    def test_a_batch_that_is_fixed(self):
        nodes = [node("GlobalAveragePool", ["x"], "mean"), node("Flatten", ["mean"], "y")]
        ports = [port("x", FLOAT, [2, 3, 8, 8])], [port("y", FLOAT, [2, 3])]
        file = self.write("two.onnx", model(nodes, *ports))
        for colours in (["red"], ["red", "blue", "red"]):
            photos = [self.folder / f"{colour}.ppm" for colour in colours]
            done = lenslet("classify", "--model", file, "--labels", self.folder / "rgb.txt", "--json", *photos)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([result["top"][0]["label"] for result in json.loads(done.stdout)["results"]], colours)
        self.fails(2, "give it by --model", "classify", file, self.folder / "red.ppm")

    def test_a_leftover_label(self):
        nodes = [node("GlobalAveragePool", ["x"], "mean"), node("Flatten", ["mean"], "y")]
        photos = [self.folder / f"{colour}.ppm" for colour in ("red", "blue", "red")]
        untyped = field(1, "label") + field(2, b"")
        for label, options in ((port("softmax_label", FLOAT, ["N"]), ()), (port("text", 8, ["N"]), ("--batch", "2")), (untyped, ())):
            file = self.write("label.onnx", model(nodes, [label, port("x", FLOAT, ["N", 3, 8, 8])], [port("y", FLOAT, ["N", 3])]))
            done = lenslet("classify", "--model", file, "--labels", self.folder / "rgb.txt", "--json", *options, *photos)
            self.assertEqual(done.returncode, 0, done.stderr)
            results = json.loads(done.stdout)["results"]
            self.assertEqual([result["top"][0]["label"] for result in results], ["red", "blue", "red"])

    def test_an_output_that_a_run_gives_its_shape(self):
        """A Reshape to `target` times 1 of the pixels: its shape is known only in the run."""
        nodes = [node("GlobalAveragePool", ["x"], "mean"), node("Flatten", ["mean"], "flat"), node("ReduceMax", ["x"], "max", keepdims=0)]
        nodes += [node("Less", ["max", "large"], "is_less"), node("Cast", ["is_less"], "one", to=INT64)]
        nodes += [node("Mul", ["one", "target"], "shape"), node("Reshape", ["flat", "shape"], "y")]

        def net(*target):
            given = [initializer("large", [], [1e9]), tensor_pb("target", [len(target)], target, INT64)]
            data = model(nodes, [port("x", FLOAT, ["N", 3, 8, 8])], [field(1, "y") + field(2, field(1, field(1, FLOAT)))], given)
            return self.write("late.onnx", data)

        colours = ("red", "blue", "red")
        photos = [self.folder / f"{colour}.ppm" for colour in colours]
        for target in ((-1, 3), (-1, 3, 1, 1)):
            for options in ((), ("--batch", "2")):
                done = lenslet("classify", "--model", net(*target), "--labels", self.folder / "rgb.txt", "--json", *options, *photos)
                self.assertEqual(done.returncode, 0, done.stderr)
                tops = [result["top"] for result in json.loads(done.stdout)["results"]]
                self.assertEqual([top[0]["label"] for top in tops], list(colours))
                self.assertEqual([len(top) for top in tops], [3, 3, 3])
        self.assertEqual(lenslet("card", net(-1, 3)).returncode, 0)
        classify = ("classify", "--labels", self.folder / "rgb.txt", "--model")
        self.fails_at_last(3, "the output [3,1] of a batch of 1 holds no classes for each image", *classify, net(3, -1), photos[0])
        self.write("two.txt", b"red\nblue\n")
        self.fails_at_last(2, "two.txt: the labels file has 2 lines for 3 classes", *classify[:1], "--labels", self.folder / "two.txt", "--model", net(-1, 3), photos[0])
        self.fails_at_last(4, "none.txt", "classify", "--labels", self.folder / "none.txt", "--model", net(-1, 3), photos[0])

    def fails_at_last(self, code, text, *arguments):
        """After notes about assumptions."""
        done = lenslet(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertTrue(done.stderr.splitlines()[-1].startswith("lenslet: error: "), done.stderr)
        self.assertIn(text, done.stderr.splitlines()[-1])
        self.assertEqual(done.stdout, "")

    def test_a_class_offset_beyond_the_classes_of_a_free_output(self):
        nodes = [node("GlobalAveragePool", ["x"], "mean"), node("Flatten", ["mean"], "y")]
        file = self.write("free.onnx", model(nodes, [port("x", FLOAT, ["N", 3, 8, 8])], [port("y", FLOAT, ["N", "classes"])]))
        card = json.loads(lenslet("card", file).stdout)
        card["output"]["class_offset"] = 3
        self.write("free.card.json", json.dumps(card).encode())
        self.fails_at_last(2, "output.class_offset 3", "classify", "--model", file, self.folder / "red.ppm")

    def test_where_the_card_comes_from(self):
        def found(*options, name="rgb"):
            file = self.folder / f"{name}.onnx"
            done = lenslet("classify", "--model", file, *options, "--json", self.folder / "red.ppm")
            self.assertEqual(done.returncode, 0, done.stderr)
            card = json.loads(done.stdout)["card"]
            return card and (pathlib.Path(card["path"]).name, card["found_by"]), done.stderr

        card, notes = found()
        self.assertIsNone(card)
        assumed = "assuming RGB 224x224 NCHW, shorter side to 256 (bilinear), center crop"
        self.assertIn(f"no card rgb.card.json beside the model: {assumed}", notes)
        # A torchvision name, ignoring case.
        data = (self.folder / "rgb.onnx").read_bytes()
        self.write("ResNet-18.onnx", data)
        self.write("wide.resnet50-2.onnx", data)
        self.assertEqual(found(name="wide.resnet50-2")[0], ("imagenet-224.card.json", "name"))
        card, notes = found(name="ResNet-18")
        self.assertEqual(card, ("imagenet-224.card.json", "name"))
        self.assertIn("the card imagenet-224.card.json, by the model's name only: RGB 224x224", notes)
        # By name it would need 299 x 299.
        self.write("inception_v3.onnx", data)
        self.assertIsNone(found(name="inception_v3")[0])
        # Nearer ones take precedence.
        plain = b'{"input": {"size": [224, 224]}, "output": {"softmax": true}}'
        self.write("ResNet-18.card.json", plain)
        self.assertEqual(found(name="ResNet-18"), (("ResNet-18.card.json", "beside the model"), ""))
        other = self.write("other.json", plain)
        self.assertEqual(found("--card", other, name="ResNet-18"), (("other.json", "option"), ""))

    def test_card(self):
        """It prints what would be assumed, and can be read again."""
        before = lenslet(*self.model, "--json", self.folder / "red.ppm")
        card = self.folder / "rgb.card.json"
        printed = lenslet("card", self.folder / "rgb.onnx")
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertIn("assumed", printed.stderr)
        written = lenslet("card", self.folder / "rgb.onnx", "-o", card)
        self.assertEqual((written.returncode, written.stdout), (0, ""), written.stderr)
        self.assertEqual(card.read_text(), printed.stdout)
        fields = json.loads(card.read_text())
        self.assertEqual(list(fields), ["name", "model", "labels", "input", "resize", "crop", "normalize", "output"])
        self.assertEqual(fields["model"], "rgb.onnx")
        self.assertEqual(fields["input"], {"name": "image", "layout": "NCHW", "channels": "RGB", "size": [224, 224]})
        self.assertEqual(fields["output"], {"name": "scores", "softmax": True, "class_offset": 0})
        after = lenslet(*self.model, "--json", self.folder / "red.ppm")
        self.assertEqual(after.stderr, "")
        before, after = json.loads(before.stdout), json.loads(after.stdout)
        self.assertEqual(before["preparation"], after["preparation"])
        self.assertEqual(before["results"][0]["top"], after["results"][0]["top"])
        self.assertEqual(after["card"], {"path": str(card), "found_by": "beside the model"})

        self.fails(4, "is there already (--force writes over it)", "card", self.folder / "rgb.onnx", "-o", card)
        card.write_text("x" * 5000)
        self.fails(2, "this is no JSON", "card", self.folder / "rgb.onnx", "-o", card, "--force")
        other = self.write("other.card.json", b"x" * 5000)
        card.unlink()
        self.assertEqual(lenslet("card", self.folder / "rgb.onnx", "-o", other, "--force").returncode, 0)
        self.assertEqual(other.read_text(), printed.stdout)
        link = self.folder / "link.card.json"
        link.symlink_to(other)
        other.chmod(0o640)
        self.fails(4, "is there already", "card", self.folder / "rgb.onnx", "-o", link)
        self.assertEqual(lenslet("card", self.folder / "rgb.onnx", "-o", link, "--force").returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertEqual((other.read_text(), other.stat().st_mode & 0o777), (printed.stdout, 0o640))
        self.fails(4, "cannot be written: No such file", "card", self.folder / "rgb.onnx", "-o", self.folder / "a/b")
        self.fails(2, "requires", "card", self.folder / "rgb.onnx", "--force")

        # Probabilities need no softmax; gray and NHWC are recognised.
        nodes = [node("GlobalAveragePool", ["x"], "p"), node("Softmax", ["p"], "y", axis=1)]
        ports = [port("x", FLOAT, [1, 1, 8, 9])], [port("y", FLOAT, [1, 1, 1, 1])]
        file = self.write("soft.onnx", model(nodes, *ports))
        fields = json.loads(lenslet("card", file).stdout)
        self.assertEqual(fields["output"]["softmax"], False)
        self.assertEqual((fields["input"]["channels"], fields["input"]["size"]), ("gray", [8, 9]))
        self.assertEqual(fields["resize"], {"mode": "stretch", "filter": "bilinear", "antialias": True, "draft": False})
        picture = model([node("Relu", ["x"], "y")], [port("x", FLOAT, [1, 3, 4, 4])], [port("y", FLOAT, [1, 3, 4, 4])])
        done = lenslet("card", self.write("picture.onnx", picture))
        self.assertEqual(done.returncode, 3)
        self.assertIn("no list of classes", done.stderr)

    def test_standard_input(self):
        for options in ((), ("--batch", "2", self.folder / "blue.ppm")):
            with open(self.folder / "red.ppm", "rb") as photo:
                done = lenslet(*self.model, "--json", *options, "-", stdin=photo)
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(done.stdout)["results"][-1]
            self.assertEqual((result["file"], result["top"][0]["label"]), ("-", "red"))
        done = lenslet(*self.model, "-")
        self.assertEqual(done.returncode, 1)
        self.assertIn("-: the file is empty", done.stderr)
        self.assertEqual(lenslet(*self.model, "-", closed=[0]).returncode, 1)

    def test_forms(self):
        """One photo's results are the same in each; those of many are streamed in order, before batches are full."""
        photos = self.folder / "photos"
        (photos / "a" / "b").mkdir(parents=True)
        (photos / "loop").symlink_to("..")
        names = ["a/b/blue, or \"blue\".ppm", "a/red.ppm", "bad.ppm", "blue.ppm", "red.ppm"]
        for name in names:
            source = self.folder / ("red.ppm" if "red" in name else "blue.ppm")
            (photos / name).write_bytes(source.read_bytes()[: 9 if name == "bad.ppm" else None])
        options = (*self.model, "--top", "2", "--batch", "2", photos)
        flat = json.loads(lenslet(*options, "--json").stdout)["results"]
        self.assertEqual([result["file"] for result in flat], [str(photos / name) for name in names[2:]])
        done = lenslet(*options, "--recursive", "--format", "json")
        self.assertEqual(done.returncode, 1, done.stderr)
        results = json.loads(done.stdout)["results"]
        self.assertEqual([result["file"] for result in results], [str(photos / name) for name in names])

        def without_times(results):
            return [{key: value for key, value in result.items() if key != "ms"} for result in results]

        lines = lenslet(*options, "--recursive", "--format", "jsonl").stdout.splitlines()
        self.assertEqual(without_times(map(json.loads, lines)), without_times(results))
        rows = list(csv.DictReader(io.StringIO(lenslet(*options, "--recursive", "--format", "csv").stdout)))
        self.assertEqual(len(rows), 2 * 4 + 1)
        expected = []
        for result in results:
            for rank, best in enumerate(result.get("top", []), 1):
                expected.append((result["file"], str(rank), str(best["index"]), best["label"], "", ""))
            if "error" in result:
                expected.append((result["file"], "", "", "", "", result["error"]))
        columns = ("file", "rank", "index", "label", "score", "error")
        self.assertEqual([tuple(row[column] for column in columns) for row in rows], expected)
        self.assertEqual(float(rows[0]["prob"]), float(f"{results[0]['top'][0]['prob']:.9g}"))
        self.fails(2, "--format", *options, "--format", "xml")
        self.fails(2, "--json", *options, "--format", "csv", "--json")

    def test_lines_come_as_photos_are_done(self):
        """The first ones are printed before the last photo arrives."""
        red = self.folder / "red.ppm"
        command = [COMMAND, *map(str, (*self.model, "--format", "jsonl", red, "-"))]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, **streams) as child:
            patience = threading.Timer(60, child.kill)
            patience.start()
            first = json.loads(child.stdout.readline())
            self.assertEqual(first["top"][0]["label"], "red")
            child.stdin.write((self.folder / "blue.ppm").read_bytes())
            child.stdin.close()
            self.assertEqual(json.loads(child.stdout.readline())["top"][0]["label"], "blue")
            patience.cancel()

    def test_colour_at_a_terminal(self):
        code, text = at_terminal(*self.model, "--top", "2", self.folder / "red.ppm", LENSLET_DEVICE="cpu")
        self.assertEqual(code, 0)
        self.assertIn("\x1b[1mred\x1b[0m\n", text)
        self.assertNotIn("\x1b[1mgreen", text)
        self.assertIn("\x1b[2mlenslet: no card ", text)
        text = at_terminal(*self.model, self.folder / "red.ppm", LENSLET_DEVICE="cpu", NO_COLOR="1")[1]
        self.assertNotIn("\x1b", text)
        evil = self.write(os.fsdecode(b"e\x1b[31m.ppm"), (self.folder / "red.ppm").read_bytes())
        for form in ("table", "csv", "jsonl"):
            text = at_terminal(*self.model, evil, "--format", form, LENSLET_DEVICE="cpu")[1]
            self.assertNotIn("\x1b[31m", text)

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
        # Blue and red are swapped.
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

        whole = self.write("whole.onnx", model([node("Cast", ["x"], "y", to=2)],
                                               [port("x", FLOAT, [1, 3, 1, 1])], [port("y", 2, [1, 3, 1, 1])]))  # fmt: skip
        for words in (("classify", "--model", whole, self.folder / "red.ppm"), ("card", whole)):
            done = lenslet(*words)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("error: whole.onnx: the output y is uint8; wanted a float output", done.stderr)

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

    def test_the_graph_says_what_scores_are(self):
        """By the graph, not by the sum: a quantised Softmax, one with its background class cut off, a Sigmoid. A card's
        statement takes precedence."""
        axis, to = (field(5, field(1, name) + field(3, 1) + field(20, 2)) for name in ("axis", "to"))
        card = {"input": {"size": [4, 4]}, "normalize": {"scale": 1 / 255}, "output": {"softmax": None}}
        write_ppm(self.folder / "one.ppm", 4, 4, [230, 26, 77] * 16)
        logits = [4 * value / 255 for value in (230, 26, 77)]
        total = sum(map(math.exp, logits))
        soft = [math.exp(value) / total for value in logits]
        steps = [round(value / 0.3) * 0.3 for value in soft]  # 0.9, 0, 0
        sigmoid = [1 / (1 + math.exp(-value)) for value in logits]
        floats = [initializer("four", [], [4.0]), initializer("step", [], [0.3])]
        tails = {
            "Gemm": ([node("Identity", ["l"], "y")], soft, True),
            "Softmax": ([node("Softmax", ["l"], "y", axis=1)], soft, False),
            "quantised": ([node("Softmax", ["l"], "s", axis=1), node("QuantizeLinear", ["s", "step"], "q"),
                           node("DequantizeLinear", ["q", "step"], "d"), node("Cast", ["d"], "y") + to], steps, False),
            "spelled": ([node("Exp", ["l"], "e"), node("ReduceSum", ["e", "axes"], "s"), node("Div", ["e", "s"], "y")],
                        soft, False),
            "Sigmoid": ([node("Sigmoid", ["l"], "s"), node("Flatten", ["s"], "y")], sigmoid, False),
            "LogSoftmax": ([node("LogSoftmax", ["l"], "y", axis=1)], soft, True),
        }  # fmt: skip
        head = [node("GlobalAveragePool", ["x"], "p"), node("Flatten", ["p"], "f"), node("Mul", ["f", "four"], "l")]
        for name, (tail, probabilities, wants) in tails.items():
            with self.subTest(name):
                net = model(head + tail, [port("x", FLOAT, [1, 3, 4, 4])], [port("y", FLOAT, [1, 3])],
                            [*floats, tensor_pb("axes", [1], [1], INT64)])  # fmt: skip
                file = self.write(f"{name}.onnx", net)
                said = json.loads(lenslet("card", file).stdout)["output"]["softmax"]
                self.assertEqual(said, wants)

                def prob(softmax):
                    self.write(f"{name}.card.json", json.dumps({**card, "output": {"softmax": softmax}}).encode())
                    done = lenslet("classify", "--model", file, "--json", self.folder / "one.ppm")
                    top = json.loads(done.stdout)["results"][0]["top"]
                    return {t["index"]: t.get("prob", t.get("score")) for t in top}, "prob" in top[0], done.stderr

                found, percent, notes = prob(None)
                self.assertEqual((percent, notes), (True, ""))
                for index, value in enumerate(probabilities):
                    self.assertAlmostEqual(found[index], value, places=5)
                found, percent, notes = prob(wants)
                self.assertEqual((found, percent, notes), prob(None))
                found, percent, notes = prob(not wants)
                self.assertNotAlmostEqual(found[0], probabilities[0], places=3)
                self.assertEqual(percent, not wants)
                said = "followed by a softmax all the same" if not wants else "scores are shown as they are"
                self.assertIn(said, notes)

    @unittest.skipUnless((SHARED / "models" / "mobilenetv2-int8-qdq.onnx").is_file(), "shared/data is not there")
    def test_a_quantised_network_with_a_softmax_of_its_own(self):
        """Its 1000 probabilities, multiples of 1/256, sum to 0.5 and more."""
        expected = json.loads((SHARED / "expected" / "mobilenetv2-int8-qdq.json").read_text())["images"]
        photos = {name.rpartition("/")[2]: of["top5"] for name, of in expected.items() if "/photos/" in name}
        crops = [SHARED / "images" / "prepared-224" / f"{name}.ppm" for name in photos]
        card = {"input": {"size": [224, 224], "layout": "NHWC"}, "output": {"softmax": None}}
        card = self.write("as_it_is.json", json.dumps(card).encode())
        file = SHARED / "models" / "mobilenetv2-int8-qdq.onnx"
        done = lenslet("classify", "--model", file, "--card", card, "--json", "--top", "1000", *crops)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(lenslet("card", file).stdout)["output"]["softmax"], False)
        results = json.loads(done.stdout)["results"]
        sums = [sum(top["prob"] for top in result["top"]) for result in results]
        self.assertLess(min(sums), 0.85)  # these do not look like probabilities
        for result, top5 in zip(results, photos.values()):
            found = {top["index"]: top["prob"] for top in result["top"]}
            self.assertTrue(all((256 * prob).is_integer() for prob in found.values()))  # the network's own
            # Another rounding within the network changes it by some steps: ONNX Runtime's kernels on codes differ by 0.070
            # from its float32 ones, which are expected here, lenslet's by 0.055.
            for top in top5:
                self.assertAlmostEqual(found[top["index"]], top["prob"], delta=0.07, msg=result["file"])

    def test_names_of_imagenet_are_assumed(self):
        nodes = [node("GlobalAveragePool", ["x"], "p"), node("Concat", ["p"] * 500, "y", axis=1)]
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
    """Files of the shared acceptance data."""

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
            document = self.json_of("verify", SHARED / "models" / f"{name}.onnx", "--precision", "bf16")
            self.assertEqual((document["exceeded"], document["unchecked"]), (0, 0), name)
            self.assertTrue(any(row.get("algorithm", "").startswith("bf16_") for row in document["layers"]), name)

    def test_bf16_finds_the_classes_of_float32(self):
        """Where those are clear: bfloat16's rounding moves a probability of 0.55 by 0.14."""
        crops = sorted((SHARED / "images" / "prepared-224").glob("*.ppm"))
        for name in ("squeezenet1.1", "mobilenetv2-nhwc", "resnet50")[: 1 if REDUCED else 3]:
            tops = []
            for precision in ("fp32", "bf16"):
                options = ("--model", SHARED / "models" / f"{name}.onnx", "--precision", precision, "--json", "--top", "2")
                done = lenslet("classify", *options, *crops)
                self.assertEqual(done.returncode, 0, done.stderr)
                tops.append([result["top"] for result in json.loads(done.stdout)["results"]])
            clear = 0
            for crop, single, brain in zip(crops, *tops):
                if single[0]["prob"] - single[1]["prob"] < 0.2:
                    continue
                clear += 1
                self.assertEqual(single[0]["index"], brain[0]["index"], (name, crop))
            self.assertGreater(clear, 5, name)


if __name__ == "__main__":
    unittest.main()
