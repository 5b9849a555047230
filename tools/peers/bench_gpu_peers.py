#!/usr/bin/env python3
"""lenslet beside PyTorch + cuDNN on one GPU: whole torchvision networks, one precision, the same weights, in one run.

PyTorch runs as a CUDA graph with cuDNN's exhaustive search (cudnn.benchmark), in NCHW and in channels_last, and under
torch.compile (channels_last, reduce-overhead; --no-compile leaves it out); the fastest counts. Our time is `lenslet
bench --device cuda`: the network on the device, without the copies of input and output, as PyTorch's is. Rounds
alternate (ours, theirs, ours, theirs ...); the table shows medians, the spread of the rounds, the ratio ours / theirs
(below 1: we are faster), and how far our outputs and PyTorch's are from PyTorch's in double.

usage: bench_gpu_peers.py LENSLET [--precision fp16] [--networks resnet50,...] [--batches 1,8] [--rounds 3]
                          [--processes 16] [--no-compile] [--csv FILE] [--json FILE]
Networks are torchvision's, timm/NAME, or a list of networks.py (CLASSIFICATION, TIMM). First --processes of them at a
time are exported and compiled, which fills torch.compile's cache; then they are measured one by one. One that PyTorch
or lenslet refuses is named and left out.
In fp16 and bf16 PyTorch's network and input are of that type; ours reads its input in float32, as the file declares.
Needs PyTorch with CUDA, torchvision, onnx and numpy, and timm for its networks.
"""
import concurrent.futures
import copy
import multiprocessing
import os
import sys
import tempfile
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


TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def compiled(network, batch, size):
    """The network under torch.compile, or None if that fails."""
    network = copy.deepcopy(network).to(memory_format=torch.channels_last)
    image = torch.randn(batch, 3, *size, device="cuda", dtype=next(network.parameters()).dtype)
    image = image.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        network(image)  # what a network keeps between calls (attention biases) must not lie in a graph
    torch._dynamo.reset()
    made = torch.compile(network, mode="reduce-overhead")

    def run():
        with torch.inference_mode():
            made(image)

    try:
        for _ in range(4):
            run()
    except Exception as error:  # the compiler's errors have no common base class
        print(f"torch.compile: {str(error).splitlines()[0][:100]}", file=sys.stderr)
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
    found = timing.lenslet(lenslet, "bench", model, "--device", "cuda", "--batch", batch, "--precision", precision)
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


def file_of(folder, name, ending):
    return folder / f"{Path(name).name}.{ending}"


def prepare(name, arguments, folder):
    """In a process of its own: writes the weights, the ONNX file, an image and its exact result, and compiles."""
    set_arithmetic(arguments.precision)
    torch.manual_seed(1)
    size = networks.size_of(name)
    network = calibrate(networks.torchvision_network(name).cuda(), size).cpu()
    torch.onnx.export(network, (torch.randn(1, 3, *size),), str(file_of(folder, name, "onnx")), dynamo=False, opset_version=17,
                      input_names=["input"], output_names=["output"], dynamic_axes={"input": {0: "N"}, "output": {0: "N"}})  # fmt: skip
    image = torch.randn(1, 3, *size)
    with torch.inference_mode():
        exact = network.double().cuda()(image.double().cuda()).cpu().numpy()
    torch.save((network.float().cpu().state_dict(), image, exact), file_of(folder, name, "pt"))
    network.to(TYPES[arguments.precision]).cuda()
    for batch in arguments.batches if arguments.compile else ():
        compiled(network, batch, size)


def prepared(arguments, folder):
    """The networks that could be prepared, in order."""
    with concurrent.futures.ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as pool:
        waits = {name: pool.submit(prepare, name, arguments, folder) for name in arguments.networks}
    failed = {name: wait.exception() for name, wait in waits.items() if wait.exception() is not None}
    for name, why in failed.items():
        print(f"{name} is left out: {timing.first_line(why)}", file=sys.stderr)
    return [name for name in waits if name not in failed]


def in_turns(arguments, network, model, batch, size):
    graphs = [captured(network, batch, size, memory_format)
              for memory_format in (torch.contiguous_format, torch.channels_last)]  # fmt: skip
    runs = [graph.replay for graph, _ in graphs]
    if arguments.compile and (made := compiled(network, batch, size)) is not None:
        runs.append(made)
    return timing.in_turns({"ours": lambda: our_ms(arguments.lenslet, model, batch, arguments.precision),
                             "theirs": lambda: min(map(timing.timed_on_cuda, runs))}, arguments.rounds).values()  # fmt: skip


def measure(arguments, name, folder, results):
    size, precision, model = networks.size_of(name), arguments.precision, file_of(folder, name, "onnx")
    state, image, exact = torch.load(file_of(folder, name, "pt"), weights_only=False)
    network = networks.torchvision_network(name).eval()
    network.load_state_dict(state)
    network.to(TYPES[precision]).cuda()
    errors = our_error(arguments.lenslet, model, image, exact, folder, precision), their_error(network, image, exact)
    for batch in arguments.batches:
        ours, theirs = in_turns(arguments, network, model, batch, size)
        results.add(network=name, precision=precision, batch=batch, lenslet_ms=ours, pytorch_ms=theirs,
                    ratio=timing.ratio(ours, theirs), max_error_over_rms=f"{errors[0]:.2e}",
                    pytorch_error_over_rms=f"{errors[1]:.2e}")  # fmt: skip
        torch.cuda.empty_cache()


def main():
    parser = timing.options(__doc__, rounds=3)
    parser.add_argument("--networks", type=networks.listed, default=networks.ON_GPU)
    parser.add_argument("--processes", type=int, default=min(16, os.cpu_count()), help="that prepare (%(default)s)")
    parser.add_argument("--batches", "--batch", type=timing.numbers, default="1")
    parser.add_argument("--precision", choices=TYPES, default="fp32")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    arguments = parser.parse_args()
    set_arithmetic(arguments.precision)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, os.cpu_count() // arguments.processes)))
    results = timing.Results(
        arguments, f"Networks on CUDA, random weights, beside PyTorch {torch.__version__} with cuDNN {torch.backends.cudnn.version()}, "
        f"the quickest of NCHW and channels_last in a CUDA graph{' and torch.compile' * arguments.compile}.", f"Device: {torch.cuda.get_device_name()}.",
        "Milliseconds: median of the rounds, least, greatest. ratio: lenslet / PyTorch.")  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in prepared(arguments, folder):  # all first: nothing else runs while one is timed
            try:
                measure(arguments, name, folder, results)
            except timing.Refused as why:
                print(f"{name} is left out: {why}", file=sys.stderr)
            torch.cuda.empty_cache()
    return int(len(results.rows) < len(arguments.networks) * len(arguments.batches))


if __name__ == "__main__":
    sys.exit(main())
