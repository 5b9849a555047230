"""A server in a process of its own on ports of the kernel's choice, and the small models that it serves.

Models are written field by field with the writer of the install tests.
"""

import contextlib
import http.client
import importlib.util
import json
import math
import os
import pathlib
import queue
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "install"))
from tiny_model import field, initializer, node  # noqa: E402

WANTED = ("numpy", "httptools", "grpc", "google.protobuf", "prometheus_client")
ONNX_TYPES = {
    "FP32": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "BOOL": 9, "FP16": 10,
    "FP64": 11, "UINT32": 12, "UINT64": 13,
}  # fmt: skip
START_SECONDS = 60


def is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def skip_without(*names):
    """A decorator of test classes: they skip where a library is missing, and say which. (Test files have no class with
    bases that is no test: tests/python/CMakeLists.txt takes each for one.)"""
    missing = [name for name in (*WANTED, *names) if not is_there(name)]
    return unittest.skipIf(missing, f"no {', '.join(missing)} here (pip install 'lenslet-runtime[serve]' tritonclient[all])")


# ---- Models ----


def port(name, datatype, dims):
    shape = b"".join(field(1, field(2, dim) if isinstance(dim, str) else field(1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, ONNX_TYPES[datatype]) + field(2, shape)))


def model(nodes, inputs, outputs, initializers=()):
    graph = (
        b"".join(field(1, each) for each in nodes)
        + field(2, "graph")
        + b"".join(field(5, each) for each in initializers)
        + b"".join(field(11, each) for each in inputs)
        + b"".join(field(12, each) for each in outputs)
    )
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))  # IR 8, opset 13


def named(kind, inputs, output, number):
    return b"".join(field(1, name) for name in inputs) + field(2, output) + field(3, f"n{number}") + field(4, kind)


def write_models(folder):
    """rgb.onnx (the main colour of a picture, with a card), segment.onnx (the same by pixels, of any size), lookup.onnx
    (fails on numbers beyond 3), slow.onnx (some 30 ms a row), sums.onnx (two inputs, two outputs), half.onnx, types.onnx
    (every datatype, given back), label.onnx (an input that nothing reads), and four.onnx (takes 4 frames, no others)."""
    subprocess.run([sys.executable, str(ROOT / "tests" / "install" / "tiny_model.py"), str(folder)], check=True)
    card = {
        "labels": "rgb.txt",
        "input": {"name": "image", "size": [224, 224]},
        "resize": {"mode": "stretch"},
        "normalize": {"scale": 1 / 255},
        "output": {"name": "scores", "softmax": True},
    }
    (folder / "rgb.card.json").write_text(json.dumps(card))
    numbers = struct.pack("<4f", 10, 20, 30, 40)
    table = field(1, 4) + field(2, 1) + field(8, "table")
    ports = [port("x", "INT64", ["N"])], [port("y", "FP32", ["N"])]
    gathers = [
        model([node("Gather", ["table", "x"], "y")], *ports, [table + field(12, "r" * remark) + field(9, numbers)])
        for remark in range(4)
    ]
    # Where its weights are aligned in the file they could be read there, were that mapped.
    gather = next(gather for gather in gathers if gather.index(numbers) % 4 == 0)
    (folder / "lookup.onnx").write_bytes(gather)
    channels = 128
    widen = initializer("widen", [channels, 1, 1, 1], [1 / channels] * channels)
    mix = initializer("mix", [channels, channels, 1, 1], [1 / channels] * channels * channels)
    narrow = initializer("narrow", [1, channels, 1, 1], [1] * channels)
    count = 30
    layers = [named("Conv", ["x", "widen"], "v0", "first")]
    layers += [named("Conv", [f"v{i}", "mix"], f"v{i + 1}", i) for i in range(count)]
    layers.append(named("Conv", [f"v{count}", "narrow"], "y", "last"))
    shape = ["N", 1, 96, 96]
    slow = model(layers, [port("x", "FP32", shape)], [port("y", "FP32", shape)], [widen, mix, narrow])
    (folder / "slow.onnx").write_bytes(slow)
    pair = ["N", 2]
    sums = model(
        [node("Add", ["a", "b"], "sum"), node("Sub", ["a", "b"], "difference")],
        [port("a", "FP32", pair), port("b", "FP32", pair)],
        [port("sum", "FP32", pair), port("difference", "FP32", pair)],
    )
    (folder / "sums.onnx").write_bytes(sums)
    half = model([node("Relu", ["x"], "y")], [port("x", "FP16", ["N", 4])], [port("y", "FP16", ["N", 4])])
    (folder / "half.onnx").write_bytes(half)
    types = model(
        [named("Identity", [f"in_{name}"], f"out_{name}", name) for name in ONNX_TYPES],
        [port(f"in_{name}", name, pair) for name in ONNX_TYPES],
        [port(f"out_{name}", name, pair) for name in ONNX_TYPES],
    )
    (folder / "types.onnx").write_bytes(types)
    label = model(
        [node("Relu", ["x"], "y")],
        [port("label", "INT64", ["N"]), port("x", "FP32", ["N", 2])],
        [port("y", "FP32", ["N", 2])],
    )
    (folder / "label.onnx").write_bytes(label)
    four = model(
        [node("Transpose", ["x"], "t"), node("MatMul", ["t", "w"], "y")],
        [port("x", "FP32", ["frames", 2])],
        [port("y", "FP32", [2, 1])],
        [initializer("w", [4, 1], [1, 10, 100, 1000])],
    )
    (folder / "four.onnx").write_bytes(four)


def ppm(red, green, blue, width=8, height=6):
    return b"P6 %d %d 255\n" % (width, height) + bytes((red, green, blue)) * (width * height)


# ---- The server ----


class Server:
    """`lenslet serve` with `arguments`. What it prints is in `lines`, stderr in `errors`."""

    def __init__(self, *arguments, command=(sys.executable, "-m", "lenslet", "serve")):
        device = os.environ.get("LENSLET_TEST_SERVE_DEVICE", "cpu")
        arguments = ("--max-queue-ms", 0, *arguments)  # however busy the machine is, nothing is refused for that
        ports = ("--http-port", "0", "--grpc-port", "0", "--device", device)
        self.process = subprocess.Popen(
            [*command, *map(str, arguments), *ports],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self.lines, self.errors, self._ready = [], [], queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=each, daemon=True)
            for each in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()
        try:
            ready = self._ready.get(timeout=START_SECONDS)
            found = re.fullmatch(r"lenslet: ready: HTTP on (.*):(\d+), gRPC on .*:(\d+)\n", ready or "")
            if not found:
                raise RuntimeError(f"the server did not start: {self.lines} {self.errors}")
        except BaseException:
            self.end()
            raise
        self.host, self.http_port, self.grpc_port = found[1], int(found[2]), int(found[3])
        self.http, self.grpc = f"{self.host}:{self.http_port}", f"{self.host}:{self.grpc_port}"

    def _read(self, stream, lines):
        with stream:
            for line in stream:
                lines.append(line)
                if line.startswith("lenslet: ready"):
                    self._ready.put(line)
        self._ready.put(None)

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, body) of one request on a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def infer(self, name, inputs, headers=None, timeout=60, **more):
        """(status, JSON) of an inference request in JSON."""
        body = json.dumps({"inputs": inputs, **more})
        status, _, answer = self.request("POST", f"/v2/models/{name}/infer", body, headers, timeout)
        return status, json.loads(answer)

    def metrics(self):
        """{'name{labels}': value}"""
        status, headers, body = self.request("GET", "/metrics")
        assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"), (status, headers)
        samples = (line.rsplit(" ", 1) for line in body.decode().splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def end(self):
        """Kills it where it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for reader in self._readers:
            reader.join(10)

    def stop(self, timeout=40):
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        finally:
            self.end()


def entry(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": data}


def binary_body(inputs, **more):
    """(headers, body) of (name, datatype, shape, bytes) each, by the binary tensor extension."""
    listed = [
        {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
        for name, datatype, shape, data in inputs
    ]
    head = json.dumps({"inputs": listed, **more}).encode()
    return {"Inference-Header-Content-Length": str(len(head))}, head + b"".join(each[3] for each in inputs)


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def slow_body(rows=1):
    """A request to slow.onnx."""
    shape = [rows, 1, 96, 96]
    return binary_body([("x", "FP32", shape, floats(1) * math.prod(shape))], parameters={"binary_data_output": True})


__all__ = [name for name in dir() if not name.startswith("_")]


class Served:
    """`arguments` after the models' files, for one server a class."""

    names = ("sums", "lookup", "rgb", "segment")
    arguments = ()

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lenslet-serve-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        write_models(cls.folder)
        cls.server = cls.made(*cls.arguments)
        cls.addClassCleanup(cls.server.end)

    @classmethod
    def made(cls, *arguments):
        return Server(*(cls.folder / f"{name}.onnx" for name in cls.names), *arguments)

    def lookup(self, *indices, timeout=60):
        return self.server.infer("lookup", [entry("x", "INT64", [len(indices)], list(indices))], timeout=timeout)

    def still_answers(self):
        self.assertEqual(self.lookup(2), (200, {
            "model_name": "lookup", "model_version": "1",
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [30.0]}],
        }))  # fmt: skip

    def eventually(self, holds, seconds=60):
        until = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), until, "it does not come to hold")
            time.sleep(0.02)

    def raw(self, data, timeout=10, *, close=False):
        """What comes back for `data` until the server closes the connection, or sends nothing for a while."""
        with socket.create_connection((self.server.host, self.server.http_port), timeout) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            if close:
                return b""
            found = b""
            with contextlib.suppress(ConnectionError, socket.timeout):
                while True:
                    part = connection.recv(65536)
                    if not part:
                        break
                    found += part
            return found


def answer_of(connection):
    """(status, body) of one answer with a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            raise ConnectionError(f"no answer: {data!r}")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(re.search(rb"(?i)\ncontent-length: (\d+)", head)[1])
    while len(body) < length:
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("half an answer")
        body += part
    return int(head.split()[1]), body
