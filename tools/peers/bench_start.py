#!/usr/bin/env python3
"""Time to the first result, and peak memory: lenslet beside other runtimes on the CPU.

usage: bench_start.py LENSLET [--folder build/cpu-peers] [--networks NAME,...] [--threads 2] [--rounds 5]
                      [--csv FILE] [--json FILE]

Each measurement is a separate process that loads a network and computes one image; rounds alternate between the
runtimes. Ours is all of `lenslet run`: start, reading image and network, writing the result. A peer's time begins when
Python and its module are loaded (which a C++ app need not do); its memory is given with and without them. ncnn reads
the network in its own format, converted in advance. FOLDER is bench_cpu_peers.py's.

This process loads nothing large, because Linux counts the memory from before exec().
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_cpu_peers
import timing

PEERS = bench_cpu_peers.PEERS


def most_memory():
    """Peak memory of this process in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def one_result(peer, model, threads, image, folder):
    """Runs in a separate process: prints ms, peak MB, and MB before."""
    import bench_peers
    import numpy

    __import__(peer)
    values = numpy.load(image)
    before, begin = most_memory(), time.perf_counter()
    feeds = {Path(f"{model}.input").read_text(): values} if peer != "ncnn" else {"in0": values}
    bench_peers.PEERS[peer](model, threads, feeds, Path(folder))()
    print(json.dumps([(time.perf_counter() - begin) * 1e3, most_memory(), before]))


def draw_image(model, image):
    """Runs in a separate process: writes random values for the only input, and its name."""
    import numpy

    port = timing.onnxruntime_session(model).get_inputs()[0]
    values = numpy.random.default_rng(1).standard_normal([1, *port.shape[1:]])
    numpy.save(image, values.astype(numpy.float32))
    Path(f"{model}.input").write_text(port.name)


def measure_peer(peer, model, threads, image, folder):
    try:
        ms, most, before = timing.in_own_process(__file__, "--one", peer, model, threads, image, folder)
    except timing.Refused as why:
        print(f"  {peer}: {why}")
        return {}
    return {"ms": ms, "mb": most, "mb_without_python": most - before}


def measure_lenslet(lenslet, model, threads, image, folder):
    command = [lenslet, "run", str(model), "--device", "cpu", "--threads", str(threads), "--input", str(image),
               "--output-dir", str(folder)]  # fmt: skip
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: status {status}")
    return {"ms": (time.perf_counter() - begin) * 1e3, "mb": usage.ru_maxrss / 1024}


def row_of(arguments, model):
    """Samples by runtime and quantity; ratios."""
    with tempfile.TemporaryDirectory() as folder:
        image, link = Path(folder) / "image.npy", Path(folder) / model.name
        link.symlink_to(model)
        subprocess.run([sys.executable, __file__, "--draw", link, image], check=True)
        runs = {"lenslet": lambda: measure_lenslet(arguments.lenslet, link, arguments.threads, image, folder)}
        for peer in PEERS:
            runs[peer] = lambda peer=peer: measure_peer(peer, link, arguments.threads, image, folder)
        samples = timing.in_turns(runs, arguments.rounds, warm_up=1)  # the first one converts, and warms the file cache
    theirs = {what: [samples[peer, what] for peer in PEERS if (peer, what) in samples] for what in ("ms", "mb")}
    return {**{"_".join(key): values for key, values in samples.items()},
            "quickest_over_lenslet": 1 / timing.ratio(samples["lenslet", "ms"], *theirs["ms"]),
            "lenslet_over_leanest": timing.ratio(samples["lenslet", "mb"], *theirs["mb"])}  # fmt: skip


def main():
    if sys.argv[1:2] == ["--one"]:
        peer, model, threads, image, folder = sys.argv[2:]
        return one_result(peer, Path(model), int(threads), image, folder)
    if sys.argv[1:2] == ["--draw"]:
        return draw_image(*sys.argv[2:])
    parser = bench_cpu_peers.options(__doc__, rounds=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    files = bench_cpu_peers.prepared(arguments, __file__)
    results = timing.Results(
        arguments, f"From process start to the first result, and the most memory, on the CPU, float32, {arguments.threads} threads.",
        "ms: until the first result. mb: the most memory. mb_without_python: less Python, NumPy and the runtime's module, "
        "which are loaded before the clock starts; lenslet is the whole command.",
        "quickest_over_lenslet: of the milliseconds. lenslet_over_leanest: of the memory.")  # fmt: skip
    for network, model in files:
        results.add(network=network, **row_of(arguments, model))
    return 0


if __name__ == "__main__":
    sys.exit(main())
