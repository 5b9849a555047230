"""Top-1 of `lenslet quantize` and of ONNX Runtime's static quantiser on crops of the labelled photos of the shared data.

    quantized_accuracy.py build/release/tools/lenslet ../shared/data resnet50.onnx squeezenet1.1.onnx

Both calibrate on the 18 other photos; ONNX Runtime runs all files. Set 0 has the centre of each of the 50 photos, its mirror
image and the corners, the others six drawn crops each. p: two-sided sign test; crops of a photo are not independent, so
photos are counted, too.
"""

import argparse
import json
import subprocess
import tempfile
from math import comb
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from PIL import Image, ImageOps

SETS, CROPS = 5, 6
CARDS = Path(__file__).resolve().parents[2] / "models" / "cards"


def opened(file, side):
    image = Image.open(file).convert("RGB")
    width, height = image.size
    wide = width >= height
    size = (max(side, int(side * width / height)), side) if wide else (side, max(side, int(side * height / width)))
    return image.resize(size, Image.BILINEAR)


def crop(image, x, y):
    return image.crop((x, y, x + 224, y + 224))


def centre(image):
    return crop(image, round((image.width - 224) / 2), round((image.height - 224) / 2))


def crops_of(file, random):
    image = opened(file, 256)
    corners = [crop(image, x, y) for x in (0, image.width - 224) for y in (0, image.height - 224)]
    sets = [[centre(image), ImageOps.mirror(centre(image)), *corners]]
    for _ in range(SETS - 1):
        sets.append([])
        for _ in range(CROPS):
            image = opened(file, int(random.integers(232, 289)))
            drawn = crop(image, int(random.integers(0, image.width - 223)), int(random.integers(0, image.height - 223)))
            sets[-1].append(ImageOps.mirror(drawn) if random.random() < 0.5 else drawn)
    return sets


def prepared(pictures, card):
    pixels = numpy.stack([numpy.asarray(p, numpy.float32) for p in pictures])
    pixels = pixels[..., ::-1] if card["input"]["channels"] == "BGR" else pixels
    how = card["normalize"]
    pixels = (pixels * numpy.float32(how["scale"]) - numpy.float32(how["mean"])) / numpy.float32(how["std"])
    return numpy.ascontiguousarray(pixels if card["input"]["layout"] == "NHWC" else pixels.transpose(0, 3, 1, 2), numpy.float32)


def classes(file, inputs):
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return numpy.array([session.run(None, {name: x[None]})[0].argmax() for x in inputs])


class Feeds(list, CalibrationDataReader):
    def get_next(self):
        return self.pop(0) if self else None


def by_onnxruntime(file, inputs, folder):
    model = onnx.load(file)
    constants = {tensor.name for tensor in model.graph.initializer}
    ports = [port for port in model.graph.input if port.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(ports)
    if model.opset_import[0].version < 13:
        model.ir_version = max(model.ir_version, 7)
        model = onnx.version_converter.convert_version(model, 13)
    onnx.save(model, folder / "raised.onnx")
    quant_pre_process(folder / "raised.onnx", folder / "folded.onnx", skip_symbolic_shape=True)
    feeds = Feeds({ports[0].name: x[None]} for x in inputs)
    quantize_static(folder / "folded.onnx", folder / "theirs.onnx", feeds, quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)  # fmt: skip
    return folder / "theirs.onnx"


def sign_test(a, b):
    a, b = int(a), int(b)
    return min(1, 2 * sum(comb(a + b, i) for i in range(min(a, b) + 1)) / 2 ** (a + b))


def compare(name, right, before):
    lost, won = (before & ~right).sum(), (~before & right).sum()
    nets = (right.astype(int) - before).sum(axis=(0, 2))
    worse, better = (nets < 0).sum(), (nets > 0).sum()
    sets = " ".join(f"{x:+d}" for x in (right.astype(int) - before).sum(axis=(1, 2)))
    print(f"  {name}: {right.sum()} right; by set {sets}; lost {lost}, won {won}, p {sign_test(lost, won):.3f}; "
          f"photos worse {worse}, better {better}, p {sign_test(worse, better):.3f}", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lenslet")
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+", type=Path, help="a file, or a name in the data's models/; its card is among ours")
    arguments = parser.parse_args()
    data = arguments.data
    rows = [line.split("\t") for line in (data / "labels" / "imagenet_1000_wnid.tsv").read_text().splitlines()]
    index = {row[1]: int(row[0]) for row in rows if row[0].isdigit()}
    photos, random = sorted((data / "images" / "imagenet-sample").iterdir()), numpy.random.default_rng(43)
    labels = numpy.repeat([index[photo.name.split("_")[0]] for photo in photos], CROPS)
    drawn = [crops_of(photo, random) for photo in photos]
    calibration = [centre(opened(photo, 256)) for photo in sorted((data / "images" / "photos").iterdir())]
    for model in arguments.models:
        file = model if model.exists() else data / "models" / model
        card_file = CARDS / f"{file.stem}.card.json"
        card = json.loads(card_file.read_text())
        with tempfile.TemporaryDirectory() as made:
            ours = Path(made) / "ours.onnx"
            command = [arguments.lenslet, "quantize", file, "--card", card_file, "--photos", data / "images" / "photos"]
            subprocess.run([*command, "-o", ours, "--blame-photos", "0"], check=True, capture_output=True)
            theirs = by_onnxruntime(file, prepared(calibration, card), Path(made))
            right = {}
            for name, of in (("fp32", file), ("lenslet", ours), ("ONNX Runtime", theirs)):
                found = [classes(of, prepared(sum((sets[k] for sets in drawn), []), card)) == labels for k in range(SETS)]
                right[name] = numpy.stack(found).reshape(SETS, len(photos), CROPS)
        print(f"{file.stem}: fp32 {right['fp32'].sum()} of {right['fp32'].size} right")
        for name in ("lenslet", "ONNX Runtime"):
            compare(name, right[name], right["fp32"])
        compare("lenslet beside ONNX Runtime", right["lenslet"], right["ONNX Runtime"])


if __name__ == "__main__":
    main()
