#!/usr/bin/env python3
"""Classifies the photos of a folder with Spark: on this machine, or by spark-submit on a cluster.

    python samples/spark_batch.py FOLDER [--model NET.onnx] [--output FOLDER]

The default model comes from `lenslet fetch`. On a cluster, every machine needs folder and model at these paths. Needs
lenslet, pyspark, pyarrow, pandas below 3, and Java 17. docs/scale-out.md says when this pays.
"""

import argparse
import os
import sys

# The workers use this Python.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

import lenslet
import lenslet.spark


def main():
    parser = argparse.ArgumentParser(description="Says what is on the photos of a folder, with Spark.")
    parser.add_argument("folder")
    parser.add_argument("--model", help="an ONNX file; default: the default model")
    parser.add_argument("--card", help="how photos are prepared; default: the model's card")
    parser.add_argument("--output", metavar="FOLDER", help="writes Parquet there instead of lines to stdout")
    arguments = parser.parse_args()
    model = os.path.abspath(arguments.model or lenslet.default_model())
    card = os.path.abspath(arguments.card) if arguments.card else None

    builder = SparkSession.builder.appName("photos to classes")
    if "SPARK_ENV_LOADED" not in os.environ:  # not started by spark-submit: a task for each core
        builder = builder.master(f"local[{len(os.sched_getaffinity(0))},4]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.log.level", "ERROR").config("spark.ui.showConsoleProgress", "false")
    # 10,000 rows, Spark's default, would be a gigabyte of photos at once in each worker.
    spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "64").getOrCreate()
    try:
        photos = spark.read.format("binaryFile").load(os.path.abspath(arguments.folder))
        found = photos.select("path", lenslet.spark.predict_udf(model, card)("content").alias("found"))
        found = found.select("path", "found.classes", "found.error")
        if arguments.output:
            found.write.parquet(os.path.abspath(arguments.output))
            return
        for row in found.toLocalIterator():
            best = row.error or "{prob:.4f}\t{index}\t{label}".format(**row.classes[0].asDict())
            print(f"{row.path}\t{best}")
    finally:
        spark.stop()


if __name__ == "__main__":
    try:
        main()
    except lenslet.Error as error:
        sys.exit(f"spark_batch: error: {error}")
