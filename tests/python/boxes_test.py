"""Card.photo_box beside a computation in float64, and tiles beside a detector's."""

import importlib.util
import os
import pathlib
import pickle
import re
import tempfile
import unittest

import lenslet
import numpy as np
from models import ROOT, written
from tiny_model import initializer, node


def place(height, width, size, resize, center_pad):
    """Size of the resized photo, and its top left corner in pixels of the input."""
    if resize is None:
        new = (height, width)
    elif resize["mode"] == "stretch":
        new = size
    elif resize["mode"] == "shorter_side":
        new = tuple(resize["size"] * side // min(height, width) for side in (height, width))
    else:
        to = [resize["size"] / max(height, width)] if "size" in resize else [size[0] / height, size[1] / width]
        rounded = int if resize["round_down"] else round
        new = tuple(max(1, rounded(side * min(to))) for side in (height, width))
    corner = []
    for got, wanted in zip(new, size):
        if got >= wanted:  # torchvision's center_crop
            corner.append(-int(round((got - wanted) / 2.0)))
        else:
            corner.append((wanted - got) // 2 if center_pad else 0)
    return new, corner


class Boxes(unittest.TestCase):
    def test_a_detectors_card(self):
        made = {"input": {"size": [8, 9]}, "resize": {"mode": "stretch"}, "output": {"boxes": {"form": "yolov8"}}}
        card = lenslet.Card(made)
        self.assertEqual(pickle.loads(pickle.dumps(card)).preparation, card.preparation)
        made["output"]["boxes"]["form"] = "yolo"
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "output.boxes.form is 'yolo'"):
            lenslet.Card(made)

    def test_drawn_cards(self):
        random = np.random.default_rng()
        tried = set()
        for number in range(400):
            height, width, *size = (int(2 ** random.uniform(0, most)) for most in (12, 12, 10, 10))
            mode = [None, "stretch", "shorter_side", "longer_side", "fit"][number % 5]
            resize = None if mode is None else {"mode": mode, "filter": "bilinear"}
            if mode == "shorter_side":
                resize["size"] = max(size) + int(random.integers(0, 30))
            elif mode == "longer_side":
                resize["size"] = int(random.integers(1, min(size) + 1))
            if mode in ("longer_side", "fit"):
                resize["round_down"] = bool(random.integers(0, 2))
            center = bool(random.integers(0, 2))
            made = {"input": {"size": size}, "resize": resize, "crop": "center"}
            if mode is None:
                del made["resize"]
            if mode not in ("stretch", "shorter_side"):
                made["pad"] = {"color": [114, 7, 250], "position": "center" if center else "top_left"}
            card = lenslet.Card(made)
            (new_height, new_width), (top, left) = place(height, width, size, resize, center)
            boxes = random.uniform(-2000, 2000, (int(random.integers(0, 9)), 4)).astype(np.float32)
            part = lenslet.Rect(int(random.integers(0, 99)), int(random.integers(0, 99)), height, width)
            exact = boxes.astype(np.float64) - [left, top, left, top]
            exact *= [width / new_width, height / new_height] * 2
            for shift, given in (((0, 0), ()), ((part.left, part.top), (part,))):
                whole = (height, width) if not given else (part.top + height + 5, part.left + width)
                with self.subTest(card=made, photo=(height, width), part=given):
                    mapped = card.photo_box(boxes, *whole, *given)
                    self.assertEqual((mapped.dtype, mapped.shape), (np.float32, boxes.shape))
                    np.testing.assert_allclose(mapped, exact + np.tile(shift, 2), rtol=1.2e-7, atol=1e-8)
            tried.add((mode, resize and resize.get("round_down"), center))
        self.assertEqual(len(tried), 2 + 2 + 2 + 4 + 4)

    def test_a_rectangle_is_found_again_in_tiles(self):
        card = lenslet.Card(
            {
                "input": {"size": [64, 96], "layout": "NHWC"},
                "resize": {"mode": "fit", "antialias": False},
                "pad": {"color": [0, 0, 0], "position": "center"},
            }
        )
        photo = np.zeros((300, 410, 3), np.uint8)
        photo[50:203, 77:301] = 255
        for tile_size in ((128, 192), (50, 50), (1000, 1000)):
            found = []
            for tile in lenslet.image_tiles(*photo.shape[:2], *tile_size, overlap=20):
                self.assertEqual(photo[tile.slices].shape, (tile.height, tile.width, 3))
                bright = np.argwhere(card.prepare(photo[tile.slices])[:, :, 0] > 127)
                if bright.size:
                    (top, left), (bottom, right) = bright.min(0), bright.max(0) + 1
                    found.append(card.photo_box((left, top, right, bottom), *photo.shape[:2], tile))
            found = np.array(found)
            union = [*found[:, :2].min(0), *found[:, 2:].max(0)]
            pixel = max(1, tile_size[0] / 64, tile_size[1] / 96) if tile_size[0] < 1000 else 410 / 96
            np.testing.assert_allclose(union, [77, 50, 301, 203], atol=pixel)

    def test_tiles(self):
        cases = (100, 257, 32, 40, 7), (9, 9, 10, 4, 0), (40, 80, 40, 40, 39)
        for height, width, tile_height, tile_width, overlap in cases:
            tiles = lenslet.image_tiles(height, width, tile_height, tile_width, overlap)
            tops, lefts = (
                [min(i * (tile - overlap), side - min(side, tile)) for i in range(side)]
                for side, tile in ((height, tile_height), (width, tile_width))
            )
            size = min(height, tile_height), min(width, tile_width)
            expected = [(top, left, *size) for top in sorted(set(tops)) for left in sorted(set(lefts))]
            self.assertEqual(tiles, expected)
            self.assertIsInstance(tiles[0], lenslet.Rect)
        self.assertEqual(pickle.loads(pickle.dumps(tiles)), tiles)
        self.assertEqual(len(lenslet.image_tiles(1000, 1000, 1, 1, 0)), 1_000_000)
        for wrong in (
            (0, 9, 4, 4, 1), (9, 9, 4, -4, 1), (9, 9, 4, 4, 4), (9, 9, 4, 4, -1), (9.5, 9, 4, 4, 1), (9, 9, 4, 2**63, 1),
        ):  # fmt: skip
            with self.subTest(wrong), self.assertRaises(lenslet.InvalidArgumentError):
                lenslet.image_tiles(*wrong)
        with self.assertRaises(lenslet.LimitError):
            lenslet.image_tiles(1001, 1000, 1, 1, 0)
        with self.assertRaises(lenslet.LimitError):
            lenslet.image_tiles(2**62, 2**62, 1, 1, 0)

    def test_kinds_of_boxes(self):
        card = lenslet.Card({"input": {"size": [50, 50]}, "resize": {"mode": "stretch"}})
        given = np.arange(24, dtype=np.float64).reshape(2, 3, 4)
        kinds = given, given.tolist(), given.astype(np.float16), given[:, ::-1], given[0], tuple(given[0, 0])
        for boxes in kinds:
            kept = np.array(boxes)
            np.testing.assert_array_equal(card.photo_box(boxes, 100, 25), kept * np.array([0.5, 2, 0.5, 2]))
            np.testing.assert_array_equal(np.array(boxes), kept)  # not changed
        self.assertEqual(card.photo_box(np.empty((0, 4)), 100, 25).shape, (0, 4))
        odd = card.photo_box([np.nan, -np.inf, np.inf, 1], 100, 25)
        np.testing.assert_array_equal(odd, np.float32([np.nan, -np.inf, np.inf, 2]))
        part = card.photo_box(given[0, 0], 100, 25, [80, 5, 20, 20])
        np.testing.assert_array_equal(part, np.float32([5, 80.4, 5.8, 81.2]))

    def test_misuse(self):
        card = lenslet.Card({"input": {"size": [50, 50]}, "resize": {"mode": "stretch"}})
        box = [1, 2, 3, 4]
        for wrong, message in (
            (([1, 2, 3], 9, 9), r"boxes of shape \[3\]"),
            ((7, 9, 9), r"boxes of shape \[\]"),
            ((np.zeros((4, 3)), 9, 9), r"boxes of shape \[4, 3\]"),
            ((["left", 2, 3, 4], 9, 9), "boxes or part .*could not convert"),
            (([10**400, 2, 3, 4], 9, 9), "too large"),
            ((None, 9, 9), "boxes of"),
            ((box, 0, 9), "height is 0"),
            ((box, 9, -1), "width is -1"),
            ((box, 9, 2.0), "width is a float"),
            ((box, 9, 2**64), "width is "),
            ((box, 9, 2**30), "each side may be 1 to"),
            ((box, 9, 9, 5), "part"),
            ((box, 9, 9, (1, 2, 3)), "part"),
            ((box, 9, 9, (1, 2, 3, 4, 5)), "part"),
            ((box, 9, 9, (1, 2, 3, 4.0)), "part.width is a float"),
            ((box, 9, 9, (-1, 2, 3, 4)), "part.top is -1"),
            ((box, 9, 9, (6, 2, 4, 4)), "4 x 4 pixels at x = 2, y = 6 are not inside a photo of 9 x 9"),
            ((box, 9, 9, (0, 2, 0, 4)), "are not inside"),
            ((box, 9, 9, (2**62, 2**62, 2**62, 2**62)), "are not inside"),
            ((np.empty((0, 4)), 9, 9, (6, 2, 4, 4)), "are not inside"),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(lenslet.InvalidArgumentError, message):
                card.photo_box(*wrong)
        filled = lenslet.Card({"input": {"size": [50, 50]}})
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "after resizing"):
            filled.photo_box(box, 50, 49)


class Examples(unittest.TestCase):
    """The examples of the documents with a network of three candidates, whose scores are the means of R, G and B."""

    def setUp(self):
        centres = [[100, 200, 300], [150, 250, 350], [20, 40, 60], [30, 50, 70], [0, 0, 0], [0, 0, 0]]
        model = written(
            [
                node("GlobalAveragePool", ["image"], "pooled"),
                node("Flatten", ["pooled"], "means"),
                node("Mul", ["means", "mask"], "scores"),
                node("Add", ["scores", "centres"], "found"),
            ],
            {"image": (1, [1, 3, 640, 640])},
            {"found": (1, [1, 6, 3])},
            [
                initializer("mask", [1, 6, 3], [0] * 12 + [1] * 3 + [0] * 3),
                initializer("centres", [1, 6, 3], np.ravel(centres)),
            ],
        )
        temporary = tempfile.TemporaryDirectory(prefix="lenslet-boxes-")
        self.addCleanup(temporary.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(temporary.name)
        pathlib.Path("yolo.onnx").write_bytes(model)
        pathlib.Path("yolo.card.json").write_text(
            """{"input": {"size": [640, 640]}, "normalize": {"scale": 0.00392156862745098},
            "resize": {"mode": "fit", "antialias": false}, "pad": {"color": [114, 114, 114], "position": "center"}}"""
        )
        self.photo = np.zeros((700, 1300, 3), np.uint8)
        self.photo[:, :640, 0] = self.photo[:, 640:, 2] = 255  # red, then blue

    def run_example(self, document):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL)
        [block] = [block for block in blocks if "photo_box" in block]
        names = {"lenslet": lenslet, "np": np, "photo": self.photo}
        exec(block, names)
        return names

    def test_of_model_cards(self):
        if importlib.util.find_spec("PIL") is None:
            self.skipTest("PIL is not installed")
        from PIL import Image

        Image.fromarray(self.photo).save("street.png")
        names = self.run_example("model-card.md")
        red, blue = np.array([90, 135, 110, 165]), np.array([270, 315, 330, 385])
        expected = [
            (red if left == 0 else blue) + np.array([left, top, left, top]) for top in (0, 60) for left in (0, 544, 660)
        ]
        np.testing.assert_array_equal(names["found"][:, :4], expected)
        scores = names["found"][:, 4]
        np.testing.assert_allclose(scores, [1, 544 / 640, 1] * 2, rtol=1e-5)
        whole = names["detect"](lenslet.Rect(0, 0, 700, 1300))  # 345 x 640 below 147 rows of padding
        lines = np.array([0, 147, 0, 147])
        by = np.array([1300 / 640, 700 / 345] * 2)
        np.testing.assert_allclose(whole[:, :4], [(red - lines) * by, (blue - lines) * by], rtol=1e-6)

    def test_of_python(self):
        boxes = self.run_example("python.md")["boxes"]
        np.testing.assert_array_equal(boxes[0], [90 + 660, 135 + 60, 110 + 660, 165 + 60])


if __name__ == "__main__":
    unittest.main()
