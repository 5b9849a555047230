"""`lenslet serve` over gRPC under attack, and features for operators: health, reflection, TLS, an access log. The small
forms of grpc_attacks.py; no test depends on times."""

import asyncio
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest

from harness import ONNX_TYPES, Served, binary_body, entry, is_there, skip_without
from tiny_model import field

if is_there("grpc") and is_there("numpy"):
    import grpc_attacks as attacks
    import numpy as np

    import grpc

DEVICE = os.environ.get("LENSLET_TEST_SERVE_DEVICE", "cpu")


def megabytes(process, key):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    raise ValueError(key)


class Asked:
    """Served over one channel."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.channel = attacks.channel_to(cls.server)
        cls.addClassCleanup(cls.channel.close)

    def ask(self, data, method=None, **more):
        return attacks.call(self.channel, data, method or attacks.INFER, **more)

    def still_right(self):
        code, answer = self.ask(attacks.lookup(2, 0))
        self.assertEqual(code, "OK", answer)
        self.assertEqual(answer[-8:], np.array([30, 10], "<f4").tobytes())
        self.assertEqual(self.ask(b"", attacks.HEALTH), ("OK", b"\x08\x01"))

    def metric(self, name):
        return sum(value for key, value in self.server.metrics().items() if key.split("{")[0] == name)


@skip_without()
class GrpcAttacks(Asked, Served, unittest.TestCase):
    names = ("lookup", "segment", "slow")
    arguments = ("--max-plan-mib", 16, "--max-memory-mib", 256, "--runners", 1)

    def grown(self, attack, *arguments):
        """Growth in MiB, at most."""
        pathlib.Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5")
        before = megabytes(self.server.process, "VmRSS")
        found = attack(self.server, False, *arguments)
        self.assertFalse([key for key in found if str(key)[:5].isupper()], found)
        return megabytes(self.server.process, "VmHWM") - before

    def test_millions_of_fields(self):
        self.assertLess(self.grown(attacks.grpc_millions_of_fields), 60)  # 2 MiB each: protobuf took 300
        self.still_right()

    def test_mutated_messages(self):
        self.assertLess(self.grown(attacks.grpc_mutated_messages), 60)
        self.still_right()

    def test_calls_reset_at_once(self):
        """Probes are answered meanwhile, from a queue of their own; other requests afterwards."""
        over, answers = threading.Event(), []

        def probe():
            with attacks.channel_to(self.server) as channel:
                while not over.is_set():
                    answers.append(attacks.call(channel, b"", attacks.HEALTH))

        probing = threading.Thread(target=probe)
        probing.start()
        attacks.grpc_calls_reset_at_once(self.server, False)
        over.set()
        probing.join()
        self.assertEqual(set(answers), {("OK", b"\x08\x01")})
        self.eventually(lambda: self.ask(attacks.lookup(1))[0] == "OK", 30)
        self.eventually(lambda: self.metric("lenslet_requests_in_house") == 0, 30)
        self.still_right()

    def test_who_resets_calls_harms_no_other(self):
        self.assertLess(self.grown(attacks.grpc_calls_reset_on_open_connections), 256)
        self.eventually(lambda: self.metric("lenslet_requests_in_house") == 0, 30)
        self.still_right()

    def test_a_burst_on_a_new_channel(self):
        """More than the limit of requests, before the client knows how many calls are allowed."""
        with attacks.channel_to(self.server) as channel:
            ask = channel.unary_unary(attacks.INFER)
            for _ in range(3):
                codes = {each.exception() and each.exception().code().name
                         for each in [ask.future(attacks.lookup(1), timeout=60) for _ in range(500)]}  # fmt: skip
                self.assertLessEqual(codes, {None, "RESOURCE_EXHAUSTED"})

    def test_what_does_not_come_and_is_not_taken(self):
        for attack in (attacks.grpc_messages_without_an_end, attacks.grpc_answers_that_nobody_takes,
                       attacks.grpc_small_answers_that_nobody_takes, attacks.grpc_calls_without_a_message,
                       attacks.grpc_idle_connections):  # fmt: skip
            with self.subTest(attack.__name__):
                self.assertLess(self.grown(attack), 1.1 * 256)
                self.eventually(lambda: self.metric("lenslet_requests_in_house") == 0, 30)
                self.eventually(lambda: self.metric("lenslet_grpc_messages_coming") == 0, 30)
                self.eventually(lambda: self.metric("lenslet_grpc_answers_leaving") == 0, 30)
                self.still_right()

    def test_what_is_not_taken_is_counted(self):
        from lenslet.serve.grpc_app import CALL_BYTES

        kept = self.metric("lenslet_memory_bytes")
        with contextlib.closing(attacks.Raw(self.server, window=0)) as raw:
            raw.read_all()
            for _ in range(50):
                raw.message(attacks.lookup(1))
            self.eventually(lambda: self.metric("lenslet_grpc_answers_leaving") == 50, 30)
            self.assertGreater(self.metric("lenslet_memory_bytes"), kept + 50 * CALL_BYTES)
        self.eventually(lambda: self.metric("lenslet_memory_bytes") < kept + CALL_BYTES, 30)

    def test_what_is_wrong_is_said(self):
        for words, data in (
            ("has a group", b"\x0b\x0c"),
            ("ends within a field", field(1, "lookup")[:-1]),
            ("ends within a number", b"\xff" * 20),
            ("model_name is no UTF-8", b"\x0a\x01\xff"),
            ("model_name has 100000 bytes", field(1, "a" * 100000)),
            ("more than 8 dimensions", field(1, "lookup") + attacks.input_of("x", "INT64", [1] * 9)),
            ("no shape is [-1]", field(1, "lookup") + attacks.input_of("x", "INT64", [2**64 - 1])),
            ("2 elements, but its shape has 3", field(1, "lookup") + attacks.input_of("x", "INT64", [3], field(3, b"\1\2"))),
            ("end within an element", field(1, "lookup") + attacks.input_of("x", "INT64", [1], field(3, b"\x81"))),
            ("more than ten bytes", field(1, "lookup") + attacks.input_of("x", "INT64", [1], field(3, b"\x81" * 11 + b"\1"))),
            ("'timeout' is a number", field(1, "lookup") + field(4, field(1, "timeout") + field(2, field(3, "1")))),
            ("both contents and", attacks.lookup(1, raw=False) + field(7, bytes(8))),
            ("2 raw_input_contents for 1", attacks.lookup(1) + field(7, b"")),
        ):  # fmt: skip
            with self.subTest(words):
                code, said = self.ask(data)
                self.assertEqual(code, "INVALID_ARGUMENT", said)
                self.assertIn(words, said)
        for method in ("/inference.GRPCInferenceService/ModelReady", attacks.HEALTH):
            code, said = self.ask(b"\xff", method)
            self.assertEqual((code, said[:15]), ("INVALID_ARGUMENT", "the message is "))
            code, said = self.ask(b"\x0a\x01a" * 100000, method)
            self.assertEqual((code, said), ("INVALID_ARGUMENT", "a message of 300000 bytes: at most 65536"))
        self.still_right()

    def test_no_head_ends_the_server(self):
        """A path that was not UTF-8 used to end all calls, and the port."""
        latin = [chr(number) for number in range(256)]
        for text in ("", "/", "/a/", attacks.INFER + "\xff", "/\x80/ModelInfer", "a" * 200, *latin):
            for path, more in ((text, ()), (attacks.INFER, [("a-bin", text), ("a", text)]), (attacks.INFER, [(text, "a")]),
                               (attacks.INFER, [("grpc-timeout", text)]), (attacks.INFER, [("grpc-encoding", text)])):  # fmt: skip
                raw = attacks.Raw(self.server)
                with contextlib.suppress(OSError):  # gRPC ends a connection that is not HTTP/2
                    raw.begin(path, None, *more)
                    raw.socket.shutdown(socket.SHUT_WR)
                raw.close()
        code, said = self.ask(b"", "/none/None")
        self.assertEqual((code, said), ("UNIMPLEMENTED", "Method not found!"))
        self.still_right()

    def test_a_compressed_message_is_refused(self):
        call = self.channel.unary_unary(attacks.INFER)
        with self.assertRaises(grpc.RpcError) as raised:
            call(attacks.lookup(1) + field(3, "a" * 10000), compression=grpc.Compression.Gzip, timeout=60)
        self.assertEqual(raised.exception.code().name, "UNIMPLEMENTED")
        self.still_right()

    def test_shapes_that_are_too_large(self):
        refused = "model 'segment' for image [1, 3, 1024, 1024]: a run takes "
        code, said = self.ask(attacks.floats_of("segment", "image", [1, 3, 1024, 1024]))
        self.assertEqual((code, said[: len(refused)]), ("RESOURCE_EXHAUSTED", refused))
        self.assertTrue(said.endswith(f", at most {16 << 20}"), said)
        status, said = self.server.infer("segment", [entry("image", "FP32", [1, 3, 900, 900], [1.0] * (3 * 900 * 900))])
        self.assertEqual((status, said["error"][:32]), (413, "model 'segment' for image [1, 3,"), said)
        for edge in range(1, 40):
            code, answer = self.ask(attacks.floats_of("segment", "image", [1, 3, edge, 2], 0.5))
            self.assertEqual(code, "OK", answer)
            self.assertEqual(np.frombuffer(answer[-24 * edge :], "<f4").tolist(), [5.0] * 6 * edge)
        self.assertLessEqual(self.metric("lenslet_kept_runners"), 16)
        for shape in ([1, 3, 0, 2**31 - 1], [1, 3, 0, 0], [0, 3, 2, 2]):
            code, said = self.ask(attacks.floats_of("segment", "image", shape))
            self.assertIn(code, ("INVALID_ARGUMENT", "OK"), said)
        self.still_right()

    @unittest.skipIf(DEVICE != "cpu", "a GPU is done sooner")
    def test_a_request_has_its_time(self):
        rows = 64
        slow = attacks.floats_of("slow", "x", [rows, 1, 96, 96])
        timeout = field(4, field(1, "timeout") + field(2, b"\x10" + attacks.varint(50000)))
        ended = self.metric("lenslet_ended_runs_total")
        code, said = self.ask(slow + timeout)
        self.assertEqual((code, said), ("DEADLINE_EXCEEDED", "not done in 0.05 s"))
        self.eventually(lambda: self.metric("lenslet_ended_runs_total") == ended + 1, 60)
        status, said = self.server.infer("slow", [entry("x", "FP32", [rows, 1, 96, 96], [0] * (rows * 96 * 96))],
                                         parameters={"timeout": 50000})  # fmt: skip
        self.assertEqual((status, said), (504, {"error": "not done in 0.05 s"}))
        status, said = self.server.infer("lookup", [entry("x", "INT64", [1], [1])], parameters={"timeout": "1"})
        self.assertEqual((status, said), (400, {"error": "'timeout' is a number of microseconds"}))
        # A client's own deadline, and a client that leaves.
        self.assertEqual(self.ask(slow, timeout=0.2)[0], "DEADLINE_EXCEEDED")
        self.eventually(lambda: self.metric("lenslet_requests_in_house") == 0, 60)
        before = self.metric("lenslet_ended_runs_total")

        def left():
            going = self.channel.unary_unary(attacks.INFER).future(slow)
            self.eventually(lambda: going.done() or self.metric("lenslet_requests_in_house") == 1, 60)
            going.cancel()  # after its run has begun, before, or after its end
            return self.metric("lenslet_ended_runs_total") > before

        self.eventually(left, 120)
        self.still_right()

    def test_a_batch_ends_for_no_one_of_it(self):
        ask = self.channel.unary_unary(attacks.INFER)
        first = ask.future(attacks.floats_of("slow", "x", [8, 1, 96, 96]), timeout=60)
        self.eventually(lambda: self.metric("lenslet_requests_in_house") == 1, 60)
        others = [ask.future(attacks.floats_of("slow", "x", [2, 1, 96, 96], value), timeout=60) for value in (1, 2, 3)]
        first.result()
        others[0].cancel()
        for value, other in zip((2, 3), others[1:]):
            found = np.frombuffer(other.result()[-4 * 2 * 96 * 96 :], "<f4")
            np.testing.assert_allclose(found, value, rtol=1e-4)
        self.still_right()


@skip_without()
class GrpcSlow(Asked, Served, unittest.TestCase):
    names = ("lookup", "segment")
    arguments = ("--request-s", 2, "--max-requests", 4)

    def test_a_message_that_does_not_come(self):
        stop = threading.Event()
        self.addCleanup(stop.set)
        before = self.server.metrics()

        def never():
            stop.wait(60)
            yield b""

        for method in (attacks.INFER, attacks.HEALTH):
            with self.assertRaises(grpc.RpcError) as raised:
                self.channel.stream_unary(method)(never(), timeout=60)
            self.assertEqual(raised.exception.code().name, "DEADLINE_EXCEEDED")
            self.assertEqual(raised.exception.details(), "the message did not come in 2 s")
        late = 'lenslet_failures_total{kind="timeout",model="",protocol="grpc"}'
        self.assertEqual(self.server.metrics()[late] - before.get(late, 0), 1)
        self.still_right()

    def test_an_answer_that_is_not_taken(self):
        raw = attacks.Raw(self.server, window=0)
        self.addCleanup(raw.close)
        raw.read_all()
        raw.message(attacks.floats_of("segment", "image", [1, 3, 20, 20]))
        self.eventually(lambda: self.metric("lenslet_grpc_answers_leaving") == 1, 30)
        self.assertTrue(raw.closed(60))
        self.eventually(lambda: self.metric("lenslet_grpc_answers_leaving") == 0, 30)
        self.still_right()


@skip_without()
class GrpcUntaken(unittest.TestCase):
    def test_no_call_is_asked_anything_when_it_is_over(self):
        """gRPC's library used to abort the process: the peer is known in advance."""
        from types import SimpleNamespace

        from lenslet.serve.grpc_app import GrpcApp

        class Call:
            over = False

            def peer(self):
                assert not self.over
                return "ipv4:127.0.0.1:1"

            def add_done_callback(self, _):
                pass

        async def untaken():
            app = GrpcApp.__new__(GrpcApp)
            app._loop = asyncio.get_running_loop()
            app._timer, app._port, app._sending = None, 0, {}
            app._service = SimpleNamespace(limits=SimpleNamespace(seconds=0.0, memory=9), memory=SimpleNamespace(used=0, most=9),
                                           tidy=SimpleNamespace(grown=lambda: 0))  # fmt: skip
            calls = [Call(), Call()]
            for call in calls:
                app._send(call, None)
                call.over = True
            app._end_untaken(app._loop.time() + 1)
            self.assertEqual(app._sending, {})

        asyncio.run(untaken())


@skip_without()
class GrpcFull(Asked, Served, unittest.TestCase):
    names = ("lookup",)
    arguments = ("--request-s", 600, "--max-requests", 4)

    def test_the_oldest_gives_way(self):
        """Unfinished calls keep no other out for longer than a second."""
        with attacks.slow_messages(self.server, 4):
            self.eventually(lambda: self.metric("lenslet_requests_in_house") == 4, 30)
            self.eventually(lambda: self.ask(attacks.lookup(1))[0] == "OK", 30)
        # Nor do calls without inference.
        with attacks.slow_messages(self.server, 200, attacks.HEALTH):
            self.eventually(lambda: self.metric("lenslet_grpc_messages_coming") == 64, 30)
            self.still_right()
        self.eventually(lambda: self.metric("lenslet_grpc_messages_coming") == 0, 30)
        self.eventually(lambda: self.metric("lenslet_requests_in_house") == 0, 30)


@skip_without()
class GrpcNumbers(Asked, Served, unittest.TestCase):
    names = ("lookup",)

    def test_contents_are_what_protobuf_made_them(self):
        """Random numbers of each type, by protobuf's writer, in one part and in several."""
        draw = np.random.default_rng(7)
        rows = 64
        for name in ONNX_TYPES:
            if name == "FP16":
                continue
            dtype = np.dtype({"BOOL": "bool", "FP32": "float32", "FP64": "float64"}.get(name, name.lower()))
            if dtype.kind in "iu":
                limits = np.iinfo(dtype)
                array = draw.integers(limits.min, limits.max, (rows, 2), dtype, endpoint=True)
                array >>= draw.integers(0, 8 * dtype.itemsize - 1, (rows, 2)).astype(dtype)  # of every length
                array[0] = limits.min, limits.max
            elif dtype == bool:
                array = draw.random((rows, 2)) < 0.5
            else:
                array = draw.standard_normal((rows, 2)).astype(dtype)
            for parts in (False, True):
                with self.subTest(name, parts=parts):
                    self.decoded(name, array, parts)

    def decoded(self, name, wanted, parts):
        """The reader's result, in this process."""
        from lenslet.serve.memory import Memory
        from lenslet.serve.messages import message_classes
        from lenslet.serve.protocol import array_of
        from lenslet.serve.wire import CONTENTS, Message

        kind = message_classes()["ModelInferRequest"]
        numbers = {1: "bool", 2: "int", 3: "int64", 4: "uint", 5: "uint64", 6: "fp32", 7: "fp64"}
        which = f"{numbers[CONTENTS[name][0]]}_contents"
        flat = wanted.ravel().tolist()
        request = kind(model_name="types")
        added = request.inputs.add(name="x", datatype=name, shape=wanted.shape)
        getattr(added.contents, which).extend(flat[:5] if parts else flat)
        data = request.SerializeToString()
        if parts:  # the rest of the contents is another part of the same message and field
            rest = kind().inputs.add()
            getattr(rest.contents, which).extend(flat[5:])
            data = field(1, "types") + field(5, added.SerializeToString() + rest.SerializeToString())
        inference = Message(data).read(Memory(1 << 30).take(0, ""))
        found = array_of(inference.request.inputs[0], wanted.dtype)
        np.testing.assert_array_equal(found, wanted)

    def test_each_number_a_field(self):
        single = b"".join(b"\x18" + attacks.varint(number) for number in (3, 0, 2))
        code, answer = self.ask(field(1, "lookup") + attacks.input_of("x", "INT64", [3], single))
        self.assertEqual(code, "OK", answer)
        self.assertEqual(np.frombuffer(answer[-12:], "<f4").tolist(), [40, 10, 30])

    def test_a_number_is_in_one_part(self):
        """As in protobuf: put together, these would be a zero."""
        code, answer = self.ask(field(1, "lookup") + attacks.input_of("x", "INT64", [1], field(3, b"\x80") + field(3, b"\0")))
        self.assertEqual((code, answer), ("INVALID_ARGUMENT", "input 'x': its contents end within an element"))


@skip_without()
class Operated(Asked, Served, unittest.TestCase):
    names = ("lookup", "slow")

    def test_health(self):
        check = attacks.HEALTH
        for service in ("", "inference.GRPCInferenceService", "lookup", "grpc.health.v1.Health"):
            self.assertEqual(self.ask(field(1, service), check), ("OK", b"\x08\x01"))
        self.assertEqual(self.ask(field(1, "none"), check), ("NOT_FOUND", "no service is named 'none'"))
        watching = self.channel.unary_stream("/grpc.health.v1.Health/Watch")
        seen = watching(b"", timeout=60)
        self.assertEqual(next(seen), b"\x08\x01")
        unknown = watching(field(1, "none"), timeout=60)
        self.assertEqual(next(unknown), b"\x08\x03")
        for each in (seen, unknown):
            each.cancel()

    def test_reflection(self):
        from google.protobuf import descriptor_pb2

        from lenslet.serve.messages import packages

        for version in ("v1", "v1alpha"):
            name = f"grpc.reflection.{version}.ServerReflection"
            classes = packages()[name].classes
            ask = self.channel.stream_stream(f"/{name}/ServerReflectionInfo")
            symbol = "inference.GRPCInferenceService.ModelInfer"
            asked = [{"list_services": ""}, {"file_containing_symbol": symbol}, {"file_by_filename": "/etc/passwd"}]
            sent = [classes["ServerReflectionRequest"](**each).SerializeToString() for each in asked]
            listed, found, none = map(classes["ServerReflectionResponse"].FromString, ask(iter(sent), timeout=60))
            self.assertIn("inference.GRPCInferenceService", [each.name for each in listed.list_services_response.service])
            file = descriptor_pb2.FileDescriptorProto.FromString(found.file_descriptor_response.file_descriptor_proto[0])
            self.assertEqual([each.name for each in file.service], ["GRPCInferenceService"])
            self.assertIn("ModelInfer", [each.name for each in file.service[0].method])
            self.assertEqual(none.error_response.error_code, 5)

    @unittest.skipIf(DEVICE != "cpu", "a GPU is done sooner")
    def test_it_stops_whatever_runs(self):
        """With minutes of work queued."""
        server = self.made("--max-batch", 1, "--runners", 1, "--stop-s", 0, "--max-queue-ms", 0)
        self.addCleanup(server.end)
        with attacks.channel_to(server) as channel:
            ask = channel.unary_unary(attacks.INFER)
            calls = [ask.future(attacks.floats_of("slow", "x", [64, 1, 96, 96])) for _ in range(100)]
            self.eventually(lambda: server.metrics()["lenslet_requests_in_house"] >= 50, 60)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(60), 0)
            self.assertTrue(any(call.exception() is not None for call in calls))

    def test_who_stays_does_not_hold_it_up(self):
        server = self.made("--stop-s", 60)
        self.addCleanup(server.end)
        with attacks.channel_to(server) as channel:
            watched = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
            self.assertEqual(next(watched), b"\x08\x01")
            never = threading.Event()
            self.addCleanup(never.set)

            def asked():
                yield b"\x3a\x00"
                never.wait()

            described = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")(asked())
            self.assertIn(b"inference.GRPCInferenceService", next(described))
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(list(watched), [b"\x08\x02"])
            self.assertEqual(server.process.wait(30), 0)

    def test_the_access_log(self):
        log = self.folder / "access.log"
        server = self.made("--access-log", log)
        self.addCleanup(server.end)
        good = attacks.lookup(1)
        self.assertEqual(attacks.once(server, good)[0], "OK")
        self.assertEqual(attacks.once(server, attacks.lookup(99))[0], "INVALID_ARGUMENT")
        self.assertEqual(attacks.once(server, b"\xff")[0], "INVALID_ARGUMENT")
        self.assertEqual(server.infer("none", [])[0], 404)
        self.eventually(lambda: log.exists() and log.read_text().count("\n") == 4)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual([(each["protocol"], each["model"], each["status"], each["failure"]) for each in lines], [
            ("grpc", "lookup", "OK", ""), ("grpc", "lookup", "INVALID_ARGUMENT", "malformed"),
            ("grpc", "", "INVALID_ARGUMENT", "malformed"), ("http", "", 404, "unknown"),
        ])  # fmt: skip
        self.assertEqual(lines[0]["bytes_in"], len(good))
        self.assertRegex(lines[0]["client"], r"^ipv4:127\.0\.0\.1:\d+$")
        self.assertLessEqual({"queue", "run", "all"}, set(lines[0]["ms"]))
        self.assertRegex(lines[1]["error"], "index.* is outside")
        # Moved, the log is made anew; a folder in its place, in which no line can be written, stops no request.
        log.rename(self.folder / "access.1")
        self.assertEqual(attacks.once(server, good)[0], "OK")
        self.eventually(lambda: log.exists() and log.read_text().count("\n") == 1)
        log.unlink()
        log.mkdir()
        for _ in range(20):
            self.assertEqual(attacks.once(server, good)[0], "OK")
        self.eventually(lambda: server.metrics()["lenslet_access_log_lost"] > 0)

    def test_tls(self):
        if shutil.which("openssl") is None:
            self.skipTest("no openssl")
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        folder = pathlib.Path(made.name)
        for name in ("server", "client"):
            command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
            command += ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem", "-days", "2"]
            command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
            subprocess.run(command, check=True, capture_output=True)
        read = {each.name: each.read_bytes() for each in folder.iterdir()}
        server = self.made(self.folder / "segment.onnx", "--tls-cert", folder / "server.pem", "--tls-key", folder / "server.key",
                           "--tls-client-ca", folder / "client.pem")  # fmt: skip
        self.addCleanup(server.end)
        for key, chain, wanted in ((read["client.key"], read["client.pem"], "OK"), (None, None, "UNAVAILABLE")):
            credentials = grpc.ssl_channel_credentials(read["server.pem"], key, chain)
            with grpc.secure_channel(f"localhost:{server.grpc_port}", credentials) as channel:
                self.assertEqual(attacks.call(channel, attacks.lookup(1))[0], wanted)
        self.assertEqual(attacks.once(server, attacks.lookup(1))[0], "UNAVAILABLE")  # without TLS
        context = ssl.create_default_context(cafile=str(folder / "server.pem"))
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
        self.https(server, context)
        self.handshakes(server, context)

    def handshakes(self, server, context):
        """Unfinished handshakes: their number is limited, and a new one replaces the oldest."""
        from lenslet.serve.http_server import HANDSHAKES

        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection((server.host, server.http_port), 60))
                      for _ in range(HANDSHAKES + 20)]  # fmt: skip
            for each in silent[:20]:
                each.settimeout(60)
                with contextlib.suppress(ConnectionError):
                    self.assertEqual(each.recv(1), b"")
            plain = stack.enter_context(socket.create_connection((server.host, server.http_port), 60))
            with context.wrap_socket(plain, server_hostname="localhost") as good:
                good.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n")
                self.assertIn(b" 200 ", good.recv(4096))

    def test_tls_has_a_part_of_the_memory(self):
        from lenslet.serve import tls
        from lenslet.serve.memory import Memory

        memory, files = Memory(64 << 20), tls.Tls(pathlib.Path(), pathlib.Path(), None)
        self.assertEqual(tls.connections(None, memory, tls.HTTP_BYTES, tls.HTTP_PART, 1000), 1000)
        self.assertEqual(memory.used, 0)
        self.assertEqual(tls.connections(files, memory, tls.HTTP_BYTES, tls.HTTP_PART, 1000), 21)
        self.assertEqual(tls.connections(files, memory, tls.HTTP_BYTES, tls.HTTP_PART, 2), 2)
        self.assertEqual(memory.used, 23 * tls.HTTP_BYTES)

    def https(self, server, context):
        import urllib.request

        with urllib.request.urlopen(f"https://localhost:{server.http_port}/v2/health/ready", context=context) as answer:
            self.assertEqual((answer.status, json.load(answer)), (200, {"ready": True}))
        # A long answer is complete; for a client that takes only a part, the rest counts as its memory.
        image = np.random.default_rng(4).random((1, 3, 500, 500), "f4")
        headers, body = binary_body([("image", "FP32", image.shape, image.tobytes())])
        url = f"https://localhost:{server.http_port}/v2/models/segment/infer"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), context=context) as answer:
            said = json.load(answer)["outputs"][0]
        found = np.array(said["data"], "f4").reshape(said["shape"])
        np.testing.assert_allclose(found, 10 * image, rtol=1e-6)

        def held():
            with urllib.request.urlopen(url.partition("/v2")[0] + "/metrics", context=context) as answer:
                return float(re.search(rb"\nlenslet_memory_bytes (.*)\n", answer.read())[1])

        kept = held()
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        plain.settimeout(60)
        plain.connect((server.host, server.http_port))
        with context.wrap_socket(plain, server_hostname="localhost") as slow:
            lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "Content-Length": len(body)}.items())
            slow.sendall(f"POST /v2/models/segment/infer HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode() + body)
            left = 1 << 20
            while left > 0:
                left -= len(slow.recv(left))
            self.assertGreater(held(), kept + (12 << 20))
        self.eventually(lambda: held() < kept + (12 << 20), 60)

    def test_random_requests_are_right(self):
        draw = random.Random(3)
        for _ in range(50):
            indices = [draw.randrange(4) for _ in range(draw.randrange(1, 9))]
            code, answer = self.ask(attacks.lookup(*indices, raw=draw.random() < 0.5))
            self.assertEqual(code, "OK", answer)
            found = np.frombuffer(answer[-4 * len(indices) :], "<f4").tolist()
            self.assertEqual(found, [10.0 * (index + 1) for index in indices])


if __name__ == "__main__":
    unittest.main()
