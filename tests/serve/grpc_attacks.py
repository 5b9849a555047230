"""Attacks on `lenslet serve` over gRPC. Importing this module adds them to attacks.py."""

import collections
import contextlib
import os
import random
import socket
import struct
import threading
import time

import attacks
import grpc
import numpy as np
from google.protobuf.message import DecodeError
from tiny_model import field

INFER = "/inference.GRPCInferenceService/ModelInfer"
HEALTH = "/grpc.health.v1.Health/Check"
MIB = 1 << 20


def channel_to(server, **options):
    return grpc.insecure_channel(
        server.grpc,
        options=[("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1),
                 ("grpc.use_local_subchannel_pool", 1), *((f"grpc.{key}", value) for key, value in options.items())],
    )  # fmt: skip


def call(channel, data, method=INFER, timeout=120, metadata=None):
    """(code, text or bytes) of one message."""
    try:
        return "OK", channel.unary_unary(method)(data, timeout=timeout, metadata=metadata)
    except grpc.RpcError as error:
        return error.code().name, error.details()


def once(server, data, method=INFER, timeout=120):
    with channel_to(server) as channel:
        return call(channel, data, method, timeout)


def varint(value):
    found = b""
    while value >= 0x80:
        found += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return found + bytes((value,))


def input_of(name, datatype, shape, contents=None):
    packed = b"".join(map(varint, shape))
    return field(5, field(1, name) + field(2, datatype) + field(3, packed) + (b"" if contents is None else field(5, contents)))


def lookup(*indices, raw=True):
    """A valid request to lookup.onnx."""
    data = struct.pack(f"<{len(indices)}q", *indices)
    contents = None if raw else field(3, b"".join(map(varint, indices)))
    head = field(1, "lookup") + input_of("x", "INT64", [len(indices)], contents)
    return head + field(7, data) if raw else head


def floats_of(name, port, shape, value=1.0):
    """A request to a model with one FP32 input."""
    count = 1
    for dim in shape:
        count *= dim
    return field(1, name) + input_of(port, "FP32", shape) + field(7, struct.pack("<f", value) * count)


def large_fields(size):
    """Messages with millions of fields, for each of which protobuf makes an object; by name."""
    many = int(8 * MIB * size)
    head = field(1, "lookup")
    one = input_of("x", "INT64", [1])
    return {
        "inputs": head + b"\x2a\x00" * many,
        "outputs": head + b"\x32\x00" * many,
        "parameters": head + b"\x22\x00" * many,
        "raw_input_contents": head + b"\x3a\x00" * many,
        "unknown fields": head + one + b"\x78\x01" * many,
        "dimensions": head + field(5, field(1, "x") + b"\x18\x01" * many),
        "dimensions, packed": head + field(5, field(1, "x") + field(3, b"\x01" * 2 * many)),
        "bytes_contents": head + field(5, field(1, "image") + field(2, "BYTES") + field(5, b"\x42\x00" * many)),
        "numbers, each a field": head + field(5, field(1, "x") + field(2, "INT64") + field(5, b"\x18\x01" * many)),
        "numbers, packed": head + field(5, field(1, "x") + field(2, "INT64") + field(3, varint(2 * many))
                                        + field(5, field(3, b"\x01" * 2 * many))),
        "an input's parameters": head + field(5, field(1, "x") + b"\x22\x00" * many),
        "an output's parameters": head + one + field(6, field(1, "y") + b"\x12\x00" * many),
        "groups": head + b"\x0b" * 2 * many,
        "groups within": head + b"\x0b" * many + b"\x0c" * many,
        "a name": field(1, b"a" * 2 * many) + one,
        "a name of wide letters": field(1, b"a" * 2 * many + "\U0001f600".encode()) + one,
        "an id that is no text": head + field(3, b"\xff" * 2 * many) + one,
        "a number without an end": head + b"\xff" * 2 * many,
        "a field that is cut": head + b"\x2a\xff\xff\xff\xff\x07" + b"a" * many,
    }  # fmt: skip


@attacks.attack
def grpc_millions_of_fields(server, full, size=None):
    found = collections.Counter()
    for name, data in large_fields(size or (1 if full else 1 / 8)).items():
        code, said = once(server, data)
        found[said_code(code) if code == "INVALID_ARGUMENT" else f"WRONG: {name}: {code} {said!r}"] += 1
    return found


def said_code(code):
    return code.lower().replace("_", " ")


def mutated(draw, good):
    data = bytearray(good)
    for _ in range(draw.choice((1, 1, 2, 5))):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[at : at + draw.choice((1, 2, 8, 100))]
        elif kind == 2:
            data[at:at] = draw.randbytes(draw.choice((1, 2, 8, 100)))
        elif kind == 3:
            end = at + draw.choice((1, 4, 16))
            data[at:at] = data[at:end]
        else:
            data[at : at + 1] = draw.choice((b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff" * 10))
    return bytes(data)


def good_messages():
    return [lookup(2, 1), lookup(2, 1, raw=False), floats_of("segment", "image", [1, 3, 2, 2]),
            lookup(3) + field(3, "id") + field(6, field(1, "y") + field(2, field(1, "classification")
                                                                          + field(2, b"\x10\x02")))]  # fmt: skip


def is_right(classes, sent, answer):
    """Whether an answer matches its message, as read by protobuf, which also accepts meaningless fields."""
    try:
        classes["ModelInferRequest"].FromString(sent)
    except DecodeError:
        return True
    asked, said = classes["ModelInferRequest"].FromString(sent), classes["ModelInferResponse"].FromString(answer)
    asked_for = [output.parameters[key] for output in asked.outputs for key in output.parameters if key == "classification"]
    if any(value.int64_param or value.uint64_param for value in asked_for):
        return len(said.outputs) == 1 and said.outputs[0].datatype == "BYTES"
    given, raw = asked.inputs[0], asked.raw_input_contents
    found = np.frombuffer(said.raw_output_contents[0], "<f4")
    if asked.model_name == "lookup":
        x = np.frombuffer(raw[0], "<i8") if raw else np.array(given.contents.int64_contents, "i8")
        return np.array_equal(found, np.array([10, 20, 30, 40], "f4")[x])
    x = (np.frombuffer(raw[0], "<f4") if raw else np.array(given.contents.fp32_contents, "f4")).reshape(given.shape)
    with np.errstate(all="ignore"):  # a 1x1 convolution: 10 times its own channel plus 0 times the others
        wanted = np.einsum("kc,nchw->nkhw", 10 * np.eye(3, dtype="f4"), x).ravel()
        return found.shape == wanted.shape and np.allclose(found, wanted, 1e-4, 1e-30, True)


@attacks.attack
def grpc_mutated_messages(server, full, count=None, seed=1):
    """Valid messages with some bytes changed: each gets an error or the right numbers, and none an internal error."""
    from lenslet.serve.messages import message_classes

    draw, goods, classes = random.Random(seed), good_messages(), message_classes()
    found, coming = collections.Counter(), []
    with channel_to(server) as channel:
        ask = channel.unary_unary(INFER)
        for _ in range(count or int(os.environ.get("LENSLET_ATTACK_COUNT", 20000 if full else 3000))):
            data = mutated(draw, draw.choice(goods))
            coming.append((data, ask.future(data, timeout=120)))
            if len(coming) >= 100:
                found += _answers(classes, coming)
        return found + _answers(classes, coming)


def _answers(classes, coming):
    found = collections.Counter()
    for data, future in coming:
        error = future.exception()
        if error is None:
            found["ok" if is_right(classes, data, future.result()) else f"WRONG: {data!r}: {future.result()!r}"] += 1
        elif error.code().name in ("UNKNOWN", "UNAVAILABLE", "CANCELLED") or error.details() == "internal error":
            found[f"WRONG: {error.code().name} {error.details()}"] += 1
        else:
            found[said_code(error.code().name)] += 1
    coming.clear()
    return found


# ---- HTTP/2 by hand, for clients that gRPC's library does not let be ----

PIECE = 16384
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE = 0, 1, 3, 4, 8


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def headers_of(method, *more):
    """HPACK without its table."""
    pairs = ((":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "a"),
             ("content-type", "application/grpc"), ("te", "trailers"), *more)  # fmt: skip
    return b"".join(bytes((0, len(name))) + name.encode("latin-1") + bytes((len(value),)) + value.encode("latin-1")
                    for name, value in pairs)  # fmt: skip


class Raw:
    """A connection that sends arbitrary frames. `window`: bytes of each answer that it allows the server to send."""

    def __init__(self, server, window=None):
        self.socket = socket.create_connection((server.host, server.grpc_port), 30)
        settings = b"" if window is None else struct.pack(">HI", 4, window)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
        self.stream = -1
        self._closed = threading.Event()

    def read_all(self):
        """In a thread: drops incoming data, and answers pings and settings."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        data = b""
        with contextlib.suppress(OSError):
            while part := self.socket.recv(65536):
                data += part
                while len(data) >= 9 and len(data) >= 9 + (size := int.from_bytes(data[:3], "big")):
                    kind, flags, payload = data[3], data[4], data[9 : 9 + size]
                    data = data[9 + size :]
                    if kind in (SETTINGS, 6) and not flags & 1:
                        self.socket.sendall(frame(kind, 1, 0, payload if kind == 6 else b""))
        self._closed.set()

    def closed(self, seconds):
        return self._closed.wait(seconds)

    def begin(self, method=INFER, length=None, *more):
        """Begins a call; `length`: of a message, of which nothing is sent; `more`: headers."""
        self.stream += 2
        data = frame(HEADERS, 4, self.stream, headers_of(method, *more))
        if length is not None:
            data += frame(DATA, 0, self.stream, b"\0" + struct.pack(">I", length))
        self.socket.sendall(data)
        return self.stream

    def message(self, data, method=INFER):
        stream = self.begin(method)
        self.socket.sendall(frame(DATA, 1, stream, b"\0" + struct.pack(">I", len(data)) + data))
        return stream

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # otherwise it stays while a thread reads from it
        self.socket.close()


@attacks.attack
def grpc_mutated_connections(server, full, count=None, seed=1):
    """Like grpc_mutated_messages, but with any byte of a connection, including HTTP/2's frames and headers."""
    draw, found = random.Random(seed), collections.Counter()
    goods, more = [], (("grpc-timeout", "99S"), ("grpc-encoding", "identity"), ("a-bin", "AAAA"))
    for message in good_messages():
        data = b"\0" + struct.pack(">I", len(message)) + message
        goods.append(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 4, 1, headers_of(INFER, *more))
                     + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1000)) + frame(DATA, 1, 1, data))  # fmt: skip
    for _ in range(count or int(os.environ.get("LENSLET_ATTACK_COUNT", 20000 if full else 300))):
        found[_said_to(server, mutated(draw, draw.choice(goods)))] += 1
    return found


def _said_to(server, data):
    """The outcome of a connection: the end of an answer, gRPC's goodbye, its end, or nothing for 0.1 s."""
    try:
        with socket.create_connection((server.host, server.grpc_port), 60) as connection:
            connection.settimeout(0.1)
            came, left = b"", False
            connection.sendall(data)
            while True:
                try:
                    part = connection.recv(65536)
                except socket.timeout:
                    if left:
                        return "SILENCE"
                    left = True
                    connection.shutdown(socket.SHUT_WR)
                    connection.settimeout(60)
                    continue
                if not part:
                    return "left" if left else "ended"
                came += part
                while len(came) >= 9 and len(came) >= 9 + (size := int.from_bytes(came[:3], "big")):
                    kind, flags, came = came[3], came[4], came[9 + size :]
                    if kind == HEADERS and flags & 1:
                        return "answered"
                    if kind == 7:
                        return "goaway"
    except OSError:
        return "closed"


@contextlib.contextmanager
def closed_in_the_end():
    """A list of connections that are closed at the end."""
    raws = []
    try:
        yield raws
    finally:
        for raw in raws:
            raw.close()


@contextlib.contextmanager
def slow_messages(server, count, method=INFER, length=MIB, connections=4):
    """Clients that begin calls and send 5 bytes of each message."""
    with closed_in_the_end() as raws:
        raws += (Raw(server) for _ in range(connections))
        for raw in raws:
            raw.read_all()
        with contextlib.suppress(OSError):
            for number in range(count):
                raws[number % connections].begin(method, length)
        yield raws


@attacks.attack
def grpc_messages_without_an_end(server, full):
    """The maximum number at once, each without its last bytes."""
    length, sent = (16 if full else 2) * MIB, 0
    with closed_in_the_end() as raws:
        for _ in range(64 if full else 16):
            raw = Raw(server)
            raws.append(raw)
            raw.read_all()
            raw.begin(INFER, length)
            raw.socket.settimeout(2)
            with contextlib.suppress(OSError):
                for _ in range(length // PIECE - 1):
                    raw.socket.sendall(frame(DATA, 0, raw.stream, bytes(PIECE)))
                    sent += PIECE
        time.sleep(3 if full else 0.5)
    return collections.Counter(mebibytes=sent // MIB)


@attacks.attack
def grpc_answers_that_nobody_takes(server, full):
    """Clients that request megabytes and accept no bytes of the answers."""
    edge = 512 if full else 128
    data = floats_of("segment", "image", [1, 3, edge, edge])
    sent = b"\0" + struct.pack(">I", len(data)) + data
    with closed_in_the_end() as raws:
        for _ in range(200 if full else 20):
            with contextlib.suppress(OSError):
                raw = Raw(server, window=0)
                raws.append(raw)
                raw.read_all()
                raw.begin()
                raw.socket.settimeout(5)
                for at in range(0, len(sent), PIECE):
                    last = int(at + PIECE >= len(sent))
                    raw.socket.sendall(frame(DATA, last, raw.stream, sent[at : at + PIECE]))
        time.sleep(3 if full else 0.5)
        return collections.Counter(clients=len(raws))


@attacks.attack
def grpc_small_answers_that_nobody_takes(server, full):
    """Each of these calls holds much more than its answer."""
    found, data = collections.Counter(), lookup(1)
    until = time.monotonic() + (20 if full else 2)
    with closed_in_the_end() as raws:
        while time.monotonic() < until and len(raws) < (1000 if full else 4):
            with contextlib.suppress(OSError):
                raws.append(Raw(server, window=0))
                raws[-1].read_all()
                for _ in range(900):
                    raws[-1].message(data)
                    found["calls"] += 1
        time.sleep(1)
        return found


@attacks.attack
def grpc_metadata(server, full):
    """Thousands of short ones, and a long one that is referenced repeatedly by its number in HPACK's table."""
    short = b"".join(b"\x00\x05k%04d\x01v" % number for number in range(1500))
    named = b"\x40\x01a\x7f" + bytes((3773 & 0x7F | 0x80, 3773 >> 7)) + b"x" * 3900 + b"\xbe" * 4000
    found = collections.Counter()
    with closed_in_the_end() as raws:
        for number in range(40 if full else 4):
            raws.append(Raw(server))
            raws[-1].read_all()
            with contextlib.suppress(OSError):
                for stream in range(1, 400, 2):
                    more = (short, named)[number % 2]
                    raws[-1].socket.sendall(frame(HEADERS, 4, stream, headers_of(INFER) + more))
                    found["calls"] += 1
        time.sleep(1)
        return found


def resets(raw, count):
    """Resets calls as fast as they can be sent; returns their number."""
    for done in range(count):
        try:
            raw.socket.sendall(frame(RST_STREAM, 0, raw.begin(), struct.pack(">I", 8)))
        except OSError:
            return done
    return count


@attacks.attack
def grpc_calls_reset_at_once(server, full, seconds=None):
    """On short-lived connections."""
    found = collections.Counter()
    until = time.monotonic() + (seconds or (20 if full else 0.5))
    while time.monotonic() < until:
        raw = Raw(server)
        raw.read_all()
        found["calls"] += resets(raw, 500)
        raw.close()
    return found


@attacks.attack
def grpc_calls_reset_on_open_connections(server, full, seconds=None):
    """Others are served later, but none is cancelled."""
    found = collections.Counter()
    until = time.monotonic() + (seconds or (20 if full else 1))
    with closed_in_the_end() as raws:
        raws += (Raw(server) for _ in range(3))
        for raw in raws:
            raw.read_all()
        with channel_to(server) as channel:
            ask = channel.unary_unary(INFER)
            coming = []
            while time.monotonic() < until:
                coming.append(ask.future(lookup(1), timeout=120))
                for raw in raws:
                    found["calls"] += resets(raw, 100)
            found["others"] = len(coming)
            for future in coming:
                error = future.exception()
                if error is not None:
                    found[f"WRONG: {error.code().name}"] += 1
        return found


@attacks.attack
def grpc_calls_without_a_message(server, full):
    found = collections.Counter()
    for method in (INFER, HEALTH):
        with slow_messages(server, 3000 if full else 200, method, connections=20):
            time.sleep(5 if full else 0.5)
            found["begun"] += 1
    return found


@attacks.attack
def grpc_idle_connections(server, full):
    """More than allowed: HTTP continues."""
    found = collections.Counter()
    with closed_in_the_end() as raws:
        for number in range(6000 if full else 300):
            with contextlib.suppress(OSError):
                raws.append(Raw(server))
                found["connected"] += 1
        time.sleep(3 if full else 0.5)
        return found


@attacks.attack
def grpc_large_shapes(server, full):
    """For a model with free shapes: their plans take many times the bytes sent."""
    found = collections.Counter()
    for edge in (1024, 1400, 1600) if full else (256, 512):
        for _ in range(3):
            found[said_code(once(server, floats_of("segment", "image", [1, 3, edge, edge]))[0])] += 1
    return found
