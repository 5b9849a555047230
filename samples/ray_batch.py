#!/usr/bin/env python3
"""Classifies the photos of a folder with Ray Data: on this machine, or on the cluster that RAY_ADDRESS names.

    python samples/ray_batch.py FOLDER [--model NET.onnx] [--output FOLDER]

The default model comes from `lenslet fetch`. On a cluster, every machine needs folder and model at these paths. Needs
lenslet, ray, pyarrow and pandas. docs/scale-out.md says when this pays.
"""

import argparse
import logging
import os
import sys

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import ray.data

import lenslet
import lenslet.ray


def main():
    parser = argparse.ArgumentParser(description="Says what is on the photos of a folder, with Ray Data.")
    parser.add_argument("folder")
    parser.add_argument("--model", help="an ONNX file; default: the default model")
    parser.add_argument("--card", help="how photos are prepared; default: the model's card")
    parser.add_argument("--output", metavar="FOLDER", help="writes Parquet there instead of lines to stdout")
    arguments = parser.parse_args()
    model = os.path.abspath(arguments.model or lenslet.default_model())
    card = os.path.abspath(arguments.card) if arguments.card else None

    if "RAY_ADDRESS" in os.environ:
        ray.init()
    else:
        ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="error")
    logging.getLogger("ray.data").setLevel(logging.WARNING)

    # A worker with one thread for each core. Each reserves 0.9 of its core, which leaves some for the tasks that read:
    # workers with whole cores would wait forever for pictures.
    cores = int(ray.cluster_resources()["CPU"])
    photos = ray.data.read_binary_files(os.path.abspath(arguments.folder), include_paths=True, num_cpus=0.1)
    found = photos.map_batches(
        lenslet.ray.Predictor,
        fn_constructor_kwargs={"model": model, "card": card},
        batch_size=32,
        num_cpus=0.9,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=cores),
    )
    if arguments.output:
        found.write_parquet(os.path.abspath(arguments.output))
        return
    for row in found.iter_rows():
        best = row["error"] or "{prob:.4f}\t{index}\t{label}".format(**row["classes"][0])
        print(f"{row['path']}\t{best}")


if __name__ == "__main__":
    try:
        main()
    except lenslet.Error as error:
        sys.exit(f"ray_batch: error: {error}")
