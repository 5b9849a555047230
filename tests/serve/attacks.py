"""Attacks on `lenslet serve`, each a function of a server and a size: small ones are tests (attacks_test.py), and
tools/scripts/attack_server.py runs them in full. During an attack a separate process probes the server's health every
100 ms, and the answers to a second client are checked.

An attack is a function under @attack, which takes the server and `full`, and returns a Counter of the answers' statuses
and of what came in place of one.
"""

import collections
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import socket
import struct
import threading
import time

from harness import answer_of, binary_body, entry
import tiny_model

MIB = 1 << 20
ATTACKS = {}


def attack(function):
    ATTACKS[function.__name__] = function
    return function


# ---- What is watched ----


def _probe(host, port, ready, stop, said):
    """Sends the longest time of a health probe, the number of probes, and of failures."""
    longest, count, failed = 0.0, -1, 0
    while count < 0 or not stop.is_set():  # the first one, which includes Python's imports, does not count
        began = time.monotonic()
        try:
            with socket.create_connection((host, port), 120) as connection:
                connection.settimeout(120)
                connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                good = answer_of(connection)[0] == 200
        except OSError:
            good = False
        took = time.monotonic() - began
        longest, count, failed = max(longest, took) if count >= 0 else 0, count + 1, failed + (not good)
        ready.set()
        time.sleep(max(0, 0.1 - took))
    said.send((longest, count, failed))


class Watch:
    """`with` it, an attack is watched; its attributes then contain the results."""

    def __init__(self, server):
        self.server = server
        self.answers = collections.Counter()  # to the second client

    def _memory(self, name):
        text = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+) kB", text)[1]) >> 10

    def __enter__(self):
        with contextlib.suppress(OSError):
            pathlib.Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5")  # resets the peak
        self.before = self._memory("VmRSS")
        context = multiprocessing.get_context("spawn")
        ready, self._stop, (self._said, said) = context.Event(), context.Event(), context.Pipe(False)
        asked = self.server.host, self.server.http_port, ready, self._stop, said
        self._process = context.Process(target=_probe, args=asked)
        self._process.start()
        ready.wait(120)
        self._over = threading.Event()
        self._client = threading.Thread(target=self._ask)
        self._client.start()
        return self

    def _ask(self):
        """The second client: checks each answer."""
        number, connection = 0, None
        while not self._over.wait(0.02):
            number += 1
            value = number % 4
            body = json.dumps({"inputs": [entry("x", "INT64", [1], [value])]}).encode()
            head = b"POST /v2/models/lookup/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
            try:
                if connection is None:
                    connection = socket.create_connection((self.server.host, self.server.http_port), 120)
                connection.sendall(head + body)
                status, answer = answer_of(connection)
            except OSError:
                self.answers["closed"] += 1
                connection = None
                continue
            right = status != 200 or json.loads(answer)["outputs"][0]["data"] == [10.0 * (value + 1)]
            self.answers[status if right else "WRONG"] += 1
        if connection is not None:
            connection.close()

    def __exit__(self, *_):
        self._over.set()
        self._client.join()
        self._stop.set()
        self.stall, self.probes, self.failed = self._said.recv()
        self._process.join()
        self.peak = self._memory("VmHWM")
        self.after = self._memory("VmRSS")


# ---- How it is attacked ----


def more_files():
    """Raises the limit of files for an attack's connections."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connected(server):
    connection = socket.create_connection((server.host, server.http_port), 60)
    connection.settimeout(60)
    return connection


def head_of(model, length, *lines):
    text = "".join(f"{line}\r\n" for line in (f"Content-Length: {length}", *lines))
    return f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: a\r\n{text}\r\n".encode()


def status_of(connection, data=b""):
    """The status of the answer, or what came in its place."""
    try:
        for at in range(0, len(data), MIB):
            connection.sendall(data[at : at + MIB])
        return answer_of(connection)[0]
    except socket.timeout:
        return "silence"
    except OSError:
        return "closed"


def once(server, data):
    with connected(server) as connection:
        return status_of(connection, data)


def asked(server, model, body, *lines):
    return once(server, head_of(model, len(body), *lines) + body)


def at_once(count, function):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return collections.Counter(pool.map(lambda _: function(), range(count)))


@contextlib.contextmanager
def many(server, count):
    """`count` connections, without those that are refused."""
    made = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                made.append(connected(server))
        yield made
    finally:
        for connection in made:
            connection.close()


def sent(connections, data):
    """Sends `data`; returns how many connections took it."""
    count = 0
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            count += 1
    return count


def filled(part, size):
    return part * (size // len(part))


# ---- JSON ----


def _data(text, shape="[1,1]", datatype="FP32"):
    return b'{"inputs":[{"name":"a","datatype":"%b","shape":%b,"data":[%b]}]}' % (
        datatype.encode(), shape.encode(), text)  # fmt: skip


@attack
def a_long_string_among_short_ones(server, full):
    """NumPy would make all of them as long as the longest, with four bytes a character."""
    found = collections.Counter()
    for count in (500, 4000):
        text = b",".join([b'"a"'] * count + [b'"' + b"b" * MIB + b'"'])
        found[asked(server, "sums", _data(text, f"[{count + 1}]"))] += 1
    return found


@attack
def empty_lists(server, full):
    size = (63 if full else 4) * MIB
    return at_once(2, lambda: asked(server, "sums", _data(filled(b"[],", size)[:-1]))) + at_once(
        2, lambda: asked(server, "sums", filled(b"[],", size)))  # fmt: skip


@attack
def lists_in_lists(server, full):
    size = (63 if full else 4) * MIB
    return collections.Counter(asked(server, "sums", body) for body in (b"[" * size, _data(b"[" * (size - 100))))


@attack
def many_numbers(server, full):
    size = (60 if full else 4) * MIB
    text = filled(b"0,", size)[:-1]
    bodies = [_data(text), _data(text, f"[{len(text) // 2 + 1},1]"), _data(filled(b"[0],", size)[:-1])]
    return collections.Counter(asked(server, "sums", body) for body in bodies)


@attack
def many_strings_and_names(server, full):
    size = (63 if full else 4) * MIB
    bodies = [_data(filled(b'"",', size)[:-1]), b"{" + filled(b'"a":1,', size)[:-1] + b"}",
              b'{"' + b"\\" * (size // 2 * 2) + b'":1}', b'{"id":"' + "\U0001f600".encode() * (size // 4) + b'"}',
              b'{"inputs":[' + filled(b'{"data":[1]},', size)[:-1] + b"]}"]  # fmt: skip
    return collections.Counter(asked(server, "sums", body) for body in bodies)


@attack
def escaped_base64(server, full):
    size = (63 if full else 4) * MIB
    entry = b'{"inputs":[{"name":"image","datatype":"BYTES","shape":[1],"parameters":{"content_type":"base64"},"data":["%b"]}]}'
    bodies = [entry % filled(b"\\/", size), entry % filled(b"\\u002B", size), entry % filled(b"AAAA", size)]
    return collections.Counter(asked(server, "rgb", body) for body in bodies)


@attack
def json_as_long_as_the_tensor(server, full):
    """It was mistaken for the tensor."""
    size, found = 4 * 3 * 224 * 224, collections.Counter()
    for _ in range(5):
        colours = [1, 2, 3]
        text = ",".join(",".join([str(colour)] * (224 * 224)) for colour in colours)
        body = b'{"inputs":[{"name":"image","datatype":"FP32","shape":[1,3,224,224],"data":[%b]}]}' % text.encode()
        blanks = size - len(body)
        body = body.replace(b",1", b",  1").replace(b",2", b",  2").replace(b",3", b",  3", (blanks - 2 * 224 * 224 * 2 + 2) // 2)
        body += b" " * (size - len(body))
        with connected(server) as connection:
            connection.sendall(head_of("rgb", len(body)) + body)
            status, answer = answer_of(connection)
        right = status == 200 and json.loads(answer)["outputs"][0]["data"] == [10 * colour for colour in colours]
        found["right" if right else f"WRONG: {answer[:100]!r}" if status == 200 else status] += 1
    return found


@attack
def long_answers_in_json(server, full):
    side = 1000 if full else 300
    shape = [1, 3, side, side]
    headers, body = binary_body([("image", "FP32", shape, random.Random(1).randbytes(4 * 3) * (side * side))])
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return at_once(4, lambda: asked(server, "segment", body, *lines))


@attack
def pictures_that_are_large(server, full):
    """A file of 100 KB has 100 million pixels, one of 800 KB needs 3 GB in the decoder."""
    side, found = 10000 if full else 2500, collections.Counter()
    for colour, depth in ((0, 8), (6, 16)):
        picture = png(side, side, colour, depth)
        found += at_once(4, lambda: asked(server, "rgb", picture, "Inference-Header-Content-Length: 0",
                                          "Content-Type: image/png"))  # fmt: skip
    return found


def png(width, height, colour, depth):
    """A black picture."""
    row = bytes(width * {0: 1, 2: 3, 6: 4}[colour] * depth // 8)
    return tiny_model.png(width, height, colour, (row for _ in range(height)), depth, level=9)


# ---- Connections ----


@attack
def abandoned_bodies(server, full):
    size, count = ((48, 60) if full else (4, 20))
    found = collections.Counter()
    for _ in range(count):
        with connected(server) as connection, contextlib.suppress(OSError):
            connection.sendall(head_of("rgb", (size + 1) * MIB))
            connection.sendall(bytes(size * MIB))
            found["left"] += 1
    return found


@attack
def clients_that_never_read(server, full):
    side, count = (1500, 40) if full else (400, 10)
    headers, body = binary_body([("image", "FP32", [1, 3, side, side], bytes(12 * side * side))],
                                parameters={"binary_data_output": True})  # fmt: skip
    data = head_of("segment", len(body), *(f"{name}: {value}" for name, value in headers.items())) + body
    with many(server, count) as connections:
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        found = collections.Counter(sent=sent(connections, data))
        time.sleep(20 if full else 1)
    return found


@attack
def idle_connections(server, full):
    with many(server, 6000 if full else 300) as connections:
        time.sleep(5 if full else 1)
        return collections.Counter(connected=len(connections))


@attack
def heads_that_do_not_end(server, full):
    with many(server, 3000 if full else 300) as connections:
        sent(connections, b"GET /v2 HTTP/1.1\r\nHost: a\r\n")
        for _ in range(20 if full else 3):
            sent(connections, b"X: " + b"y" * 500 + b"\r\n")
            time.sleep(0.2)
        return collections.Counter(connected=len(connections))


@attack
def small_headers(server, full):
    with many(server, 1000 if full else 100) as connections:
        sent(connections, b"GET /v2 HTTP/1.1\r\nHost: a\r\n" + b"a:b\r\n" * 6000)
        return collections.Counter(map(status_of, connections))


@attack
def bodies_that_do_not_come(server, full):
    """First bodies without their last byte, then only heads."""
    size, found = (16 if full else 2) * MIB, collections.Counter()
    with many(server, 20) as connections:
        found["sent"] = sent(connections, head_of("rgb", size) + bytes(size - 1))
        with many(server, 200 if full else 20) as others:
            sent(others, head_of("rgb", size))
            time.sleep(10 if full else 1)
    return found


@attack
def requests_behind_each_other(server, full):
    data = b"GET /v2/models/segment HTTP/1.1\r\nHost: a\r\n\r\n" * 3000
    with many(server, 200 if full else 20) as connections:
        for connection in connections:
            connection.setblocking(False)
        for _ in range(20 if full else 5):
            sent(connections, data)
            time.sleep(0.1)
        return collections.Counter(connected=len(connections))


@attack
def metrics_that_nobody_reads(server, full):
    with many(server, 1200 if full else 50) as connections:
        for connection in connections:
            connection.setblocking(False)
        for _ in range(30):
            sent(connections, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
        time.sleep(3 if full else 0.5)
        return collections.Counter(connected=len(connections))


@attack
def small_chunks(server, full):
    size = (8 if full else 1) * MIB
    chunks = filled(b"1\r\na\r\n", size) + b"0\r\n\r\n"
    extension = b"1;" + b"x" * size + b"\r\na\r\n0\r\n\r\n"
    head = b"POST /v2/models/sums/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    return collections.Counter(once(server, head + body) for body in (chunks, extension))


@attack
def compressed_bodies(server, full):
    import gzip

    body = gzip.compress(bytes(64 * MIB))
    return collections.Counter(asked(server, "sums", body, f"Content-Encoding: {kind}") for kind in ("gzip", "deflate"))


@attack
def connections_that_come_and_go(server, full):
    found = collections.Counter()
    for number in range(20000 if full else 500):
        with contextlib.suppress(OSError):
            connection = connected(server)
            if number % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends with a reset
            connection.sendall(b"GET /v2 HTTP/1.1\r\n")
            connection.close()
            found["left"] += 1
    return found


def mutated(server, count, seed=0):
    """`count` connections with mutated requests: none may be answered by an internal error, or with a wrong number.
    Returns the statuses."""
    draw, found = random.Random(seed), collections.Counter()
    body = json.dumps({"inputs": [entry("x", "INT64", [2], [1, 2])]}).encode()
    headers, binary = binary_body([("x", "INT64", [2], struct.pack("<2q", 1, 2))])
    seeds = [
        head_of("lookup", len(body)) + body,
        head_of("lookup", len(binary), *(f"{name}: {value}" for name, value in headers.items())) + binary,
        b"POST /v2/models/lookup/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
        % (len(body), body),
        b"GET /v2/models/lookup HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    words = [b"\r\n", b"\0", b"-1", b"99999999999999999999", b"[", b"]", b"{", b'"', b",", b"e", b"NaN", b"1e999", b"\xff",
             b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"\\u0000",
             b'"data":[', b'"shape":[1,0]', b"Connection: close\r\n", b"HTTP/1.0", b"HEAD", b"%2f", b"null", b"true"]  # fmt: skip
    for _ in range(count):
        data = bytearray(draw.choice(seeds))
        for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
            at = draw.randrange(len(data) + 1)
            kind = draw.randrange(5)
            if kind == 0:
                data[at : at + 1] = bytes([draw.randrange(256)])
            elif kind == 1:
                del data[at : at + draw.randrange(1, 20)]
            elif kind == 2:
                data[at:at] = draw.choice(words)
            elif kind == 3:
                data[at : at + draw.randrange(8)] = draw.choice(words)
            else:
                data[at:at] = data[at : at + draw.randrange(1, 60)]
        try:
            with connected(server) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answer = b""
                while part := connection.recv(65536):
                    answer += part
        except socket.timeout:
            found["SILENCE"] += 1
            continue
        except OSError:
            found["closed"] += 1
            continue
        statuses = re.findall(rb"HTTP/1\.1 (\d+)", answer.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""))
        if b"internal error" in answer:
            found["INTERNAL"] += 1
        for numbers in re.findall(rb'"datatype":"FP32","shape":\[\d+\],"data":\[([^]]*)\]', answer):
            if not set(numbers.split(b",")) <= {b"", b"10.0", b"20.0", b"30.0", b"40.0"}:
                found[f"WRONG: {numbers[:100]!r}"] += 1
        if not answer:
            found["nothing"] += 1
        for status in statuses:
            found[int(status)] += 1
    return found


@attack
def mutated_connections(server, full):
    count = int(os.environ.get("LENSLET_ATTACK_COUNT", 20000 if full else 300))
    shares = [count // 8 + (number < count % 8) for number in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return sum(pool.map(lambda each: mutated(server, each[1], each[0]), enumerate(shares)), collections.Counter())


# ---- gRPC ----
