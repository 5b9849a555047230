"""Shared by the tests of Ray and Spark: a small network with its card, pictures of which a third is broken, and the
results of a single process. Needs lenslet, and onnx for the network."""

import json
import math
import os
import pathlib
import random
import signal
import struct
import sys

import lenslet

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "install"))
import tiny_model  # noqa: E402

SIDE, CLASSES, COUNT = 24, 6, 2000
LABELS = ["ash", "birch", "cedar", "elm", "fir", "hazel"]
CARD = {
    "name": "trees of noise",
    "input": {"name": "image", "layout": "NCHW", "channels": "RGB", "size": [SIDE, SIDE]},
    "resize": {"mode": "shorter_side", "size": 28, "filter": "bilinear", "antialias": True},
    "crop": "center",
    "normalize": {"scale": 0.0078125, "mean": [1, 1, 1], "std": [1, 1, 1]},
    "output": {"name": "scores", "softmax": True, "class_offset": 0},
}


def write_model(folder):
    """net.onnx, net.card.json and net.txt: a 3x3 convolution to 8 channels, their means, a product to 6 classes."""
    from onnx import TensorProto, helper, parser

    drawn = random.Random(12)

    def weights(name, dims, scale):
        values = [drawn.uniform(-scale, scale) for _ in range(math.prod(dims))]
        return helper.make_tensor(name, TensorProto.FLOAT, dims, values)

    net = parser.parse_model(f'''<ir_version: 8, opset_import: ["": 13]>
        net (float[N,3,{SIDE},{SIDE}] image) => (float[N,{CLASSES}] scores) {{
            sums = Conv(image, filters, bias)
            rectified = Relu(sums)
            pooled = GlobalAveragePool(rectified)
            flat = Flatten(pooled)
            scores = Gemm(flat, matrix, offset)
        }}''')
    net.graph.initializer.extend((weights("filters", [8, 3, 3, 3], 0.5), weights("bias", [8], 0.5),
                                  weights("matrix", [8, CLASSES], 9), weights("offset", [CLASSES], 1)))  # fmt: skip
    folder = pathlib.Path(folder)
    (folder / "net.onnx").write_bytes(net.SerializeToString())
    (folder / "net.txt").write_text("\n".join(LABELS) + "\n")
    (folder / "net.card.json").write_text(json.dumps({**CARD, "labels": "net.txt"}))
    return folder / "net.onnx"


def picture(index):
    """A PNG or PPM of noise; of every nine, one is truncated, one is text, one is empty."""
    drawn = random.Random(index)
    width, height = drawn.randrange(SIDE, 48), drawn.randrange(SIDE, 48)
    base = drawn.randrange(200)
    pixels = bytes(base + value % 56 for value in drawn.randbytes(width * height * 3))
    lines = (pixels[line * width * 3 : (line + 1) * width * 3] for line in range(height))
    data = tiny_model.png(width, height, 2, lines, level=1) if index % 2 else b"P6 %d %d 255\n" % (width, height) + pixels
    return {2: data[: len(data) // 2], 4: b"no picture, row %d\n" % index, 7: b""}.get(index % 9, data)


def broken(index):
    return index % 9 in (2, 4, 7)


def write_pictures(folder, count=COUNT):
    os.makedirs(folder)
    for index in range(count):
        (pathlib.Path(folder) / f"{index:05}.jpg").write_bytes(picture(index))


def exact(predictions):
    """For bit-exact comparison of lenslet's predictions or a table's rows."""
    if predictions is None:
        return None
    rows = [row._asdict() if hasattr(row, "_asdict") else row for row in predictions]
    return [(row["index"], row["label"], struct.pack("<f", row["prob"]).hex()) for row in rows]


def expected(model, count=COUNT, top=5):
    """{index: (exact(predictions) or None, error or None)} from one process with one thread."""
    classifier = lenslet.Classifier(model, device="cpu", threads=1)
    found = {}
    for index, result in enumerate(classifier.classify_stream(map(picture, range(count)), top)):
        error = isinstance(result, lenslet.Error)
        found[index] = (None, f"{result.kind}: {result}") if error else (exact(result), None)
    return found


def printed(expected, indices):
    """The samples' output for these, without the path: {index: fields}."""
    lines = {}
    for index in indices:
        classes, error = expected[index]
        lines[index] = [error]
        if classes is not None:
            number, label, prob = classes[0]
            lines[index] = [f"{struct.unpack('<f', bytes.fromhex(prob))[0]:.4f}", str(number), label]
    return lines


def ends_within(test_class, seconds):
    """If an engine hangs, the test fails, and its clean-up ends the processes."""

    def too_long(*_):
        raise TimeoutError(f"not done within {seconds} s, or asked to end")

    for number in signal.SIGALRM, signal.SIGTERM:
        test_class.addClassCleanup(signal.signal, number, signal.signal(number, too_long))
    test_class.addClassCleanup(signal.alarm, 0)
    signal.alarm(seconds)


def die_once(marker):
    """Kills this process, unless one has died with this marker. Nothing is cleaned up, as if the machine failed."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), 9)
