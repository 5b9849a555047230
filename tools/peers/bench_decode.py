#!/usr/bin/env python3
"""What decoding a photo takes on one core, reading its file included: lenslet, Pillow, OpenCV, torchvision, turn about.

    bench_decode.py LENSLET PHOTO... [--before LENSLET] [--draft] [--rounds 11] [--csv FILE] [--json FILE]

Each turn is a process that decodes all photos six times, the first of which does not count; its figure is the mean of
the photos' medians. lenslet's are what `classify` says of itself beside a network that takes 0.03 ms. --before: another
build of the command. --draft: also lenslet and Pillow where a card's resize.draft is true, for a shorter side of 256. A peer that cannot be imported is left out by name.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import timing

REPEATS = 5


def decoder(name):
    """Of a file's bytes to RGB pixels, and its version."""
    import numpy

    if name.startswith("Pillow"):
        import io

        import PIL
        from PIL import Image, ImageOps

        def decode(data):
            image = Image.open(io.BytesIO(data))
            if name.endswith("draft"):
                image.draft(None, [256 * side // min(image.size) for side in image.size])
            return numpy.asarray(ImageOps.exif_transpose(image).convert("RGB"))

        return PIL.__version__, decode
    if name == "OpenCV":
        import cv2

        cv2.setNumThreads(1)
        return cv2.__version__, lambda data: cv2.imdecode(numpy.frombuffer(data, numpy.uint8), cv2.IMREAD_COLOR_RGB)
    import torch
    import torchvision
    from torchvision.io import ImageReadMode, decode_image

    torch.set_num_threads(1)
    return torchvision.__version__, lambda data: decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)


def mean_of_medians(samples, photos):
    return timing.statistics.fmean(timing.statistics.median(samples[at :: len(photos)][1:]) for at in range(len(photos)))


def peer(name, photos):
    """In a process of its own: prints its version and milliseconds."""
    version, decode = decoder(name)
    samples = []
    for photo in photos * (REPEATS + 1):
        begin = time.perf_counter()
        decode(pathlib.Path(photo).read_bytes())
        samples.append((time.perf_counter() - begin) * 1e3)
    print(json.dumps([version, mean_of_medians(samples, photos)]))


def main():
    if sys.argv[1:2] == ["--one"]:
        return peer(sys.argv[2], sys.argv[3:])
    parser = timing.options(__doc__, rounds=11)
    parser.add_argument("photos", nargs="+")
    parser.add_argument("--before", metavar="LENSLET")
    parser.add_argument("--draft", action="store_true")
    arguments = parser.parse_args()
    photos, versions = arguments.photos, {}

    def ours(command, model, *more):
        found = timing.lenslet(command, "classify", "--model", model, *more, "--device", "cpu", "--threads", 1, *photos * (REPEATS + 1))
        return mean_of_medians([result["ms"]["decode"] for result in found["results"]], photos)

    def theirs(name):
        try:
            versions[name], ms = timing.in_own_process(__file__, "--one", name, *photos)
        except timing.Refused as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            return None
        return ms

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, timing.ROOT / "tests" / "install" / "tiny_model.py", folder], check=True)
        model = folder + "/rgb.onnx"
        runs = {"lenslet": lambda: ours(arguments.lenslet, model)}
        if arguments.before:
            runs["lenslet before"] = lambda: ours(arguments.before, model)
        if arguments.draft:
            card = pathlib.Path(folder, "draft.card.json")
            resize = {"mode": "shorter_side", "size": 256, "draft": True}
            card.write_text(json.dumps({"input": {"size": [224, 224]}, "resize": resize, "output": {"softmax": None}}))
            runs["lenslet, draft"] = lambda: ours(arguments.lenslet, model, "--card", card)
        for name in ("Pillow", *(["Pillow, draft"] if arguments.draft else []), "OpenCV", "torchvision"):
            runs[name] = lambda name=name: theirs(name)
        samples = timing.in_turns(runs, arguments.rounds)
    results = timing.Results(arguments, f"Decoding {len(photos)} photos on one core, files read, {arguments.rounds} rounds.",
                             "ms a photo: the median of the rounds. Ratio: lenslet / this.")  # fmt: skip
    for name, found in samples.items():
        results.add(decoder=" ".join([name, versions.get(name, "")]).strip(), ms=found,
                    ratio=timing.ratio(samples["lenslet"], found))  # fmt: skip


if __name__ == "__main__":
    main()
