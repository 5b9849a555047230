#!/usr/bin/env python3
"""lenslet beside PyTorch + cuDNN on one GPU: whole torchvision networks, one precision, the same weights, in one run.

PyTorch runs as a CUDA graph with cuDNN's exhaustive search (cudnn.benchmark), in NCHW and in channels_last, and under
torch.compile (channels_last, reduce-overhead; --no-compile leaves it out); the fastest counts. Our time is `lenslet
bench --device cuda`: the network on the device, without the copies of input and output, as PyTorch's is. Rounds
alternate (ours, theirs, ours, theirs ...); the table shows medians, the spread of the rounds, the ratio ours / theirs
(below 1: we are faster), and how far our outputs are from PyTorch's in double.

usage: bench_gpu_peers.py LENSLET [--precision fp16] [--networks resnet50,...] [--batches 1,8] [--rounds 3]
                          [--no-compile] [--csv FILE] [--json FILE]
In fp16 and bf16 PyTorch's network and input are of that type; ours reads its input in float32, as the file declares.
Needs PyTorch with CUDA, torchvision, onnx and numpy, and timm for networks named timm/NAME.
"""
import copy
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


def our_error(lenslet, model, image, exact, folder, precision):
    numpy.save(folder / "x.npy", image.cpu().numpy())
    timing.checked([lenslet, "run", model, "--device", "cuda", "--input", folder / "x.npy", "--output-dir", folder,
                     "--precision", precision])  # fmt: skip
    got = numpy.load(folder / "output.npy").astype(numpy.float64)
    return float(numpy.abs(got - exact).max() / numpy.sqrt((exact**2).mean()))


def in_turns(arguments, network, model, batch, size):
    graphs = [captured(network, batch, size, memory_format)
              for memory_format in (torch.contiguous_format, torch.channels_last)]  # fmt: skip
    runs = [graph.replay for graph, _ in graphs]
    if arguments.compile and (made := compiled(network, batch, size)) is not None:
        runs.append(made)
    return timing.in_turns({"ours": lambda: our_ms(arguments.lenslet, model, batch, arguments.precision),
                             "theirs": lambda: min(map(timing.timed_on_cuda, runs))}, arguments.rounds).values()  # fmt: skip


def measure(arguments, name, results):
    torch.manual_seed(1)
    size, precision = networks.size_of(name), arguments.precision
    network = calibrate(networks.torchvision_network(name).cuda(), size)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = folder / f"{Path(name).name}.onnx"
        network.cpu()
        torch.onnx.export(network, (torch.randn(1, 3, *size),), str(model), dynamo=False, opset_version=13, input_names=["input"],
                          output_names=["output"], dynamic_axes={"input": {0: "N"}, "output": {0: "N"}})  # fmt: skip
        image = torch.randn(1, 3, *size)
        with torch.inference_mode():
            exact = network.double()(image.double()).numpy()
        network.to(TYPES[precision]).cuda()
        error = our_error(arguments.lenslet, model, image, exact, folder, precision)
        for batch in arguments.batches:
            ours, theirs = in_turns(arguments, network, model, batch, size)
            results.add(network=name, precision=precision, batch=batch, lenslet_ms=ours, pytorch_ms=theirs,
                        ratio=timing.ratio(ours, theirs), max_error_over_rms=f"{error:.2e}")  # fmt: skip
            torch.cuda.empty_cache()


def main():
    parser = timing.options(__doc__, rounds=3)
    parser.add_argument("--networks", type=timing.words, default=networks.ON_GPU)
    parser.add_argument("--batches", "--batch", type=timing.numbers, default="1")
    parser.add_argument("--precision", choices=TYPES, default="fp32")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = arguments.precision == "tf32"
    results = timing.Results(
        arguments, f"Networks on CUDA, random weights, beside PyTorch {torch.__version__} with cuDNN {torch.backends.cudnn.version()}, "
        f"the quickest of NCHW and channels_last in a CUDA graph{' and torch.compile' * arguments.compile}.", f"Device: {torch.cuda.get_device_name()}.",
        "Milliseconds: median of the rounds, least, greatest. ratio: lenslet / PyTorch.")  # fmt: skip
    try:
        for name in arguments.networks:
            measure(arguments, name, results)
            torch.cuda.empty_cache()
    except timing.Refused as why:
        return str(why)
    return 0


if __name__ == "__main__":
    sys.exit(main())
