#!/usr/bin/env python3
"""lenslet beside PyTorch + cuDNN on one GPU: whole torchvision networks, one arithmetic, the same weights, in one run.

PyTorch runs as a CUDA graph with cuDNN's exhaustive search (cudnn.benchmark), in NCHW and in channels_last, of which the
faster counts; with --compile also what torch.compile makes of it (channels_last, reduce-overhead). Our time is `lenslet
bench --device cuda`: the network on the device, without the copies of input and output, as PyTorch's is. Rounds
alternate (ours, theirs, ours, theirs ...); the table shows medians, the spread of the rounds, the ratio ours / theirs
(below 1: we are faster), and how far our outputs are from PyTorch's in double.

usage: bench_gpu_peers.py LENSLET [--precision fp16] [--networks resnet50,...] [--batches 1,8] [--rounds 3]
                          [--compile] [--json FILE]
In fp16 and bf16 PyTorch's network and input are of that type; ours reads its input in float32, as the file declares.
Needs PyTorch with CUDA, torchvision, onnx and numpy.
"""
import argparse
import copy
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
import torchvision

from gpu_time import time_run

NETWORKS = "resnet50,mobilenet_v2,squeezenet1_1,vgg16,resnet18"


def size_of(name):
    """Its images' side."""
    return 299 if name == "inception_v3" else 224


def make(name):
    """torchvision's network with random weights, without what only training has."""
    plain = {"aux_logits": False, "init_weights": False} if name in ("inception_v3", "googlenet") else {}
    return torchvision.models.get_model(name, weights=None, **plain).cuda()


def calibrate(network, size):
    """Statistics of the BatchNormalizations from data: without them random weights let activations grow without end."""
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
        network(torch.randn(16, 3, size, size, generator=generator).to(next(network.parameters()).device))
    return network.eval()


TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def compiled(network, batch, size):
    """What runs the network as torch.compile makes it, or None where it cannot."""
    network = copy.deepcopy(network).to(memory_format=torch.channels_last)
    image = torch.randn(batch, 3, size, size, device="cuda", dtype=next(network.parameters()).dtype)
    image = image.contiguous(memory_format=torch.channels_last)
    torch._dynamo.reset()
    made = torch.compile(network, mode="reduce-overhead")

    def run():
        with torch.inference_mode():
            made(image)

    try:
        for _ in range(4):
            run()
    except Exception as error:  # the compiler's errors have no common class
        print(f"torch.compile: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        return None
    return run


def captured(network, batch, size, memory_format):
    """A CUDA graph of the network in this format, and what it reads: a graph keeps no memory alive."""
    network = copy.deepcopy(network).to(memory_format=memory_format)
    image = torch.randn(batch, 3, size, size, device="cuda", dtype=next(network.parameters()).dtype)
    image = image.contiguous(memory_format=memory_format)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.inference_mode():
        for _ in range(4):
            network(image)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.inference_mode():
        output = network(image)
    return graph, (network, image, output)


def our_round(lenslet, model, batch, precision):
    done = subprocess.run([lenslet, "bench", str(model), "--device", "cuda", "--batch", str(batch), "--json",
                           "--precision", precision],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)["results"][0]["device_ms"]["median"]


def our_error(lenslet, model, image, exact, folder, precision):
    numpy.save(folder / "x.npy", image.cpu().numpy())
    done = subprocess.run([lenslet, "run", str(model), "--device", "cuda", "--input", str(folder / "x.npy"),
                           "--output-dir", str(folder), "--precision", precision], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    got = numpy.load(folder / "output.npy").astype(numpy.float64)
    return float(numpy.abs(got - exact).max() / numpy.sqrt((exact ** 2).mean()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lenslet")
    parser.add_argument("--networks", default=NETWORKS)
    parser.add_argument("--batches", "--batch", default="1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=TYPES, default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"{options.precision}")
    print(f"{'network':18} {'batch':>5} {'ours ms':>18} {'PyTorch ms':>20} {'ratio':>6} {'max error / rms':>16}")
    rows = []
    for name in options.networks.split(","):
        torch.manual_seed(1)
        size = size_of(name)
        network = calibrate(make(name), size)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            model = folder / f"{name}.onnx"
            network.cpu()
            torch.onnx.export(network, (torch.randn(1, 3, size, size),), str(model), dynamo=False, opset_version=13,
                              input_names=["input"], output_names=["output"],
                              dynamic_axes={"input": {0: "N"}, "output": {0: "N"}})
            image = torch.randn(1, 3, size, size)
            with torch.inference_mode():
                exact = network.double()(image.double()).numpy()
            network.to(TYPES[options.precision]).cuda()
            error = our_error(options.lenslet, model, image, exact, folder, options.precision)
            for batch in map(int, options.batches.split(",")):
                graphs = [captured(network, batch, size, memory_format)
                          for memory_format in (torch.contiguous_format, torch.channels_last)]
                runs = [graph.replay for graph, _ in graphs]
                if options.compile and (made := compiled(network, batch, size)) is not None:
                    runs.append(made)
                ours, theirs = [], []
                for _ in range(options.rounds):
                    ours.append(our_round(options.lenslet, model, batch, options.precision))
                    theirs.append(min(map(time_run, runs)))
                row = {"network": name, "batch": batch, "ours_ms": ours, "pytorch_ms": theirs,
                       "ratio": statistics.median(ours) / statistics.median(theirs), "error": error}
                rows.append(row)
                spread = [f"{statistics.median(t):.3f} ({min(t):.3f}-{max(t):.3f})" for t in (ours, theirs)]
                print(f"{name:18} {batch:5} {spread[0]:>18} {spread[1]:>20} {row['ratio']:6.2f} {error:16.2e}", flush=True)
                del graphs, runs
                torch.cuda.empty_cache()
        del network
        torch.cuda.empty_cache()
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
