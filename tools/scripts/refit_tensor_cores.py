#!/usr/bin/env python3
"""From measured cuts of the tensor cores' convolutions to the constants of their cost models.

    refit_tensor_cores.py mma_gemm CUTS.csv... [--near 1.5] [--fix NAME]
    refit_tensor_cores.py wgmma_gemm CUTS.csv... ...
    refit_tensor_cores.py wgmma_halo CUTS.csv... ...      (its split_k alone)
    refit_tensor_cores.py wgmma_tf32 CUTS.csv... ...
    refit_tensor_cores.py grouped_tf32 CUTS.csv... ...

CUTS.csv: what `lenslet-bench-implicit-gemm fp16` (and bf16, tf32) prints. As refit_conv.py fit, by whose least squares
this is done: constants, tiles and the device are read from the sources, the model stands here once more, and the script
stops when it differs from the estimates in the files. Fitted to all rows but the "unseen", and judged by each set.
"""

import argparse
import csv
import math
import re
import sys

from refit_conv import ROOT, ceil_div, judge, least_squares, near_best, read_problem

NUMBER = r"(-?\d+(?:\.\d+)?(?:e\d+)?)"
CONV = ROOT / "ops" / "conv" / "cuda"


def constants_of(file, names):
    """Constants NAME = VALUE of a source."""
    text = (CONV / file).read_text()
    found = {name: re.search(rf"\b{name} = {NUMBER}[,;]", text) for name in names}
    missing = [name for name, match in found.items() if not match]
    if missing:
        sys.exit(f"{file}: no constant {', '.join(missing)}")
    return {name: float(match[1]) for name, match in found.items()}


def device():
    text = (ROOT / "base" / "device_profile.cpp").read_text().split("An H200", 1)[1]
    names = ("units", "tf32_flops_per_us", "half_flops_per_us", "bytes_per_us", "launch_us")
    return {name: float(re.search(rf"\.{name} = ([\d.e]+)", text)[1]) for name in names}


def multiprocessors_of_clusters():
    text = (CONV / "implicit_gemm_plan.cpp").read_text()
    return [int(x) for x in re.search(r"cluster_multiprocessors\{([\d,\s]*)\}", text)[1].split(",")]


class Cut:
    """A measured row."""

    def __init__(self, row):
        self.set, self.problem, self.tile_name = row["set"].lstrip("*"), row["problem"], row["tile"]
        self.us, self.estimated_us = float(row["us"]), float(row["estimated_us"])
        self.split_k, self.cluster, self.steps = (int(row[x]) for x in ("split_k", "cluster", "steps_per_split"))
        self.blocks = int(row["blocks"])
        p = self.p = read_problem(row["problem"])
        self.half = re.search(r"\bb?float16\b", row["problem"]) is not None
        element = 2 if self.half else 4
        self.outputs = float(p.n * p.k * p.p * p.q)
        self.flops = 2.0 * self.outputs * p.c // p.groups * p.r * p.s
        self.moved = element * (p.n * p.c * p.h * p.w + p.k * p.c // p.groups * p.r * p.s + self.outputs)
        unit = 16 // element  # pixels of wgmma's have room behind what fills no 16 bytes
        c, k = ceil_div(p.c, unit) * unit, ceil_div(p.k, unit) * unit
        self.moved_with_padding = element * (p.n * c * p.h * p.w + k * c * p.r * p.s + p.n * k * p.p * p.q)
        self.moved_with_padding += 4 * k if "+bias" in row["problem"] else 0
        self.moved += 4 * p.k if "+bias" in row["problem"] else 0
        self.residual_bytes = element * p.n * k * p.p * p.q if "+residual" in row["problem"] else 0
        self.moved_with_padding += self.residual_bytes


class MmaGemm:
    """mma_gemm_us()."""

    def __init__(self):
        self.constants = constants_of("mma_gemm_plan.cpp", ("l2_bytes_per_us", "cluster_us", "split_us", "cluster_bytes_per_us",
                                                               "unhidden"))
        text = (CONV / "mma_gemm_plan.cpp").read_text()
        for pair in (("block_us", "tile_us"), ("word_factor", "half_factor")):
            found = re.search(rf"{pair[0]} = {NUMBER}, {pair[1]} = {NUMBER};", text)
            self.constants |= dict(zip(pair, map(float, found.groups())))
        self.tiles = {}
        for m, n, _, _, _, blocks, efficiency, lone in re.findall(
                rf"\{{(\d+), (\d+), (\d+), (\d+), (\d+), (\d+), {NUMBER}, {NUMBER}\}}",
                (CONV / "mma_gemm_plan.h").read_text()):
            self.tiles[f"{m}x{n}"] = (int(m), int(n), int(blocks))
            self.constants |= {f"efficiency {m}x{n}": float(efficiency), f"lone {m}x{n}": float(lone)}
        self.device, self.clusters = device(), multiprocessors_of_clusters()

    def us(self, cut, x):
        m, n, most = self.tiles[cut.tile_name]
        device, p = self.device, cut.p
        channels = p.c // p.groups * (2 if cut.half else 4)
        factor = 1 if channels % 16 == 0 else x["word_factor"] if channels % 4 == 0 else x["half_factor"]
        rate = device["half_flops_per_us" if cut.half else "tf32_flops_per_us"]
        flops, copied = 2.0 * m * n * (64 if cut.half else 32), (m + n) * 128
        start = x["block_us"] + x["tile_us"] * (m + n) / 128

        def wave_us(blocks):
            step = max(x["lone " + cut.tile_name], blocks * flops * device["units"] / (x["efficiency " + cut.tile_name] * rate),
                       blocks * copied * device["units"] / x["l2_bytes_per_us"])
            return cut.steps * step * factor + start

        units = max(1, int(device["units"]) * self.clusters[cut.split_k] // self.clusters[0])
        rounds, rest = divmod(cut.blocks * p.groups, units * most)
        us = rounds * wave_us(most)
        if rest:
            us += wave_us(ceil_div(rest, units))
        if cut.split_k > 1:
            us += x["cluster_us"] + cut.split_k * (x["split_us"] * ceil_div(cut.blocks * p.groups, units)
                                                  + 4 * cut.outputs / x["cluster_bytes_per_us"])
        memory_us = cut.moved / device["bytes_per_us"]  # the bench has no residuals
        hidden = x["unhidden"] * min(us - start, memory_us)
        return device["launch_us"] + max(us, memory_us + start) + hidden


def split_k_tiles(constants, word):
    """Of clusters, the blocks that a multiprocessor holds; efficiencies go to `constants`."""
    text = (CONV / "wgmma_gemm_plan.h").read_text().split("split_k_tiles{{", 1)[1].split("}};", 1)[0]
    blocks = {}
    for m, n, efficiency, held in re.findall(rf"\{{(\d+), (\d+), {NUMBER}, (\d+)\}}", text):
        blocks[f"{m}x{n}"] = int(held)
        constants[f"{word} {m}x{n}"] = float(efficiency)
    return blocks


SLICES = ("split_k_block_us", "split_k_epilogue_us", "l2_bytes_per_us", "exchange_us", "exchange_bytes_per_us",
          "rows_per_us")


def ragged_us(cut, width):
    """ragged_us(): copies of a tile's windows that lie partly outside."""
    p, (outside_us,) = cut.p, constants_of("wgmma_split_k_us.cpp", ("outside_us",)).values()
    if p.r * p.s == 1 and max(p.stride) == 1 and max(p.pads) == 0:
        return 0
    return p.r * p.s * outside_us * (ceil_div(p.c, width) * width - p.c) * (2 if cut.half else 4)


def split_k_us(cut, x, m, n, most, step_us, step_bytes, step_rows, ragged, device, clusters):
    """split_k_us(): most blocks on a multiprocessor; what the products, bytes and rows of a step take."""
    outputs, memory_us = m * n, cut.moved_with_padding / device["bytes_per_us"]
    units = max(1, int(device["units"]) * clusters[cut.split_k] // clusters[0])
    step_us = max(step_us, step_bytes * min(cut.blocks, units) / x["l2_bytes_per_us"], step_rows / x["rows_per_us"])

    def wave_us(together):
        us = x["split_k_block_us"] + together * (cut.steps * step_us + ragged / cut.split_k)
        us += together * x["split_k_epilogue_us"] * outputs / 128 ** 2 / cut.split_k
        if cut.split_k > 1:
            us += x["exchange_us"] + together * outputs * 4 / x["exchange_bytes_per_us"]
        return us

    rounds, rest = divmod(cut.blocks, units * most)
    us = rounds * wave_us(most) + (wave_us(ceil_div(rest, units)) if rest else 0)
    return max(us, memory_us + x["split_k_block_us"]) + x["unhidden"] * min(us - x["split_k_block_us"], memory_us)


def wgmma_tiles(constants):
    """Of persistent blocks; their efficiencies go to `constants`."""
    text = (CONV / "wgmma_gemm_plan.h").read_text().split("wgmma_tiles{{", 1)[1].split("}};", 1)[0]
    tiles = {}
    for m, n, efficiency, consumers in re.findall(rf"\{{(\d+), (\d+), {NUMBER}(?:, (\d+))?\}}", text):
        tiles[f"{m}x{n}"] = (int(m), int(n), int(consumers or 2))
        constants[f"efficiency {m}x{n}"] = float(efficiency)
    return tiles


def holds_biases(m, n, consumers):
    """holds_biases(): registers beside a tile's sums."""
    return m // 64 // consumers * n // 2 + n // 4 <= (128 if consumers <= 2 else 48)


def slots_of_residuals(m, n, consumers):
    """shared_of(tile, true).slots"""
    box = 32 * next(filters for filters in (64, 96, 104, 32, 16) if n % filters == 0)
    ample = min(8192 // box, 8)
    return ample if ample == 2 or 3 * (m + n) * 128 + consumers * 4 * ample * box <= 224 << 10 else ample // 2


class WgmmaGemm:
    """wgmma_plan_us(). A tile is MxN/WIDTH, 0 split_k are persistent blocks."""

    def __init__(self):
        self.constants = constants_of("wgmma_gemm_plan.cpp", ("start_us", "epilogue_us", "unhidden", "sustained") + SLICES)
        text = (CONV / "wgmma_gemm_plan.cpp").read_text()
        self.constants["narrow_epilogue_us"] = float(re.search(rf", narrow_epilogue_us = {NUMBER};", text)[1])
        found = re.search(rf" unheld = {NUMBER}, crowded = {NUMBER};", text)
        self.constants |= {"unheld": float(found[1]), "crowded": float(found[2])}
        self.tiles = wgmma_tiles(self.constants)
        self.split_k_tiles = split_k_tiles(self.constants, "sliced")
        self.device, self.clusters = device(), multiprocessors_of_clusters()

    def us(self, cut, x):
        device, p, units = self.device, cut.p, int(self.device["units"])
        tile, width = cut.tile_name.split("/")
        (m, n), width = map(int, tile.split("x")), int(width)
        groups = p.r * p.s * ceil_div(p.c, width)
        terms = (1 if groups == 1 else 64 // width) * width
        outputs, memory_us = m * n, cut.moved_with_padding / device["bytes_per_us"]

        copies = (m + n) * terms / width / x["rows_per_us"]

        if cut.split_k == 0:
            rate = x["efficiency " + tile] * device["half_flops_per_us"] / units
            step_us = max(2.0 * outputs * terms / rate, copies)
            out_us = x["epilogue_us" if n % 64 == 0 else "narrow_epilogue_us"]
            out_us *= 1 if holds_biases(*self.tiles[tile]) else x["unheld"]
            if cut.residual_bytes and slots_of_residuals(*self.tiles[tile]) == 2:
                out_us *= x["crowded"]
            tile_us = cut.steps * step_us + ragged_us(cut, width) + out_us * outputs / 128 ** 2
            tiles_us = ceil_div(cut.blocks, units) * tile_us
            tiles_us = max(tiles_us, cut.flops / (x["sustained"] * device["half_flops_per_us"]))
            return x["start_us"] + max(tiles_us, memory_us) + x["unhidden"] * min(tiles_us, memory_us)
        rate = x["sliced " + tile] * device["half_flops_per_us"] / units
        return split_k_us(cut, x, m, n, self.split_k_tiles[tile], 2 * outputs * terms / rate, (m + n) * terms * 2,
                         (m + n) * terms / width, ragged_us(cut, width), device, self.clusters)


class WgmmaTf32:
    """wgmma_tf32_us(). 0 split_k are persistent blocks."""

    def __init__(self):
        self.constants = constants_of("wgmma_tf32_plan.cpp", (
            "start_us", "epilogue_us", "unhidden", "sustained", "unheld", "share", "split_k_share") + SLICES)
        self.efficiencies = {}  # fitted as wgmma_gemm's
        self.tiles, self.split_k_tiles = wgmma_tiles(self.efficiencies), split_k_tiles(self.efficiencies, "sliced")
        self.device, self.clusters = device(), multiprocessors_of_clusters()

    def us(self, cut, x):
        m, n = map(int, cut.tile_name.split("x"))
        device = self.device
        if cut.split_k > 0:
            rate = (x["split_k_share"] * self.efficiencies["sliced " + cut.tile_name] * device["tf32_flops_per_us"]
                    / device["units"])
            return split_k_us(cut, x, m, n, self.split_k_tiles[cut.tile_name], 2.0 * m * n * 32 / rate, (m + n) * 128,
                             m + n, ragged_us(cut, 32), device, self.clusters)
        rate = x["share"] * self.efficiencies["efficiency " + cut.tile_name] * device["tf32_flops_per_us"] / device["units"]
        out_us = x["epilogue_us"] * (1 if holds_biases(*self.tiles[cut.tile_name]) else x["unheld"])
        tile_us = cut.steps * 2.0 * m * n * 32 / rate + ragged_us(cut, 32) + out_us * m * n / 128 ** 2
        tiles_us = ceil_div(cut.blocks, int(device["units"])) * tile_us
        memory_us = cut.moved_with_padding / device["bytes_per_us"]
        tiles_us = max(tiles_us, cut.flops / (x["sustained"] * device["tf32_flops_per_us"]))
        return x["start_us"] + max(tiles_us, memory_us) + x["unhidden"] * min(tiles_us, memory_us)


class WgmmaHalo:
    """halo_split_k_us(). A tile is a configuration."""

    def __init__(self):
        self.constants = constants_of("wgmma_halo_split_k_plan.cpp", SLICES + (
            "unhidden", "efficiency_by_lines", "efficiency_by_taps", "crowd_us", "float_us"))
        self.device, self.clusters = device(), multiprocessors_of_clusters()

    def us(self, cut, x):
        of, p, device = dict(pair.split("=") for pair in cut.tile_name.split()), cut.p, self.device
        lines, n = int(of["lines"]), int(of["filters"])
        terms, halo_rows = 64 if cut.half else 32, (lines + p.r - 1) * (8 + p.s - 1)
        rate = x["efficiency_by_lines" if "taps" in of else "efficiency_by_taps"]
        rate *= device["half_flops_per_us" if cut.half else "tf32_flops_per_us"] / device["units"]
        rows, first_us = n + halo_rows / (p.r * p.s), halo_rows * 128 * device["units"] / x["l2_bytes_per_us"]
        units = max(1, int(device["units"]) * self.clusters[cut.split_k] // self.clusters[0])
        crowded_us = ceil_div(cut.blocks, units) * x["crowd_us"] if 2 * cut.blocks > device["units"] else 0
        return first_us + crowded_us + (0 if cut.half else x["float_us"]) + split_k_us(
            cut, x, 8 * lines, n, 1, 2.0 * 8 * lines * n * terms / rate, rows * 128, rows, 0, device, self.clusters)


class GroupedTf32:
    """grouped_tf32_us(). A tile is a configuration."""

    registers = (64, 80, 128, 128)
    rows = 4  # grouped_tf32_rows

    def __init__(self):
        self.constants = constants_of("grouped_tf32_plan.cpp", ("block_us", "memory_share", "l2_bytes_per_us"))
        text = (CONV / "grouped_tf32_plan.cpp").read_text()
        found = re.search(rf"step_us = {NUMBER}, product_us = {NUMBER};", text)
        self.constants |= {"step_us": float(found[1]), "product_us": float(found[2])}
        for eights, value in enumerate(re.search(r"efficiency{([^}]*)}", text)[1].split(","), 1):
            self.constants[f"of {eights}"] = float(value)
        self.device = device()

    def us(self, cut, x):
        device, p, units = self.device, cut.p, int(self.device["units"])
        filters, tile_p, tile_q, channels = map(int, re.match(
            r"filters=(\d+) tile=(\d+)x(\d+) channels=(\d+)", cut.tile_name).groups())
        eights, (stride_h, stride_w) = filters // 8, p.stride
        set_eights = math.lcm(p.c // p.groups, 8) // 8
        row_groups = tile_p // (self.rows * 16 // tile_q)
        warps = row_groups * channels // 8 // eights
        phases = min(stride_w, p.s)
        pixels = ((tile_p - 1) * stride_h + p.r) * phases * (tile_q + (p.s - 1) // stride_w)
        quads = channels // 4
        shared = 16 * max(pixels * (quads + 1), tile_p * tile_q * (quads + (2 if quads % 4 == 0 else 0)))
        steps = p.s * set_eights
        products = steps * p.r * self.rows * eights
        rounds_of_rows = steps * (p.r // 3 if p.r == 3 and stride_h <= 2 else p.r)
        moved = 4.0 * channels * (pixels + tile_p * tile_q + set_eights * 8 * p.r * p.s)
        resident = min(64 // warps, 65536 // (self.registers[eights - 1] * 32 * warps), (228 << 10) // (shared + 1024))
        blocks = ceil_div(cut.blocks, units)
        rate = x[f"of {eights}"] * device["tf32_flops_per_us"] / units
        lone = (x["block_us"] + rounds_of_rows * x["step_us"] + products * x["product_us"]
                + moved * units / x["l2_bytes_per_us"])
        return device["launch_us"] + max(
            cut.moved / (x["memory_share"] * device["bytes_per_us"]) + x["block_us"],
            cut.blocks * moved / x["l2_bytes_per_us"] + x["block_us"],
            blocks * 2.0 * 16 * 8 * 8 * products * warps / rate + x["block_us"],
            ceil_div(blocks, max(1, min(32, resident))) * lone)


MODELS = {"grouped_tf32": GroupedTf32, "mma_gemm": MmaGemm, "wgmma_gemm": WgmmaGemm, "wgmma_halo": WgmmaHalo,
          "wgmma_tf32": WgmmaTf32}


class Bound:
    """A cut, as refit_conv's functions want it."""

    def __init__(self, cut, model):
        self.cut, self.model = cut, model
        self.set, self.problem, self.tile_name, self.us = cut.set, cut.problem, cut.tile_name, cut.us
        self.split_k, self.cluster = cut.split_k, cut.cluster

    def us_by(self, x, _=None):
        return self.model.us(self.cut, x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=MODELS)
    parser.add_argument("cuts", nargs="+")
    parser.add_argument("--near", type=float, default=1.5, help="cuts within so many times the best of their problem count")
    parser.add_argument("--fix", action="append", default=[], metavar="NAME", help="a constant that is kept")
    arguments = parser.parse_args()
    model = MODELS[arguments.algorithm]()
    cuts = []
    for name in arguments.cuts:
        with open(name, newline="") as file:
            cuts += [Bound(Cut(row), model) for row in csv.DictReader(file) if row["algorithm"] == arguments.algorithm
                     and (arguments.algorithm != "wgmma_halo" or int(row["split_k"]) > 0)]
    if not cuts:
        sys.exit(f"no cut of {arguments.algorithm} in {', '.join(arguments.cuts)}")
    for cut in cuts:
        here = cut.us_by(model.constants)
        if abs(here - cut.cut.estimated_us) > 0.006 + 1e-3 * cut.cut.estimated_us:
            sys.exit(f"{cut.problem}, {cut.tile_name} split_k {cut.split_k}: {here:.3f} us here, {cut.cut.estimated_us} in "
                     "the file; is it of this commit?")
    used = near_best([cut for cut in cuts if cut.set != "unseen"], arguments.near)
    tiles = {cut.tile_name.split("/")[0] for cut in used}
    seen = {name for name in model.constants if name.startswith("of ")}
    seen |= {f"{word} {tile}" for tile in tiles for word in ("efficiency", "lone", "sliced")}
    names = [name for name in model.constants
             if name not in arguments.fix and (" " not in name or name in seen)]
    x = least_squares(lambda x: [math.log(cut.us_by(x) / cut.us) for cut in used], model.constants, names)
    print(f"{'constant':26} {'now':>12} {'fitted':>12}")
    for name, value in model.constants.items():
        print(f"{name:26} {value:12.5g} {x[name]:12.5g}{'' if name in names else '  (kept)'}")
    for what, constants in (("as they are", model.constants), ("fitted anew", x)):
        print(what)
        for which in sorted({cut.set for cut in cuts}):
            judge(which, [cut for cut in cuts if cut.set == which], constants, None, arguments.near)


if __name__ == "__main__":
    main()
