"""seeds.py files|pictures FOLDER: writes a fuzz target's seeds.

files: the small models and tensors of ONNX's own cases, if they exist (Debian's libonnx-testdata, build/peers), and
tiny_model.py's. pictures: one of each format, 8 x 6 pixels, and the small photos of the shared data, if they exist.
"""

import base64
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "install"))
import tiny_model  # noqa: E402

MOST_BYTES = 2048  # small seeds are mutated fastest

# Written by Pillow and, the last one, by heif-enc.
PICTURES = {
    "lossy.webp": "UklGRkQAAABXRUJQVlA4IDgAAADQAQCdASoIAAYABABoJbACdAEPDAbF4AD+3bvn6mB5C2uQalOYSJfv8RAzDf324+s6gTqlz8AAAA==",
    "lossless.webp": "UklGRnIAAABXRUJQVlA4TGYAAAAvB0ABALkyRPQ/dhHR/4Catg1Y7L9Ihpm2bWN+R6Lt2La23cTpB8lVTlN5BsuVRUlHzS5MAvswQUROCXgw"
    "NDD0JFSGQMKT6BDykECk4Xl5+AcJVIiN5UYPkHAcTBYntoDGB7O5GGg=",
    "alpha.webp": "UklGRoQAAABXRUJQVlA4WAoAAAAQAAAABwAABQAAQUxQSCYAAAABLyCQTUMWObRHRDQ2IGQjSadwCq/wCq/w/lqdiP7HYKuDW73qA1ZQOCA4"
    "AAAA0AEAnQEqCAAGAAQAaCWwAnQBDwwGzwAA/t275+pgeQtrkGpTmEgM0Ukns9//PAH2g1Ktlu5gAAA=",
    "baseline.jpg": "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAFA3PEY8MlBGQUZaVVBfeMiCeG5uePWvuZHI//////////////////////////////////////////"
    "//////////2wBDAVVaWnhpeOuCguv/////////////////////////////////////////////////////////////////////////wAARCAAGAAgDASI"
    "AAhEBAxEB/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABYQAQEBAAAAAAAAAAAAAAAAAAADAf/EABUBAQEAAAAAAAAAAAAAAAAAAAEC/8QAFxEAAwEAAA"
    "AAAAAAAAAAAAAAAAECEf/aAAwDAQACEQMRAD8ATjgCGxinh//Z",
    "gray.jpg": "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAFA3PEY8MlBGQUZaVVBfeMiCeG5uePWvuZHI/////////////////////////////////////////////"
    "///////wAALCAAGAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABYQAQEBAAAAAAAAAAAAAAAAAAMAAf/aAAgBAQAAPwAY5f/Z",
    "rgb.bmp": "Qk3GAAAAAAAAADYAAAAoAAAACAAAAAYAAAABABgAAAAAAJAAAADEDgAAxA4AAAAAAAAAAAAAHNwJiNwnptxIUtxoudyIetyoedzJhNznF7MJarMnwb"
    "NIZbNoYrOIt7OoZrPJbrPnEokJUIknlolIzoloZImIVYmokInJjYnnDF8JN18nZV9Ill9owl+IqF+oXl/JWF/nBjQJHjQnODRIUDRoajSIijSomDTJoDTn"
    "AgsJBwsnDAtIEgtoFwuIHQuoJAvJKwvn",
    "rgb.avif": "AAAAIGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZk1BMUIAAADrbWV0YQAAAAAAAAAhaGRscgAAAAAAAAAAcGljdAAAAAAAAAAAAAAA"
    "AAAAAAAOcGl0bQAAAAAAAQAAAB5pbG9jAAAAAEQAAAEAAQAAAAEAAAETAAAALQAAAChpaW5mAAAAAAABAAAAGmluZmUCAAAAAAEAAGF2MDFDb2xvcgAAAA"
    "BqaXBycAAAAEtpcGNvAAAAFGlzcGUAAAAAAAAACAAAAAYAAAAQcGl4aQAAAAADCAgIAAAADGF2MUOBAAwAAAAAE2NvbHJuY2x4AAEADQAGgAAAABdpcG1h"
    "AAAAAAAAAAEAAQQBAoMEAAAANW1kYXQSAAoIGAi9aICGg0IyHxrHh4XhzDDDAoBAAJA2DMBbPHmq//mqocAyR5f/5WQ=",
    "rgb.heic": "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAa1tZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAA"
    "AA5waXRtAAAAAAACAAAAEGlkYXQAAAAAAAgABgAAADhpbG9jAQAAAERAAAIAAQAAAAAAAAHRAAEAAAAAAAAANQACAAEAAAAAAAAAAQAAAAAAAAAIAAAAOG"
    "lpbmYAAAAAAAIAAAAVaW5mZQIAAAEAAQAAaHZjMQAAAAAVaW5mZQIAAAAAAgAAZ3JpZAAAAADYaXBycAAAALZpcGNvAAAAdmh2Y0MBA3AAAAAAAAAAAAAe"
    "8AD8/fj4AAAPAyAAAQAYQAEMAf//A3AAAAMAkAAAAwAAAwAeugJAIQABACpCAQEDcAAAAwCQAAADAAADAB6gIIEFluqumubgQEDAgAAAAwCAAAADAIQiAA"
    "EABkQBwXPBiQAAABRpc3BlAAAAAAAAAEAAAABAAAAAFGlzcGUAAAAAAAAACAAAAAYAAAAQcGl4aQAAAAADCAgIAAAAGmlwbWEAAAAAAAAAAgABAoECAAIC"
    "A4QAAAAaaXJlZgAAAAAAAAAOZGltZwACAAEAAQAAAD1tZGF0AAAAMSgBrxkhaoJA95YNQtEFLtOfrRporn05+JPEwaTmNfGcabLP0u2bBa5iXjSUqQoZQ8"
    "A=",
}  # fmt: skip


def png(width, height, colour, bytes_a_pixel):
    rows = (bytes((x * y) % 251 for x in range(width * bytes_a_pixel)) for y in range(height))
    return tiny_model.png(width, height, colour, rows)


def small(folder, pattern):
    for file in sorted(folder.rglob(pattern)):
        if file.is_file() and file.stat().st_size <= MOST_BYTES:
            yield file


def main():
    kind, out = sys.argv[1], pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    if kind == "files":
        subprocess.run([sys.executable, ROOT / "tests" / "install" / "tiny_model.py", out], check=True)
        for photo in out.glob("*.ppm"):
            photo.unlink()
        for cases in (pathlib.Path("/usr/share/libonnx-testdata/data"), ROOT / "build" / "peers" / "onnx-cases"):
            for pattern in ("model.onnx", "input_0.pb"):
                for file in list(small(cases, pattern))[::8]:  # some of each operator: all are read at first
                    (out / "-".join(file.parts[-3:])).write_bytes(file.read_bytes())
        return
    for name, text in PICTURES.items():
        (out / name).write_bytes(base64.b64decode(text))
    for color, bytes_a_pixel in ((0, 1), (2, 3), (6, 4)):
        (out / f"color{color}.png").write_bytes(png(8, 6, color, bytes_a_pixel))
    (out / "rgb.ppm").write_bytes(b"P6\n8 6\n255\n" + bytes(range(144)))
    (out / "gray16.pgm").write_bytes(b"P5\n8 6\n65535\n" + bytes(range(96)))
    for file in small(ROOT.parent / "shared" / "data" / "images", "*.*"):
        (out / file.name).write_bytes(file.read_bytes())


if __name__ == "__main__":
    main()
