"""bench_serve.py throughput MODEL...: what `lenslet serve` makes of the bare runner's throughput, on loopback.
bench_serve.py soak: 100,000 requests of clients of which a third err; counts what is lost (nothing may be).
bench_serve.py overload MODEL: at twice what the server can take (serve_overload.py).
bench_serve.py libraries: HTTP and gRPC servers for Python, with a handler that computes nothing.

The load comes from a process of its own on the same cores, which it shares with the runners: the processor time of
client, server and bare runner stands beside the rates. All are told apart by rounds that alternate. Run it with the
package on PYTHONPATH (docs/serving.md).
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

import serve_overload
import timing
from serve_load import Server, child, grpc_request, http_request, load, own_seconds, processor_seconds, resident_mib

HERE = pathlib.Path(__file__).resolve()


# ---- The bare runner ----


def bare(model: str, device: str, runners: int, batch: int, seconds: float, picture: str) -> None:
    """Says the images a second, and processor time an image, of threads that do nothing but run, and prepare the
    picture before each, if there is one."""
    import numpy as np

    import lenslet

    loaded = lenslet.Model(model)
    made = [loaded.runner(device=device, threads=1, batch=batch) for _ in range(runners)]
    port = made[0].inputs[0]
    counts = [0] * runners
    card = lenslet.Card.of(loaded) if picture else None
    encoded = pathlib.Path(picture).read_bytes() if picture else b""
    begin = threading.Barrier(runners + 1)
    end = [math.inf]

    def work(number: int) -> None:
        x = np.empty(port.shape, port.dtype)
        x[...] = np.random.default_rng(1).random(port.shape)
        made[number](x)
        begin.wait()
        while time.perf_counter() < end[0]:
            if card is not None:
                for row in x:
                    card.prepare(encoded, out=row)
            made[number](x)
            counts[number] += batch

    threads = [threading.Thread(target=work, args=(number,)) for number in range(runners)]
    for thread in threads:
        thread.start()
    begin.wait()
    began, used = time.perf_counter(), own_seconds()
    end[0] = began + seconds
    for thread in threads:
        thread.join()
    spent, images = time.perf_counter() - began, sum(counts)
    print(json.dumps({"rate": images / spent, "processor_ms": (own_seconds() - used) / images * 1e3}))


def throughput(arguments: argparse.Namespace) -> None:
    import numpy as np

    import lenslet

    cores = len(os.sched_getaffinity(0))
    results = timing.Results(arguments, "lenslet serve on loopback, beside the bare runner.",
                              f"{arguments.connections} connections, {arguments.rounds} rounds of {arguments.seconds:g} s: median, least, greatest.")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="lenslet-bench-") as folder:
        for file in arguments.models:
            port = lenslet.Model(file).runner(device="cpu", batch=1).inputs[0]
            data = np.random.default_rng(1).random(port.shape).astype(port.dtype).tobytes()
            datatype = {"float32": "FP32", "uint8": "UINT8"}[port.dtype]
            input = (port.name, datatype, list(port.shape), data)
            if arguments.picture:
                picture = pathlib.Path(arguments.picture).read_bytes()
                input = ("image", "BYTES", [1], len(picture).to_bytes(4, "little") + picture)
            requests = {"http": http_request("net", input), "grpc": grpc_request("net", input)}
            for protocol, request in requests.items():
                pathlib.Path(folder, protocol).write_bytes(request)
            options = (f"--max-batch={arguments.batch}", f"--device={arguments.device}", *arguments.server)
            with contextlib.ExitStack() as stack:
                servers = {"": stack.enter_context(Server(f"net={file}", "--max-queue-ms=0", *options))}  # all wait
                if arguments.against:
                    server = Server(f"net={file}", *options, package=arguments.against)
                    servers["against, "] = stack.enter_context(server)
                of_file(arguments, results, file, servers, folder, cores if arguments.device == "cpu" else 2)


def of_file(arguments: argparse.Namespace, results: timing.Results, file: str, servers: dict, folder: str, runners: int) -> None:
    rates = {}  # of a round

    def bare_runners(batch: int) -> dict:
        said = child("bare", file, arguments.device, runners, batch, arguments.seconds, arguments.picture)
        rates[batch] = said["rate"]
        return {"rate": said["rate"], "processor ms an image": said["processor_ms"]}

    def served(protocol: str, server: Server) -> dict:
        port, request = getattr(server, protocol), f"{folder}/{protocol}"
        before, used = server.metrics(), processor_seconds(server.process.pid)
        said = child("load", protocol, port, request, arguments.connections, arguments.seconds, 0)
        used = processor_seconds(server.process.pid) - used
        after = server.metrics()
        rows, count = (after[key] - before.get(key, 0) for key in (f'lenslet_batch_size_{end}{{model="net"}}' for end in ("sum", "count")))
        slower = child("load", protocol, port, request, 64, arguments.seconds, 0.7 * said["rate"])
        return {
            "rate": said["rate"],
            "share of the bare runners' rate": said["rate"] / max(rates.values()),
            "processor ms an image": used / said["requests"] * 1e3,
            "of the client": said["processor_ms"],
            "images a run": rows / count,
            "p50 ms": said["p50_ms"],
            "p99 ms": said["p99_ms"],
            "p50 ms at 70 % of that": slower["p50_ms"],
            "p99 ms at 70 % of that": slower["p99_ms"],
        }

    runs = {f"bare runners, batch {batch}": lambda batch=batch: bare_runners(batch) for batch in (1, arguments.batch)}
    for protocol, (which, server) in itertools.product(arguments.protocols, servers.items()):
        runs[which + protocol] = lambda protocol=protocol, server=server: served(protocol, server)
    for (what, key), values in timing.in_turns(runs, arguments.rounds).items():
        results.add(model=pathlib.Path(file).name, what=what, figure=key, value=values)


# ---- Soak ----


async def soak_client(number: int, server: Server, count: int, kinds: list, totals: collections.Counter) -> None:
    draw = random.Random(number)
    stream = None
    for _ in range(count):
        kind, request, status = draw.choice(kinds)
        if stream is None:
            stream = await asyncio.open_connection("127.0.0.1", server.http)
        reader, writer = stream
        writer.write(request if kind != "half a request" else request[: draw.randrange(1, len(request))])
        if kind in ("leaves", "half a request"):
            await asyncio.sleep(draw.choice((0, 0, 0.001, 0.01)))
            writer.close()
            stream = None
            totals[kind] += 1
            continue
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)
        body = await reader.readexactly(int(re.search(rb"\ncontent-length: (\d+)", head)[1]))
        found = int(head.split()[1])
        totals[kind] += 1
        if found != status:
            totals[f"WRONG: {kind}: {found} {body[:100]!r}"] += 1
        if b"connection: close" in head:
            writer.close()
            stream = None


def soak(arguments: argparse.Namespace) -> None:
    """Models of the tests: lookup.onnx fails on some requests, rgb.onnx takes pictures."""
    sys.path.insert(0, str(timing.ROOT / "tests" / "serve"))
    from harness import ppm, write_models

    with tempfile.TemporaryDirectory(prefix="lenslet-soak-") as folder:
        write_models(pathlib.Path(folder))
        good = http_request("lookup", ("x", "INT64", [2], (1).to_bytes(8, "little") * 2))
        failing = http_request("lookup", ("x", "INT64", [1], (77).to_bytes(8, "little")))
        picture = len(ppm(1, 2, 3)).to_bytes(4, "little") + ppm(1, 2, 3)
        pictures = http_request("rgb", ("image", "BYTES", [1], picture))
        broken = http_request("rgb", ("image", "BYTES", [1], b"\3\0\0\0GIF"))
        unknown = http_request("nothing", ("x", "INT64", [1], bytes(8)))
        malformed = good.replace(b"INT64", b"INT65").replace(b'"shape"', b'"shap\xff"')
        kinds = [("good", good, 200)] * 8 + [("picture", pictures, 200)] * 2
        kinds += [("failing", failing, 400), ("broken picture", broken, 400), ("malformed", malformed, 400),
                  ("unknown", unknown, 404), ("leaves", good, 0), ("half a request", good, 0)]  # fmt: skip
        files = [f"{folder}/{name}.onnx" for name in ("lookup", "rgb")]
        with Server(*files, "--device=cpu", "--max-queue-ms=0") as server:
            asyncio.run(soak_all(arguments, server, kinds))


async def soak_all(arguments: argparse.Namespace, server: Server, kinds: list) -> None:
    totals: collections.Counter = collections.Counter()
    began = time.perf_counter()
    clients = arguments.connections
    shares = [arguments.requests // clients + (number < arguments.requests % clients) for number in range(clients)]
    memory = []
    clients = [soak_client(number, server, share, kinds, totals) for number, share in enumerate(shares)]

    async def watch() -> None:
        while True:
            memory.append(resident_mib(server.process.pid))
            await asyncio.sleep(1)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*clients)
    watching.cancel()
    seconds = time.perf_counter() - began
    for _ in range(100):
        await asyncio.sleep(0.1)
        metrics = server.metrics()
        if metrics["lenslet_requests_in_house"] == 0:
            break
    for kind, count in sorted(totals.items()):
        print(f"  {count:7} {kind}")
    failures = collections.Counter()
    for key, value in metrics.items():
        if key.startswith("lenslet_failures_total"):
            failures[re.search('kind="([a-z_]+)"', key)[1]] += int(value)
    done = int(sum(value for key, value in metrics.items() if key.startswith("lenslet_request_seconds_count")))
    requests = int(sum(value for key, value in metrics.items() if key.startswith("lenslet_requests_total")))
    print(f"  the server counted {requests} requests: {done} done, {dict(failures)}, in the house at the end: "
          f"{metrics['lenslet_requests_in_house']:.0f}")  # fmt: skip
    print(
        f"  {seconds:.0f} s, resident memory {memory[min(5, len(memory) - 1)]:.0f} MiB early, "
        f"{memory[-1]:.0f} MiB at the end"
    )
    answered = totals["good"] + totals["picture"]
    sent = sum(totals.values())
    assert sent == arguments.requests and not [kind for kind in totals if kind.startswith("WRONG")], totals
    # What a tensor holds makes no sense to the model: the client's fault, as a malformed request is.
    assert failures["malformed"] == totals["failing"] + totals["malformed"] and failures["run"] == 0, failures
    assert failures["image"] == totals["broken picture"] and failures["unknown"] == totals["unknown"], failures
    assert answered <= done <= answered + totals["leaves"] + totals["half a request"]
    assert requests == done + sum(failures.values()) and metrics["lenslet_requests_in_house"] == 0
    print("  nothing was lost")


# ---- Libraries ----


def libraries(arguments: argparse.Namespace) -> None:
    """Each answers requests of 3 KB and of 602 KB (an image of 224x224) with 40 bytes, behind JSON, as serve does."""
    results = timing.Results(arguments, "HTTP and gRPC servers with a handler that computes nothing.",
                              f"{arguments.rounds} rounds of {arguments.seconds:g} s: median, least, greatest.")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="lenslet-bench-") as folder:
        for elements in (784, 150528):
            input = ("x", "FP32", [1, elements], bytes(4 * elements))
            pathlib.Path(folder, "http").write_bytes(http_request("net", input))
            pathlib.Path(folder, "grpc").write_bytes(grpc_request("net", input))
            runs = {library: lambda library=library: of_library(library, folder, arguments) for library in arguments.libraries}
            for (library, key), values in timing.in_turns(runs, arguments.rounds).items():
                results.add(library=library, request_bytes=4 * elements, figure=key, value=values)


def of_library(library: str, folder: str, arguments: argparse.Namespace) -> dict:
    command = [sys.executable, str(HERE.with_name("serve_libraries.py")), library]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline())
        protocol = "grpc" if library.startswith("grpc") else "http"
        child("load", protocol, port, f"{folder}/{protocol}", 16, 0.5, 0)
        used = processor_seconds(process.pid)
        said = child("load", protocol, port, f"{folder}/{protocol}", 16, arguments.seconds, 0)
        used = processor_seconds(process.pid) - used
        return {"requests a second": said["rate"], "processor us a request": used / said["requests"] * 1e6, "p99 ms": said["p99_ms"]}
    finally:
        process.kill()
        process.wait()


def main() -> None:
    if sys.argv[1:2] == ["bare"]:
        model, device, runners, batch, seconds, picture = sys.argv[2:]
        return bare(model, device, int(runners), int(batch), float(seconds), picture)
    if sys.argv[1:2] == ["load"]:
        protocol, port, request, connections, seconds, rate = sys.argv[2:]
        return load(protocol, int(port), request, int(connections), float(seconds), float(rate))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, metavar="throughput|soak|overload|libraries")
    timed = {seconds: timing.options("", rounds=5, seconds=seconds, lenslet=False) for seconds in (4.0, 2.0)}
    verb = verbs.add_parser("throughput", parents=[timed[4.0]], conflict_handler="resolve")
    verb.add_argument("models", nargs="+")
    verb.add_argument("--device", default="cpu", help="cpu or cuda (two bare runners there); (%(default)s)")
    verb.add_argument("--picture", default="", help="send this file in place of a tensor")
    verb.add_argument("--against", default="", metavar="FOLDER", help="another tree's python/, served in turn")
    verb.add_argument("--batch", type=int, default=8)
    verb.add_argument("--connections", type=int, default=32)
    verb.add_argument("--protocols", nargs="+", default=["http", "grpc"])
    verb.add_argument(
        "--server", action="append", default=[], help="an option for the server: --server=--max-wait-ms=2"
    )
    verb.set_defaults(run=throughput)
    verb = verbs.add_parser("soak")
    verb.add_argument("--requests", type=int, default=100000)
    verb.add_argument("--connections", type=int, default=64)
    verb.set_defaults(run=soak)
    serve_overload.add_to(verbs)
    verb = verbs.add_parser("libraries", parents=[timed[2.0]], conflict_handler="resolve")
    verb.add_argument("--libraries", nargs="+", default=["uvicorn", "uvicorn-h11", "starlette", "granian", "aiohttp",
                                                         "grpc.aio", "grpc-threads"])  # fmt: skip
    verb.set_defaults(run=libraries)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
