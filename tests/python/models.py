"""Tiny models and pictures for the tests of the Python package: tests/install/tiny_model.py's."""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tiny_models():
    """A TemporaryDirectory with rgb.onnx ([N,3,224,224] -> [N,3]), segment.onnx ([N,3,H,W] -> the same), rgb.txt, red.ppm
    and blue.ppm; and its path."""
    folder = tempfile.TemporaryDirectory(prefix="lenslet-python-")
    script = ROOT / "tests" / "install" / "tiny_model.py"
    subprocess.run([sys.executable, "-B", script, folder.name], check=True)
    return folder, pathlib.Path(folder.name)


def shared_data():
    """The acceptance data, in the repository or beside it; None where it is not there."""
    for folder in (ROOT / "shared" / "data", ROOT.parent / "shared" / "data"):
        if folder.is_dir():
            return folder
    return None
