#!/usr/bin/env python3
"""Runs ONNX's own onnx.backend.test.runner over lenslet.backend and counts, as JSON.

    onnx_runner.py [--device CPU] [--only REGEX]

{"onnx": version, "cases": [{"suite": "node", "case": "test_relu", "status": "passed", "reason": ""} ...]}. A status is
passed, failed, or skipped, with lenslet's reason for refusing. Exit code 1 if a case failed. Nothing is downloaded: the
networks among the cases are those in the package. Needs lenslet and onnx.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import types
import unittest
import warnings
from unittest import mock

SUITES = {"Node": "node", "Real": "light", "Simple": "simple", "PyTorchConverted": "pytorch-converted",
          "PyTorchOperator": "pytorch-operator"}  # fmt: skip


class _Listed(unittest.TestResult):
    def __init__(self, device):
        super().__init__()
        self._device = device
        self.cases = []

    def _add(self, test, status, reason=""):
        suite = SUITES[re.fullmatch(r"OnnxBackend(\w+)ModelTest", type(test).__name__)[1]]
        case = test._testMethodName
        ending = f"_{self._device.lower()}"
        if case.endswith(ending) and not reason.startswith(("no matched include", "matched exclude")):
            self.cases.append({"suite": suite, "case": case[: -len(ending)], "status": status, "reason": reason})

    def addSuccess(self, test):
        self._add(test, "passed")

    def addSkip(self, test, reason):
        self._add(test, "skipped", reason)

    def addFailure(self, test, error):
        self._add(test, "failed", f"{error[0].__name__}: {error[1]}")

    addError = addFailure


def run(backend, device="CPU", only=""):
    """The cases whose name contains `only`, as printed by main(). `backend` is a module or a class."""
    import onnx.backend.test

    with tempfile.TemporaryDirectory(prefix="lenslet-onnx-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases overflow on purpose
        with mock.patch.dict(os.environ, ONNX_MODELS=folder):  # the runner's folder for output
            tests = onnx.backend.test.BackendTest(backend, __name__)
            tests.include(f"{only}.*_{device.lower()}$")
            listed = _Listed(device)
            tests.test_suite.run(listed)
    return listed.cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="CPU", choices=("CPU", "CUDA"))
    parser.add_argument("--only", default="", metavar="REGEX")
    arguments = parser.parse_args()
    import onnx
    from lenslet import backend

    if not backend.supports_device(arguments.device):
        sys.exit(f"lenslet cannot use {arguments.device} here")
    # Without is_compatible(), which gives no reason: prepare() refuses the same, with the reason.
    reasoned = types.SimpleNamespace(prepare=backend.prepare, supports_device=backend.supports_device)
    cases = run(reasoned, arguments.device, arguments.only)
    json.dump({"onnx": onnx.__version__, "device": arguments.device, "cases": cases}, sys.stdout, indent=1)
    print()
    return 1 if any(case["status"] == "failed" for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
