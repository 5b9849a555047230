"""lenslet.Detector beside boxes that are known."""

import dataclasses
import pathlib
import pickle
import tempfile
import threading
import unittest

import lenslet
import numpy as np
from lenslet.detector import boxes_in, prepared_whole
from models import shared_data, written
from tiny_model import initializer, node

ROWS = [(5, 6, 25, 16, 0.9, 0), (1, 2, 11, 12, 0.5, 1), (6, 6, 25, 16, 0.45, 0), (0, 0, 9, 9, 0.1, 0)]
CARD = {"input": {"size": [20, 40]}, "resize": {"mode": "stretch"}, "output": {"name": "found", "boxes": {"form": "end_to_end"}}}
PHOTO = np.full((200, 400, 3), 200, np.uint8)


def detector(rows=ROWS):
    """x[1,3,20,40], which is read, and rows of x1, y1, x2, y2, score, class."""
    nodes = [node("Relu", ["x"], "read"), node("Identity", ["rows"], "found")]
    given = [initializer("rows", [1, len(rows), 6], [value for row in rows for value in row])]
    outputs = {"found": (1, [1, len(rows), 6]), "read": (1, [1, 3, 20, 40])}
    return lenslet.Model(written(nodes, {"x": (1, [1, 3, 20, 40])}, outputs, given))


def yolov8():
    """Two boxes of two classes."""
    nodes = [node("Relu", ["x"], "read"), node("Identity", ["rows"], "found")]
    rows = np.float32([[5, 6], [10, 9], [2, 3], [8, 6], [0.9, 0], [0, 0.6]])
    given = [initializer("rows", [1, 6, 2], rows.ravel().tolist())]
    outputs = {"found": (1, [1, 6, 2]), "read": (1, [1, 3, 20, 40])}
    return lenslet.Model(written(nodes, {"x": (1, [1, 3, 20, 40])}, outputs, given))


class Detector(unittest.TestCase):
    def test_objects(self):
        found = lenslet.Detector(detector(), CARD, labels=["cat", "dog"], device="cpu", threads=1).detect(PHOTO)
        self.assertEqual([(one.index, one.label, round(one.score, 6)) for one in found], [(0, "cat", 0.9), (1, "dog", 0.5), (0, "cat", 0.45)])
        self.assertEqual([found[1].left, found[1].top, found[1].right, found[1].bottom], [10, 20, 110, 120])
        self.assertIn("<bdi>dog</bdi>", found._repr_html_())
        with self.assertRaises(dataclasses.FrozenInstanceError):
            found[0].index = 7
        self.assertEqual(pickle.loads(pickle.dumps(found)), found)
        self.assertEqual(lenslet.Detector(detector(), CARD, device="cpu").detect(PHOTO)[1].label, "")

    def test_options(self):
        made = lenslet.Detector(detector(), CARD, device="cpu")
        small = PHOTO[:40, :80]
        self.assertEqual(len(made.detect(small, top=1)), 1)
        self.assertEqual(len(made.detect(small, threshold=0.05)), 4)
        self.assertEqual(made.detect(small, threshold=1), [])
        # 80 x 40 pixels have 3 columns and 3 rows of tiles of 40 x 20 with an overlap of 10.
        self.assertEqual(len(made.detect(small, 0.6, 1, tile_overlap=10)), 9)
        self.assertEqual(len(made.detect(small, 0.6, iou=0.0, tile_overlap=19)), 6)
        boxes = lenslet.Detector(yolov8(), {**CARD, "output": {"name": "found", "boxes": {"form": "yolov8"}}}, device="cpu")
        self.assertEqual([one.index for one in boxes.detect(PHOTO)], [0, 1])

    def test_misuse(self):
        made = lenslet.Detector(detector(), CARD, device="cpu")
        for how, message in (
            ({"threshold": float("nan")}, "threshold is NaN"), ({"threshold": "x"}, "threshold or iou"), ({"iou": 1.5}, "iou is 1.5"),
            ({"iou": None}, "threshold or iou"), ({"iou": float("nan")}, "iou is nan"), ({"top": 0}, "top is 0"), ({"top": 1.5}, "top is a float"),
            ({"tile_overlap": 20}, "cannot overlap by 20"), ({"tile_overlap": -1}, "tile_overlap is -1"),
        ):  # fmt: skip
            with self.subTest(how), self.assertRaisesRegex(lenslet.InvalidArgumentError, message):
                made.detect(PHOTO, **how)
        with self.assertRaises(lenslet.InvalidImageError):
            made.detect(b"no photo")
        with self.assertRaises(lenslet.FileError):
            made.detect("nosuch.jpg")
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "no output.boxes"):
            lenslet.Detector(detector(), {**CARD, "output": {"name": "found", "softmax": False}}, device="cpu")
        card = {**CARD, "output": {"name": "found", "boxes": {"form": "yolov8"}}}
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "3 labels for 2 classes"):
            lenslet.Detector(yolov8(), card, labels=["a", "b", "c"], device="cpu")
        with self.assertRaisesRegex(lenslet.UnsupportedError, r"wanted \[1,N,6\]"):
            lenslet.Detector(yolov8(), CARD, device="cpu")
        with self.assertRaisesRegex(lenslet.UnsupportedError, "send its model and card"):
            pickle.dumps(made)

    def test_labels_of_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "names.txt").write_text("Bär\n<b>\n", encoding="utf-8")
            made = lenslet.Detector(detector(), CARD, labels=pathlib.Path(folder) / "names.txt", device="cpu")
            self.assertEqual(made.labels, ("Bär", "<b>"))
            self.assertIn("&lt;b&gt;", made.detect(PHOTO)._repr_html_())

    def test_threads_take_turns(self):
        made, found = lenslet.Detector(detector(), CARD, labels=["cat", "dog"], device="cpu"), []
        threads = [threading.Thread(target=lambda: found.append(made.detect(PHOTO))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [found[0]] * 8)

    def test_outputs_of_a_runner(self):
        """As lenslet serve does it."""
        model = detector()
        card = lenslet.Card(CARD).bound(model)
        self.assertTrue(card.boxes)
        x = np.empty((1, 3, 20, 40), np.float32)
        size = prepared_whole(card, PHOTO, x)
        self.assertEqual(size, (200, 400))
        np.testing.assert_array_equal(x[0], card.prepare(PHOTO))
        outputs = list(model.runner(device="cpu")(x))
        self.assertEqual(boxes_in(model, card, outputs, size, 0.25, 0.45, 100), lenslet.Detector(model, card, device="cpu").detect(PHOTO))
        for wrong, kind, message in (
            (outputs[:1], lenslet.InvalidArgumentError, "1 outputs are given, the model has 2"),
            ([outputs[1], outputs[0]], lenslet.UnsupportedError, "not as the card's output.boxes say"),
            ([np.zeros((2, 4, 6), np.float32), outputs[1]], lenslet.UnsupportedError, "not as the card's"),
        ):
            with self.assertRaisesRegex(kind, message):
                boxes_in(model, card, wrong, size, 0.25, 0.45, 100)
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "each side may be"):
            boxes_in(model, card, outputs, (0, 400), 0.25, 0.45, 100)
        many = [(0, 0, 9, 9, 0.5 + i / 1e6, i) for i in range(70_000)]  # more than are compared
        model = detector(many)
        card = lenslet.Card(CARD).bound(model)
        outputs = list(model.runner(device="cpu")(x))
        best = boxes_in(model, card, outputs, size, 0, 1, 3)
        self.assertEqual([one.index for one in best], [69_999, 69_998, 69_997])


@unittest.skipIf(shared_data() is None, "shared/data is not there")
class UltraFace(unittest.TestCase):
    def test_a_face(self):
        made = lenslet.Detector(shared_data() / "models/ultraface-rfb-320.onnx", device="cpu")
        (face,) = made.detect(shared_data() / "images/photos/grace_hopper.jpg", threshold=0.7, iou=0.3)
        self.assertEqual((face.label, round(face.left), round(face.bottom)), ("face", 171, 335))


if __name__ == "__main__":
    unittest.main()
