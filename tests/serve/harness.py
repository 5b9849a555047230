"""A server in a separate process on free ports, and the small models that it serves."""

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
sys.path.insert(0, str(ROOT / "tests" / "install"))  # tiny_model.py

WANTED = ("numpy", "httptools", "grpc", "google.protobuf", "prometheus_client")
#: KServe's datatypes by ONNX's names in textual models.
ONNX_TYPES = {
    "FP32": "float", "UINT8": "uint8", "INT8": "int8", "UINT16": "uint16", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "BOOL": "bool", "FP16": "float16", "FP64": "double", "UINT32": "uint32", "UINT64": "uint64",
}  # fmt: skip
START_SECONDS = 60


def is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def skip_without(*names):
    """Decorates test classes, which skip if a library is missing, and name it. (Every class with bases in a test file
    must be a test: tests/python/CMakeLists.txt.)"""
    missing = [name for name in (*WANTED, "onnx", *names) if not is_there(name)]
    return unittest.skipIf(missing, f"no {', '.join(missing)} here (pip install 'lenslet-runtime[serve,onnx]' tritonclient[all])")


# ---- Models ----


def model(inputs, outputs, nodes, weights=()):
    """IR 8, opset 13, in ONNX's textual form; weights by name as arrays."""
    from onnx import numpy_helper, parser

    made = parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> graph ({inputs}) => ({outputs}) {{ {nodes} }}')
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in dict(weights).items())
    for number, node in enumerate(made.graph.node):
        node.name = f"n{number}"
    return made


def write_models(folder):
    """rgb.onnx (the main colour of a picture, with a card), segment.onnx (the same by pixel, any size), lookup.onnx
    (fails for numbers above 3), slow.onnx (some 30 ms a row), sums.onnx (two inputs, two outputs), half.onnx,
    types.onnx (identity for every datatype), label.onnx (with an unread input), and four.onnx (exactly 4 frames)."""
    subprocess.run([sys.executable, str(ROOT / "tests" / "install" / "tiny_model.py"), str(folder)], check=True)
    card = {
        "labels": "rgb.txt",
        "input": {"name": "image", "size": [224, 224]},
        "resize": {"mode": "stretch"},
        "normalize": {"scale": 1 / 255},
        "output": {"name": "scores", "softmax": True},
    }
    (folder / "rgb.card.json").write_text(json.dumps(card))
    import numpy as np

    table = np.float32([10, 20, 30, 40])
    lookup = model("int64[N] x", "float[N] y", "y = Gather(table, x)", {"table": table})
    # Weights that are aligned in the file could be used from a mapping.
    while lookup.SerializeToString().index(table.tobytes()) % 4:
        lookup.producer_name += "r"
    channels, count = 128, 30
    mean = {name: np.full((*dims, 1, 1), 1 / channels if name != "narrow" else 1, np.float32)
            for name, dims in (("widen", (channels, 1)), ("mix", (channels, channels)), ("narrow", (1, channels)))}  # fmt: skip
    layers = "".join(f"v{i + 1} = Conv(v{i}, mix) " for i in range(count))
    datatypes = ONNX_TYPES.items()
    made = {
        "lookup": lookup,
        "slow": model("float[N,1,96,96] x", "float[N,1,96,96] y", f"v0 = Conv(x, widen) {layers} y = Conv(v{count}, narrow)", mean),
        "sums": model("float[N,2] a, float[N,2] b", "float[N,2] sum, float[N,2] difference", "sum = Add(a, b) difference = Sub(a, b)"),
        "half": model("float16[N,4] x", "float16[N,4] y", "y = Relu(x)"),
        "types": model(
            ", ".join(f"{kind}[N,2] in_{name}" for name, kind in datatypes),
            ", ".join(f"{kind}[N,2] out_{name}" for name, kind in datatypes),
            "".join(f"out_{name} = Identity(in_{name}) " for name, _ in datatypes),
        ),
        "label": model("int64[N] label, float[N,2] x", "float[N,2] y", "y = Relu(x)"),
        "four": model("float[frames,2] x", "float[2,1] y", "t = Transpose(x) y = MatMul(t, w)", {"w": np.float32([[1], [10], [100], [1000]])}),
    }
    for name, file in made.items():
        (folder / f"{name}.onnx").write_bytes(file.SerializeToString())


def ppm(red, green, blue, width=8, height=6):
    return b"P6 %d %d 255\n" % (width, height) + bytes((red, green, blue)) * (width * height)


# ---- The server ----


class Server:
    """`lenslet serve` with `arguments`. Its output is in `lines`, stderr in `errors`."""

    def __init__(self, *arguments, command=(sys.executable, "-m", "lenslet", "serve")):
        device = os.environ.get("LENSLET_TEST_SERVE_DEVICE", "cpu")
        arguments = ("--max-queue-ms", 0, *arguments)  # prevents refusals on a busy machine
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
        """(status, headers, body) of one request on a new connection."""
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
        """Kills it if it still runs."""
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
    """(headers, body) from (name, datatype, shape, bytes) tuples, by the binary tensor extension."""
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
    """`arguments` follow the models' files; one server for each class."""

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
        """The answer to `data` until the server closes the connection, or is silent for a while."""
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
