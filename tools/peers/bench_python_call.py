#!/usr/bin/env python3
"""What a call from Python costs over the C++ Runner's: `lenslet bench` and a loop in Python, turn about.

    bench_python_call.py LENSLET [MODEL] [--rounds 11] [--seconds 1] [--json]

Each turn is a process of its own, on one thread: A is the median that `lenslet bench MODEL --threads 1` gives, B the
median of single calls `runner(x)` on an array that NumPy made, with a fresh array for the result, C the same with
`out=`. What a clock in Python adds is taken off: the median of an empty call.
MODEL is MNIST's network of shared/data where that is. The overhead is that of each round, B - A, whose median and
quartiles are printed: the machine's own pace, which moves from minute to minute, is the same in a round. Needs lenslet
and numpy; B and C take what PYTHONPATH and LENSLET_LIBRARY name.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def timed(call, seconds):
    """Microseconds of single calls."""
    clock = time.perf_counter_ns
    for _ in range(200):
        call()
    samples, end = [], clock() + int(seconds * 1e9)
    while (begin := clock()) < end:
        call()
        samples.append(clock() - begin)
    return [sample / 1e3 for sample in samples]


def in_python(model, seconds, is_given):
    """In a process of its own: prints microseconds a call."""
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
    print(statistics.median(samples) - statistics.median(timed(lambda: None, 0.1)))


def in_cpp(lenslet, model, seconds):
    command = [lenslet, "bench", model, "--device", "cpu", "--threads", "1", "--seconds", str(seconds), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["results"][0]["ms"]["median"] * 1e3


def ask_python(model, seconds, is_given):
    command = [sys.executable, __file__, "--one", str(int(is_given)), model, "--seconds", str(seconds)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": round(middle, 2), "quartiles": [round(low, 2), round(high, 2)]}


def default_model():
    for place in (ROOT, ROOT.parent):
        if (file := place / "shared" / "data" / "models" / "mnist-cntk.onnx").exists():
            return str(file)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lenslet", nargs="?")
    parser.add_argument("model", nargs="?", default=default_model())
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        in_python(arguments.lenslet, arguments.seconds, arguments.one == "1")
        return
    if not arguments.lenslet or not arguments.model or arguments.rounds < 3:
        parser.error("LENSLET and MODEL, and three rounds at least")
    cpp, fresh, given = [], [], []
    for _ in range(arguments.rounds):
        cpp.append(in_cpp(arguments.lenslet, arguments.model, arguments.seconds))
        fresh.append(ask_python(arguments.model, arguments.seconds, False))
        given.append(ask_python(arguments.model, arguments.seconds, True))
    results = {
        "C++ Runner": quartiles(cpp),
        "Python": quartiles(fresh),
        "Python, out= given": quartiles(given),
        "overhead": quartiles([b - a for a, b in zip(cpp, fresh)]),
        "overhead, out= given": quartiles([c - a for a, c in zip(cpp, given)]),
    }
    if arguments.json:
        print(json.dumps({"model": os.path.basename(arguments.model), "rounds": arguments.rounds, "us": results}))
        return
    print(f"{os.path.basename(arguments.model)}, one thread, us a call, {arguments.rounds} rounds")
    for what, of in results.items():
        print(f"  {what:22} {of['median']:7.2f}   (quartiles {of['quartiles'][0]:.2f} to {of['quartiles'][1]:.2f})")


if __name__ == "__main__":
    main()
