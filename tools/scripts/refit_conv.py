#!/usr/bin/env python3
"""From measurements of convolutions on a GPU to the files and constants of the rule that chooses among them.

    refit_conv.py layers RECORD.json... > tests/ops/data/h200_conv_batch1.txt
    refit_conv.py odd RECORD.json... > tests/ops/data/h100_conv_odd.txt
    refit_conv.py fit CUTS.csv [--near 1.5] [--fix NAME]

`layers` turns records of `lenslet bench conv --all-algorithms --device cuda --same-buffers --json` into a table that
tests/ops/cuda_choice_test.cpp holds the rule to: every algorithm's time on every layer, without conversions, a line a
layer. Where records have the same layer and algorithm, the last one counts.

`odd` does the same with records of `--drawn N --odd`, on a GPU or a CPU, for tests/ops/odd_choice_test.cpp: the least
times, of those up to three times and 3 us above a problem's fastest; where several records have one, the least.

`fit` reads what lenslet-bench-implicit-gemm prints and fits the constants of ops/conv/cuda/implicit_gemm_plan.cpp
(start values, tiles and the device are read from the sources) to its rows "fitted": least squares of the logarithm of
estimate / measured, over cuts within --near times of the best measured of their problem; cuts far from it decide
nothing. Prints the constants and, for the rows "fitted" and "unseen", before and after: the root mean square error, and
by how much the cut that the model likes best misses the best one measured. `--fix NAME` keeps a constant. The model
stands here once more, in Python; the script stops when it differs from the estimates in the file. Needs SciPy.
"""

import argparse
import collections
import csv
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAN = ROOT / "ops" / "conv" / "cuda" / "implicit_gemm_plan"
CONSTANTS = ("idle_warps", "block_us", "tile_us", "scalar_efficiency", "nchw_efficiency", "nchw_tile_us", "store_speed",
             "sum_us", "sum_speed", "cluster_speed")
GEMM_STEP = 16
PROBLEM = re.compile(r"(\d+)x(\d+)x(\d+)x(\d+) -> (\d+), (\d+)x(\d+) s(\S+) p(\S+) g(\d+)( d\S+)?")

Problem = collections.namedtuple("Problem", "n c h w k r s stride pads groups p q")
Tile = collections.namedtuple("Tile", "m n threads blocks")


def ceil_div(a, b):
    return -(-a // b)


def pair(text):
    """(of height, of width); "2" is (2, 2). Parts of `str()` are joined by x or by commas."""
    parts = [int(x) for x in re.split("[x,]", text)]
    return (parts[0], parts[-1]) if len(parts) <= 2 else parts


def read_problem(text):
    found = PROBLEM.match(text)
    if not found or found[11]:
        sys.exit(f"'{text}' is no problem, or dilated")
    n, c, h, w, k, r, s = (int(x) for x in found.groups()[:7])
    stride, pads = pair(found[8]), pair(found[9])
    if len(pads) > 2:
        sys.exit(f"'{text}': pads differ by side")
    p = (h + 2 * pads[0] - r) // stride[0] + 1
    q = (w + 2 * pads[1] - s) // stride[1] + 1
    return Problem(n, c, h, w, k, r, s, stride, pads, int(found[10]), p, q)


class Sources:
    """Constants as the sources have them."""

    def __init__(self):
        plan, header = (PLAN.with_suffix(x).read_text() for x in (".cpp", ".h"))
        number = r"(-?\d+(?:\.\d+)?)"

        def constant(name):
            found = re.search(rf"\b{name} = {number}[,;]", plan)
            return float(found[1]) if found else sys.exit(f"{PLAN}.cpp: no constant {name}")

        self.tiles, efficiencies = {}, {}
        for m, n, threads, _, blocks, efficiency in re.findall(
                rf"\{{(\d+), (\d+), (\d+), (\d+), (\d+), {number}\}}", header):
            self.tiles[f"{m}x{n}"] = Tile(int(m), int(n), int(threads), int(blocks))
            efficiencies[f"efficiency {m}x{n}"] = float(efficiency)
        self.constants = {name: constant(name) for name in CONSTANTS} | efficiencies
        spread = re.search(r"cluster_multiprocessors\{([\d,\s]*)\}", plan)
        self.cluster_multiprocessors = [int(x) for x in spread[1].split(",")]
        device = (ROOT / "base" / "device_profile.cpp").read_text().split("An H200", 1)[1]
        get = lambda name: float(re.search(rf"\.{name} = ([\d.e]+)", device)[1])
        self.units, self.flops, self.bytes, self.launch = (
            get(x) for x in ("units", "fp32_flops_per_us", "bytes_per_us", "launch_us"))


class Cut:
    """A measured cut, with what the model needs of it worked out."""

    def __init__(self, row, sources):
        self.set, self.problem, self.tile_name = row["set"].lstrip("*"), row["algorithm"] + " " + row["problem"], row["tile"]
        self.planned = row["set"].startswith("*")
        self.us, self.estimated_us = float(row["us"]), float(row["estimated_us"])
        self.split_k, self.cluster, self.steps = (int(row[x]) for x in ("split_k", "cluster", "steps_per_split"))
        p, tile = read_problem(row["problem"]), sources.tiles[row["tile"]]
        group_c = p.c // p.groups
        self.access = ("nchw" if row["algorithm"].endswith("nchw") else
                       "vectors" if group_c % 4 == 0 else "scalars")
        self.outputs = 4.0 * p.n * p.k * p.p * p.q
        self.moved = 4.0 * (p.n * p.c * p.h * p.w + p.k * group_c * p.r * p.s + (p.k if "+bias" in row["problem"] else 0)
                            ) + self.outputs
        self.size = (tile.m + tile.n) / 128
        warps = tile.threads // 32
        self.flops_a_warp = 2.0 * tile.m * tile.n * GEMM_STEP / warps
        self.peak = sources.flops / sources.units / 4
        blocks = int(row["blocks"]) * p.groups
        # Rounds of blocks: (how often, warps of the busiest scheduler).
        usable = sources.cluster_multiprocessors[self.cluster]
        multiprocessors = max(1, int(sources.units) * usable // sources.cluster_multiprocessors[0])
        a_round = multiprocessors * tile.blocks
        rounds, rest = divmod(blocks, a_round)
        self.rounds = [(rounds, ceil_div(tile.blocks * warps, 4))] if rounds else []
        if self.cluster > 1 and 2 * rest > a_round:
            self.rounds.append((1, ceil_div(tile.blocks * warps, 4)))
        elif rest:
            self.rounds.append((1, ceil_div(ceil_div(rest, multiprocessors) * warps, 4)))

    def us_by(self, x, sources):
        """gemm_plan_us() with the constants `x`."""
        efficiency, tile_us = {"vectors": (1, x["tile_us"]), "scalars": (x["scalar_efficiency"], x["tile_us"]),
                               "nchw": (x["nchw_efficiency"], x["nchw_tile_us"])}[self.access]
        start = x["block_us"] + tile_us * self.size
        rate = x["efficiency " + self.tile_name] * efficiency * self.peak
        us = sum(n * (self.steps * (warps + x["idle_warps"]) * self.flops_a_warp / rate + start)
                 for n, warps in self.rounds)
        sums = self.split_k * self.outputs
        us += sums / ((x["cluster_speed"] if self.cluster > 1 else x["store_speed"]) * sources.bytes)
        us = sources.launch + max(us, self.moved / sources.bytes + start)
        if self.split_k > 1 and self.cluster == 1:
            us += sources.launch + x["sum_us"] + (sums + self.outputs) / (x["sum_speed"] * sources.bytes)
        return us


def least_squares(errors, start, names):
    """`start`, with the named entries such that the squares of errors(x), a list, are least: by their logarithms, since
    all are positive."""
    import scipy.optimize  # of this verb alone

    entries = lambda logs: {**start, **{name: math.exp(log) for name, log in zip(names, logs)}}
    found = scipy.optimize.least_squares(lambda logs: errors(entries(logs)), [math.log(start[name]) for name in names],
                                         diff_step=1e-4)  # fmt: skip
    return entries(found.x)


def by_problem(cuts):
    groups = collections.defaultdict(list)
    for cut in cuts:
        groups[cut.problem].append(cut)
    return groups


def near_best(cuts, near):
    return [cut for group in by_problem(cuts).values() for cut in group
            if cut.us <= near * min(other.us for other in group)]


def judge(what, cuts, x, sources, near):
    """Prints how well the model with the constants `x` does on these cuts."""
    errors = [math.log(cut.us_by(x, sources) / cut.us) for cut in near_best(cuts, near)]
    misses = []
    for problem, group in by_problem(cuts).items():
        taken = min(group, key=lambda cut: cut.us_by(x, sources))
        misses.append((taken.us / min(cut.us for cut in group), problem, taken))
    mean = math.exp(sum(math.log(miss[0]) for miss in misses) / len(misses))
    worst = max(misses, key=lambda miss: miss[0])
    rms = math.sqrt(sum(e * e for e in errors) / len(errors))
    print(f"  {what:14} error of {len(errors)} estimates: rms {rms:.1%}, worst {math.exp(max(map(abs, errors))):.2f}; "
          f"{len(misses)} problems, cut taken / best: mean {mean:.3f}, worst {worst[0]:.2f} ({worst[1]}: "
          f"{worst[2].tile_name} split_k {worst[2].split_k} cluster {worst[2].cluster})")


def fit(arguments):
    sources = Sources()
    with open(arguments.cuts, newline="") as file:
        cuts = [Cut(row, sources) for row in csv.DictReader(file)]
    for cut in cuts:
        here = cut.us_by(sources.constants, sources)
        if abs(here - cut.estimated_us) > 0.006 + 1e-3 * cut.estimated_us:
            sys.exit(f"{cut.problem}, {cut.tile_name} split_k {cut.split_k} cluster {cut.cluster}: {here:.3f} us here, "
                     f"{cut.estimated_us} in the file; is it of this commit?")
    fitted = [cut for cut in cuts if cut.set == "fitted"]
    used = near_best(fitted, arguments.near)
    names = [name for name in sources.constants if name not in arguments.fix]
    x = least_squares(lambda x: [math.log(cut.us_by(x, sources) / cut.us) for cut in used], sources.constants, names)
    print(f"{'constant':22} {'now':>9} {'fitted':>9}")
    for name, value in sources.constants.items():
        print(f"{name:22} {value:9.3f} {x[name]:9.3f}{'  (fixed)' if name in arguments.fix else ''}")
    for what, constants in (("as they are", sources.constants), ("fitted anew", x)):
        print(what)
        for which in sorted({(cut.set, "nchw" if cut.access == "nchw" else "nhwc") for cut in cuts}):
            judge(" ".join(which), [cut for cut in cuts if (cut.set, "nchw" if cut.access == "nchw" else "nhwc") == which],
                  constants, sources, arguments.near)


def write_table(table):
    """"BY | PROBLEM | ALGORITHM US | ...": {(by, problem): {algorithm: us}}."""
    for (by, problem), rows in table.items():
        print(" | ".join([str(by), re.sub(r" b?float16\b", "", problem), *(f"{name} {us:.2f}" for name, us in rows.items())]))


def layers(arguments):
    table = {}
    for record in arguments.records:
        for entry in json.loads(pathlib.Path(record).read_text())["problems"]:
            rows = table.setdefault((entry["name"], entry["problem"]), {})
            rows.update({row["algorithm"]: row["us"] for row in entry["algorithms"] if "refused" not in row})
    write_table(table)


def odd(arguments):
    table = {}
    for path in arguments.records:
        record = json.loads(pathlib.Path(path).read_text())
        on_cpu = record["device"] == "cpu"
        for entry in record["problems"]:
            by = record["machine"]["threads"] if on_cpu else record["precision"]
            rows = table.setdefault((by, entry["problem"]), {})
            for row in entry["algorithms"]:
                if "refused" not in row:
                    us = row["least_us"] if on_cpu else row["us"]
                    rows[row["algorithm"]] = min(us, rows.get(row["algorithm"], us))
    write_table({key: {name: us for name, us in rows.items() if us <= 3 * min(rows.values()) + 3}
                 for key, rows in table.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("layers")
    verb.add_argument("records", nargs="+")
    verb.set_defaults(run=layers)
    verb = verbs.add_parser("odd")
    verb.add_argument("records", nargs="+")
    verb.set_defaults(run=odd)
    verb = verbs.add_parser("fit")
    verb.add_argument("cuts")
    verb.add_argument("--near", type=float, default=1.5)
    verb.add_argument("--fix", action="append", default=[], choices=[*CONSTANTS], metavar="NAME")
    verb.set_defaults(run=fit)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
