#!/usr/bin/env python3
"""Writes the networks that bench_cpu_peers.py compares on, as ONNX files with a free batch: torchvision's shapes with
random weights and BatchNormalization statistics that are not the identity.

usage: cpu_networks.py FOLDER [NETWORK...]          files that are there are left alone
Needs the PyPI packages torch, torchvision and onnx.
"""
import sys
from pathlib import Path

import onnx
import torch
import torchvision
from torchvision.ops.misc import SqueezeExcitation

NETWORKS = ("vgg16", "resnet18", "resnet50", "googlenet", "densenet121", "squeezenet1_1", "shufflenet_v2_x1_0", "mobilenet_v2",
            "mobilenet_v3_large", "efficientnet_b0", "efficientnet_lite0")  # fmt: skip


def efficientnet_lite0():
    """EfficientNet-B0 without squeeze-and-excite, with ReLU6 for SiLU."""
    network = torchvision.models.efficientnet_b0(weights=None)
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, SqueezeExcitation):
                setattr(parent, name, torch.nn.Identity())
            elif isinstance(child, torch.nn.SiLU):
                setattr(parent, name, torch.nn.ReLU6())
    return network


def build(name):
    torch.manual_seed(1)
    if name == "efficientnet_lite0":
        network = efficientnet_lite0()
    else:
        extra = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
        network = getattr(torchvision.models, name)(weights=None, **extra)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return network.eval()


def export(name, file):
    torch.onnx.export(build(name), torch.randn(1, 3, 224, 224), str(file), dynamo=False, input_names=["x"], output_names=["y"],
                      dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})  # fmt: skip
    onnx.checker.check_model(str(file))


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or NETWORKS
    if unknown := set(names) - set(NETWORKS):
        sys.exit(f"unknown networks {', '.join(sorted(unknown))} (known: {', '.join(NETWORKS)})")
    for name in names:
        file = folder / f"{name}.onnx"
        if file.exists():
            continue
        half = file.with_suffix(".part")  # a file that was cut off is none
        export(name, half)
        half.rename(file)
        print(file, flush=True)


if __name__ == "__main__":
    main()
