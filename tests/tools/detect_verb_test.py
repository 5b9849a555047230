"""The verb detect, run as a program; also on the shared acceptance data, if it exists."""

import csv
import io
import json
import os
import signal
import subprocess
import unittest

from command import COMMAND, FLOAT, SHARED, Verb, initializer, lenslet, model, node, port, write_ppm
from read_png import read_png

MODEL = SHARED / "models/ultraface-rfb-320.onnx"
PHOTO = SHARED / "images/photos/grace_hopper.jpg"
VALUES = ("score", "left", "top", "right", "bottom")


def detector(rows):
    """x[1,3,20,40], which is read, and rows of x1, y1, x2, y2, score, class."""
    nodes = [node("Relu", ["x"], "read"), node("Identity", ["rows"], "found")]
    given = [initializer("rows", [1, len(rows), 6], [value for row in rows for value in row])]
    ports = [port("found", FLOAT, [1, len(rows), 6]), port("read", FLOAT, [1, 3, 20, 40])]
    return model(nodes, [port("x", FLOAT, [1, 3, 20, 40])], ports, given)


class Detect(Verb):
    def setUp(self):
        super().setUp()
        self.model = self.write("net.onnx", detector([(5, 6, 25, 16, 0.9, 0), (1, 2, 11, 12, 0.5, 1), (0, 0, 9, 9, 0.1, 0)]))
        card = {"input": {"size": [20, 40]}, "resize": {"mode": "stretch"}, "labels": "names.txt", "model": "net.onnx",
                "output": {"name": "found", "boxes": {"form": "end_to_end"}}}  # fmt: skip
        self.card = self.write("net.card.json", json.dumps(card).encode())
        self.write("names.txt", b"cat\ndog\n")
        for name, colour in (("a/cat", 10), ("b/cat", 30), ("photo", 200)):
            (self.folder / name).parent.mkdir(exist_ok=True)
            write_ppm(self.folder / f"{name}.ppm", 200, 400, [colour] * 240_000)
        self.photo = self.folder / "photo.ppm"
        self.detect = ("detect", "--model", self.model)

    def test_formats(self):
        bad = self.write("bad.jpg", b"no picture")
        photos = (self.photo, bad, self.folder / "a/cat.ppm")
        done = lenslet(*self.detect, "--json", *photos)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn(f"{bad}: ", done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(set(document), {"model", "device", "preparation", "assumed", "card", "machine", "results"})
        self.assertEqual(document["card"], {"path": str(self.card), "found_by": "beside the model"})
        first, failed, last = document["results"]
        self.assertEqual(set(failed), {"photo", "error"})
        self.assertEqual(set(first), {"photo", "height", "width", "boxes", "ms"})
        self.assertEqual((first["photo"], first["height"], first["width"]), (str(self.photo), 200, 400))
        self.assertEqual([(box["class"], box["label"]) for box in first["boxes"]], [(0, "cat"), (1, "dog")])
        self.assertEqual([round(first["boxes"][0][name], 6) for name in VALUES], [0.9, 50, 60, 250, 160])
        self.assertEqual(last["boxes"], first["boxes"])

        lines = [json.loads(line) for line in lenslet(*self.detect, "--format", "jsonl", *photos).stdout.splitlines()]
        self.assertEqual([line.get("boxes") for line in lines], [first["boxes"], None, first["boxes"]])
        self.assertEqual(lines[1], failed)

        done = lenslet(*self.detect, "--format", "csv", *photos)
        self.assertEqual(done.returncode, 1)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertEqual(list(rows[0]), ["photo", "class", "label", *VALUES, "error"])
        self.assertEqual([(row["photo"], row["label"]) for row in rows],
                         [(str(self.photo), "cat"), (str(self.photo), "dog"), (str(bad), "")] + [(str(photos[2]), name) for name in ("cat", "dog")])  # fmt: skip
        self.assertEqual(rows[2]["error"], failed["error"])
        for row, box in zip(rows, first["boxes"]):
            self.assertEqual([float(row[name]) for name in VALUES], [box[name] for name in VALUES])

        table = lenslet(*self.detect, *photos).stdout
        self.assertIn("   90.00 %     0  cat  left 50 top 60 right 250 bottom 160\n", table)
        self.assertEqual(table.count("dog"), 2)

    def test_options(self):
        small = self.folder / "small.ppm"
        write_ppm(small, 40, 80, [7] * 9600)

        def scores(*options):
            done = lenslet("detect", "--card", self.card, *options, "--json", small)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [round(box["score"], 6) for box in json.loads(done.stdout)["results"][0]["boxes"]]

        self.assertEqual(scores(), [0.9, 0.5])
        self.assertEqual(scores("--top", 1), [0.9])
        self.assertEqual(scores("--threshold", 0.05), [0.9, 0.5, 0.1])
        self.assertEqual(scores("--threshold", 1), [])
        # 80 x 40 pixels have 3 columns and 3 rows of tiles of 40 x 20 with an overlap of 10.
        self.assertEqual(scores("--tiles", 10, "--top", 9, "--iou", 1), [0.9] * 9)
        self.assertEqual(len(scores("--tiles", 0, "--iou", 1)), 8)
        self.assertEqual(len(scores("--tiles", 19, "--iou", 0.0, "--threshold", 0.6)), 6)
        names = self.write("other.txt", "Bär\nHund\n".encode())
        self.assertIn("Bär", lenslet(*self.detect, "--labels", names, self.photo).stdout)

    def test_refusals(self):
        self.fails(2, "--model is missing", "detect", self.photo)
        self.fails(2, "cannot overlap by 20", *self.detect, "--tiles", 20, self.photo)
        self.fails(2, "--tiles", *self.detect, "--tiles", -1, self.photo)
        self.fails(2, "--threshold", *self.detect, "--threshold", "nan", self.photo)
        self.fails(2, "--iou", *self.detect, "--iou", 1.5, self.photo)
        self.fails(2, "standard input can be given once", *self.detect, "-", "-")
        self.card.unlink()
        self.fails(2, "no card is known for this model", *self.detect, self.photo)
        self.card.write_bytes(b'{"input": {"size": [20, 40]}, "resize": {"mode": "stretch"}}')
        self.fails(2, "the card has no output.boxes", *self.detect, self.photo)
        self.card.write_bytes(b'{"input": {"size": [20, 40]}, "output": {"boxes": {"form": "yolo"}}}')
        self.fails(2, "net.card.json: output.boxes.form is 'yolo'", *self.detect, self.photo)
        # A photo that the card cannot prepare has a row of its own.
        self.card.write_bytes(b'{"input": {"size": [20, 40]}, "output": {"name": "found", "boxes": {"form": "end_to_end"}}}')
        write_ppm(self.folder / "small.ppm", 10, 40, [9] * 1200)
        done = lenslet(*self.detect, "--json", self.folder / "small.ppm", self.photo)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(["error" in result for result in json.loads(done.stdout)["results"]], [True, False])

    def test_drawings(self):
        folder = self.folder / "new/drawn"
        bad = self.write("bad.jpg", b"no picture")
        photos = (self.folder / "a/cat.ppm", bad, self.folder / "b/cat.ppm", self.photo)
        done = lenslet(*self.detect, "--json", "--draw", folder, *photos)
        self.assertEqual(done.returncode, 1, done.stderr)
        results = json.loads(done.stdout)["results"]
        names = ["cat.png", None, "cat_2.png", "photo.png"]
        self.assertEqual([result.get("drawing") for result in results], [name and str(folder / name) for name in names])
        self.assertEqual(sorted(os.listdir(folder)), ["cat.png", "cat_2.png", "photo.png"])
        for name, colour in (("cat", 10), ("cat_2", 30), ("photo", 200)):
            shape, pixels = read_png(folder / f"{name}.png")
            self.assertEqual(shape, (200, 400, 3))
            at = lambda y, x: tuple(pixels[3 * (400 * y + x) :][:3])  # noqa: E731
            # cat: 50 to 250, 60 to 160, in dark red; dog: 10 to 110, 20 to 120, in green. The better one is on top.
            for y, x in ((60, 50), (61, 249), (159, 50), (158, 249), (100, 50), (100, 51), (100, 248), (100, 249)):
                self.assertEqual(at(y, x), (128, 0, 0), (y, x))
            for y, x in ((50, 10), (50, 11), (119, 12), (118, 30), (110, 109), (110, 108)):
                self.assertEqual(at(y, x), (0, 128, 0), (y, x))
            for y, x in ((100, 52), (100, 247), (157, 200), (160, 200), (50, 9), (50, 12), (117, 30), (120, 30), (100, 300)):
                self.assertEqual(at(y, x), (colour,) * 3, (y, x))
            text = [at(y, x) for y in range(38, 60) for x in range(112, 132)]
            self.assertEqual(set(text), {(255, 255, 255), (128, 0, 0)})

        before = (folder / "cat.png").read_bytes()
        self.fails(4, "cat.png: is there already", *self.detect, "--draw", folder, self.folder / "b/cat.ppm")
        self.fails(4, "", *self.detect, "--draw", bad, self.photo)  # no folder
        self.assertEqual((folder / "cat.png").read_bytes(), before)
        # Nor is the photo itself written over; gray becomes colour.
        gray = self.write("gray.pgm", b"P5 80 40 255\n" + bytes(3200))
        self.assertEqual(lenslet(*self.detect, "--draw", self.folder, gray).returncode, 0)
        self.fails(4, "gray.png: is there already", *self.detect, "--draw", self.folder, self.folder / "gray.png")
        self.assertEqual(read_png(self.folder / "gray.png")[0], (40, 80, 3))
        with open(self.photo, "rb") as photo:
            self.assertEqual(lenslet(*self.detect, "--draw", folder, "-", stdin=photo).returncode, 0)
        self.assertTrue((folder / "stdin.png").exists())

    def test_labels_of_any_length_and_script(self):
        for label in ("x" * 100_000, "Bär %n \x1b[31m" * 50, ""):
            names = self.write("any.txt", f"{label}\n{label}\n".encode())
            for size in ((1, 1), (3, 500), (300, 2), (40, 80)):
                write_ppm(self.folder / "any.ppm", *size, [50] * (3 * size[0] * size[1]))
                out = self.folder / f"{len(label)}-{size[0]}"
                done = lenslet(*self.detect, "--labels", names, "--draw", out, self.folder / "any.ppm")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("\x1b", done.stdout)
                self.assertEqual(read_png(out / "any.png")[0], (*size, 3))

    def test_it_ends_whole_after_a_signal(self):
        child = subprocess.Popen([COMMAND, *map(str, self.detect), "--format", "jsonl", self.photo, "-", self.photo],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env={**os.environ, "LENSLET_DEVICE": "cpu"})  # fmt: skip
        self.assertIn(b"boxes", child.stdout.readline())
        child.send_signal(signal.SIGINT)  # while the second photo is awaited
        out, err = child.communicate(self.photo.read_bytes(), timeout=60)
        self.assertEqual(child.returncode, 130, err)
        self.assertLessEqual(len([json.loads(line) for line in out.splitlines()]), 1)
        self.assertIn(b"of 3 photos", err)


@unittest.skipUnless(MODEL.exists(), "shared/data is not there")
class UltraFace(Verb):
    def test_a_face(self):
        drawn = self.folder / "drawn"
        photos = [PHOTO, SHARED / "images/photos/espresso.png"]
        done = lenslet("detect", "--model", MODEL, "--threshold", 0.7, "--iou", 0.3, "--draw", drawn, "--json", *photos)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ultraface-rfb-320.card.json, by the model's checksum", done.stderr)
        face, nothing = json.loads(done.stdout)["results"]
        self.assertEqual(nothing["boxes"], [])
        (box,) = face["boxes"]
        self.assertEqual(box["label"], "face")
        expected = json.loads((SHARED / "expected/ultraface-rfb-320.json").read_text())
        self.assertAlmostEqual(box["score"], expected["best_score"], delta=1e-4)
        sides = [box[name] / face["width" if name in ("left", "right") else "height"] for name in VALUES[1:]]
        for side, wanted in zip(sides, expected["best_box_xyxy_relative"]):
            self.assertAlmostEqual(side, wanted, delta=1e-3)
        shape, pixels = read_png(drawn / "grace_hopper.png")
        self.assertEqual(shape, (face["height"], face["width"], 3))
        for y, x in ((int(box["top"]), int(box["right"]) - 5), (int(box["bottom"]), 250), (250, int(box["left"]))):
            self.assertEqual(pixels[3 * (y * shape[1] + x) :][:3], [128, 0, 0])

    def test_classify_says_that_it_detects(self):
        done = lenslet("classify", "--model", MODEL, PHOTO)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("'lenslet detect' finds boxes", done.stderr)

    def test_its_card_can_be_written(self):
        card = json.loads(lenslet("card", MODEL).stdout)
        self.assertEqual(card["output"]["boxes"]["form"], "boxes_scores")
        again = self.write("again.card.json", json.dumps(card).encode())
        run = ("detect", "--model", MODEL, "--format", "csv", PHOTO)
        self.assertEqual(lenslet(*run, "--card", again).stdout, lenslet(*run).stdout)


@unittest.skipUnless(MODEL.exists(), "shared/data is not there")
class DetectBesideOnnxRuntime(Verb):
    def test_every_box_at_a_low_threshold(self):
        try:
            import numpy as np
            import onnxruntime
        except ImportError as error:
            raise unittest.SkipTest(f"ONNX Runtime: {error}") from error
        header, pixels = (SHARED / "images/prepared-320x240/grace_hopper.jpg.ppm").read_bytes().split(b"255\n", 1)
        self.assertIn(b"320 240", header)
        x = (np.frombuffer(pixels, np.uint8).reshape(1, 240, 320, 3).transpose(0, 3, 1, 2).astype(np.float32) - 127) / 128
        scores, boxes = onnxruntime.InferenceSession(MODEL).run(["scores", "boxes"], {"input": x})
        scores = scores[0, :, 1].astype(float)
        done = lenslet("detect", "--model", MODEL, "--threshold", 0.01, "--top", 100000, "--json", PHOTO)
        (result,) = json.loads(done.stdout)["results"]
        size = np.array([result["width"], result["height"]] * 2)
        boxes = np.clip(boxes[0].astype(float) * size, 0, size)
        kept = []
        for i in np.argsort(-scores, kind="stable"):
            if scores[i] <= 0.01:
                break
            if kept:
                others = boxes[kept]
                sides = np.minimum(others[:, 2:], boxes[i, 2:]) - np.maximum(others[:, :2], boxes[i, :2])
                both = np.clip(sides, 0, None).prod(1)
                area = lambda box: (box[..., 2:] - box[..., :2]).prod(-1)  # noqa: E731
                if (both / (area(others) + area(boxes[i]) - both)).max() > 0.45:
                    continue
            kept.append(i)
        found = np.array([[box[name] for name in VALUES] for box in result["boxes"]])
        self.assertGreater(len(kept), 3)
        np.testing.assert_allclose(found[:, 0], scores[kept], atol=1e-4)
        same = np.abs(found[:, None, 1:] - boxes[kept][None]).max(-1) < 0.05  # [found, kept]
        same &= np.abs(found[:, None, 0] - scores[kept][None]) < 1e-4  # equal scores may change places
        self.assertTrue(same.any(0).all() and same.any(1).all(), np.argwhere(~same.any(1)))


if __name__ == "__main__":
    unittest.main()
