"""Shared by all comparisons with peers: options, alternating rounds, medians with their spread, the table, and the
dated CSV of docs/results/. Standard library only: a peer's packages are imported where they are needed.
"""

import argparse
import csv
import datetime
import json
import math
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Refused(Exception):
    """Something that one of the two cannot run, in a line. It is left out by name, and the others continue."""


def words(text):
    return text.split(",")


def numbers(text):
    return [int(number) for number in text.split(",")]


def options(description, rounds=5, seconds=None, lenslet=True):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if lenslet:
        parser.add_argument("lenslet", help="the command")
    parser.add_argument("--rounds", type=int, default=rounds, help="(%(default)s)")
    if seconds is not None:
        parser.add_argument("--seconds", type=float, default=seconds, help="of each in a round (%(default)s)")
    parser.add_argument("--csv", type=pathlib.Path, metavar="FILE", help="write the table in docs/results' format")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all samples")
    return parser


# ---- Time ----


def in_turns(runs, rounds, warm_up=0):
    """Samples by name, in the order A B A B ..., because shared machines drift. A run returns a number, a dict of
    numbers, whose samples go to (name, key), or None for no sample. Rounds of `warm_up` come first and do not count."""
    samples = {}
    for number in range(-warm_up, rounds):
        for name, run in runs.items():
            found = run()
            found = {(name, key): value for key, value in found.items()} if isinstance(found, dict) else {name: found}
            for key, value in found.items():
                if number >= 0 and value is not None:
                    samples.setdefault(key, []).append(value)
    return samples


def timed(run, seconds, warm_up=2, least=5):
    """Milliseconds of single runs during `seconds`, at least `least` of them."""
    for _ in range(warm_up):
        run()
    samples, begin = [], time.perf_counter()
    while len(samples) < least or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        run()
        samples.append((time.perf_counter() - start) * 1e3)
    return samples


def timed_on_cuda(run, replays=10, samples=20):
    """Device milliseconds of a run, by PyTorch's events around `replays` runs: the median of `samples`."""
    import torch

    for _ in range(5):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(samples):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(replays):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / replays)
    return statistics.median(times)


def captured(run):
    """The CUDA graph of the work that `run` queues, after four runs on a side stream; and its results. By PyTorch."""
    import torch

    with torch.cuda.stream(torch.cuda.Stream()), torch.inference_mode():
        for _ in range(4):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.inference_mode():
        output = run()
    return graph, output


def ratio(ours, *theirs):
    """Our median / the fastest peer's."""
    return statistics.median(ours) / min(map(statistics.median, theirs))


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


# ---- Processes ----


def checked(command, line=0):
    """A command's output; Refused with this line of its error if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise Refused(f"{pathlib.Path(command[0]).name}: {said[line][:200]}")
    return done.stdout


def lenslet(command, verb, *arguments):
    """The JSON printed by a verb of the command."""
    return json.loads(checked([command, verb, *arguments, "--json"]))


def in_own_process(script, *arguments):
    """The JSON in the last line of a script's output; Refused if it fails."""
    return json.loads(checked([sys.executable, script, *arguments], line=-1).splitlines()[-1])


def first_line(error):
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else ""


def onnxruntime_session(model, threads=1, optimized=True):
    """For a file or its bytes, on the CPU."""
    import onnxruntime

    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads, chosen.inter_op_num_threads = threads, 1
    chosen.log_severity_level = 4
    if not optimized:
        chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model), chosen,
                                        providers=["CPUExecutionProvider"])  # fmt: skip


# ---- The table ----


def number(value, column=""):
    """As in tables and CSV: ratios to a hundredth, others to a thousandth or three digits."""
    if value is None or isinstance(value, (str, int)):
        return "" if value is None else str(value)
    if re.search("ratio|_over_", column):
        return f"{value:.2f}"
    return f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def cell(value, column=""):
    """A list is of samples: the median (least-greatest)."""
    if not isinstance(value, list):
        return number(value, column)
    middle, least, greatest = (number(float(of), column) for of in (statistics.median(value), min(value), max(value)))
    return middle if len(value) == 1 else f"{middle} ({least}-{greatest})"


def machine():
    """The CPU, and the number of cores available to this process."""
    names = re.findall(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{names[0] if names else os.uname().machine}, {len(os.sched_getaffinity(0))} cores"


class Results:
    """Rows of {column: text, number or list of samples}. A row is printed at once, and --csv and --json are rewritten
    with all rows. A column of samples becomes three in the CSV: the median, _least and _greatest."""

    def __init__(self, arguments, what, *notes):
        """`what` was measured; `notes`: lines with the peers' versions and the units."""
        self.arguments, self.rows, self.widths = arguments, [], None
        self.head = [what, f"Command: {shlex.join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]])}"]
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        self.head.append(f"Date {datetime.date.today()}, commit {commit.stdout.strip() or 'unknown'}. {machine()}.")
        self.head += notes
        print("\n".join((what, *notes)), flush=True)

    def add(self, **row):
        self.rows.append(row)
        self.show(row)
        self.write()

    def show(self, row):
        cells = {column: cell(value, column) for column, value in row.items()}
        if self.widths is None or row.keys() - self.widths.keys():
            self.widths = {column: max(len(column), 24 if isinstance(value, (str, list)) else 6) for column, value in row.items()}
            print("  ".join(f"{column:<{width}}" for column, width in self.widths.items()).rstrip())
        print("  ".join(f"{cells.get(column, ''):<{width}}" for column, width in self.widths.items()).rstrip(), flush=True)

    def write(self):
        if self.arguments.json:
            self.arguments.json.write_text(json.dumps({"head": self.head, "rows": self.rows}, indent=1))
        if not self.arguments.csv:
            return
        expanded = []
        for row in self.rows:
            expanded.append({})
            for column, value in row.items():
                of = (statistics.median(value), min(value), max(value)) if isinstance(value, list) else (value,)
                for end, part in zip(("", "_least", "_greatest"), of):
                    expanded[-1][column + end] = number(float(part) if isinstance(value, list) else part, column)
        columns = list(dict.fromkeys(column for row in expanded for column in row))
        with open(self.arguments.csv, "w", encoding="utf-8", newline="") as file:
            file.writelines(f"# {line}\n" for line in self.head)
            writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(expanded)
