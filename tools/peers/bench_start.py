#!/usr/bin/env python3
"""How long until the first result, and how much memory at most: lenslet beside other runtimes on the CPU.

usage: bench_start.py LENSLET [--folder build/cpu-peers] [--networks NAME,...] [--threads 2] [--rounds 5]

Each measurement is a process of its own that loads a network and computes one image; rounds alternate between the
runtimes. Ours is `lenslet run`, the whole of it: start, reading image and network, writing the result. A peer's time
begins when Python and its module are loaded (which an app in C++ need not); its memory is given with and without what
was there by then. ncnn reads the network in its own format, converted before. FOLDER is bench_cpu_peers.py's.

This process itself loads nothing large: Linux counts what a process was before it became another one.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_cpu_peers

PEERS = bench_cpu_peers.PEERS


def most_memory():
    """MB that this process has had at most."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def one_result(peer, model, threads, image, folder):
    """In a process of its own: prints ms, MB at most, and MB before."""
    import bench_peers
    import numpy

    __import__(peer)
    values = numpy.load(image)
    before, begin = most_memory(), time.perf_counter()
    feeds = {Path(f"{model}.input").read_text(): values} if peer != "ncnn" else {"in0": values}
    bench_peers.PEERS[peer](model, threads, feeds, Path(folder))()
    print(json.dumps([(time.perf_counter() - begin) * 1e3, most_memory(), before]))


def draw_image(model, image):
    """In a process of its own: writes random values for the only input, and the name of that."""
    import numpy
    import onnxruntime

    port = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).get_inputs()[0]
    values = numpy.random.default_rng(1).standard_normal([1, *port.shape[1:]])
    numpy.save(image, values.astype(numpy.float32))
    Path(f"{model}.input").write_text(port.name)


def measure_peer(peer, model, threads, image, folder):
    command = [sys.executable, __file__, "--one", peer, str(model), str(threads), str(image), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None
    ms, most, before = json.loads(done.stdout.splitlines()[-1])
    return ms, most, most - before


def measure_lenslet(lenslet, model, threads, image, folder):
    command = [lenslet, "run", str(model), "--device", "cpu", "--threads", str(threads), "--input", str(image),
               "--output-dir", str(folder)]  # fmt: skip
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: status {status}")
    most = usage.ru_maxrss / 1024
    return (time.perf_counter() - begin) * 1e3, most, most


def table_of(arguments, network):
    """Medians by runtime: ms, MB, MB without what was there before."""
    model = arguments.folder / "networks" / f"{network}.onnx"
    with tempfile.TemporaryDirectory() as folder:
        image, link = Path(folder) / "image.npy", Path(folder) / model.name
        link.symlink_to(model)
        subprocess.run([sys.executable, __file__, "--draw", link, image], check=True)
        rounds = {}
        for i in range(arguments.rounds + 1):  # the first one converts, and brings files into memory
            made = {"lenslet": measure_lenslet(arguments.lenslet, link, arguments.threads, image, folder)}
            for peer in PEERS:
                made[peer] = measure_peer(peer, link, arguments.threads, image, folder)
            for name, row in made.items():
                if i > 0 and row is not None:
                    rounds.setdefault(name, []).append(row)
    return {name: [statistics.median(column) for column in zip(*rows)] for name, rows in rounds.items()}


def main():
    if sys.argv[1:2] == ["--one"]:
        peer, model, threads, image, folder = sys.argv[2:]
        return one_result(peer, Path(model), int(threads), image, folder)
    if sys.argv[1:2] == ["--draw"]:
        return draw_image(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lenslet")
    parser.add_argument("--folder", type=Path, default=Path("build/cpu-peers"))
    parser.add_argument("--networks", type=lambda names: names.split(","))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.absolute()
    bench_cpu_peers.in_own_environment(arguments.folder, __file__)

    here = Path(__file__).resolve().parent
    networks = arguments.networks or subprocess.run(
        [sys.executable, "-c", "import cpu_networks; print(*cpu_networks.NETWORKS)"],
        check=True, capture_output=True, text=True, cwd=here).stdout.split()  # fmt: skip
    subprocess.run([sys.executable, here / "cpu_networks.py", arguments.folder / "networks", *networks], check=True)
    print(f"{arguments.threads} threads, medians of {arguments.rounds}: ms to the first result, MB at most (without what was there before)")
    for network in networks:
        rows = table_of(arguments, network)
        cells = "  ".join(f"{name} {ms:.0f} ms {most:.0f} ({own:.0f}) MB" for name, (ms, most, own) in rows.items())
        peers = [row for name, row in rows.items() if name != "lenslet"]
        ours = rows["lenslet"]
        print(f"{network:<20} quickest / ours {min(row[0] for row in peers) / ours[0]:.2f}, ours / leanest "
              f"{ours[1] / min(row[1] for row in peers):.2f}   {cells}", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
