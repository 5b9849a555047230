#!/usr/bin/env python3
"""lenslet beside ONNX Runtime on the CPU: the same models, inputs of the same shape, the same threads, in one run.

Rounds alternate (ours, theirs, ours, theirs ...) because shared machines drift; each round gives a median, and the table
shows the median and the spread of the rounds and the ratio ours / theirs (below 1: we are faster).

usage: bench_peers.py LENSLET MODEL.onnx[@1x3x48x192]... [--threads 1,2] [--batch 1] [--rounds 5] [--seconds 0.5]
The shape behind @ is that of the only input, where more than the batch is free.
Needs the PyPI packages onnxruntime and numpy.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy
import onnxruntime


def peer_session(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


class CannotRun(Exception):
    """A model that one of the two refuses: it is left out, by name, and the others go on."""


def peer_inputs(session, shape_given, batch):
    generator = numpy.random.default_rng(1)
    feeds = {}
    for port in session.get_inputs():
        shape = shape_given or [batch if i == 0 else d for i, d in enumerate(port.shape)]
        if not all(isinstance(d, int) for d in shape):
            raise CannotRun(f"{port.name}: free dimensions {port.shape}")
        kind = numpy.float16 if "float16" in port.type else numpy.float32
        feeds[port.name] = generator.uniform(-1, 1, shape).astype(kind)
    return feeds


def peer_round(session, feeds, seconds):
    for _ in range(2):
        session.run(None, feeds)
    samples = []
    begin = time.perf_counter()
    while len(samples) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        session.run(None, feeds)
        samples.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples)


def our_round(arguments, model, threads, feeds):
    command = [arguments.lenslet, "bench", str(model), "--threads", str(threads), "--seconds", str(arguments.seconds), "--json"]
    for name, values in feeds.items():
        command += ["--shape", f"{name}={'x'.join(map(str, values.shape))}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotRun(done.stderr.splitlines()[0] if done.stderr else f"exit status {done.returncode}")
    return json.loads(done.stdout)["results"][0]["ms"]["median"]


def both(arguments, model, shape, threads):
    """Medians of all rounds, ours and the peer's."""
    session = peer_session(model, threads)
    feeds = peer_inputs(session, shape, arguments.batch)
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(our_round(arguments, model, threads, feeds))
        theirs.append(peer_round(session, feeds, arguments.seconds))
    return ours, theirs


def spread(samples):
    return f"{statistics.median(samples):9.3f} ({min(samples):.3f}-{max(samples):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lenslet")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    arguments = parser.parse_args()

    print(f"onnxruntime {onnxruntime.__version__}, batch {arguments.batch}, "
          f"{arguments.rounds} alternating rounds of {arguments.seconds} s, ms: median (least-most) of the rounds")
    print(f"{'model':<24} {'threads':>7} {'lenslet':>28} {'onnxruntime':>28} {'ratio':>6}")
    ratios, left_out = [], 0
    for argument in arguments.models:
        file, _, dims = argument.partition("@")
        model, shape = Path(file), [int(d) for d in dims.split("x")] if dims else None
        try:
            for threads in (int(t) for t in arguments.threads.split(",")):
                ours, theirs = both(arguments, model, shape, threads)
                ratios.append(statistics.median(ours) / statistics.median(theirs))
                print(f"{model.stem:<24} {threads:>7} {spread(ours):>28} {spread(theirs):>28} {ratios[-1]:>6.2f}",
                      flush=True)
        # onnxruntime's own exceptions share no base but Exception.
        except Exception as error:
            left_out += 1
            print(f"{model.stem:<24} left out: {str(error).splitlines()[0] if str(error) else repr(error)}", flush=True)
    if not ratios:
        return "no model ran"
    print(f"worst ratio {max(ratios):.2f}" + (f"; {left_out} models left out" if left_out else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
