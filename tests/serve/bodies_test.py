"""Bodies of HTTP requests to `lenslet serve`: in pieces, pipelined, concurrent, and incomplete.

Images of 602 KB are read into adjacent memory (python/lenslet/serve/rooms.py): each client gets its own results.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import random
import socket
import struct
import threading
import time
import unittest

from harness import WANTED, Served, answer_of, binary_body, entry, is_there, ppm, skip_without

if all(map(is_there, WANTED)):
    import numpy as np
    from lenslet.serve.batcher import Batcher, Job, images_beside
    from lenslet.serve.memory import Memory
    from lenslet.serve.rooms import Rooms

ELEMENTS = 3 * 224 * 224


def request(headers, body, path="/v2/models/rgb/infer"):
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
    return (head + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode() + body


def image(colours, rows=1):
    """A request to rgb.onnx with single-coloured images: the scores are ten times the colour."""
    planes = b"".join(struct.pack("<f", colour) * (224 * 224) for colour in colours) * rows
    return request(*binary_body([("image", "FP32", [rows, 3, 224, 224], planes)],
                                outputs=[{"name": "scores"}]))  # fmt: skip


def scores(body):
    return json.loads(body)["outputs"][0]["data"]


def colours_of(draw):
    return [draw.randrange(100) for _ in range(3)]


@skip_without()
class Bodies(Served, unittest.TestCase):
    names = ("rgb", "lookup", "segment")
    arguments = ("--max-body-mib", 8, "--request-s", 20)

    def connection(self):
        made = socket.create_connection((self.server.host, self.server.http_port), 30)
        self.addCleanup(made.close)
        return made

    def check(self, answer, colours, rows=1):
        status, body = answer
        self.assertEqual(status, 200, body)
        for found, colour in zip(scores(body), colours * rows):
            self.assertAlmostEqual(found, 10 * colour, delta=1e-3 * (1 + colour))

    def test_each_client_gets_its_own(self):
        """Sixteen concurrent clients, with batches of all sizes, some of which are abandoned."""

        def client(seed):
            draw = random.Random(seed)
            connection = self.connection()
            for _ in range(40):
                colours, rows = colours_of(draw), draw.choice((1, 1, 1, 1, 2, 3))
                data = image(colours, rows)
                kind = draw.choice(("whole",) * 6 + ("pieces", "leaves", "half"))
                if kind == "pieces":
                    at = draw.randrange(1, len(data))
                    connection.sendall(data[:at])
                    time.sleep(0.001)
                    connection.sendall(data[at:])
                elif kind == "half":
                    connection.sendall(data[: draw.randrange(1, len(data))])
                else:
                    connection.sendall(data)
                if kind in ("leaves", "half"):
                    connection.close()
                    connection = self.connection()
                    continue
                self.check(answer_of(connection), colours, rows)

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for done in [pool.submit(client, seed) for seed in range(16)]:
                done.result(120)
        self.eventually(lambda: self.server.metrics()["lenslet_requests_in_house"] == 0)
        self.still_answers()

    def test_pieces_of_all_sizes(self):
        """Split within the first line, the headers, the JSON and the tensor."""
        colours = [1, 2, 3]
        data = image(colours)
        begin = data.index(b"\r\n\r\n") + 4
        json_end = begin + int(data.split(b"Inference-Header-Content-Length: ")[1].split(b"\r\n")[0])
        connection = self.connection()
        cuts = (5, begin - 3, begin, begin + 1, json_end - 1, json_end, json_end + 1, 16384, 16385, len(data) - 1)
        for cut in cuts:
            with self.subTest(cut):
                connection.sendall(data[:cut])
                time.sleep(0.02)
                connection.sendall(data[cut:])
                self.check(answer_of(connection), colours)
        for part in (data[at : at + 100_001] for at in range(0, len(data), 100_001)):
            connection.sendall(part)
            time.sleep(0.005)
        self.check(answer_of(connection), colours)

    def test_one_behind_the_other(self):
        """Pipelined: long and short ones, answered in order."""
        draw = random.Random(5)
        asked, data = [], b""
        for _ in range(12):
            if draw.random() < 0.5:
                asked.append(colours_of(draw))
                data += image(asked[-1])
            else:
                asked.append(draw.randrange(4))
                data += request({}, json.dumps({"inputs": [entry("x", "INT64", [1], [asked[-1]])]}).encode(),
                                "/v2/models/lookup/infer")  # fmt: skip
        connection = self.connection()
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        answers, rest = [], b""
        while len(answers) < len(asked):
            head, separator, body = rest.partition(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) if separator else 0
            if separator and len(body) >= length:
                answers.append((int(head.split()[1]), body[:length]))
                rest = body[length:]
            else:
                part = connection.recv(65536)
                self.assertTrue(part)
                rest += part
        sender.join()
        for answer, wanted in zip(answers, asked):
            if isinstance(wanted, int):
                self.assertEqual(scores(answer[1]), [10.0 * (wanted + 1)])
            else:
                self.check(answer, wanted)

    def test_long_bodies_that_are_wrong(self):
        tensor = struct.pack("<f", 0.5) * ELEMENTS
        headers, body = binary_body([("image", "FP32", [1, 3, 224, 224], tensor)])
        before = int(headers["Inference-Header-Content-Length"])

        def lying(number):
            return {"Inference-Header-Content-Length": str(number)}

        connection = self.connection()
        for words, data in (
            ("is no JSON", request(lying(before + 1), body)),
            ("is no JSON", request(lying(before - 1), body)),
            ("of JSON besides the data", request({}, body)),
            ("the body has", request(lying(len(body) + 1), body)),
            ("no number of bytes", request(lying("1e3"), body)),
            ("are no input's", request(headers, body + b"x")),
            ("bytes are there", request(headers, body[:-1])),
            ("is FP32, not 'INT32'", request(*binary_body([("image", "INT32", [1, 3, 224, 224], tensor)]))),
            ("is not the model's", request(*binary_body([("image", "FP32", [1, 3, 112, 448], tensor)]))),
            ("where their lengths say", request(*binary_body([("image", "BYTES", [1], tensor)]))),
        ):
            with self.subTest(words):
                connection.sendall(data)
                status, answer = answer_of(connection)
                self.assertEqual(status, 400)
                self.assertIn(words, json.loads(answer)["error"])
        # JSON that is long itself, and a tensor without JSON; on the same connection.
        numbers = entry("image", "FP32", [1, 3, 224, 224], [0.5] * ELEMENTS)
        connection.sendall(request({}, json.dumps({"inputs": [numbers], "id": "x" * 20000}).encode()))
        self.check(answer_of(connection), [0.5] * 3)
        tensors, more = [("image", "FP32", [1, 3, 224, 224], tensor)], {"outputs": [{"name": "scores"}], "id": "y" * 40000}
        connection.sendall(request(*binary_body(tensors, **more)))
        self.check(answer_of(connection), [0.5] * 3)
        connection.sendall(request({"Inference-Header-Content-Length": "0"}, tensor))
        status, answer = answer_of(connection)
        self.assertEqual((status, struct.unpack("<3f", answer[-12:])), (200, (5, 5, 5)))
        picture = ppm(250, 20, 30, 200, 100)
        alone = {"Inference-Header-Content-Length": "0", "Content-Type": "image/x-portable-pixmap"}
        connection.sendall(request(alone, picture))
        status, answer = answer_of(connection)
        self.assertEqual((status, max(scores(answer))), (200, scores(answer)[0]))

    def test_a_long_body_for_nobody(self):
        """An unknown model and an unknown path: the answer comes at once, and the connection continues."""
        connection = self.connection()
        for path in ("/v2/models/nothing/infer", "/v2/nothing", "/v2/models/rgb", "/v2/models"):
            connection.sendall(image([1, 2, 3]).replace(b"/v2/models/rgb/infer", path.encode()))
            self.assertIn(answer_of(connection)[0], (404, 405))
        connection.sendall(image([1, 2, 3]))
        self.check(answer_of(connection), [1, 2, 3])
        # In pieces that end anywhere, directly followed by the next request.
        data = image([9, 9, 9]).replace(b"/rgb/", b"/no1/") + image([1, 2, 3])
        for size in (16384, 70001, 300000):
            for at in range(0, len(data), size):
                connection.sendall(data[at : at + size])
                if at == 0:
                    self.assertEqual(answer_of(connection)[0], 404)
                time.sleep(0.003)
            self.check(answer_of(connection), [1, 2, 3])

    def test_refused_bodies_take_no_memory(self):
        """Forty concurrent ones of eight megabytes, which are received and dropped."""

        def resident():
            pages = int(pathlib.Path(f"/proc/{self.server.process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") >> 20

        before = resident()
        connections = [self.connection() for _ in range(40)]
        for connection in connections:
            connection.sendall(b"POST /v2/models/nothing/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (8 << 20))
        for connection in connections:
            self.assertEqual(answer_of(connection)[0], 404)
        for connection in connections:
            connection.sendall(bytes((8 << 20) - 1))
        self.assertLess(resident() - before, 100)
        for connection in connections:
            connection.sendall(b"x" + image([1, 2, 3]))
            self.check(answer_of(connection), [1, 2, 3])

    def test_kinds_of_connections(self):
        data = image([1, 2, 3])
        for line, lives in ((b"HTTP/1.1\r\n", True), (b"HTTP/1.0\r\n", False), (b"HTTP/1.1\r\nConnection: close\r\n", False)):
            with self.subTest(line):
                connection = self.connection()
                connection.sendall(data.replace(b"HTTP/1.1\r\n", line, 1))
                self.check(answer_of(connection), [1, 2, 3])
                connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
                if lives:
                    self.assertEqual(answer_of(connection)[0], 200)
                else:
                    with self.assertRaises(ConnectionError):
                        answer_of(connection)
        connection = self.connection()
        upgrade = b"HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        connection.sendall(b"GET /v2/health/live " + upgrade + b"\r\n")
        self.assertEqual(answer_of(connection)[0], 200)
        connection.sendall(data)
        self.check(answer_of(connection), [1, 2, 3])
        head = self.raw(b"HEAD /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        self.assertRegex(head, rb"(?s)^HTTP/1.1 200 .*\r\ncontent-length: 14\r\n\r\n$")
        connection = self.connection()
        body = data.partition(b"\r\n\r\n")[2]
        chunks = b"".join(
            b"%x\r\n" % len(body[at : at + 70_000]) + body[at : at + 70_000] + b"\r\n" for at in range(0, len(body), 70_000)
        )
        head = data.partition(b"\r\n\r\n")[0]
        head = head.replace(b"Content-Length: %d\r\n" % len(body), b"Transfer-Encoding: chunked\r\n", 1)
        connection.sendall(head + b"\r\n\r\n" + chunks + b"0\r\n\r\n")
        self.check(answer_of(connection), [1, 2, 3])

    def test_answers_that_are_long(self):
        """Nine of a megabyte each, which the client takes after sending all requests."""
        shape = [1, 3, 300, 301]
        tensors = [struct.pack("<f", number) * (3 * 300 * 301) for number in range(9)]
        connection = self.connection()

        def send():
            for tensor in tensors:
                headers, body = binary_body([("image", "FP32", shape, tensor)], parameters={"binary_data_output": True})
                connection.sendall(request(headers, body, "/v2/models/segment/infer"))

        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(0.5)
        found = b""
        with connection.makefile("rb") as answers:
            for number in range(9):
                self.assertEqual(answers.readline(), b"HTTP/1.1 200 OK\r\n")
                length = 0
                while (line := answers.readline()) != b"\r\n":
                    if line.startswith(b"content-length: "):
                        length = int(line.split()[1])
                found = answers.read(length)[-len(tensors[number]) :]
                self.assertEqual(found, struct.pack("<f", 10 * number) * (3 * 300 * 301))
        sender.join()

    def test_headers_without_an_end(self):
        """Refused by length, not when memory is short."""
        for start in (b"GET /v2 HTTP/1.1\r\nX: ", b"GET /"):
            connection = self.connection()
            sent = 0
            with self.assertRaises(ConnectionError):
                connection.sendall(start)
                while sent < 8 << 20:
                    connection.sendall(b"a" * 65536)
                    sent += 65536
            self.assertLess(sent, 8 << 20)
        self.still_answers()


@skip_without()
class Places(unittest.TestCase):
    """Rooms and the batcher's use of them, without a server."""

    class Served:  # the parts of a ServedModel that are used
        image_bytes, sizes, input_shapes, dtypes = 1 << 17, [4, 2, 1], [(-1, 1, 128, 256)], [np.dtype(np.float32)]

    def setUp(self):
        self.memory = Memory(1 << 30)
        self.rooms, self.served = Rooms(self.memory), self.Served()

    def take(self):
        return self.rooms.take(100, self.served.image_bytes, self.served)

    def test_places_lie_beside_each_other(self):
        rooms = [self.take() for _ in range(6)]
        self.assertEqual([room.place for room in rooms], [0, 1, 2, 3, 0, 1])
        self.assertIs(rooms[0].slab, rooms[3].slab)
        self.assertIsNot(rooms[3].slab, rooms[4].slab)
        for number, room in enumerate(rooms):
            room.rest[:] = struct.pack("<f", number) * (128 * 256)
            self.assertEqual(len(room.head), 100)
            self.assertEqual(room.image.ctypes.data % 64, 0)
        for number, room in enumerate(rooms):
            self.assertTrue((room.image == number).all())

    def test_what_is_given_back_is_taken_again(self):
        for _ in range(3):  # a single client always gets the same place
            room = self.take()
            self.assertEqual(room.place, 0)
            self.rooms.give(room)
        whole = [self.take() for _ in range(4)]
        other = self.take()
        self.assertIsNot(other.slab, whole[0].slab)
        for room in whole[:3]:
            self.rooms.give(room)
        self.assertIsNot(self.take().slab, whole[0].slab)  # one is still in use
        self.rooms.give(whole[3])
        rest = [self.take() for _ in range(3)]
        self.assertIs(rest[-1].slab, whole[0].slab)
        one = self.rooms.take(0, 70_000, None)
        self.rooms.give(one)
        self.assertIs(self.rooms.take(5, 100_000, self.served).memory, one.memory)
        self.assertIsNot(self.rooms.take(5, 200_000, self.served).memory, one.memory)

    def test_no_more_is_kept_than_is_said(self):
        large = [self.rooms.take(0, 30 << 20, None) for _ in range(4)]
        for room in large:
            self.rooms.give(room)
        self.assertLessEqual(self.rooms._kept, 64 << 20)
        self.assertEqual(len({id(self.rooms.take(0, 30 << 20, None).memory) for _ in range(2)}), 2)
        self.assertEqual(self.rooms._kept, 0)

    def job(self, room):
        job = Job.__new__(Job)
        job.slab, job.place, job.inputs, job.rows = room.slab, room.place, [room.image], 1
        return job

    def test_images_of_a_batch(self):
        jobs = [self.job(self.take()) for _ in range(8)]
        first = jobs[:4]
        together = images_beside([first[2], first[1], first[3]])
        self.assertEqual((together.shape, together.ctypes.data), ((3, 1, 128, 256), first[1].inputs[0].ctypes.data))
        shuffled = [first[3], first[0], first[2], first[1]]
        self.assertEqual(images_beside(shuffled).ctypes.data, first[0].inputs[0].ctypes.data)
        self.assertEqual([job.place for job in shuffled], [0, 1, 2, 3])
        self.assertIsNone(images_beside([first[0], first[2]]))  # with a gap
        self.assertIsNone(images_beside([first[3], jobs[4]]))  # from two arrays
        # Those of one array if they are as many as otherwise, or if enough follow.
        for queue, taken in (
            (jobs[:4], 4),
            (jobs[:2], 2),
            (jobs[1:], 3),
            (jobs[3:5], 0),
            (jobs[3:8], 1),
            ([jobs[0], *jobs[4:8], jobs[1]], 2),
        ):
            waiting = collections.deque(queue)
            found = Batcher._beside_the_first(waiting, 4)
            self.assertEqual(len(found), taken, [job.place for job in queue])
            self.assertEqual(sorted(map(id, [*found, *waiting])), sorted(map(id, queue)))
            self.assertTrue(all(job.slab is queue[0].slab for job in found))


if __name__ == "__main__":
    unittest.main()
