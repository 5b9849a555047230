#!/usr/bin/env python3
"""Writes the networks that bench_cpu_peers.py compares on, as ONNX files with a free batch: torchvision's shapes with
random weights and BatchNormalization statistics that are not the identity.

usage: cpu_networks.py FOLDER [NETWORK...] existing files are kept CLASSIC of networks.py when none is named. Needs the
PyPI packages torch, torchvision and onnx.
"""
import sys
from pathlib import Path

import onnx
import torch
import torchvision
from torchvision.ops.misc import SqueezeExcitation

from networks import CLASSIC, OTHERS, size_of, torchvision_network


class Branches(torch.nn.Module):
    """Two branches whose channels are concatenated."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return torch.cat([self.first(x), self.second(x)], 1)


class Residual(torch.nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def convolution(c, k, r=3, stride=1, activation=torch.nn.SiLU):
    return torch.nn.Sequential(torch.nn.Conv2d(c, k, r, stride, r // 2, bias=False), torch.nn.BatchNorm2d(k), activation())


def yolo():
    """A backbone of cross-stage blocks with SiLU, as in detectors, to stride 32."""

    def stage(c, blocks):
        deep = [Residual(convolution(c // 2, c // 2, 1), convolution(c // 2, c // 2)) for _ in range(blocks)]
        return [Branches(torch.nn.Sequential(convolution(c, c // 2, 1), *deep), convolution(c, c // 2, 1)), convolution(c, c, 1)]

    layers = [convolution(3, 24, 6, 2)]
    for c, blocks in ((24, 1), (48, 2), (96, 3), (192, 1)):
        layers += [convolution(c, 2 * c, 3, 2), *stage(2 * c, blocks)]
    return torch.nn.Sequential(*layers)


def unet(c=24, depth=4):
    """Encoder and decoder with a skip at each of four scales; transposed convolutions for upsampling."""
    inner = torch.nn.Sequential(convolution(c << (depth - 1), c << depth), convolution(c << depth, c << depth))
    for level in reversed(range(depth)):
        k, source = c << level, c << (level - 1) if level else 3
        down = torch.nn.Sequential(convolution(source, k, activation=torch.nn.ReLU), convolution(k, k, activation=torch.nn.ReLU))
        below = torch.nn.Sequential(torch.nn.MaxPool2d(2), inner, torch.nn.ConvTranspose2d(2 * k, k, 2, 2))
        inner = torch.nn.Sequential(down, Branches(torch.nn.Identity(), below), convolution(2 * k, k), convolution(k, k))
    return torch.nn.Sequential(inner, torch.nn.Conv2d(c, 2, 1))


def espcn():
    """Super-resolution by 3: Shi et al., 2016."""
    return torch.nn.Sequential(torch.nn.Conv2d(3, 64, 5, padding=2), torch.nn.Tanh(), torch.nn.Conv2d(64, 32, 3, padding=1),
                               torch.nn.Tanh(), torch.nn.Conv2d(32, 27, 3, padding=1), torch.nn.PixelShuffle(3))  # fmt: skip


class OneOutput(torch.nn.Module):
    """Returns only a segmentation network's logits."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x)["out"]


def efficientnet_lite0():
    """EfficientNet-B0 without squeeze-and-excite, with ReLU6 in place of SiLU."""
    network = torchvision.models.efficientnet_b0(weights=None)
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, SqueezeExcitation):
                setattr(parent, name, torch.nn.Identity())
            elif isinstance(child, torch.nn.SiLU):
                setattr(parent, name, torch.nn.ReLU6())
    return network


OWN = {"efficientnet_lite0": efficientnet_lite0, "yolo": yolo, "unet": unet, "espcn": espcn}


def build(name):
    torch.manual_seed(1)
    network = OWN[name]() if name in OWN else torchvision_network(name)
    if name == "lraspp":
        network = OneOutput(network)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return network.eval()


def export(name, file):
    torch.onnx.export(build(name), torch.randn(1, 3, *size_of(name)), str(file), dynamo=False, input_names=["x"],
                      output_names=["y"], dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})  # fmt: skip
    onnx.checker.check_model(str(file))


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or CLASSIC
    known = (*CLASSIC, *OTHERS)
    if unknown := set(names) - set(known):
        sys.exit(f"unknown networks {', '.join(sorted(unknown))} (known: {', '.join(known)})")
    for name in names:
        file = folder / f"{name}.onnx"
        if file.exists():
            continue
        half = file.with_suffix(".part")  # avoids truncated files
        export(name, half)
        half.rename(file)
        print(file, flush=True)


if __name__ == "__main__":
    main()
