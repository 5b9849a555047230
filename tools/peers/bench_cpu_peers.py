#!/usr/bin/env python3
"""docs/results/cpu-networks-*.csv: eleven networks on the CPU, lenslet beside ONNX Runtime, OpenVINO, ncnn, ExecuTorch
(XNNPACK) and MNN.

usage: bench_cpu_peers.py LENSLET [--folder build/cpu-peers] [--networks NAME,...] [--settings 1x1,2x1,2x8]
                          [--precision fp32|int8] [--rounds 5] [--seconds 0.25] [--csv FILE] [--json FILE]

A setting is threads x batch. The first call makes FOLDER/venv with the peers from PyPI (including torch, which exports
the networks: some GB) and FOLDER/networks (cpu_networks.py); later ones reuse both. Rounds alternate between all
runtimes (bench_peers.py has the details and settings). ratio is ours / the quickest peer's, below 1: we are faster. The
table is FOLDER/results.csv unless --csv names a file; plot_ratios.py draws it from docs/results.

int8: the networks as ONNX Runtime's static quantiser writes them (uint8 activations, int8 weights per channel), as QDQ
and as QOperator. Each runtime runs both forms; ratio is ours with QDQ / the quickest peer's with either. ExecuTorch runs
the networks as XNNPACK's quantiser makes them. MNN is left out: its converter does not take such files.
"""
import os
import subprocess
import sys
import venv
from pathlib import Path

import timing
import networks

HERE = Path(__file__).resolve().parent
PACKAGES = ("numpy", "onnx", "onnxruntime", "openvino", "ncnn", "pnnx", "torch", "torchvision", "executorch", "mnn")
PEERS = ("onnxruntime", "openvino", "ncnn", "executorch", "mnn")


def in_own_environment(folder, script=__file__):
    """Restarts `script` with the Python of FOLDER/venv, which has the packages; does nothing if this is that Python."""
    environment = folder / "venv"
    if Path(sys.prefix).resolve() == environment.resolve():
        return
    done = environment / "installed"
    if not done.exists():
        print(f"installing {', '.join(PACKAGES)} into {environment}", flush=True)
        venv.create(environment, with_pip=True, clear=True)
        subprocess.run([environment / "bin/pip", "install", "-q", "--no-input", *PACKAGES], check=True)
        done.touch()
    path = f"{environment / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"  # pnnx is a program
    os.execve(environment / "bin/python", ["python", script, *sys.argv[1:]], {**os.environ, "PATH": path})


def options(description, **defaults):
    """Options shared with bench_start.py."""
    parser = timing.options(description, **defaults)
    parser.add_argument("--folder", type=Path, default=Path("build/cpu-peers"))
    parser.add_argument("--networks", type=timing.words, default=networks.CLASSIC)
    return parser


def prepared(arguments, script):
    """Runs in the environment with the peers and returns (name, file) of the networks, exporting missing ones."""
    folder = arguments.folder.absolute()
    in_own_environment(folder, script)
    files = [(name, folder / "networks" / f"{name}.onnx") for name in arguments.networks]
    if missing := [name for name, file in files if not file.exists()]:
        subprocess.run([sys.executable, HERE / "cpu_networks.py", folder / "networks", *missing], check=True)
    return files


def pairs(text):
    return [tuple(map(int, setting.split("x"))) for setting in text.split(",")]


def main():
    parser = options(__doc__, rounds=5, seconds=0.25)
    parser.add_argument("--settings", default="1x1,2x1,2x8", type=pairs)
    parser.add_argument("--precision", choices=("fp32", "int8"), default="fp32")
    arguments = parser.parse_args()
    if any(len(setting) != 2 or min(setting) < 1 for setting in arguments.settings):
        parser.error("a setting is threads x batch, as 2x8")
    files = prepared(arguments, __file__)

    import bench_peers

    arguments.peers, arguments.csv = PEERS, arguments.csv or arguments.folder / "results.csv"
    models = [(name, {"": file}, None) for name, file in files]
    if arguments.precision == "int8":
        import quantized_networks

        arguments.peers = ("onnxruntime", "openvino", "executorch")
        models = [(name, quantized_networks.forms_of(file), None) for name, file in files]
    results = bench_peers.results_of(arguments, f"{len(files)} networks of torchvision", arguments.precision)
    return bench_peers.measure(arguments, results, models, arguments.settings)


if __name__ == "__main__":
    sys.exit(main())
