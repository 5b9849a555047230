#!/usr/bin/env python3
"""lenslet beside other runtimes on the CPU: the same models, inputs of the same shape, the same threads, in one run.

Rounds alternate (ours, theirs, ours, theirs ...) because shared machines drift; each round gives a median, and the table
shows the median and the spread of the rounds and the ratio ours / theirs (below 1: we are faster). With several peers
the last column is the ratio to the quickest.

usage: bench_peers.py LENSLET MODEL.onnx[@1x3x48x192]... [--peers onnxruntime,openvino,ncnn] [--threads 1,2] [--batch 1]
                      [--rounds 5] [--seconds 0.5]
The shape behind @ is that of the only input, where more than the batch is free.
Needs the PyPI packages onnxruntime and numpy; openvino; ncnn and pnnx (which converts the model). All compute in
float32: what a peer would round to bf16 or fp16 by itself is switched off.
"""
import argparse
import importlib.metadata
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import onnxruntime


def ort_session(model, threads):
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


def onnxruntime_runs(model, threads, feeds, folder):
    session = ort_session(model, threads)
    return lambda: session.run(None, feeds)


def openvino_runs(model, threads, feeds, folder):
    import openvino

    core = openvino.Core()
    read = core.read_model(str(model))
    read.reshape({name: openvino.PartialShape(list(values.shape)) for name, values in feeds.items()})
    compiled = core.compile_model(read, "CPU", {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
                                                "INFERENCE_PRECISION_HINT": "f32"})  # fmt: skip
    request = compiled.create_infer_request()
    for name, values in feeds.items():
        request.set_tensor(name, openvino.Tensor(values))
    return request.infer


def ncnn_runs(model, threads, feeds, folder):
    import ncnn

    param, weights = folder / "model.ncnn.param", folder / "model.ncnn.bin"
    if not param.exists():  # by an earlier number of threads
        copy = folder / "model.onnx"
        copy.write_bytes(Path(model).read_bytes())
        shapes = ",".join(str([1, *values.shape[1:]]).replace(" ", "") for values in feeds.values())
        done = subprocess.run(["pnnx", str(copy), f"inputshape={shapes}", "fp16=0"], capture_output=True, text=True, cwd=folder)
        if not param.exists():
            raise CannotRun(f"pnnx: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    net = ncnn.Net()
    net.opt.num_threads = threads
    for name in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
        setattr(net.opt, name, False)
    net.load_param(str(param))
    net.load_model(str(weights))
    # It takes one image at a time.
    images = [[ncnn.Mat(image).clone() for image in images_of_all] for images_of_all in zip(*feeds.values())]
    inputs, outputs = net.input_names(), net.output_names()

    def run():
        for image in images:
            extractor = net.create_extractor()
            for name, value in zip(inputs, image):
                extractor.input(name, value)
            for name in outputs:
                extractor.extract(name)

    return run


PEERS = {"onnxruntime": onnxruntime_runs, "openvino": openvino_runs, "ncnn": ncnn_runs}


def peer_round(run, seconds):
    for _ in range(2):
        run()
    samples = []
    begin = time.perf_counter()
    while len(samples) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        run()
        samples.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples)


def our_round(arguments, model, threads, feeds):
    command = [arguments.lenslet, "bench", str(model), "--threads", str(threads), "--seconds", str(arguments.seconds), "--device", "cpu",
               "--json"]  # fmt: skip
    for name, values in feeds.items():
        command += ["--shape", f"{name}={'x'.join(map(str, values.shape))}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotRun(done.stderr.splitlines()[0] if done.stderr else f"exit status {done.returncode}")
    return json.loads(done.stdout)["results"][0]["ms"]["median"]


def all_rounds(arguments, model, shape, threads, folder):
    """Medians of all rounds, ours (None) and the peers' by name; a peer that cannot take the model has none, with why."""
    feeds = peer_inputs(ort_session(model, 1), shape, arguments.batch)
    runs, refused = {}, {}
    for peer in arguments.peers:
        try:
            runs[peer] = PEERS[peer](model, threads, feeds, folder)
        except Exception as error:  # the runtimes' own exceptions share no other base
            if len(arguments.peers) == 1:
                raise
            refused[peer] = str(error).splitlines()[0][:100] if str(error) else repr(error)
    rounds = {None: [], **{peer: [] for peer in runs}}
    for _ in range(arguments.rounds):
        rounds[None].append(our_round(arguments, model, threads, feeds))
        for peer, run in runs.items():
            rounds[peer].append(peer_round(run, arguments.seconds))
    return rounds, refused


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
    parser.add_argument("--peers", default="onnxruntime", type=lambda names: names.split(","))
    arguments = parser.parse_args()
    if unknown := set(arguments.peers) - set(PEERS):
        parser.error(f"unknown peers {', '.join(sorted(unknown))} (known: {', '.join(PEERS)})")

    versions = ", ".join(f"{peer} {importlib.metadata.version(peer)}" for peer in arguments.peers)
    print(f"{versions}, batch {arguments.batch}, "
          f"{arguments.rounds} alternating rounds of {arguments.seconds} s, ms: median (least-most) of the rounds")
    columns = "".join(f" {peer:>28}" for peer in ("lenslet", *arguments.peers))
    print(f"{'model':<24} {'threads':>7}{columns} {'ratio':>6}")
    ratios, left_out = {}, 0
    for argument in arguments.models:
        file, _, dims = argument.partition("@")
        model, shape = Path(file), [int(d) for d in dims.split("x")] if dims else None
        try:
            with tempfile.TemporaryDirectory() as folder:  # a peer converts the model once for all numbers of threads
                for threads in (int(t) for t in arguments.threads.split(",")):
                    rounds, refused = all_rounds(arguments, model, shape, threads, Path(folder))
                    ours = rounds.pop(None)
                    if not rounds:
                        raise CannotRun("; ".join(f"{peer}: {why}" for peer, why in refused.items()))
                    cells = "".join(f" {spread(rounds[peer]) if peer in rounds else 'refuses':>28}" for peer in arguments.peers)
                    ratio = statistics.median(ours) / min(map(statistics.median, rounds.values()))
                    ratios.setdefault(threads, []).append(ratio)
                    print(f"{model.stem:<24} {threads:>7} {spread(ours):>28}{cells} {ratio:>6.2f}", flush=True)
                    for peer, why in refused.items():
                        print(f"  {peer}: {why}")
        # onnxruntime's own exceptions share no base but Exception.
        except Exception as error:
            left_out += 1
            print(f"{model.stem:<24} left out: {str(error).splitlines()[0] if str(error) else repr(error)}", flush=True)
    if not ratios:
        return "no model ran"
    for threads, all_ratios in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, all_ratios)))
        print(f"threads {threads}: geometric mean {mean:.2f}, worst {max(all_ratios):.2f}")
    if left_out:
        print(f"{left_out} models left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
