#!/usr/bin/env python3
"""lenslet beside PyTorch + cuDNN on one GPU: whole torchvision networks, one precision, the same weights, in one run.

PyTorch runs as a CUDA graph with cuDNN's exhaustive search (cudnn.benchmark), in NCHW and in channels_last, and under
torch.compile (channels_last, reduce-overhead); the fastest counts. Our time is `lenslet bench --device cuda`: the network
on the device, without the copies of input and output, as PyTorch's is. Rounds alternate (ours, theirs, ours, theirs
...); the table shows medians, the spread of the rounds, the ratio ours / theirs (below 1: we are faster), and how far
our outputs and PyTorch's are from PyTorch's in double.

usage: bench_gpu_peers.py LENSLET [--precision fp16] [--networks resnet50,...] [--batches 1,8] [--rounds 3]
                          [--processes 32] [--patience 600] [--no-compile] [--no-nchw] [--csv FILE] [--json FILE]
Networks are torchvision's, timm/NAME, or a list of networks.py (CLASSIFICATION, TIMM). Each network and batch has a
process of its own: --processes of them at a time export and compile side by side, then one after the other is measured,
with the GPU and the cores to itself. One that PyTorch or lenslet refuses is named and left out.
In fp16 and bf16 PyTorch's network and input are of that type; ours reads its input in float32, as the file declares.
Needs PyTorch with CUDA, torchvision, onnx and numpy, and timm for its networks.
"""
import copy
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy
import torch

import timing
import networks


def calibrate(network, size):
    """Takes BatchNormalization statistics from data: otherwise activations grow without bound under random weights."""
    generator = torch.Generator().manual_seed(3)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
            module.reset_running_stats()
    network.train()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.Dropout):
                module.eval()
        network(torch.randn(16, 3, *size, generator=generator).to(next(network.parameters()).device))
    return network.eval()


def without_search():
    """Without cuDNN: it would keep what it finds quickest for a shape while others use the GPU."""
    return torch.backends.cudnn.flags(enabled=False)


TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Turn:
    """Called once everything is compiled: says so to the parent process, and returns when the GPU is this process's."""

    def __init__(self, parent):
        self.parent, self.taken = parent, False

    def __call__(self):
        if not self.taken:
            self.parent.send(None)
            self.parent.recv()
            self.taken = True


def compiled(network, batch, size, turn):
    """The network under torch.compile, or None if that fails. Waits for the turn between compiling and the first run."""
    import torch._inductor.compile_fx as inductor

    compile_fx = inductor.compile_fx

    def compile_and_wait(*arguments, **named):
        made = compile_fx(*arguments, **named)
        turn()
        return made

    inductor.compile_fx = compile_and_wait
    network = copy.deepcopy(network).to(memory_format=torch.channels_last)
    image = torch.randn(batch, 3, *size, device="cuda", dtype=next(network.parameters()).dtype)
    image = image.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode(), without_search():
        network(image)  # what a network keeps between calls (attention biases) must not lie in a graph
    made = torch.compile(network, mode="reduce-overhead")

    def run():
        with torch.inference_mode():
            made(image)

    try:
        for _ in range(4):
            run()
    except Exception as error:  # the compiler's errors have no common base class
        print(f"torch.compile: {timing.first_line(error)}", file=sys.stderr)
        return None
    return run


def captured(network, batch, size, memory_format):
    """A CUDA graph of the network in this format, and its inputs, since a graph keeps no memory alive."""
    network = copy.deepcopy(network).to(memory_format=memory_format)
    image = torch.randn(batch, 3, *size, device="cuda", dtype=next(network.parameters()).dtype)
    image = image.contiguous(memory_format=memory_format)
    graph, output = timing.captured(lambda: network(image))
    return graph, (network, image, output)


def our_ms(lenslet, model, batch, precision):
    found = timing.lenslet(lenslet, "bench", model, "--device", "cuda", "--batch", batch, "--precision", precision,
                           "--seconds", 0.3)  # fmt: skip
    return found["results"][0]["device_ms"]["median"]


def error(got, exact):
    return float(numpy.abs(got.astype(numpy.float64) - exact).max() / numpy.sqrt((exact**2).mean()))


def our_error(lenslet, model, image, exact, folder, precision):
    numpy.save(folder / "x.npy", image.numpy())
    timing.checked([lenslet, "run", model, "--device", "cuda", "--input", folder / "x.npy", "--output-dir", folder,
                     "--precision", precision])  # fmt: skip
    return error(numpy.load(folder / "output.npy"), exact)


def their_error(network, image, exact):
    with torch.inference_mode():
        return error(network(image.to(next(network.parameters()))).float().cpu().numpy(), exact)


def set_arithmetic(precision):
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def exported(name, size, folder):
    """The network with calibrated weights, its ONNX file, an image, and the exact result."""
    torch.manual_seed(1)
    model = folder / "model.onnx"
    with without_search():
        network = calibrate(networks.torchvision_network(name).cuda(), size).cpu()
        torch.onnx.export(network, (torch.randn(1, 3, *size),), str(model), dynamo=False, opset_version=17,
                          input_names=["input"], output_names=["output"], dynamic_axes={"input": {0: "N"}, "output": {0: "N"}})  # fmt: skip
        image = torch.randn(1, 3, *size)
        with torch.inference_mode():
            exact = copy.deepcopy(network).double().cuda()(image.double().cuda()).cpu().numpy()
    return network, model, image, exact


def measured(arguments, name, batch, folder, turn):
    """A row of the table."""
    size, precision = networks.size_of(name), arguments.precision
    network, model, image, exact = exported(name, size, folder)
    network.to(TYPES[precision]).cuda()
    made = compiled(network, batch, size, turn) if arguments.compile else None
    turn()
    graphs = [captured(network, batch, size, memory_format) for memory_format in arguments.formats]
    runs = [graph.replay for graph, _ in graphs] + [run for run in [made] if run is not None]
    samples = timing.in_turns({"ours": lambda: our_ms(arguments.lenslet, model, batch, precision),
                                "theirs": lambda: min(map(timing.timed_on_cuda, runs))}, arguments.rounds)  # fmt: skip
    return dict(network=name, precision=precision, batch=batch, lenslet_ms=samples["ours"], pytorch_ms=samples["theirs"],
                ratio=timing.ratio(*samples.values()),
                max_error_over_rms=f"{our_error(arguments.lenslet, model, image, exact, folder, precision):.2e}",
                pytorch_error_over_rms=f"{their_error(network, image, exact):.2e}")  # fmt: skip


def job(arguments, name, batch, parent):
    """In a process of its own: sends None when it is compiled, and when it had its turn a row, or why there is none."""
    set_arithmetic(arguments.precision)
    torch.set_num_threads(1)  # the other processes have the other cores
    with tempfile.TemporaryDirectory() as folder:
        try:
            parent.send(measured(arguments, name, batch, Path(folder), Turn(parent)))
        except Exception as why:  # PyTorch's errors have no common base class
            parent.send(timing.first_line(why) or repr(why))


def in_processes(arguments, jobs):
    """Yields each job's row, or why there is none. All of these are compiled before the first of them is measured."""
    context, started = multiprocessing.get_context("spawn"), []
    for name, batch in jobs:
        ours, theirs = context.Pipe()
        process = context.Process(target=job, args=(arguments, name, batch, theirs), daemon=True)
        process.start()
        theirs.close()
        started.append((process, ours))
    deadline = time.monotonic() + arguments.patience

    def received(process, pipe, seconds, what):
        try:
            if pipe.poll(seconds):
                return pipe.recv()
        except (EOFError, OSError):
            return "its process died"
        process.kill()
        return f"it was not {what} in time"

    failed = [received(*each, max(0, deadline - time.monotonic()), "compiled") for each in started]
    for (process, pipe), why in zip(started, failed):
        if why is None:
            try:
                pipe.send("your turn")
                why = received(process, pipe, arguments.patience, "measured")
            except OSError:
                why = "its process died"
        process.kill()
        process.join()
        yield why


def main():
    parser = timing.options(__doc__, rounds=3)
    parser.add_argument("--networks", type=networks.listed, default=networks.ON_GPU)
    parser.add_argument("--processes", type=int, default=min(32, 2 * os.cpu_count()), help="side by side (%(default)s)")
    parser.add_argument("--patience", type=float, default=600, help="seconds for compiling all, and for measuring one (%(default)s)")
    parser.add_argument("--batches", "--batch", type=timing.numbers, default="1")
    parser.add_argument("--precision", choices=TYPES, default="fp32")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--no-nchw", dest="formats", action="store_const", const=[torch.channels_last],
                        default=[torch.contiguous_format, torch.channels_last], help="PyTorch in channels_last only")  # fmt: skip
    arguments = parser.parse_args()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    formats = "the quicker of NCHW and channels_last" if len(arguments.formats) == 2 else "channels_last"
    results = timing.Results(
        arguments, f"Networks on CUDA, random weights, beside PyTorch {torch.__version__} with cuDNN {torch.backends.cudnn.version()}, "
        f"{formats} in a CUDA graph{' or under torch.compile' * arguments.compile}.", f"Device: {torch.cuda.get_device_name()}.",
        "Milliseconds: median of the rounds, least, greatest. ratio: lenslet / PyTorch.")  # fmt: skip
    jobs = [(name, batch) for name in arguments.networks for batch in arguments.batches]
    for first in range(0, len(jobs), arguments.processes):
        some = jobs[first : first + arguments.processes]
        for (name, batch), row in zip(some, in_processes(arguments, some)):
            if isinstance(row, dict):
                results.add(**row)
            else:
                print(f"{name} at {batch} is left out: {row}", file=sys.stderr)
    return int(len(results.rows) < len(jobs))


if __name__ == "__main__":
    sys.exit(main())
