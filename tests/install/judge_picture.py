"""judge_picture.py WHAT FILE...: checks a sample's picture.

faces PRINTED PNG EXPECTED.json: one face, where it is expected, and a frame there. larger PNG PPM: three times as large,
and in each 3 x 3 pixels about what the one pixel was. halves PNG: half of the colours of classes 0 and 2. above PNG: two of
4 x 3 cells, the one that is further away the brighter.
"""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from read_png import read_png  # noqa: E402


def read_ppm(file):
    _, width, height, _, pixels = pathlib.Path(file).read_bytes().split(maxsplit=4)
    return (int(height), int(width), 3), list(pixels)


def judge_faces(printed, png, expected):
    found = re.findall(r"left (-?\d+) top (-?\d+) right (-?\d+) bottom (-?\d+)", pathlib.Path(printed).read_text())
    assert len(found) == 1, found
    box = [int(number) for number in found[0]]
    (height, width, _), pixels = read_png(png)
    wanted = json.loads(pathlib.Path(expected).read_text())["best_box_xyxy_relative"]
    for number, of, size in zip(box, wanted, (width, height, width, height)):
        assert abs(number - of * size) <= 1, (box, wanted)
    at = 3 * (box[1] * width + (box[0] + box[2]) // 2)
    assert pixels[at : at + 3] == [40, 255, 40], pixels[at : at + 3]


def judge_larger(png, photo):
    (height, width, _), pixels = read_png(png)
    (h, w, _), small = read_ppm(photo)
    assert (height, width) == (3 * h, 3 * w)
    for c in range(3):
        wrong = 0
        for y in range(h):
            for x in range(w):
                block = [pixels[3 * ((3 * y + i) * width + 3 * x + j) + c] for i in range(3) for j in range(3)]
                wrong += abs(sum(block) / 9 - small[3 * (y * w + x) + c])
        print(f"channel {c}: {wrong / h / w:.2f} of 255 beside the photo")
        assert wrong / h / w < 4


def judge_halves(png):
    (height, width, _), pixels = read_png(png)
    for y in range(height):
        for x in range(width):
            expected = [0, 64, 120] if x >= 3 * width // 4 else [120, 0, 0]
            at = 3 * (y * width + x)
            assert pixels[at : at + 3] == expected, (y, x, pixels[at : at + 3])


def judge_above(png):
    shape, pixels = read_png(png)
    assert tuple(shape) == (4, 3, 3), shape
    drawn = {(i // 9, i // 3 % 3): pixels[i] for i in range(0, len(pixels), 3) if pixels[i] > 0}
    assert sorted(drawn) == [(0, 1), (3, 2)], drawn
    assert drawn[0, 1] == 255 > drawn[3, 2], drawn


{"faces": judge_faces, "larger": judge_larger, "halves": judge_halves, "above": judge_above}[sys.argv[1]](*sys.argv[2:])
