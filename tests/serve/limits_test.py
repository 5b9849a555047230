"""Limits of `lenslet serve`, and its life: too many, large or slow requests, leaving clients, signals, command
lines."""

import concurrent.futures
import contextlib
import io
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
import unittest.mock

from harness import WANTED, Served, Server, answer_of, binary_body, entry, is_there, ppm, skip_without, slow_body

if all(map(is_there, WANTED)):
    import lenslet.serve


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
        # Six concurrent requests were not run one by one.
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
        # The rest is dropped, and the connection continues.
        answers = self.raw(head + chunks + end)
        self.assertEqual(re.findall(rb"HTTP/1.1 (\d+)", answers), [b"413", b"200"])
        # A client that does not send the rest is dropped.
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
            body = pool.submit(self.raw, b"POST /v2/models/lookup/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{", 30)
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

    def test_models_stay_what_their_files_were(self):
        file = self.folder / "lookup.onnx"
        with open(file, "r+b") as stream:
            stream.write(os.urandom(file.stat().st_size))
        self.still_answers()
        os.truncate(file, 0)
        self.assertEqual(self.lookup(3, 0)[1]["outputs"][0]["data"], [40.0, 10.0])
        file.unlink()
        self.still_answers()

    def test_a_body_that_ends_early(self):
        gone = 'lenslet_failures_total{kind="disconnected",model="lookup",protocol="http"}'
        before = self.server.metrics().get(gone, 0)
        for _ in range(5):
            self.raw(b"POST /v2/models/lookup/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{", close=True)
        self.eventually(lambda: self.server.metrics().get(gone, 0) == before + 5)
        self.assertEqual(self.in_house(), 0)
        self.still_answers()


@skip_without()
class Queue(Served, unittest.TestCase):
    names = ("slow", "lookup")
    arguments = ("--max-queue-ms", 1, "--max-batch", 1, "--runners", 1)

    def test_who_would_wait_too_long_is_refused_at_once(self):
        headers, body = slow_body()

        def ask(_):
            return self.server.request("POST", "/v2/models/slow/infer", body, headers, 120)

        self.assertEqual(ask(0)[0], 200)  # the time of a run is known now
        with concurrent.futures.ThreadPoolExecutor(60) as pool:
            # Fourteen may be ahead, whatever their time, of which one runs.
            self.assertEqual([status for status, _, _ in pool.map(ask, range(10))], [200] * 10)
            refused = []

            def crowd():
                answers = list(pool.map(ask, range(60)))
                self.assertGreaterEqual(sum(status == 200 for status, _, _ in answers), 10)
                refused.extend(each for each in answers if each[0] != 200)
                return refused

            self.eventually(crowd, 120)
        status, headers, answer = refused[0]
        self.assertEqual((status, headers["Retry-After"]), (429, "1"))
        self.assertRegex(json.loads(answer)["error"], r"^some \d+ ms to wait for a runner: try again later$")
        self.still_answers()

    @unittest.skipUnless(sys.platform == "linux", "threads have a niceness of their own on Linux")
    def test_threads_that_compute_come_after_the_event_loop(self):
        tasks = pathlib.Path(f"/proc/{self.server.process.pid}/task").iterdir()
        nice = {int((task / "stat").read_text().rpartition(")")[2].split()[16]) for task in tasks}
        self.assertEqual(nice, {os.getpriority(os.PRIO_PROCESS, 0), min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)})


#: A server whose threads stop, until a file appears, when they read a request with the id "stop", or preprocess a
#: picture whose first red is this; it also reports where pictures are stored.
STOPPING = """
import os, sys, time
import lenslet.serve
from lenslet.serve import repository

def stop():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)

read, prepared = repository.ServedModel.read, repository.ServedModel.prepared

def read_slowly(self, request, rows):
    if request.id == "stop":
        stop()
    return read(self, request, rows)

def prepared_slowly(self, pictures, into, memory, sizes):
    print("into", into.ctypes.data, flush=True)
    if bytes(pictures[0])[-3:] == bytes((1, 2, 3)):
        stop()
    return prepared(self, pictures, into, memory, sizes)

repository.ServedModel.read, repository.ServedModel.prepared = read_slowly, prepared_slowly
sys.exit(lenslet.serve.main(sys.argv[2:]))
"""


@skip_without()
class Time(Served, unittest.TestCase):
    """A request's time ends while a thread reads it, or preprocesses its picture."""

    names = ("rgb", "lookup")
    arguments = ("--timeout-s", 6, "--preparers", 3)

    @classmethod
    def made(cls, *arguments):
        cls.go = cls.folder / "go"
        files = [cls.folder / f"{name}.onnx" for name in cls.names]
        return Server(*files, *arguments, command=(sys.executable, "-c", STOPPING, cls.go))

    def picture(self, *colour, **more):
        data = ppm(*colour)
        headers, body = binary_body([("image", "BYTES", [1], len(data).to_bytes(4, "little") + data)], **more)
        status, _, answer = self.server.request("POST", "/v2/models/rgb/infer", body, headers)
        return status, json.loads(answer)

    def test_it_is_told_so_at_once_and_its_place_is_nobodys(self):
        self.addCleanup(self.go.touch)  # otherwise the server does not end
        self.addCleanup(self.server.end)
        self.assertEqual(self.picture(1, 2, 3), (504, {"error": "not done in 6 s"}))
        soon = {"timeout": 100000}
        self.assertEqual(self.picture(1, 2, 3, parameters=soon), (504, {"error": "not done in 0.1 s"}))
        stopped = [line for line in self.server.lines if line.startswith("into")]
        self.assertEqual(len(set(stopped)), 2)
        many = [9] + [0] * 40000
        self.assertEqual(self.server.infer("lookup", [entry("x", "INT64", [len(many)], many)], id="stop"),
                         (504, {"error": "not done in 6 s"}))  # fmt: skip
        answers = [self.picture(9, 8, 7) for _ in range(20)]
        self.assertEqual({status for status, _ in answers}, {200})
        self.assertEqual(len({str(answer) for _, answer in answers}), 1)
        places = [line for line in self.server.lines if line.startswith("into")]
        self.assertEqual(len(places), 22)
        self.assertFalse(set(places[2:]) & set(stopped))
        self.go.touch()
        metrics = self.server.metrics()
        self.assertEqual(metrics['lenslet_failures_total{kind="deadline",model="rgb",protocol="http"}'], 2)
        self.assertEqual(metrics["lenslet_requests_in_house"], 0)
        self.still_answers()


@skip_without()
class Stop(unittest.TestCase):
    def test_what_runs_is_cancelled(self):
        """A run that only a cancellation ends."""
        import threading
        import types

        import numpy as np

        from lenslet.serve import batcher

        class Cancel:
            def __init__(self):
                self.asked = threading.Event()
                self.request = self.asked.set

        class Model:
            fixed = batchable = False
            sizes, inputs, options = [1], [], types.SimpleNamespace(max_batch=1)

        def run(*inputs, cancel):
            began.set()
            cancel.asked.wait(60)
            raise lenslet.CancelledError("ended")

        began, delivered, model = threading.Event(), [], Model()
        made = types.SimpleNamespace(output_bytes=0, runner=run)
        shapes = types.SimpleNamespace(take=lambda *_: made, give=lambda _: None)
        with unittest.mock.patch("lenslet.Cancel", Cancel):
            runs = batcher.Batcher(types.SimpleNamespace(models={"m": model}), 1, 0, delivered.append, shapes)
            runs.start()
            for _ in range(2):  # the second waits, and is dropped
                runs.put(batcher.Job(model, [np.zeros(1)], None))
            self.assertTrue(began.wait(60))
            self.assertTrue(runs.stop(30))
        self.assertEqual([type(done.jobs[0][1]) for done in delivered], [lenslet.CancelledError])


@skip_without()
class Rooms(unittest.TestCase):
    def test_a_body_that_is_refused_leaves_its_place_to_the_next(self):
        """Otherwise a batch's memory would be allocated anew for eight refused requests, and for those between them."""
        import types

        import numpy as np

        from lenslet.serve import rooms
        from lenslet.serve.http_exchange import Exchange
        from lenslet.serve.memory import Memory
        from lenslet.serve.protocol import RequestError

        class Model:
            sizes, input_shapes, dtypes, image_bytes = [8], [(-1, 5000)], [np.dtype("f4")], 20000

        model = Model()
        made = rooms.Rooms(Memory(1 << 24))
        server = types.SimpleNamespace(app=types.SimpleNamespace(rooms=made))

        def taken(whole):
            exchange = Exchange(types.SimpleNamespace(server=server, peer=None), "1.1", "POST", "/", {}, True)
            exchange.room, exchange.whole = made.take(100, 20000, model), whole
            return exchange.room.slab, exchange.room.place, exchange

        slab, place, exchange = taken(False)
        for _ in range(20):
            exchange.refuse(RequestError("queue_full", "wait"))
            *there, exchange = taken(False)
            self.assertEqual(there, [slab, place])
        exchange.whole = True
        exchange.forget()  # its run may still use it, so it is not reused
        others = [taken(False) for _ in range(20)]
        self.assertNotIn((slab, place), [each[:2] for each in others])


@skip_without()
class Life(Served, unittest.TestCase):
    names = ("slow", "lookup")

    def signalled(self, number, *arguments):
        """A server that gets a signal during four requests; `with` it."""
        server = self.made("--max-batch", 1, "--runners", 1, "--stop-s", 300, *arguments)
        self.addCleanup(server.end)
        pool = concurrent.futures.ThreadPoolExecutor(4)
        self.addCleanup(pool.shutdown)

        def ask(rows):
            headers, body = slow_body(rows)
            return server.request("POST", "/v2/models/slow/infer", body, headers, 300)[0]

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

    @staticmethod
    def nothing_unread(server, connections):
        """Nothing of the sent data is unread, according to the kernel."""
        ports = {connection.getsockname()[1] for connection in connections}
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, own, other, _, queues, *_ = line.split()
            own, other = (int(address.partition(":")[2], 16) for address in (own, other))
            if server.http_port in (own, other) and ports & {own, other} and queues != "00000000:00000000":
                return False
        return True

    def test_what_was_read_behind_it_is_answered(self):
        """The last answer announces the connection's end, and so does a single one."""
        server = self.made("--runners", 1, "--stop-s", 300)
        self.addCleanup(server.end)
        headers, body = slow_body(24)
        lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "Content-Length": len(body)}.items())
        slow = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode() + body
        get = b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n"
        behind = get * 3 + b"GET /v2/models/lookup HTTP/1.1\r\nHost: a\r\n\r\n"
        said = []
        with contextlib.ExitStack() as stack:
            made = [socket.create_connection((server.host, server.http_port), 300) for _ in range(2)]
            streams = [stack.enter_context(stack.enter_context(each).makefile("rb")) for each in made]
            for connection, data in zip(made, (slow + behind, slow)):
                connection.sendall(data)
            self.eventually(lambda: server.metrics()["lenslet_requests_in_house"] == 2 and self.nothing_unread(server, made))
            server.process.send_signal(signal.SIGTERM)
            for stream in streams:
                said.append(stream.read())
        self.assertEqual([re.findall(rb"HTTP/1.1 (\d+)", each) for each in said], [[b"200"] * 5, [b"200"]])
        self.assertEqual([each.count(b"connection: close") for each in said], [1, 1])
        self.assertGreater(said[0].rfind(b"connection: close"), said[0].rfind(b"HTTP/1.1 200"))
        self.assertEqual(server.process.wait(40), 0)

    def test_who_has_left_is_in_the_log(self):
        """With the client's address."""
        log = self.folder / "log"
        server = self.made("--access-log", log)
        self.addCleanup(server.end)
        with socket.create_connection((server.host, server.http_port), 10) as connection:
            address = "{}:{}".format(*connection.getsockname())
            connection.sendall(b"POST /v2/models/lookup/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{")
            self.eventually(lambda: server.metrics()["lenslet_requests_in_house"] == 1)
        self.eventually(lambda: log.read_text().endswith("\n"))
        line = json.loads(log.read_text())
        self.assertEqual((line["client"], line["failure"], line["status"]), (address, "disconnected", 0))

    def test_a_second_signal_ends_it_at_once(self):
        server, _ = self.signalled(signal.SIGTERM, "--drain-s", 60)
        self.eventually(lambda: server.request("GET", "/v2/health/ready")[0] == 503)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(20), 1)

    def test_what_was_never_begun_does_not_hold_it_up(self):
        """A request followed by invalid data: its task ends before its first step."""
        server = self.made("--stop-s", 60)
        self.addCleanup(server.end)
        with socket.create_connection((server.host, server.http_port), 10) as connection:
            head = b"POST /v2/models/lookup/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head + b"0\r\n\r\n\0\r\n\r\n")
            self.assertEqual(answer_of(connection)[0], 400)
        self.assertEqual(server.stop(30), 0)

    def failed(self, *arguments):
        """(exit code, the last line of stderr) of the verb, in this process, which saves starting Python."""
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
                said = f"lenslet serve: error: no {name} here: pip install 'lenslet-runtime[serve]'"
                self.assertEqual(self.failed("x.onnx"), (2, said))


if __name__ == "__main__":
    unittest.main()
