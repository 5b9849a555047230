"""Runs the built command on models written here field by field, with the writer of the install tests: needs only
Python's standard library.

LENSLET_COMMAND is the command; LENSLET_SHARED the shared acceptance data, if it is there.
"""

import array
import ast
import json
import os
import pathlib
import pty
import re
import resource
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "install"))
from tiny_model import FLOAT, initializer, model, node, port  # noqa: E402

tensor_pb = initializer

COMMAND = os.environ["LENSLET_COMMAND"]
SHARED = pathlib.Path(os.environ.get("LENSLET_SHARED") or ROOT.parent / "shared" / "data")
# Enough for the command, its threads and the small models; an allocation by a false header far exceeds it.
ADDRESS_SPACE = None if os.environ.get("LENSLET_SANITIZE") else 2 << 30


def lenslet(
    *arguments,
    limited=0,
    timeout=300,
    device="cpu",
    stdout=subprocess.PIPE,
    stdin=subprocess.DEVNULL,
    closed=(),
    before=None,
):
    """On the CPU, so that machines with a GPU give the same; `device`: the default of "--device", None for none.
    `limited`: bytes of address space; `closed`: descriptors; `before`: called last in the child."""

    def prepare():
        if limited and ADDRESS_SPACE:
            resource.setrlimit(resource.RLIMIT_AS, (limited, limited))
        for descriptor in closed:
            os.close(descriptor)
        if before:
            before()

    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=timeout,
        stdin=stdin,
        env={**os.environ, "LENSLET_DEVICE": device or ""},
        preexec_fn=prepare,
    )


def at_terminal(*arguments, **variables):
    """The command's output on a terminal: exit status, and stdout and stderr combined."""
    try:
        ours, theirs = pty.openpty()
    except OSError as error:  # as in a chroot without /dev/pts
        raise unittest.SkipTest(f"no pseudo-terminal: {error}") from error
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "LENSLET_DEVICE")}
    child = subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm", **variables},
    )
    os.close(theirs)
    text = b""
    try:
        while block := os.read(ours, 65536):
            text += block
    except OSError:  # the end of a terminal on Linux
        pass
    os.close(ours)
    return child.wait(), text.decode().replace("\r\n", "\n")


def options_by_verb(*verb):
    """{"bench conv": {"--set", ...}, ...}: the options in the --help of `verb` and of those below it; "" has the
    command's own."""
    text = lenslet(*verb, "--help").stdout
    found = {" ".join(verb): set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.MULTILINE))}
    for name in re.findall(r"^  ([a-z]+) ", text.partition("\nSubcommands:\n")[2].partition("\n\n")[0], re.MULTILINE):
        found.update(options_by_verb(*verb, name))
    return found


def write_npy(file, shape, values, descr="<f4"):
    header = repr({"descr": descr, "fortran_order": False, "shape": tuple(shape)}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    code = {"<f4": "f", "<f8": "d", "<i8": "q"}[descr]
    data = array.array(code, values).tobytes()
    file.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def read_npy(file):
    data = file.read_bytes()
    end = 10 + struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:end].decode())
    return header["shape"], list(array.array({"<f4": "f", "<i8": "q"}[header["descr"]], data[end:]))


def write_ppm(file, height, width, pixels):
    file.write_bytes(f"P6 {width} {height} 255\n".encode() + bytes(pixels))


def noise(count, seed):
    """Reproducible values in [-1, 1)."""
    values = []
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append((seed >> 11) / 2**52 - 1)
    return values


def conv_net():
    """x[N,3,12,10] -> Conv 3x3 -> Relu -> Conv 1x1 -> GlobalAveragePool -> Flatten -> y[N,5]"""
    return model(
        [
            node("Conv", ["x", "w1", "b1"], "c1"),
            node("Relu", ["c1"], "r1"),
            node("Conv", ["r1", "w2"], "c2"),
            node("GlobalAveragePool", ["c2"], "p"),
            node("Flatten", ["p"], "y"),
        ],
        [port("x", FLOAT, ["N", 3, 12, 10])],
        [port("y", FLOAT, ["N", 5])],
        [
            initializer("w1", [8, 3, 3, 3], noise(216, 1)),
            initializer("b1", [8], noise(8, 2)),
            initializer("w2", [5, 8, 1, 1], noise(40, 3)),
        ],
    )


class Verb(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lenslet-command-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.net = self.write("net.onnx", conv_net())

    def write(self, name, data):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    def fails(self, code, text, *arguments, **options):
        """Exit status, and one line on stderr that contains `text`."""
        done = lenslet(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertTrue(done.stderr.startswith("lenslet: error: "), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual(done.stdout, "")

    def passes(self, *arguments, code=0, **options):
        done = lenslet(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def json_of(self, *arguments, code=0):
        return json.loads(self.passes(*arguments, "--json", code=code))


class WithPhotos(Verb):
    def setUp(self):
        super().setUp()
        subprocess.run([sys.executable, ROOT / "tests/install/tiny_model.py", self.folder], check=True)
        self.model = ("classify", "--model", self.folder / "rgb.onnx", "--labels", self.folder / "rgb.txt")
