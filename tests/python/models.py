"""Tiny models and pictures for the tests of the Python package: tests/install/tiny_model.py's."""

import pathlib
import subprocess
import sys
import tempfile

import lenslet
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "install"))
from tiny_model import model, port  # noqa: E402


def tiny_models():
    """A TemporaryDirectory with rgb.onnx ([N,3,224,224] -> [N,3]), segment.onnx ([N,3,H,W] -> the same), rgb.txt,
    red.ppm and blue.ppm; and its path."""
    folder = tempfile.TemporaryDirectory(prefix="lenslet-python-")
    script = ROOT / "tests" / "install" / "tiny_model.py"
    subprocess.run([sys.executable, "-B", script, folder.name], check=True)
    return folder, pathlib.Path(folder.name)


def written(nodes, inputs, outputs, initializers=()):
    """A model's bytes. Ports: {name: (ONNX's number of the element type, dimensions)}."""
    ports = ([port(name, *of) for name, of in given.items()] for given in (inputs, outputs))
    return model(nodes, *ports, initializers)


def shared_data():
    """The acceptance data, in the repository or beside it; None if it is missing."""
    for folder in (ROOT / "shared" / "data", ROOT.parent / "shared" / "data"):
        if folder.is_dir():
            return folder
    return None


class InFolder:
    """rgb.onnx and segment.onnx in a folder of the class, a picture, and rgb.onnx's result in double."""

    @classmethod
    def setUpClass(cls):
        temporary, cls.folder = tiny_models()
        cls.addClassCleanup(temporary.cleanup)
        cls.model = lenslet.Model(cls.folder / "rgb.onnx")
        cls.segment = lenslet.Model(cls.folder / "segment.onnx")

    def setUp(self):
        self.x = np.random.default_rng().random((1, 3, 224, 224), np.float32)
        self.exact = 10 * self.x.astype(np.float64).mean((2, 3))
