"""Letterboxes of cards beside Ultralytics' and YOLOX's formulas, with Pillow's pixels in NumPy's padding."""

import unittest

import lenslet
import numpy as np


def letterbox(image, pixels_of, size, ratio, center):
    """LetterBox (ultralytics/data/augment.py) with auto=False and scaleup=True, or without `center` preproc
    (yolox/data/data_augment.py), which rounds down."""
    new_height, new_width = (max(1, round(side * ratio) if center else int(side * ratio)) for side in image.shape[:2])
    above, beside = size[0] - new_height, size[1] - new_width
    top, left = (round(above / 2 - 0.1), round(beside / 2 - 0.1)) if center else (0, 0)
    if center:
        assert top + new_height + round(above / 2 + 0.1) == size[0]
        assert left + new_width + round(beside / 2 + 0.1) == size[1]
    result = np.empty((*size, 3), np.uint8)
    result[:] = (114, 7, 250)
    result[top : top + new_height, left : left + new_width] = pixels_of(image, new_height, new_width)
    return result


class Letterbox(unittest.TestCase):
    def test_drawn_sizes(self):
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("PIL is not installed")
        filters = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
        random = np.random.default_rng()
        shapes = [[int(2 ** random.uniform(0, 10)) for _ in range(4)] for _ in range(150)]
        shapes += [[9, 77, 640, 640], [1, 1, 32, 32], [1, 3000, 32, 48], [3000, 1, 48, 32], [31, 64, 31, 64]]
        for number, (height, width, *size) in enumerate(shapes):
            name = random.choice(list(filters))
            center = number % 2 == 0
            ratio = min(size[0] / height, size[1] / width)
            resize = {"mode": "fit", "filter": name, "round_down": not center}
            if number % 3 == 0:
                longer = int(random.integers(1, min(size) + 1))
                resize |= {"mode": "longer_side", "size": longer}
                ratio = longer / max(height, width)

            def pixels_of(image, new_height, new_width):  # columns first: docs/model-card.md
                image = Image.fromarray(image).resize((new_width, image.shape[0]), filters[name])
                return image.resize((new_width, new_height), filters[name])

            image = random.integers(0, 256, (height, width, 3), np.uint8)
            card = lenslet.Card(
                {
                    "input": {"size": size, "layout": "NHWC"},
                    "resize": resize,
                    "pad": {"color": [114, 7, 250], "position": "center" if center else "top_left"},
                }
            )
            expected = letterbox(image, pixels_of, size, ratio, center)
            np.testing.assert_array_equal(card.prepare(image), expected, str((height, width, size, resize)))


if __name__ == "__main__":
    unittest.main()
