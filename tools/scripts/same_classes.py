#!/usr/bin/env python3
"""Checks that the five best classes of photos are the same on the CPU and on a CUDA device, in the same order.

  same_classes.py [--precision fp16] LENSLET MODEL PHOTO|FOLDER...

Exit status 1 if a photo's classes differ, except in the order of neighbours whose probabilities are within 1e-4. With a
lower precision (the CPU still computes in fp32) the best class must be the same if it is ahead of the second by more
than 0.05.
"""
import argparse
import json
import subprocess
import sys

MARGIN = 0.05


def classify(lenslet, options):
    run = subprocess.run([lenslet, "classify", "--json", *options], capture_output=True, text=True)
    if not run.stdout:
        sys.exit(f"classify {' '.join(options[:2])}: {run.stderr.strip()}")
    return json.loads(run.stdout)["results"]


def same(cpu, cuda):
    for a, b in zip(cpu["top"], cuda["top"]):
        if a["index"] != b["index"] and abs(a["prob"] - b["prob"]) > 1e-4:
            return False
    return all(abs(a["prob"] - b["prob"]) < 1e-3 for a, b in zip(cpu["top"], cuda["top"]))


def same_best(cpu, cuda):
    best, second = cpu["top"][:2]
    return best["prob"] - second["prob"] <= MARGIN or best["index"] == cuda["top"][0]["index"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lenslet")
    parser.add_argument("model")
    parser.add_argument("photos", nargs="+")
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    rest = ["--model", options.model, *options.photos]
    on_cpu = classify(options.lenslet, ["--device", "cpu", *rest])
    on_cuda = classify(options.lenslet, ["--device", "cuda", "--precision", options.precision, *rest])
    holds, what = (same, "five classes") if options.precision == "fp32" else (same_best, "best class")
    different = [a["file"] for a, b in zip(on_cpu, on_cuda)
                 if (a.get("error") != b.get("error") if "error" in a or "error" in b else not holds(a, b))]
    for name in different:
        print("differs:", name)
    print(f"{len(on_cpu) - len(different)} of {len(on_cpu)} photos have the same {what} on CPU and CUDA")
    sys.exit(1 if different or not on_cpu or len(on_cpu) != len(on_cuda) else 0)


main()
