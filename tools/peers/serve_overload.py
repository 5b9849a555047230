"""`bench_serve.py overload MODEL`: at nine tenths of the server's capacity, and at twice the capacity: how many
requests are refused, how soon, and how long the others take.

The capacity is the highest rate at which a server that refuses nothing answers when every run is full, over several
numbers of connections. The loads are open (requests come at random, whether earlier ones are answered or not), from
several processes if there are processors for them, to a server with default options. A request's time begins when the
client writes its first byte.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import collections
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

from serve_load import Server, child, http_request, resident_mib, with_loop

#: Numbers of connections for measuring the capacity; and that of an open load.
CLOSED, OPEN = (8, 32, 128), 512
LOADS = (0.9, 2.0)


def add_to(verbs: argparse._SubParsersAction) -> None:
    verb = verbs.add_parser("overload")
    verb.add_argument("model")
    verb.add_argument("--device", default="cpu")
    verb.add_argument("--seconds", type=float, nargs="+", default=[3600.0], help="of each load, or of the one and the other (3600)")
    verb.add_argument("--rounds", type=int, default=1, help="of both loads, in turns (%(default)s)")
    verb.add_argument("--rate", type=float, default=0, help="what the server can take, where that is known")
    verb.add_argument("--clients", type=int, default=max(1, min(8, len(os.sched_getaffinity(0)) // 4)), metavar="N",
                      help="processes that send (%(default)s)")  # fmt: skip
    verb.add_argument("--processors", default="", metavar="LIST",
                      help="those of the server (as taskset has them: 0-7); the clients take the others")  # fmt: skip
    verb.add_argument("--seed", type=int, default=1)
    verb.add_argument("--server", action="append", default=[], help="an option for the server")
    verb.set_defaults(run=overload)


# ---- An open load, in a process of its own ----


class OpenConnection(asyncio.Protocol):
    """One request at a time, sent on command."""

    def __init__(self, load: OpenLoad) -> None:
        self.load, self.data, self.since = load, b"", 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.load.free.append(self)

    def send(self) -> None:
        self.since, self.data = time.perf_counter(), b""
        self.transport.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        self.data += data
        at = self.data.find(b"\r\n\r\n")
        length = at >= 0 and re.search(rb"(?i)\ncontent-length: (\d+)", self.data[: at + 2])
        if length and len(self.data) == at + 4 + int(length[1]):
            self.load.times[int(self.data[9:12])].append(time.perf_counter() - self.since)
            self.load.free.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.load.lost += not self.load.over


class OpenLoad:
    """Random arrivals, `rate` a second on average, whether earlier requests are answered or not."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.free: collections.deque[OpenConnection] = collections.deque()
        self.times: dict[int, array.array] = collections.defaultdict(lambda: array.array("f"))
        self.late = array.array("f")  # delay after the scheduled time
        self.without = self.lost = 0
        self.over = False

    async def run(self, port: int, connections: int, rate: float, seconds: float, seed: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            await loop.create_connection(lambda: OpenConnection(self), "127.0.0.1", port)
        for connection in list(self.free):  # at first TCP's window is smaller than a segment on loopback
            self.free.remove(connection)
            connection.send()
            while connection not in self.free:
                await asyncio.sleep(0.001)
        self.times.clear()
        draw = random.Random(seed)
        due = began = time.perf_counter()
        while due < began + seconds:
            due += draw.expovariate(rate)
            await asyncio.sleep(max(0, due - time.perf_counter()))
            self.late.append(time.perf_counter() - due)
            if self.free:
                self.free.popleft().send()
            else:
                self.without += 1
        await asyncio.sleep(2)
        self.over = True


def open_load(port: int, request: str, connections: int, seconds: float, rate: float, seed: int, into: str) -> None:
    """Writes times to the file `into`, and prints their layout."""
    load = OpenLoad(pathlib.Path(request).read_bytes())
    with_loop(load.run(port, connections, rate, seconds, seed))
    with open(into, "wb") as file:
        for times in (*load.times.values(), load.late):
            times.tofile(file)
    counts = {status: len(times) for status, times in load.times.items()}
    print(json.dumps({"without": load.without, "lost": load.lost, "counts": counts}))


class Seen:
    """The outcome of one or several loads."""

    def __init__(self) -> None:
        self.times: dict[int, array.array] = collections.defaultdict(lambda: array.array("f"))
        self.late = array.array("f")
        self.without = self.lost = 0

    def add(self, said: dict, file: str) -> None:
        self.without += said["without"]
        self.lost += said["lost"]
        found = array.array("f", pathlib.Path(file).read_bytes())
        for status, count in said["counts"].items():
            self.times[int(status)] += found[:count]
            found = found[count:]
        self.late += found

    def merge(self, other: Seen) -> None:
        self.without, self.lost = self.without + other.without, self.lost + other.lost
        self.late += other.late
        for status, times in other.times.items():
            self.times[status] += times

    def row(self, load: float, base: float) -> tuple[str, float]:
        """A row of the table, and p99 of accepted requests; `base`: p99 at the first load."""
        done, refused = self.times.get(200, ()), self.times.get(429, ())
        others = {status: len(times) for status, times in self.times.items() if status not in (200, 429)}
        p99 = part_of(done, 0.99)
        ratio = f"{p99 / base:.2f}" if base else ""
        return (f"| {load:g} | {len(self.late)} | {len(done)} | {len(refused)} | {others or ''} | {self.lost} | "
                f"{self.without} | {part_of(done, 0.5):.1f} | {p99:.1f} | {part_of(refused, 0.99):.1f} | "
                f"{part_of(self.late, 0.99):.1f} | {ratio} |"), p99  # fmt: skip


HEAD = """| load | requests | accepted | refused | others | lost | no connection | p50 | p99 of accepted, ms | p99 of refusals | client late, p99 | ratio |
|---|---|---|---|---|---|---|---|---|---|---|---|"""


def part_of(times: array.array, part: float) -> float:
    """Milliseconds."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1e3 if ordered else 0.0


# ---- The server under it ----


def can_take(arguments: argparse.Namespace, request: str) -> float:
    """The capacity in requests a second."""
    found: dict[int, list[float]] = {}
    options = (f"--device={arguments.device}", *arguments.server, "--max-queue-ms=0", "--max-requests=1024")
    with Server(f"net={arguments.model}", *options, processors=arguments.processors) as server:
        child("load", "http", server.http, request, 32, 2, 0)
        seconds = min(10.0, max(3.0, arguments.seconds[0] / 20))
        for _ in range(3):
            for connections in CLOSED:
                said = child("load", "http", server.http, request, connections, seconds, 0)
                found.setdefault(connections, []).append(said["rate"])
    shown = ", ".join(f"{connections}: {' '.join(f'{rate:.0f}' for rate in rates)}" for connections, rates in found.items())
    rate = max(map(statistics.median, found.values()))
    print(f"{pathlib.Path(arguments.model).name}: it takes {rate:.4g} requests a second (by connections {shown})", flush=True)
    return rate


def under(arguments: argparse.Namespace, server: Server, request: str, rate: float, seconds: float, seed: int,
          folder: str) -> Seen:  # fmt: skip
    count = arguments.clients
    before = server.metrics()
    clients = []
    for number in range(count):
        into = f"{folder}/times-{number}"
        command = [sys.executable, __file__, "open", server.http, request, OPEN // count, seconds, rate / count,
                   seed * 100 + number, into]  # fmt: skip
        clients.append((subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE), into))
    seen = Seen()
    for client, into in clients:
        said = client.communicate()[0]
        seen.add(json.loads(said), into)
    after = server.metrics()
    said = {}
    for name in ("batch_size", "queue_seconds", "run_seconds"):
        sums = [after[f'lenslet_{name}_{end}{{model="net"}}'] - before.get(f'lenslet_{name}_{end}{{model="net"}}', 0)
                for end in ("sum", "count")]  # fmt: skip
        said[name] = sums[0] / max(1.0, sums[1])
    print(f"  a run has {said['batch_size']:.1f} images and takes {said['run_seconds'] * 1e3:.2f} ms, a request waits "
          f"{said['queue_seconds'] * 1e3:.2f} ms for it; {resident_mib(server.process.pid):.0f} MiB")  # fmt: skip
    return seen


def overload(arguments: argparse.Namespace) -> None:
    import numpy as np

    import lenslet

    if arguments.processors:
        found = subprocess.check_output(("taskset", "-c", arguments.processors, sys.executable, "-c",
                                         "import os; print(*os.sched_getaffinity(0))"), text=True)  # fmt: skip
        os.sched_setaffinity(0, os.sched_getaffinity(0) - set(map(int, found.split())))
    port = lenslet.Model(arguments.model).runner(device="cpu", batch=1).inputs[0]
    data = np.random.default_rng(1).random(port.shape).astype(port.dtype).tobytes()
    input = (port.name, {"float32": "FP32", "uint8": "UINT8"}[port.dtype], list(port.shape), data)
    with tempfile.TemporaryDirectory(prefix="lenslet-overload-") as folder:
        request = f"{folder}/request"
        pathlib.Path(request).write_bytes(http_request("net", input))
        rate = arguments.rate or can_take(arguments, request)
        all_seen = {load: Seen() for load in LOADS}
        with Server(f"net={arguments.model}", f"--device={arguments.device}", *arguments.server,
                    processors=arguments.processors) as server:  # fmt: skip
            child("load", "http", server.http, request, 2, 2, 0)
            for turn in range(arguments.rounds):
                base = 0.0
                for (load, seen), seconds in zip(all_seen.items(), arguments.seconds * 2):
                    found = under(arguments, server, request, load * rate, seconds, arguments.seed + turn, folder)
                    row, p99 = found.row(load, base)
                    base = base or p99
                    print(row, flush=True)
                    seen.merge(found)
        print(f"\n{pathlib.Path(arguments.model).name}, {arguments.device}, {rate:.4g} requests a second, all rounds\n\n{HEAD}")
        base = 0.0
        for load, seen in all_seen.items():
            row, p99 = seen.row(load, base)
            base = base or p99
            print(row)


if __name__ == "__main__":
    port, request, connections, seconds, rate, seed, into = sys.argv[2:]
    open_load(int(port), request, int(connections), float(seconds), float(rate), int(seed), into)
