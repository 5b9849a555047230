#!/usr/bin/env python3
"""Fits the constants of a cost model, ops/conv/cuda/costs/MODEL.h, to measured configurations of convolutions.

    refit.py MODEL MEASURED.csv... [--gpu h100] [--near 1.5] [--keep NAME] [--by-hand] [--check]

MEASURED.csv: set, algorithm, problem, config and us, as lenslet-bench-implicit-gemm prints them; lines with # are left
out. The estimates are those of lenslet-estimate, so the model stands in C++ alone. Least squares of the logarithm of
estimate / measured, over configurations within --near times of the best measured of their problem; what is far from it
decides nothing. The set "unseen" is not fitted to. Kept are constants that are 0, set "by hand" (unless --by-hand), or
without effect on these rows. Prints the constants and, for each set, before and after: the root mean square error, and
by how much the configuration that the model likes best misses the best one measured. --check fails where a fitted
constant differs from the source's in a digit that the source has. Needs SciPy.
"""

import argparse
import collections
import csv
import decimal
import math
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COSTS = ROOT / "ops" / "conv" / "cuda" / "costs"
MODELS = ("grouped_tf32", "implicit_gemm", "mma_gemm", "wgmma_gemm", "wgmma_halo", "wgmma_halo_split_k", "wgmma_tf32")

Constant = collections.namedtuple("Constant", "text by_hand")
Measured = collections.namedtuple("Measured", "set algorithm problem config us")


def constants_of(model):
    """{name: Constant} as the source has them, in the struct's order; "name[i]" of arrays, "name.member" of structs. By
    hand are those of a line that says so, and those that the head lists: "By hand: NAME, NAME." or "all but NAME"."""
    found = {}
    source = (COSTS / f"{model}.h").read_text()
    head = " ".join(re.findall("^// (.*)$", source, re.MULTILINE))
    all_but, listed = re.search(r"By hand: (all but )?([\w, ]+)\.|$", head).groups()
    for name, values, comment in re.findall(
            r"^  (?:double|std::array<double, \d+>|SplitKCosts) (\w+)(?: = |{)([^;}]*)}?;(.*)$",
            source, re.MULTILINE):
        by_hand = "by hand" in comment or bool(listed) and (name in listed.split(", ")) != bool(all_but)
        each = re.findall(r"(?:\.(\w+) = )?(-?\d[\d.e]*)", values)
        for i, (member, text) in enumerate(each):
            part = f".{member}" if member else f"[{i}]" if len(each) > 1 else ""
            found[name + part] = Constant(text, by_hand)
    return found


def read_measured(model, files):
    rows = []
    for file in files:
        with open(file, newline="") as lines:
            for row in csv.DictReader(line for line in lines if not line.startswith("#")):
                name = row["algorithm"]
                if name == "wgmma_halo" and "split_k=" in row["config"]:
                    name = "wgmma_halo_split_k"
                if name.removesuffix("_nchw") == model:
                    rows.append(Measured(row["set"].lstrip("*"), row["algorithm"], row["problem"], row["config"],
                                         float(row["us"])))  # fmt: skip
    return rows


class Model:
    """Estimates of those of the rows whose configuration has a kernel, by other constants."""

    def __init__(self, program, model, gpu, rows):
        self.process = subprocess.Popen([program, model, gpu], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.shipped = self.answer()
        for row in rows:
            self.process.stdin.write(f"{row.algorithm} | {row.problem} | {row.config}\n")
        self.process.stdin.write("\n")
        self.there = range(len(rows))
        self.there = [i for i, us in enumerate(self.us(self.shipped)) if not math.isnan(us)]
        self.rows = [rows[i] for i in self.there]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate()

    def answer(self):
        line = self.process.stdout.readline()
        return [float(x) for x in line.split()] if line else sys.exit(self.process.wait() or 1)

    def us(self, constants):
        print(*constants, file=self.process.stdin, flush=True)
        us = self.answer()
        return [us[i] for i in self.there]


def by_problem(rows):
    """The indices of each problem's rows."""
    groups = collections.defaultdict(list)
    for i, row in enumerate(rows):
        groups[row.algorithm, row.problem].append(i)
    return groups


def near_best(rows, near):
    return [i for group in by_problem(rows).values() for i in group if rows[i].us <= near * min(rows[j].us for j in group)]


def judge(what, rows, us, near):
    """Prints how good the estimates `us` of these rows are."""
    errors = [math.log(us[i] / rows[i].us) for i in near_best(rows, near)]
    misses = []
    for group in by_problem(rows).values():
        taken = rows[min(group, key=lambda i: us[i])]
        misses.append((taken.us / min(rows[i].us for i in group), taken))
    worst = max(misses, key=lambda miss: miss[0])
    mean = math.exp(sum(math.log(ratio) for ratio, _ in misses) / len(misses))
    rms = math.sqrt(sum(e * e for e in errors) / len(errors))
    print(f"  {what:14} error of {len(errors)} estimates: rms {rms:.1%}, worst {math.exp(max(map(abs, errors))):.2f}; "
          f"{len(misses)} problems, taken / best: mean {mean:.3f}, worst {worst[0]:.2f} ({worst[1].problem}: "
          f"{worst[1].config})")


def fit(model, used, start, free):
    """`start`, with the constants of the indices `free` such that the errors of the rows `used` are least."""
    import scipy.optimize

    def values(factors):
        changed = dict(zip(free, factors))
        return [value * changed.get(i, 1) for i, value in enumerate(start)]

    def errors(factors):
        us = model.us(values(factors))
        return [math.log(us[i] / model.rows[i].us) for i in used]

    return values(scipy.optimize.least_squares(errors, [1.0] * len(free), bounds=(1e-3, math.inf), diff_step=1e-4,
                                               xtol=1e-10, ftol=1e-12, gtol=1e-12).x)  # fmt: skip


def has_effect(model, used, start, i):
    plain, changed = (model.us([x * (factor if j == i else 1) for j, x in enumerate(start)]) for factor in (1, 1.01))
    return any(plain[row] != changed[row] for row in used)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("measured", nargs="+")
    parser.add_argument("--estimate", default=ROOT / "build" / "release" / "tools" / "lenslet-estimate", help="the program")
    parser.add_argument("--gpu", default="h200", help="which one the rows are of: h200, h100 or a100")
    parser.add_argument("--near", type=float, default=1.5, help="rows within so many times the best of their problem count")
    parser.add_argument("--keep", action="append", default=[], metavar="NAME", help="a constant that is not fitted")
    parser.add_argument("--by-hand", action="store_true", help="fit also constants that are set by hand")
    parser.add_argument("--start", type=float, default=1, help="begin with the source's constants times this")
    parser.add_argument("--check", action="store_true", help="fail where a digit of the source is another")
    arguments = parser.parse_args()
    rows = read_measured(arguments.model, arguments.measured)
    with Model(arguments.estimate, arguments.model, arguments.gpu, rows) as model:
        if len(model.rows) < len(rows):
            print(f"left out: {len(rows) - len(model.rows)} rows of configurations that have no kernel", file=sys.stderr)
        run(model, arguments)


def run(model, arguments):
    constants = constants_of(arguments.model)
    shipped = [float(constant.text) for constant in constants.values()]
    if model.shipped != shipped:
        sys.exit(f"{arguments.estimate} has other constants than {COSTS / arguments.model}.h: build it anew")
    rows = model.rows
    used = [i for i in near_best(rows, arguments.near) if rows[i].set != "unseen"]
    if not used:
        sys.exit(f"no configuration of {arguments.model} in {', '.join(arguments.measured)}")
    free = [i for i, (name, constant) in enumerate(constants.items())
            if shipped[i] != 0 and (arguments.by_hand or not constant.by_hand) and name not in arguments.keep
            and has_effect(model, used, shipped, i)]  # fmt: skip
    start = [x * (arguments.start if i in free else 1) for i, x in enumerate(shipped)]
    fitted = fit(model, used, start, free) if free else start
    print(f"{'constant':28} {'now':>10} {'fitted':>12}")
    others = []
    for i, (name, constant) in enumerate(constants.items()):
        print(f"{name:28} {constant.text:>10} {fitted[i]:12.5g}{'' if i in free else '  (kept)'}")
        if decimal.Decimal(fitted[i]).quantize(decimal.Decimal(constant.text)) != decimal.Decimal(constant.text):
            others.append(name)
    for what, values in (("as they are", shipped), ("fitted anew", fitted)):
        print(what)
        us = model.us(values)
        for which in sorted({row.set for row in rows}):
            of_set = [i for i, row in enumerate(rows) if row.set == which]
            judge(which, [rows[i] for i in of_set], [us[i] for i in of_set], arguments.near)
    if arguments.check and others:
        sys.exit(f"not the source's: {', '.join(others)}")


if __name__ == "__main__":
    main()
