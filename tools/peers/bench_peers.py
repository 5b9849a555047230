#!/usr/bin/env python3
"""lenslet beside other runtimes on the CPU: the same models, inputs of the same shape, the same threads, in one run.

Rounds alternate (ours, theirs, ours, theirs ...) because shared machines drift; each round gives a median, and the table
shows the median and the spread of the rounds and the ratio ours / the quickest peer (below 1: we are faster).

usage: bench_peers.py LENSLET MODEL.onnx[@1x3x48x192]... [--peers onnxruntime,openvino,ncnn,executorch,mnn]
                      [--threads 1,2] [--batch 1] [--rounds 5] [--seconds 0.5] [--csv FILE] [--json FILE]
The shape after @ is that of the only input, if more than the batch is free. Needs the PyPI packages onnxruntime and
numpy; openvino; ncnn and pnnx (which converts the model); mnn; executorch (for the networks of cpu_networks.py). All
compute in float32: a peer's own use of bf16 or fp16 is switched off.
"""
import importlib.metadata
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

import mobile_peers
import timing
from timing import Refused


def peer_inputs(session, shape_given, batch):
    generator = numpy.random.default_rng(1)
    feeds = {}
    for port in session.get_inputs():
        shape = shape_given or [batch if i == 0 else d for i, d in enumerate(port.shape)]
        if not all(isinstance(d, int) for d in shape):
            raise Refused(f"{port.name}: free dimensions {port.shape}")
        kind = numpy.float16 if "float16" in port.type else numpy.float32
        feeds[port.name] = generator.uniform(-1, 1, shape).astype(kind)
    return feeds


def onnxruntime_runs(model, threads, feeds, folder):
    session = timing.onnxruntime_session(model, threads)
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
    if not param.exists():  # already converted for another number of threads
        copy = folder / "model.onnx"
        copy.write_bytes(Path(model).read_bytes())
        shapes = ",".join(str([1, *values.shape[1:]]).replace(" ", "") for values in feeds.values())
        done = subprocess.run(["pnnx", str(copy), f"inputshape={shapes}", "fp16=0"], capture_output=True, text=True, cwd=folder)
        if not param.exists():
            raise Refused(f"pnnx: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
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


PEERS = {"onnxruntime": onnxruntime_runs, "openvino": openvino_runs, "ncnn": ncnn_runs,
         "executorch": mobile_peers.executorch_runs, "mnn": mobile_peers.mnn_runs}  # fmt: skip


def our_ms(arguments, model, threads, feeds):
    shapes = [f"--shape={name}={'x'.join(map(str, values.shape))}" for name, values in feeds.items()]
    found = timing.lenslet(arguments.lenslet, "bench", model, f"--threads={threads}", f"--seconds={arguments.seconds}",
                            "--device=cpu", *shapes)  # fmt: skip
    return found["results"][0]["ms"]["median"]


def all_rounds(arguments, forms, shape, threads, folder):
    """Medians of all rounds by runtime: "lenslet" and the peers, each with the model in all its forms. A peer that
    refuses the model has a reason instead."""
    feeds = peer_inputs(timing.onnxruntime_session(next(iter(forms.values()))), shape, arguments.batch)
    ours, runs, refused = [], {}, {}
    for form, model in forms.items():
        ours.append("lenslet" + form)
        runs[ours[-1]] = lambda model=model: our_ms(arguments, model, threads, feeds)
    for peer in arguments.peers:
        for form, model in forms.items():
            try:
                run = PEERS[peer](model, threads, feeds, folder)
                runs[peer + form] = lambda run=run: statistics.median(timing.timed(run, arguments.seconds))
            except Exception as error:  # the runtimes' exceptions have no other common base
                refused[peer + form] = timing.first_line(error) or repr(error)
    if len(runs) == len(ours):
        raise Refused("; ".join(f"{peer}: {why}" for peer, why in refused.items()))
    return timing.in_turns(runs, arguments.rounds), ours, refused


def row_of(rounds, ours):
    """Columns of results; the ratio is of the first of `ours`."""
    theirs = [times for runtime, times in rounds.items() if runtime not in ours]
    return {**{f"{runtime}_ms": times for runtime, times in rounds.items()}, "ratio": timing.ratio(rounds[ours[0]], *theirs)}


def measure(arguments, results, models, settings):
    """Adds rows for all (name, {form: file}, shape) and (threads, batch); a peer converts a model once."""
    ratios, left_out = {}, 0
    for name, forms, shape in models:
        with tempfile.TemporaryDirectory() as folder:
            for threads, batch in settings:
                arguments.batch = batch
                try:
                    rounds, ours, refused = all_rounds(arguments, forms, shape, threads, Path(folder))
                # onnxruntime's exceptions have no common base except Exception.
                except Exception as error:
                    left_out += 1
                    print(f"{name}: left out: {timing.first_line(error) or repr(error)}", flush=True)
                    continue
                row = row_of(rounds, ours)
                ratios.setdefault((threads, batch), []).append(row["ratio"])
                results.add(network=name, threads=threads, batch=batch, **row)
                for peer, why in refused.items():
                    print(f"  {peer}: {why}")
    for (threads, batch), values in ratios.items():
        print(f"threads {threads} batch {batch}: geometric mean {timing.geometric_mean(values):.2f}, worst {max(values):.2f}")
    if left_out:
        print(f"{left_out} left out")
    return 0 if ratios else "no model ran"


def results_of(arguments, what, precision="float32"):
    versions = ", ".join(f"{peer} {importlib.metadata.version(peer)}" for peer in arguments.peers)
    return timing.Results(arguments, f"{what} on the CPU, {precision}, beside other runtimes.", f"Peers: {versions}.",
                           "Milliseconds: median of the rounds, least, greatest. ratio: lenslet / the quickest peer.")  # fmt: skip


def main():
    parser = timing.options(__doc__, rounds=5, seconds=0.5)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", default="1,2", type=timing.numbers)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--peers", default="onnxruntime", type=timing.words)
    arguments = parser.parse_args()
    if unknown := set(arguments.peers) - set(PEERS):
        parser.error(f"unknown peers {', '.join(sorted(unknown))} (known: {', '.join(PEERS)})")
    models = []
    for argument in arguments.models:
        file, _, dims = argument.partition("@")
        models.append((Path(file).stem, {"": Path(file)}, [int(d) for d in dims.split("x")] if dims else None))
    settings = [(threads, arguments.batch) for threads in arguments.threads]
    return measure(arguments, results_of(arguments, "Networks"), models, settings)


if __name__ == "__main__":
    sys.exit(main())
