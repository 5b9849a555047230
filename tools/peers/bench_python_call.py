#!/usr/bin/env python3
"""Overhead of a call from Python over the C++ Runner's: alternates `lenslet bench` and a loop in Python.

    bench_python_call.py LENSLET [MODEL] [--rounds 11] [--seconds 1] [--csv FILE] [--json FILE]

Each turn is a separate process with one thread: A is the median that `lenslet bench MODEL --threads 1` gives, B the
median of single calls `runner(x)` on an array that NumPy made, with a fresh array for the result, C the same with
`out=`. The cost of Python's clock, the median of an empty call, is subtracted. MODEL defaults to MNIST's network in
shared/data. The overhead is B - A of each round, printed as median and quartiles: the machine's speed changes from
minute to minute, but hardly within a round. Needs lenslet and numpy; B and C take what PYTHONPATH and LENSLET_LIBRARY
name.
"""

import json
import os
import statistics
import sys
import time

import timing


def timed(call, seconds):
    """Microseconds of single calls; timing.timed's own loop would cost as much."""
    clock = time.perf_counter_ns
    for _ in range(200):
        call()
    samples, end = [], clock() + int(seconds * 1e9)
    while (begin := clock()) < end:
        call()
        samples.append(clock() - begin)
    return [sample / 1e3 for sample in samples]


def in_python(model, seconds, is_given):
    """Runs in a separate process: prints microseconds a call."""
    import lenslet
    import numpy

    runner = lenslet.Model(model).runner(device="cpu", threads=1)
    port = runner.inputs[0]
    x = numpy.random.default_rng(1).standard_normal(port.shape).astype(numpy.float32)
    if is_given:
        out = numpy.empty(runner.outputs[0].shape, numpy.float32)
        samples = timed(lambda: runner(x, out=out), seconds)
    else:
        samples = timed(lambda: runner(x), seconds)
    print(json.dumps(statistics.median(samples) - statistics.median(timed(lambda: None, 0.1))))


def in_cpp(lenslet, model, seconds):
    found = timing.lenslet(lenslet, "bench", model, "--device", "cpu", "--threads", 1, "--seconds", seconds)
    return found["results"][0]["ms"]["median"] * 1e3


def default_model():
    for place in (timing.ROOT, timing.ROOT.parent):
        if (file := place / "shared" / "data" / "models" / "mnist-cntk.onnx").exists():
            return str(file)
    return None


def main():
    if sys.argv[1:2] == ["--one"]:
        return in_python(sys.argv[3], float(sys.argv[4]), sys.argv[2] == "given")
    parser = timing.options(__doc__, rounds=11, seconds=1.0)
    parser.add_argument("model", nargs="?", default=default_model())
    arguments = parser.parse_args()
    if not arguments.model or arguments.rounds < 3:
        parser.error("LENSLET and MODEL, and three rounds at least")
    model, seconds = arguments.model, arguments.seconds
    results = timing.Results(arguments, f"{os.path.basename(model)}, one thread, a call, {arguments.rounds} rounds.",
                              "Microseconds: median and quartiles.")  # fmt: skip
    cpp, fresh, given = timing.in_turns({
        "cpp": lambda: in_cpp(arguments.lenslet, model, seconds),
        "fresh": lambda: timing.in_own_process(__file__, "--one", "fresh", model, seconds),
        "given": lambda: timing.in_own_process(__file__, "--one", "given", model, seconds)}, arguments.rounds).values()  # fmt: skip
    for what, samples in {
        "C++ Runner": cpp, "Python": fresh, "Python, out= given": given,
        "overhead": [b - a for a, b in zip(cpp, fresh)], "overhead, out= given": [c - a for a, c in zip(cpp, given)],
    }.items():  # fmt: skip
        low, middle, high = statistics.quantiles(samples, n=4)
        results.add(what=what, median_us=middle, lower_quartile_us=low, upper_quartile_us=high)
    return None


if __name__ == "__main__":
    main()
