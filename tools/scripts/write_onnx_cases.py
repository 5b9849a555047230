#!/usr/bin/env python3
"""Writes the backend cases of the installed `onnx` package as folders that `lenslet check` takes.

    write_onnx_cases.py FOLDER [--only REGEX]

A case becomes FOLDER/SUITE/NAME/model.onnx and FOLDER/SUITE/NAME/test_data_set_K/{input,output}_I.pb. The suites are

  node      made in memory by onnx.backend.test.loader. Inputs and outputs that are sequences or optionals are left out
            of the folder, so that `check` says what the model needs.
  light     graphs of known networks whose weights are computed from their shapes; the input counts from 0 up to 1, as
            onnx.backend.test.runner makes it.
  simple, pytorch-converted, pytorch-operator   copied out of the package.

Needs onnx.
"""

import argparse
import pathlib
import re
import shutil
import sys
import warnings

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

DATA = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
COPIED = ("simple", "pytorch-converted", "pytorch-operator")


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


def write_node(folder, case):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for k, (inputs, outputs) in enumerate(case.data_sets or []):
        data = folder / f"test_data_set_{k}"
        data.mkdir(exist_ok=True)
        write_values(data, "input", inputs, case.model.graph.input)
        write_values(data, "output", outputs, case.model.graph.output)


def write_light(folder, file):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / "model.onnx")
    graph = onnx.load(file).graph
    held = {tensor.name for tensor in graph.initializer}
    ports = [port for port in graph.input if port.name not in held]
    values = []
    for port in ports:
        dims = [dim.dim_value or 1 for dim in port.type.tensor_type.shape.dim]
        count = numpy.prod(dims)
        values.append((numpy.arange(count).reshape(dims) / count).astype(numpy.float32))
    write_values(data, "input", values, ports)
    for i in range(len(graph.output)):
        shutil.copyfile(file.with_name(f"{file.stem}_output_{i}.pb"), data / f"output_{i}.pb")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="REGEX")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # some cases overflow on purpose
    written = 0

    def wanted(suite, name):
        nonlocal written
        found = bool(re.search(arguments.only, name))
        written += found
        return arguments.folder / suite / name if found else None

    for case in load_model_tests(kind="node"):
        if case.model is not None and (folder := wanted("node", case.name)):
            write_node(folder, case)
    for file in sorted((DATA / "light").glob("*.onnx")):
        if folder := wanted("light", file.stem):
            write_light(folder, file)
    for suite in COPIED:
        for case in sorted((DATA / suite).glob("*/model.onnx")):
            if folder := wanted(suite, case.parent.name):
                shutil.copytree(case.parent, folder, dirs_exist_ok=True)
    if written == 0:
        sys.exit("no case has such a name")
    print(f"onnx {onnx.__version__}: {written} cases in {arguments.folder}")


if __name__ == "__main__":
    main()
