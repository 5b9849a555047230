#!/usr/bin/env python3
"""The five best classes of photos on the CPU and on a CUDA device: the same, in the same order.

  same_classes.py LENSLET MODEL PHOTO|FOLDER...

Exit status 1 when a photo's classes differ, other than by neighbours whose probabilities are within 1e-4.
"""
import json
import subprocess
import sys


def classify(lenslet, device, rest):
    run = subprocess.run([lenslet, "classify", "--json", "--device", device, "--model", *rest], capture_output=True,
                         text=True)
    if not run.stdout:
        sys.exit(f"classify --device {device}: {run.stderr.strip()}")
    return json.loads(run.stdout)["results"]


def same(cpu, cuda):
    if "error" in cpu or "error" in cuda:
        return cpu.get("error") == cuda.get("error")
    for a, b in zip(cpu["top"], cuda["top"]):
        if a["index"] != b["index"] and abs(a["prob"] - b["prob"]) > 1e-4:
            return False
    return all(abs(a["prob"] - b["prob"]) < 1e-3 for a, b in zip(cpu["top"], cuda["top"]))


def main():
    lenslet, *rest = sys.argv[1:]
    on_cpu, on_cuda = classify(lenslet, "cpu", rest), classify(lenslet, "cuda", rest)
    different = [a["file"] for a, b in zip(on_cpu, on_cuda) if not same(a, b)]
    for name in different:
        print("differs:", name)
    print(f"{len(on_cpu) - len(different)} of {len(on_cpu)} photos have the same five classes on CPU and CUDA")
    sys.exit(1 if different or not on_cpu or len(on_cpu) != len(on_cuda) else 0)


main()
