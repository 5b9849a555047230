"""Invalid bodies, pictures, paths and bytes for `lenslet serve`: each is answered, and the next request too."""

import concurrent.futures
import json
import socket
import sys
import unittest

from harness import Served, Server, answer_of, binary_body, entry, floats, ppm, skip_without


ONE = floats(1, 2)


def sums(**changes):
    """The JSON of a valid request to sums.onnx, with `changes` of its first input."""
    first = {**entry("a", "FP32", [1, 2], [1, 2]), **changes}
    return json.dumps({"inputs": [first, entry("b", "FP32", [1, 2], [3, 4])]}).encode()


GOOD = binary_body([("a", "FP32", [1, 2], ONE), ("b", "FP32", [1, 2], ONE)])


def header(length):
    return {"Inference-Header-Content-Length": str(length)}


def lying(size):
    """GOOD with a wrong size in its first input."""
    body = GOOD[1].replace(b'"binary_data_size": 8', b'"binary_data_size": %d' % size, 1)
    return header(int(GOOD[0]["Inference-Header-Content-Length"]) + len(body) - len(GOOD[1])), body


#: (text of the answer, headers if any, body) of requests to sums.onnx that are answered by 400.
MALFORMED = (
    ("no JSON", b""),
    ("no JSON", b"{"),
    ("no JSON", b"\xff\xfe\x00"),
    ("no JSON", b"[" * 50000),
    ("more than 65536 bytes of JSON besides the data", b"[" * 100000),
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
    ("has no input 'aaa", sums(name="a" * 50000)),
    ("a string of more than 65536 bytes", sums(name="a" * 100000)),
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

#: Bytes that are no valid or accepted HTTP request: answered by 400 or by closing the connection.
NO_HTTP = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /v2 HTTP/9.9\r\n\r\n",
    b"POST /v2/models/sums/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"POST /v2/models/sums/infer HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    b"POST /v2/models/sums/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"POST /v2/models/sums/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /v2 HTTP/1.1\r\nX: " + b"a" * 100000 + b"\r\n\r\n",
    b"GET /v2 HTTP/1.1\r\n" + b"X: a\r\n" * 20000 + b"\r\n",
    b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
)

#: Paths of no model and no file.
STRAY = (
    "/v2/models/../../etc/passwd", "/v2/models/..%2f..%2fetc%2fpasswd", "/v2/models/%2e%2e/infer", "/etc/passwd",
    "/v2/models/sums.onnx", "/v2/models//infer", "/v2/models/sums/versions/../infer", "/v2/models/sums/versions/2",
    "/v2/models/sums%00", "/v2/models/./sums", "//v2", "/v2/models/sums/../lookup", "//", "/v2/models", "/v3",
)  # fmt: skip


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
        """JSON that is read and written in another thread."""
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

    def test_who_is_told_no_before_the_body(self):
        """A client that waited does not send the body: what follows is none. Others are answered as well."""
        head = "POST /v2/models/none/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{}\r\n\r\n"
        with socket.create_connection((self.server.host, self.server.http_port), 30) as connection:
            connection.sendall(head.format(50, "Expect: 100-continue").encode())
            self.assertEqual(answer_of(connection)[0], 404)
            self.assertEqual(connection.recv(1000), b"")
        size = 16 << 20
        with socket.create_connection((self.server.host, self.server.http_port), 30) as connection:
            connection.sendall(head.format(size, "Connection: close").encode() + bytes(size))
            self.assertEqual(answer_of(connection)[0], 404)
            self.assertEqual(connection.recv(1000), b"")

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
                        f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()
                    )
                    self.assertRegex(answer, rb"^HTTP/1.1 (404 Not Found|405 Method Not Allowed|400 Bad Request)\r\n")
                    self.assertNotIn(b"root:", answer)
        for method, path, allowed in (
            ("PUT", "/v2/models/sums/infer", "POST"),
            ("GET", "/v2/models/sums/infer", "POST"),
            ("POST", "/v2/health/live", "GET, HEAD"),
            ("DELETE", "/v2/models/sums", "GET, HEAD"),
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

    def test_a_request_whose_run_fails_leaves_the_others_alone(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: self.lookup(99 if i % 3 == 0 else i % 4), range(90)))
        for number, (status, said) in enumerate(answers):
            if number % 3 == 0:
                self.assertEqual(status, 400)
                self.assertIn("index 99 is outside", said["error"])
            else:
                self.assertEqual((status, said["outputs"][0]["data"]), (200, [10.0 * (number % 4 + 1)]))
        self.assertEqual(self.server.request("GET", "/v2/health/ready")[0], 200)
        self.assertEqual(self.server.metrics()['lenslet_failures_total{kind="malformed",model="lookup",protocol="http"}'], 30)


#: A server whose runs raise an error of lenslet, or of Python, by a number in the request.
FAILING = """
import sys
import lenslet
from lenslet.serve import batcher, main
errors = [lenslet.InvalidArgumentError, lenslet.InternalError, lenslet.LimitError, lenslet.UnsupportedError, ValueError]
def run(self, jobs, cancel):
    raise errors[jobs[0].inputs[0][0]]("it fails")
batcher._Runners.run = run
sys.exit(main(sys.argv[1:]))
"""


@skip_without()
class Failing(Served, unittest.TestCase):
    names = ("lookup",)

    @classmethod
    def made(cls, *arguments):
        return Server(cls.folder / "lookup.onnx", command=(sys.executable, "-c", FAILING))

    def test_only_what_the_tensors_hold_is_the_clients_fault(self):
        for number, status in enumerate((400, 500, 500, 500, 500)):
            found, said = self.lookup(number)
            self.assertEqual(found, status, said)
            self.assertIn("it fails", said["error"])


@skip_without()
class Ports(Served, unittest.TestCase):
    names = ("label", "four", "lookup")

    def outputs(self, name, *inputs):
        status, said = self.server.infer(name, inputs)
        self.assertEqual(status, 200, said)
        return said["outputs"][0]["data"]

    def test_an_input_that_nothing_reads(self):
        x, label = entry("x", "FP32", [2, 2], [1, -2, -3, 4]), entry("label", "INT64", [1], [7])
        for inputs in ([x], [x, label], [label, x]):
            self.assertEqual(self.outputs("label", *inputs), [1, 0, 0, 4])
        status, said = self.server.infer("label", [label])
        self.assertEqual((status, said), (400, {"error": "model 'label' wants input 'x'"}))
        _, _, body = self.server.request("GET", "/v2/models/label")
        self.assertEqual([port["name"] for port in json.loads(body)["inputs"]], ["x"])

    def test_a_first_dimension_that_cannot_be_1(self):
        for start in (1, 2):
            frames = [start + i for i in range(8)]
            wanted = [sum(frames[2 * i + k] * 10**i for i in range(4)) for k in range(2)]
            self.assertEqual(self.outputs("four", entry("x", "FP32", [4, 2], frames)), wanted)
        status, said = self.server.infer("four", [entry("x", "FP32", [3, 2], [1] * 6)])
        self.assertEqual(status, 400, said)
        self.still_answers()


if __name__ == "__main__":
    unittest.main()
