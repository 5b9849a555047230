"""`lenslet serve` before clients that err or mean harm: malformed bodies, limits, disconnects, models that fail, a
signal in the middle."""

import concurrent.futures
import contextlib
import io
import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

from serve_harness import (
    WANTED,
    Server,
    binary_body,
    entry,
    floats,
    is_there,
    ppm,
    skip_without,
    slow_body,
    write_models,
)

if all(map(is_there, WANTED)):
    import lenslet.serve

ONE = floats(1, 2)


def sums(**changes):
    """The JSON of a good request to sums.onnx, but for `changes` of its first input."""
    first = {**entry("a", "FP32", [1, 2], [1, 2]), **changes}
    return json.dumps({"inputs": [first, entry("b", "FP32", [1, 2], [3, 4])]}).encode()


GOOD = binary_body([("a", "FP32", [1, 2], ONE), ("b", "FP32", [1, 2], ONE)])


def header(length):
    return {"Inference-Header-Content-Length": str(length)}


def lying(size):
    """GOOD, whose first input states another size."""
    body = GOOD[1].replace(b'"binary_data_size": 8', b'"binary_data_size": %d' % size, 1)
    return header(int(GOOD[0]["Inference-Header-Content-Length"]) + len(body) - len(GOOD[1])), body


#: (what the answer says, headers if any, body), each of a request to sums.onnx that is answered by 400.
MALFORMED = (
    ("no JSON", b""),
    ("no JSON", b"{"),
    ("no JSON", b"\xff\xfe\x00"),
    ("no JSON", b"[" * 100000),
    ("no JSON", b'{"inputs": ' + b"9" * 5000 + b"}"),
    ("no JSON object", b"[]"),
    ("no JSON object", b"null"),
    ("'inputs' is no list", b"{}"),
    ("'inputs' is no list", b'{"inputs": {"a": 1}}'),
    ("'id' is no string", b'{"id": 7, "inputs": []}'),
    ("wants input 'a'", b'{"inputs": []}'),
    ("'outputs' is no list", b'{"inputs": [], "outputs": 1}'),
    ("an output is no object", b'{"inputs": [], "outputs": [1]}'),
    ("an output has no 'name'", b'{"inputs": [], "outputs": [{}]}'),
    ("'classification'", b'{"inputs": [], "outputs": [{"name": "sum", "parameters": {"classification": -1}}]}'),
    ("'binary_data' is true", b'{"inputs": [], "outputs": [{"name": "sum", "parameters": {"binary_data": 2}}]}'),
    ("'binary_data_output' is true", b'{"inputs": [], "parameters": {"binary_data_output": "yes"}}'),
    ("'parameters' is no object", b'{"inputs": [], "parameters": []}'),
    ("an input has no 'name'", b'{"inputs": [1]}'),
    ("an input has no 'name'", sums(name=1)),
    ("has no input '\\x1b[31m'", sums(name="\x1b[31m")),
    ("has no input 'aaa", sums(name="a" * 100000)),
    ("'datatype' is no string", sums(datatype=None)),
    ("is FP32, not 'BF16'", sums(datatype="BF16")),
    ("takes no BYTES", sums(datatype="BYTES", data=["x", "y"])),
    ("'shape' is no list", sums(shape=2)),
    ("'shape' is no list", sums(shape=[1.0, 2])),
    ("'shape' is no list", sums(shape=[True, 2])),
    ("no shape is [-1, 2]", sums(shape=[-1, 2])),
    ("no shape is [1000000", sums(shape=[10**30, 2])),
    ("no shape is [1, 1", sums(shape=[1] * 9)),
    ("is not the model's", sums(shape=[2])),
    ("2 elements, but shape [3, 2] has 6", sums(shape=[3, 2])),
    ("2 elements, but shape [2147483647, 2]", sums(shape=[2**31 - 1, 2])),
    ("'data' is no list", sums(data=None)),
    ("'data' is no list", sums(data={"0": 1})),
    ("ragged", sums(data=[[1], [2, 3]])),
    ("does not hold FP32", sums(data=["1", "2"])),
    ("does not hold FP32", sums(data=[None, 1])),
    ("does not hold FP32", sums(data=[True, False])),
    ("0 elements", sums(data=[])),
    ("'parameters' is no object", sums(parameters=1)),
    ("both 'data' and", sums(parameters={"binary_data_size": 8})),
    ("no number of bytes: 'abc'", header("abc"), sums()),
    ("no number of bytes: '-1'", header(-1), sums()),
    ("the body has", header(10**9), sums()),
    ("no number of bytes: '1000", header(10**30), sums()),
    ("they need a header of JSON", header(0), sums()),
    ("1 bytes at the end of the body", GOOD[0], GOOD[1] + b"x"),
    ("8 bytes, but FP32 [2, 2] are 16", *binary_body([("a", "FP32", [2, 2], ONE), ("b", "FP32", [1, 2], ONE)])),
    ("9 bytes, but FP32 [1, 2] are 8", *binary_body([("a", "FP32", [1, 2], ONE + b"x"), ("b", "FP32", [1, 2], ONE)])),
    ("'binary_data_size' is 99, 16 bytes are there", *lying(99)),
    ("'binary_data_size' is -8, which is no number of bytes", *lying(-8)),
)  # fmt: skip

#: Bytes that are no request of HTTP, or none that is taken: answered by 400 or by the end of the connection.
NO_HTTP = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /v2 HTTP/9.9\r\n\r\n",
    b"POST /v2/models/sums/infer HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"POST /v2/models/sums/infer HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"POST /v2/models/sums/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"POST /v2/models/sums/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /v2 HTTP/1.1\r\nX: " + b"a" * 100000 + b"\r\n\r\n",
    b"GET /v2 HTTP/1.1\r\n" + b"X: a\r\n" * 20000 + b"\r\n",
    b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
)

#: Paths that are no model's and no file's.
STRAY = (
    "/v2/models/../../etc/passwd", "/v2/models/..%2f..%2fetc%2fpasswd", "/v2/models/%2e%2e/infer", "/etc/passwd",
    "/v2/models/sums.onnx", "/v2/models//infer", "/v2/models/sums/versions/../infer", "/v2/models/sums/versions/2",
    "/v2/models/sums%00", "/v2/models/./sums", "//v2", "/v2/models/sums/../lookup", "/", "/v2/models", "/v3",
)  # fmt: skip


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

    def lookup(self, *indices, timeout=30):
        return self.server.infer("lookup", [entry("x", "INT64", [len(indices)], list(indices))], timeout=timeout)

    def still_answers(self):
        self.assertEqual(self.lookup(2), (200, {
            "model_name": "lookup", "model_version": "1",
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [30.0]}],
        }))  # fmt: skip

    def eventually(self, holds, seconds=10):
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


@skip_without()
class Malformed(Served, unittest.TestCase):
    def test_bodies(self):
        before = self.server.metrics()
        for words, *headers, body in MALFORMED:
            with self.subTest(words, body=body[:80]):
                status, answered, answer = self.server.request("POST", "/v2/models/sums/infer", body, *headers)
                said = json.loads(answer)
                self.assertEqual((status, list(said)), (400, ["error"]), said)
                self.assertIn(words, said["error"])
                self.assertNotRegex(said["error"], "[\x00-\x1f]")
                self.assertLess(len(said["error"]), 400)
                self.assertEqual(answered["Content-Type"], "application/json")
        after = self.server.metrics()
        failed = 'lenslet_failures_total{kind="malformed",model="sums",protocol="http"}'
        self.assertEqual(after[failed] - before.get(failed, 0), len(MALFORMED))
        self.still_answers()

    def test_pictures(self):
        def ask(shape, body, datatype="BYTES"):
            headers, whole = binary_body([("image", datatype, shape, body)])
            status, _, answer = self.server.request("POST", "/v2/models/rgb/infer", whole, headers)
            return status, json.loads(answer).get("error", "")

        good = ppm(1, 2, 3)
        length = len(good).to_bytes(4, "little")
        self.assertEqual(ask([1], length + good), (200, ""))
        for words, shape, body in (
            ("no picture", [1], b"\4\0\0\0abcd"),
            ("1 elements, but shape [2] has 2", [2], length + good),
            ("where their lengths say", [1], length + good[:-1]),
            ("where their lengths say", [1], b"\xff\xff\xff\xff" + good),
            ("where their lengths say", [1], (length + good) * 2),
            ("where their lengths say", [1], b"\1\0"),
            ("are of shape [N]", [1, 2], (length + good) * 2),
            ("are of shape [N]", [], length + good),
            ("1 to 64 pictures", [0], b""),
            ("1 to 64 pictures", [65], b"\0\0\0\0" * 65),
        ):
            with self.subTest(words, shape=shape):
                status, said = ask(shape, body)
                self.assertEqual(status, 400)
                if words == "no picture":
                    self.assertNotIn("abcd", said)
                else:
                    self.assertIn(words, said)
        status, said = self.server.infer(
            "rgb", [{**entry("image", "BYTES", [1], ["?"]), "parameters": {"content_type": "base64"}}]
        )
        self.assertEqual((status, said["error"]), (400, "input 'image': 'data' is no base64"))

    def test_a_picture_alone_and_in_base64(self):
        import base64

        red = ppm(250, 20, 30)
        headers = {"Content-Type": "image/x-portable-pixmap", "Inference-Header-Content-Length": "0"}
        status, _, answer = self.server.request("POST", "/v2/models/rgb/infer", red, headers)
        self.assertEqual(status, 200)
        scores = json.loads(answer)["outputs"][0]["data"]
        self.assertEqual(scores.index(max(scores)), 0)
        coded = {
            **entry("image", "BYTES", [1], [base64.b64encode(red).decode()]),
            "parameters": {"content_type": "base64"},
        }
        self.assertEqual(self.server.infer("rgb", [coded])[1]["outputs"][0]["data"], scores)
        # The elements of the only input, likewise.
        status, headers, answer = self.server.request(
            "POST", "/v2/models/lookup/infer", (3).to_bytes(8, "little"), {"Inference-Header-Content-Length": "0"}
        )
        self.assertEqual((status, answer[int(headers["Inference-Header-Content-Length"]) :]), (200, floats(40)))

    def test_long_json(self):
        """Such as is read and written in a thread aside."""
        numbers = [number % 7 / 4 for number in range(3 * 224 * 224)]
        status, said = self.server.infer("rgb", [entry("image", "FP32", [1, 3, 224, 224], numbers)])
        means = [sum(numbers[at : at + 50176]) / 50176 for at in (0, 50176, 100352)]
        self.assertEqual(status, 200)
        for found, mean in zip(said["outputs"][0]["data"], means):
            self.assertAlmostEqual(found, 10 * mean, 4)
        status, said = self.server.infer("rgb", [entry("image", "FP32", [1, 3, 224, 224], numbers[1:])])
        self.assertEqual(
            (status, said["error"]), (400, "input 'image': 150527 elements, but shape [1, 3, 224, 224] has 150528")
        )
        numbers = [float(number) for number in range(3 * 100 * 100)]
        status, said = self.server.infer("segment", [entry("image", "FP32", [1, 3, 100, 100], numbers)])
        self.assertEqual((status, said["outputs"][0]["data"]), (200, [10 * number for number in numbers]))

    def test_a_client_that_waits_to_be_told_to_go_on(self):
        body = sums()
        head = "POST /v2/models/sums/infer HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((self.server.host, self.server.http_port), 30) as connection:
            connection.sendall(head.encode())
            self.assertEqual(connection.recv(1000), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(body)
            self.assertEqual(answer_of(connection)[0], 200)

    def test_no_http(self):
        for data in NO_HTTP:
            with self.subTest(data[:80]):
                self.assertRegex(self.raw(data, 3), rb"^(HTTP/1.1 400 Bad Request\r\n|$)")
        self.still_answers()

    def test_paths(self):
        for path in STRAY:
            for method in ("GET", "POST"):
                with self.subTest(path, method=method):
                    answer = self.raw(
                        f"{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()
                    )
                    self.assertRegex(answer, rb"^HTTP/1.1 (404 Not Found|405 Method Not Allowed|400 Bad Request)\r\n")
                    self.assertNotIn(b"root:", answer)
        for method, path, allowed in (
            ("PUT", "/v2/models/sums/infer", "POST"),
            ("GET", "/v2/models/sums/infer", "POST"),
            ("POST", "/v2/health/live", "GET"),
            ("DELETE", "/v2/models/sums", "GET"),
        ):
            status, headers, _ = self.server.request(method, path)
            self.assertEqual((status, headers["Allow"]), (405, allowed))

    def test_numbers_that_json_cannot_say(self):
        request = {"inputs": [entry(name, "FP32", [1, 2], [3e38, 0]) for name in "ab"], "outputs": [{"name": "sum"}]}
        status, _, answer = self.server.request("POST", "/v2/models/sums/infer", json.dumps(request))
        self.assertEqual(status, 500)
        self.assertIn("ask for binary data", json.loads(answer)["error"])
        request["parameters"] = {"binary_data_output": True}
        status, headers, answer = self.server.request("POST", "/v2/models/sums/infer", json.dumps(request))
        self.assertEqual(answer[int(headers["Inference-Header-Content-Length"]) :], floats(float("inf"), 0))

    def test_a_model_that_fails_leaves_the_others_alone(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: self.lookup(99 if i % 3 == 0 else i % 4), range(90)))
        for number, (status, said) in enumerate(answers):
            if number % 3 == 0:
                self.assertEqual(status, 500)
                self.assertIn("index 99 is outside", said["error"])
            else:
                self.assertEqual((status, said["outputs"][0]["data"]), (200, [10.0 * (number % 4 + 1)]))
        self.assertEqual(self.server.request("GET", "/v2/health/ready")[0], 200)
        self.assertEqual(self.server.metrics()['lenslet_failures_total{kind="run",model="lookup",protocol="http"}'], 30)


@skip_without()
class Limits(Served, unittest.TestCase):
    names = ("slow", "lookup", "rgb")
    arguments = ("--max-requests", 6, "--max-body-mib", 1, "--max-batch", 2, "--runners", 1, "--request-s", 3)

    def connected(self, rows=1):
        """A connection, the headers of a request to slow.onnx, and its body."""
        headers, body = slow_body(rows)
        head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection = socket.create_connection((self.server.host, self.server.http_port), 60)
        self.addCleanup(connection.close)
        return connection, head.encode() + b"\r\n", body

    def in_house(self):
        return self.server.metrics()["lenslet_requests_in_house"]

    def test_too_many_requests(self):
        before = self.server.metrics()
        inside = [self.connected() for _ in range(6)]
        for connection, head, _ in inside:
            connection.sendall(head)
        self.eventually(lambda: self.in_house() == 6)
        headers, body = slow_body()
        status, headers, answer = self.server.request("POST", "/v2/models/slow/infer", body, headers)
        self.assertEqual((status, headers["Retry-After"]), (429, "1"))
        self.assertEqual(json.loads(answer), {"error": "6 requests wait already: try again later"})
        self.assertEqual(self.server.request("GET", "/v2/health/ready")[0], 200)
        self.grpc_is_full()
        for connection, _, body in inside:
            connection.sendall(body)
        self.assertEqual([answer_of(connection)[0] for connection, _, _ in inside], [200] * 6)
        self.still_answers()
        metrics = self.server.metrics()
        grown = {name: value - before.get(name, 0) for name, value in metrics.items()}
        self.assertEqual(grown['lenslet_failures_total{kind="queue_full",model="slow",protocol="http"}'], 1)
        # Six requests that came together were not run one by one.
        self.assertEqual(grown['lenslet_batch_size_sum{model="slow"}'], 6)
        self.assertLess(grown['lenslet_batch_size_count{model="slow"}'], 6)
        self.assertEqual((metrics["lenslet_requests_in_house"], metrics['lenslet_queue_length{model="slow"}']), (0, 0))

    def grpc_is_full(self):
        try:
            import tritonclient.grpc as triton
        except ImportError:
            return
        import numpy as np

        with triton.InferenceServerClient(self.server.grpc) as client:
            x = triton.InferInput("x", [1], "INT64")
            x.set_data_from_numpy(np.zeros(1, "int64"))
            with self.assertRaisesRegex(Exception, "RESOURCE_EXHAUSTED.* wait already"):
                client.infer("lookup", [x])

    def test_bodies_that_are_too_large(self):
        large = b"x" * (5 << 20)
        status, _, answer = self.server.request("POST", "/v2/models/rgb/infer", large)
        self.assertEqual((status, json.loads(answer)["error"]), (413, "a body of 5242880 bytes: at most 1048576"))
        chunks = b"".join(b"10000\r\n" + b"x" * 65536 + b"\r\n" for _ in range(80)) + b"0\r\n\r\n"
        head = b"POST /v2/models/rgb/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        end = b"GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        # The rest is dropped, and the connection goes on.
        answers = self.raw(head + chunks + end)
        self.assertEqual(re.findall(rb"HTTP/1.1 (\d+)", answers), [b"413", b"200"])
        # A client that does not send the rest is let go.
        head = b"POST /v2/models/rgb/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n"
        began = time.monotonic()
        self.assertTrue(self.raw(head, 30).startswith(b"HTTP/1.1 413 "))
        self.assertLess(time.monotonic() - began, 20)
        self.still_answers()

    def test_grpc_messages_that_are_too_large(self):
        try:
            import tritonclient.grpc as triton
        except ImportError:
            self.skipTest("no tritonclient")
        import numpy as np

        with triton.InferenceServerClient(self.server.grpc) as client:
            x = triton.InferInput("x", [200000], "INT64")
            x.set_data_from_numpy(np.zeros(200000, "int64"))
            with self.assertRaisesRegex(Exception, "RESOURCE_EXHAUSTED"):
                client.infer("lookup", [x])
        self.still_answers()

    def test_slow_clients_are_let_go(self):
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            headers = pool.submit(self.raw, b"GET /v2 HTTP/1.1\r\nX: ", 30)
            body = pool.submit(self.raw, b"POST /v2/models/lookup/infer HTTP/1.1\r\nContent-Length: 50\r\n\r\n{", 30)
            self.assertEqual(headers.result(), b"")
            answer = body.result()
        self.assertTrue(answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n"), answer)
        self.assertIn(b"the body did not come in 3 s", answer)
        self.assertLess(time.monotonic() - began, 20)
        self.still_answers()

    def test_clients_that_go_are_taken_out_of_the_queue(self):
        ran = 'lenslet_batch_size_sum{model="slow"}'
        gone = 'lenslet_failures_total{kind="disconnected",model="slow",protocol="http"}'
        before = self.server.metrics()
        stays, head, body = self.connected(24)  # a second or more of the only runner
        stays.sendall(head + body)
        self.eventually(lambda: self.in_house() == 1)
        leave = [self.connected() for _ in range(5)]
        for connection, head, body in leave:
            connection.sendall(head + body)
        self.eventually(lambda: self.server.metrics()['lenslet_queue_length{model="slow"}'] == 5)
        for connection, _, _ in leave:
            connection.close()
        self.assertEqual(answer_of(stays)[0], 200)
        self.eventually(lambda: self.in_house() == 0)
        self.still_answers()
        after = self.server.metrics()
        self.assertEqual((after[gone] - before.get(gone, 0), after[ran] - before.get(ran, 0)), (5, 24))

    def test_a_body_that_ends_early(self):
        gone = 'lenslet_failures_total{kind="disconnected",model="lookup",protocol="http"}'
        before = self.server.metrics().get(gone, 0)
        for _ in range(5):
            self.raw(b"POST /v2/models/lookup/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{", close=True)
        self.eventually(lambda: self.server.metrics().get(gone, 0) == before + 5)
        self.assertEqual(self.in_house(), 0)
        self.still_answers()


@skip_without()
class Life(Served, unittest.TestCase):
    names = ("slow", "lookup")

    def signalled(self, number, *arguments):
        """A server that was sent a signal while four requests were in it; `with` it."""
        server = self.made("--max-batch", 1, "--runners", 1, *arguments)
        self.addCleanup(server.end)
        pool = concurrent.futures.ThreadPoolExecutor(4)
        self.addCleanup(pool.shutdown)

        def ask(rows):
            headers, body = slow_body(rows)
            return server.request("POST", "/v2/models/slow/infer", body, headers, 60)[0]

        answers = [pool.submit(ask, rows) for rows in (12, 1, 1, 1)]
        self.eventually(lambda: server.metrics()["lenslet_requests_in_house"] == 4)
        server.process.send_signal(number)
        return server, answers

    def ended(self, server, answers):
        """All were answered."""
        self.assertEqual([answer.result() for answer in answers], [200] * 4)
        self.assertEqual(server.process.wait(40), 0)
        server.end()
        self.assertEqual(server.errors, ["lenslet: stopping, 4 requests to be finished\n"])
        with self.assertRaises(ConnectionError):
            server.request("GET", "/v2")

    def test_it_is_not_ready_first_and_closed_later(self):
        server, answers = self.signalled(signal.SIGTERM, "--drain-s", 2)
        self.eventually(lambda: server.request("GET", "/v2/health/ready")[0] == 503)
        self.assertEqual(server.request("GET", "/v2/health/live")[0], 200)
        self.assertEqual(server.request("GET", "/v2/models/lookup/ready")[0], 503)
        status, said = server.infer("lookup", [entry("x", "INT64", [1], [1])])
        self.assertEqual((status, said), (503, {"error": "the server is stopping"}))
        self.ended(server, answers)

    def test_what_was_accepted_is_answered(self):
        self.ended(*self.signalled(signal.SIGINT))

    def test_a_second_signal_ends_it_at_once(self):
        server, _ = self.signalled(signal.SIGTERM, "--drain-s", 60)
        self.eventually(lambda: server.request("GET", "/v2/health/ready")[0] == 503)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(20), 1)

    def failed(self, *arguments):
        """(exit code, the last line of stderr) of the verb, in this process, which spares starting Python."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = lenslet.serve.main([*map(str, arguments), "--device=cpu"])
            except SystemExit as error:
                code = error.code
        return code, said.getvalue().splitlines()[-1]

    def test_command_lines(self):
        slow = self.folder / "slow.onnx"
        (self.folder / "broken.onnx").write_bytes(b"\x08\x08nothing")
        for code, words, *arguments in (
            (2, "required: MODEL"),
            (2, "two models are named 'slow'", slow, slow),
            (2, "is no name of a model", f"a b={slow}"),
            (2, "is no name of a model", f".x={slow}"),
            (2, "neither HTTP nor gRPC", slow, "--http-port=off", "--grpc-port=off"),
            (2, "invalid port value: '65536'", slow, "--http-port=65536"),
            (2, "invalid count value: '0'", slow, "--max-batch=0"),
            (2, "--shape x=1xA", slow, "--shape=x=1xA"),
            (2, "no input is named 'z'", slow, "--shape=z=1x1x2x2"),
            (2, "no model is named 'fast'", slow, "--card=fast=rgb.card.json"),
            (2, "input.name is 'image'", slow, f"--card={self.folder / 'rgb.card.json'}"),
            (3, "broken.onnx", self.folder / "broken.onnx"),
            (4, "none.onnx", self.folder / "none.onnx"),
            (4, f"HTTP cannot listen on 127.0.0.1:{self.server.http_port}: ", slow,
             f"--http-port={self.server.http_port}"),
            (4, "gRPC cannot listen", slow, "--http-port=0", f"--grpc-port={self.server.grpc_port}"),
        ):
            with self.subTest(words):
                found, said = self.failed(*arguments)
                self.assertEqual(found, code, said)
                self.assertRegex(said, "^lenslet serve: error: ")
                self.assertIn(words, said)

    def test_the_verb_fails_in_one_line(self):
        command = [sys.executable, "-m", "lenslet", "serve", str(self.folder / "none.onnx")]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (4, ""))
        self.assertRegex(done.stderr, r"^lenslet serve: error: .*none.onnx.*\n$")

    def test_libraries_that_are_missing_are_named(self):
        for name in WANTED[1:]:
            with self.subTest(name), unittest.mock.patch.dict(sys.modules, {name: None}):
                said = f"lenslet serve: error: no {name} here: pip install 'lenslet[serve]'"
                self.assertEqual(self.failed("x.onnx"), (2, said))


@skip_without()
class Load(Served, unittest.TestCase):
    """Some thousand requests, a third of which err in all ways at once: none is lost, and the metrics add up."""

    names = ("sums", "lookup", "rgb")
    requests = 3000

    def test_nothing_is_lost(self):
        counts = {}
        lock = threading.Lock()

        def client(seed):
            draw = random.Random(seed)
            connection = None
            for number in range(self.requests // 12):
                kind = draw.choice(("good",) * 8 + ("picture", "malformed", "failing", "leaves"))
                index = draw.randrange(4)
                model = "rgb" if kind == "picture" else "lookup"
                if kind == "picture":
                    picture = ppm(9, 8, 7)
                    data = len(picture).to_bytes(4, "little") + picture
                    headers, body = binary_body([("image", "BYTES", [1], data)])
                elif kind == "malformed":
                    headers, body = {}, draw.choice(MALFORMED[:12])[-1]
                else:
                    value = 50 if kind == "failing" else index
                    headers, body = (
                        {},
                        json.dumps({"id": str(number), "inputs": [entry("x", "INT64", [1], [value])]}).encode(),
                    )
                head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
                head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                if connection is None:
                    connection = socket.create_connection((self.server.host, self.server.http_port), 30)
                connection.sendall(head.encode() + b"\r\n" + body)
                if kind == "leaves":
                    connection.close()
                    connection = None
                    outcome = "left"
                else:
                    status, answer = answer_of(connection)
                    wanted = {"malformed": 400, "failing": 500}.get(kind, 200)
                    self.assertEqual(status, wanted, answer)
                    if kind == "good":
                        found = json.loads(answer)
                        self.assertEqual(
                            (found["id"], found["outputs"][0]["data"]), (str(number), [10.0 * (index + 1)])
                        )
                    outcome = str(status)
                with lock:
                    counts[outcome] = counts.get(outcome, 0) + 1
            if connection is not None:
                connection.close()

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for done in [pool.submit(client, seed) for seed in range(12)]:
                done.result(60)
        self.assertEqual(sum(counts.values()), self.requests)

        def of(name, **labels):
            wanted = [f'{key}="{value}"' for key, value in labels.items()]
            return sum(value for key, value in metrics.items()
                       if re.match(rf"{name}($|{{)", key) and all(each in key for each in wanted))  # fmt: skip

        metrics = {}

        def all_counted():
            metrics.clear()
            metrics.update(self.server.metrics())
            return of("lenslet_requests_total") == self.requests and of("lenslet_requests_in_house") == 0

        self.eventually(all_counted)
        left = of("lenslet_failures_total", kind="disconnected")
        self.assertEqual(of("lenslet_failures_total", kind="malformed"), counts["400"])
        self.assertEqual(of("lenslet_failures_total", kind="run"), counts["500"])
        # Who left before its answer is counted so; who was answered before it was seen to leave, as done.
        self.assertLessEqual(left, counts["left"])
        self.assertEqual(of("lenslet_request_seconds_count") + left, counts["200"] + counts["left"])
        self.still_answers()


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


if __name__ == "__main__":
    unittest.main()
