"""Servers, and loads from separate processes, for bench_serve.py and serve_overload.py."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.request

from timing import in_own_process

def processor_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def child(*arguments: object) -> dict:
    """The result of a part of bench_serve.py that runs in a separate process."""
    return in_own_process(pathlib.Path(__file__).with_name("bench_serve.py"), *arguments)


class Server:
    def __init__(self, *arguments: object, package: str = "", processors: str = "") -> None:
        """`package`: the folder of another lenslet. `processors`: those that it may use, as for taskset."""
        command = ["taskset", "-c", processors] if processors else []
        command += [sys.executable, "-m", "lenslet", "serve", *map(str, arguments)]
        command += ["--http-port=0", "--grpc-port=0"]
        environment = {**os.environ, "PYTHONPATH": package} if package else None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for line in self.process.stdout:
            found = re.search(r"ready: HTTP on .*:(\d+), gRPC on .*:(\d+)", line)
            if found:
                self.http, self.grpc = int(found[1]), int(found[2])
                return
        raise SystemExit("the server did not start")

    def metrics(self) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()


def resident_mib(pid: int) -> float:
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Connection(asyncio.Protocol):
    """Sends `request` again and again, at the times of `next_due`, with as little work as possible."""

    def __init__(self, load: Load) -> None:
        self.load, self.head, self.left, self.due = load, b"", -1, 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        due = self.load.next_due()
        if due is None:
            self.transport.close()
            self.load.closed()
        elif (wait := due - time.perf_counter()) > 0:
            self.load.loop.call_later(wait, self.send_now, due)
        else:
            self.send_now(due)

    def send_now(self, due: float) -> None:
        self.due = due
        self.transport.write(self.load.request)

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self.load.failed(f"connection lost: {error!r}")

    def data_received(self, data: bytes) -> None:
        if self.left < 0:
            self.head += data
            at = self.head.find(b"\r\n\r\n")
            if at < 0:
                return
            length = re.search(rb"(?i)\ncontent-length: (\d+)", self.head)
            if not self.head.startswith(b"HTTP/1.1 200 ") or not length:
                return self.load.failed(f"not answered: {self.head[:300]!r}")
            self.left = int(length[1]) + at + 4 - len(self.head)
            self.head = b""
        else:
            self.left -= len(data)
        if self.left == 0:
            self.left = -1
            self.load.done(self.due)
            self.send()


class Load:
    """Requests on some connections for a while: as fast as they are answered, or at `rate` a second; then a request's
    time counts from when it should have been sent."""

    def __init__(self, request: bytes, seconds: float, rate: float) -> None:
        self.request, self.rate = request, rate
        self.loop = asyncio.get_running_loop()
        self.began = time.perf_counter()
        self.end = self.began + seconds
        self.sent = 0
        self.times: list[float] = []
        self.steady = self.began + seconds / 4
        self.in_time = 0  # answers in the middle: the first and last batches are not full
        self.open = 0
        self.all_closed = self.loop.create_future()

    def next_due(self) -> float | None:
        now = time.perf_counter()
        if now >= self.end:
            return None
        self.sent += 1
        return self.began + self.sent / self.rate if self.rate else now

    def done(self, due: float) -> None:
        now = time.perf_counter()
        self.times.append(now - due)
        self.in_time += self.steady < now <= self.end

    def failed(self, why: str) -> None:
        if not self.all_closed.done():
            self.all_closed.set_exception(SystemExit(why))

    def closed(self) -> None:
        self.open -= 1
        if self.open == 0:
            self.all_closed.set_result(None)


async def over_http(load: Load, port: int, connections: int) -> None:
    load.open = connections
    for _ in range(connections):
        await load.loop.create_connection(lambda: Connection(load), "127.0.0.1", port)
    await load.all_closed


async def over_grpc(load: Load, port: int, connections: int) -> None:
    import grpc

    async def one(call) -> None:
        while (due := load.next_due()) is not None:
            await asyncio.sleep(max(0, due - time.perf_counter()))
            await call(load.request)
            load.done(due)

    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        await asyncio.gather(*(one(call) for _ in range(connections)))


def with_loop(main: object) -> object:
    """asyncio.run(), with uvloop if it is installed."""
    try:
        import uvloop

        uvloop.install()
    except ImportError:
        pass
    return asyncio.run(main)


def load(protocol: str, port: int, request: str, connections: int, seconds: float, rate: float) -> None:
    async def all_of_it() -> Load:
        made = Load(pathlib.Path(request).read_bytes(), seconds, rate)
        await (over_grpc if protocol == "grpc" else over_http)(made, port, connections)
        return made

    used = own_seconds()
    made = with_loop(all_of_it())
    times = sorted(made.times)
    said = {
        "requests": len(times),
        "rate": made.in_time / (made.end - made.steady),
        "processor_ms": (own_seconds() - used) / len(times) * 1e3,
        "p50_ms": times[len(times) // 2] * 1e3,
        "p99_ms": times[min(len(times) - 1, len(times) * 99 // 100)] * 1e3,
    }
    print(json.dumps(said))


def http_request(name: str, input: tuple, more: dict | None = None) -> bytes:
    """An inference request to model `name` from (name, datatype, shape, bytes), answered in binary."""
    described = {
        "name": input[0],
        "datatype": input[1],
        "shape": input[2],
        "parameters": {"binary_data_size": len(input[3])},
    }
    head = json.dumps({"inputs": [described], "parameters": {"binary_data_output": True}, **(more or {})}).encode()
    line = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(head) + len(input[3])}\r\n"
    return f"{line}Inference-Header-Content-Length: {len(head)}\r\n\r\n".encode() + head + input[3]


def grpc_request(name: str, input: tuple) -> bytes:
    from lenslet.serve.messages import message_classes

    made = message_classes()["ModelInferRequest"](model_name=name)
    made.inputs.add(name=input[0], datatype=input[1], shape=input[2])
    made.raw_input_contents.append(input[3])
    return made.SerializeToString()
