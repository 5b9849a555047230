"""attack_server.py [ATTACK...]: runs all attacks of tests/serve (attacks.py and grpc_attacks.py) on `lenslet serve` in
full, and prints the results: the growth of memory at its peak, the longest answer of a health probe, the answers to a
second client, and those to the attacker. Exit code 1 if a bound was exceeded. Run it with the package on PYTHONPATH.

attack_server.py --mutated N [--processes P]: N mutated connections and messages, half of HTTP and half of gRPC, to one
server, from P processes; progress each ten seconds, and the table last.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "serve"))
import grpc_attacks  # noqa: E402
from grpc_attacks import attacks  # noqa: E402
from harness import Server, write_models  # noqa: E402

ATTACKS, Watch = attacks.ATTACKS, attacks.Watch  # including gRPC's
MODELS = ("sums", "lookup", "rgb", "segment")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)}; all, where none is named")
    parser.add_argument("--count", type=int, default=20000, help="mutated connections (%(default)s)")
    parser.add_argument("--memory-mib", type=int, default=256, help="--max-memory-mib of the server (%(default)s)")
    parser.add_argument("--small", action="store_true", help="as the tests do it")
    parser.add_argument("--mutated", type=int, default=0, metavar="N", help="mutated connections alone, so many")
    processes = max(1, len(os.sched_getaffinity(0)) - 2)
    parser.add_argument("--processes", type=int, default=processes, help="of --mutated (%(default)s)")
    arguments = parser.parse_args()
    os.environ["LENSLET_ATTACK_COUNT"] = str(arguments.count)
    attacks.more_files()
    if arguments.mutated:
        return mutated(arguments)
    passed = True
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="lenslet-attack-") as folder:
        write_models(pathlib.Path(folder))
        for name in arguments.attacks or ATTACKS:
            server = served(folder, arguments)
            try:
                with Watch(server) as watch:
                    found = ATTACKS[name](server, not arguments.small)
                passed = row(name, server, watch, found, arguments.memory_mib, 0.1) and passed
            finally:
                server.end()
    return 0 if passed else 1


HEAD = "| attack | memory above before, MiB | longest probe, ms | second client | answered |\n|---|---|---|---|---|"


def served(folder: str, arguments: argparse.Namespace) -> Server:
    return Server(*(f"{folder}/{model}.onnx" for model in MODELS), f"--max-memory-mib={arguments.memory_mib}")


def row(name: str, server: Server, watch: Watch, found: dict, memory_mib: int, stall: float) -> bool:
    """Prints the row; returns whether every bound was kept."""
    grown = watch.peak - watch.before
    good = grown <= 1.1 * memory_mib and watch.stall <= stall and not watch.failed and server.process.poll() is None
    good = good and not watch.answers["WRONG"] and not any(str(key)[:5].isupper() for key in found)
    said = [", ".join(f"{key}: {value}" for key, value in sorted(each.items(), key=str)) for each in (watch.answers, found)]
    print(f"| {name.replace('_', ' ')} | {grown} | {watch.stall * 1e3:.0f} | {said[0]} | {said[1]} |"
          f"{'' if good else ' **passed a bound**'}", flush=True)  # fmt: skip
    if server.errors:
        print("".join(server.errors[-20:]), file=sys.stderr)
    return good


# ---- A million of them ----

#: Number in a process at once, and number of each kind between reports.
CLIENTS, PIECE = 8, 100
KINDS = {
    "http": lambda server, seed: attacks.mutated(server, PIECE, seed),
    "grpc message": lambda server, seed: grpc_attacks.grpc_mutated_messages(server, False, PIECE, seed),
    "grpc connection": lambda server, seed: grpc_attacks.grpc_mutated_connections(server, False, PIECE, seed),
}
#: Two of four pieces are HTTP.
TURNS = ("http", "grpc message", "http", "grpc connection")


def piece(work: tuple) -> collections.Counter:
    address, number = work
    kind = TURNS[number % len(TURNS)]
    try:
        found = KINDS[kind](types.SimpleNamespace(**address), number)
    except Exception as error:
        found = collections.Counter({f"FAILED: {error!r}": 1})
    return collections.Counter({key if str(key)[:5].isupper() else f"{kind} {key}": each for key, each in found.items()})


def clients(address: dict, numbers: list, results: multiprocessing.Queue) -> None:
    attacks.more_files()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for found in pool.map(piece, [(address, number) for number in numbers]):
            results.put(found)


def mutated(arguments: argparse.Namespace) -> int:
    pieces, context = -(-arguments.mutated // PIECE), multiprocessing.get_context("spawn")
    total: collections.Counter = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="lenslet-attack-") as folder:
        write_models(pathlib.Path(folder))
        server = served(folder, arguments)
        address = {key: getattr(server, key) for key in ("host", "http_port", "grpc_port", "grpc")}
        results = context.Queue()
        count = arguments.processes
        shares = [[number for number in range(pieces) if number // len(TURNS) % count == each] for each in range(count)]
        made = [context.Process(target=clients, args=(address, share, results)) for share in shares]
        try:
            with Watch(server) as watch:
                began = said = time.monotonic()
                for each in made:
                    each.start()
                for done in range(1, pieces + 1):
                    total += results.get(timeout=600)
                    now = time.monotonic()
                    if now - said > 10 or done == pieces:
                        said = now
                        print(f"{done * PIECE} in {now - began:.0f} s, {done * PIECE / (now - began):.0f} a second, "
                              f"resident {watch._memory('VmRSS')} MiB", flush=True)  # fmt: skip
            print(HEAD)
            return 0 if row(f"{arguments.mutated} mutated", server, watch, total, arguments.memory_mib, 1.0) else 1
        finally:
            for each in made:
                each.kill()
            server.end()


if __name__ == "__main__":
    sys.exit(main())
