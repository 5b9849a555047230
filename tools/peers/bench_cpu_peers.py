#!/usr/bin/env python3
"""docs/results/cpu-networks-*.csv: eleven networks on the CPU, lenslet beside ONNX Runtime, OpenVINO and ncnn.

usage: bench_cpu_peers.py LENSLET [--folder build/cpu-peers] [--networks NAME,...] [--settings 1x1,2x1,2x8]
                          [--rounds 5] [--seconds 0.25]

A setting is threads x batch. The first call makes FOLDER/venv with the peers from PyPI (torch among them, which exports
the networks: some GB) and FOLDER/networks (cpu_networks.py); later ones use what is there. Rounds alternate between all
runtimes (bench_peers.py says how, and what each is set to). Printed are the quickest peer's median / ours for each
network, above 1: we are faster; FOLDER/results.csv has all medians with their spread, FOLDER/results.png is the plot.
"""
import argparse
import csv
import math
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = ("numpy", "onnx", "onnxruntime", "openvino", "ncnn", "pnnx", "torch", "torchvision", "matplotlib")
PEERS = ("onnxruntime", "openvino", "ncnn")


def in_own_environment(folder, script=__file__):
    """Runs `script` again by the Python of FOLDER/venv, which has the packages; nothing when this is that one."""
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


def measure(arguments, networks, bench_peers):
    """Rows of (network, threads, batch, {runtime: medians of the rounds})."""
    for threads, batch in arguments.settings:
        options = argparse.Namespace(lenslet=arguments.lenslet, peers=PEERS, batch=batch, rounds=arguments.rounds,
                                     seconds=arguments.seconds)  # fmt: skip
        for network in networks:
            with tempfile.TemporaryDirectory() as scratch:
                model = arguments.folder / "networks" / f"{network}.onnx"
                rounds, refused = bench_peers.all_rounds(options, model, None, threads, Path(scratch))
            for peer, why in refused.items():
                print(f"  {network}: {peer}: {why}")
            rounds["lenslet"] = rounds.pop(None)
            yield network, threads, batch, rounds


def ratio(rounds):
    """The quickest peer's time / ours."""
    medians = {name: statistics.median(times) for name, times in rounds.items()}
    return min(ms for name, ms in medians.items() if name != "lenslet") / medians["lenslet"]


def write_csv(file, rows):
    with open(file, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["network", "threads", "batch", "runtime", "median_ms", "least_ms", "most_ms"])
        for network, threads, batch, rounds in rows:
            for runtime, times in rounds.items():
                spread = (statistics.median(times), min(times), max(times))
                writer.writerow([network, threads, batch, runtime, *(f"{ms:.4f}" for ms in spread)])


def plot(file, rows, settings):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot

    networks = list(dict.fromkeys(row[0] for row in rows))
    figure, axes = matplotlib.pyplot.subplots(figsize=(9, 0.55 * len(networks) + 1.5))
    height = 0.8 / len(settings)
    for i, (threads, batch) in enumerate(settings):
        ratios = {row[0]: ratio(row[3]) for row in rows if row[1:3] == (threads, batch)}
        places = [n + (i - (len(settings) - 1) / 2) * height for n, name in enumerate(networks) if name in ratios]
        axes.barh(places, [ratios[name] for name in networks if name in ratios], height,
                  label=f"{threads} thread{'s' * (threads > 1)}, batch {batch}")  # fmt: skip
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(networks)), networks)
    axes.invert_yaxis()
    axes.set_xlabel("time of the quickest of ONNX Runtime, OpenVINO and ncnn / time of lenslet")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def pairs(text):
    return [tuple(map(int, setting.split("x"))) for setting in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lenslet")
    parser.add_argument("--folder", type=Path, default=Path("build/cpu-peers"))
    parser.add_argument("--networks", type=lambda names: names.split(","))
    parser.add_argument("--settings", default="1x1,2x1,2x8", type=pairs)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.25)
    arguments = parser.parse_args()
    if any(len(setting) != 2 or min(setting) < 1 for setting in arguments.settings):
        parser.error("a setting is threads x batch, as 2x8")
    arguments.folder = arguments.folder.absolute()
    in_own_environment(arguments.folder)

    import bench_peers
    import cpu_networks

    networks = arguments.networks or cpu_networks.NETWORKS
    subprocess.run([sys.executable, HERE / "cpu_networks.py", arguments.folder / "networks", *networks], check=True)
    rows = []
    for row in measure(arguments, networks, bench_peers):
        rows.append(row)
        network, threads, batch, rounds = row
        times = [f"{name} {bench_peers.spread(samples)}" for name, samples in sorted(rounds.items())]
        print(f"{network:<20} threads {threads} batch {batch}: {ratio(rounds):5.2f}   {'  '.join(times)}", flush=True)
        write_csv(arguments.folder / "results.csv", rows)
    for threads, batch in arguments.settings:
        ratios = [ratio(row[3]) for row in rows if row[1:3] == (threads, batch)]
        print(f"threads {threads} batch {batch}: geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, "
              f"least {min(ratios):.2f}")  # fmt: skip
    plot(arguments.folder / "results.png", rows, arguments.settings)
    print(arguments.folder / "results.png")


if __name__ == "__main__":
    main()
