#!/usr/bin/env python3
"""Writes the node cases of the installed `onnx` package as folders that `lenslet check` takes.

    write_onnx_cases.py FOLDER [--only REGEX]

A case becomes FOLDER/NAME/model.onnx and FOLDER/NAME/test_data_set_K/{input,output}_I.pb. The package makes its cases
in memory (onnx.backend.test.loader); those that it would download are no node cases. Inputs and outputs that are
sequences or optionals are left out of the folder, so that `check` says what the model needs. Needs onnx.
"""

import argparse
import pathlib
import re
import sys

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests


def write_values(folder, kind, values, infos):
    for i, (value, info) in enumerate(zip(values, infos)):
        if isinstance(value, onnx.TensorProto):
            tensor = value
        elif isinstance(value, (numpy.ndarray, numpy.generic)):
            tensor = numpy_helper.from_array(numpy.asarray(value), info.name)
        else:
            continue
        tensor.name = info.name
        (folder / f"{kind}_{i}.pb").write_bytes(tensor.SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="REGEX")
    arguments = parser.parse_args()
    written = 0
    for case in load_model_tests(kind="node"):
        if case.model is None or not re.search(arguments.only, case.name):
            continue
        folder = arguments.folder / case.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(case.model.SerializeToString())
        for k, (inputs, outputs) in enumerate(case.data_sets or []):
            data = folder / f"test_data_set_{k}"
            data.mkdir(exist_ok=True)
            write_values(data, "input", inputs, case.model.graph.input)
            write_values(data, "output", outputs, case.model.graph.output)
        written += 1
    if written == 0:
        sys.exit("no case has such a name")
    print(f"onnx {onnx.__version__}: {written} cases in {arguments.folder}")


if __name__ == "__main__":
    main()
