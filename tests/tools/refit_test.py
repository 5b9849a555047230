"""The cost models' constants (ops/conv/cuda/costs) and what fits them, tools/scripts/refit.py: LENSLET_ESTIMATE is the
program that has the models."""

import csv
import importlib.util
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ESTIMATE = os.environ["LENSLET_ESTIMATE"]
sys.path.insert(0, str(ROOT / "tools" / "scripts"))
import refit  # noqa: E402


def asked(model, rows):
    return refit.Model(ESTIMATE, model, "h200", [refit.Measured("drawn", *row, 0) for row in rows])


def conv(n, c, side, k, taps, stride=1, groups=1, behind=" +bias +relu", pads=None):
    pads = taps // 2 if pads is None else pads
    return f"{n}x{c}x{side}x{side} -> {k}, {taps}x{taps} s{stride} p{pads} g{groups}{behind}"


def crossed(algorithm, problems, configs):
    return [(algorithm, *pair) for pair in itertools.product(problems, configs)]


HALF = " float16 +bias +relu"
SPLIT_K = [f"tile={tile} split_k={n}" for tile in ("128x128", "128x64", "64x64", "64x32") for n in (1, 2, 4, 8)]
DENSE = [(1, 512, 7, 512, 3), (1, 1024, 14, 256, 1), (8, 256, 28, 256, 3), (64, 128, 28, 512, 1), (64, 512, 28, 512, 3),
         (64, 1024, 56, 64, 1)]  # fmt: skip


def implicit_gemm():
    def configs(tiles):
        return [f"tile={tile} split_k={n} cluster={cluster}" for tile in tiles for n in (1, 2, 4, 8, 16)
                for cluster in sorted({1, n if n <= 8 else 1})]  # fmt: skip

    plain = [conv(*sizes) for sizes in DENSE]
    odd = [conv(n, 513, side, 256, 4, pads=2) for n, side in ((1, 14), (8, 28), (64, 28))]
    tiles = ("128x128", "128x64", "64x64", "64x32", "32x64")
    return (crossed("implicit_gemm", plain, configs(tiles)) + crossed("implicit_gemm", odd, configs(tiles[1:4]))
            + crossed("implicit_gemm_nchw", plain, configs(tiles[:3])))  # fmt: skip


def mma_gemm():
    def configs(tiles):
        return [f"tile={tile} split_k={n}" for tile in tiles for n in (1, 2, 4, 8)]

    plain = [conv(*sizes, behind=behind) for sizes in DENSE for behind in (HALF, " +bias +relu")]
    odd = [conv(n, c, 28, 256, 5, behind=HALF) for n in (1, 8) for c in (513, 514)]
    tiles = ("128x128", "128x64", "64x128", "64x64", "64x32", "32x64", "32x32")
    return crossed("mma_gemm", plain, configs(tiles)) + crossed("mma_gemm", odd, configs(tiles[3:5]))


def wgmma_gemm():
    tiles = ("128x256", "256x128", "128x208", "192x128", "128x128", "256x96", "128x96", "256x64", "192x64", "128x64", "256x32")
    problems = [conv(*sizes, behind=behind) for sizes in DENSE for behind in (HALF, HALF.replace("+relu", "+residual"))]
    return crossed("wgmma_gemm", problems, [f"tile={tile}" for tile in tiles] + SPLIT_K)


def wgmma_tf32():
    tiles = ("128x256", "256x128", "192x128", "128x128", "256x96", "128x96", "256x64", "192x64", "128x64", "256x32")
    return crossed("wgmma_tf32", [conv(*sizes) for sizes in DENSE], [f"tile={tile}" for tile in tiles] + SPLIT_K)


def wgmma_halo():
    sizes = itertools.product((1, 64), (16, 256), (14, 56), (32, 256), (1, 4), (HALF, " +bias +relu"))
    problems = [conv(n, c, side, k, 3, 1, groups, behind) for n, c, side, k, groups, behind in sizes]
    problems += [problem.replace(" g1 ", " g1 d2x2 ") for problem in problems if " g1 " in problem]
    configs = [f"units={units} filters={filters}{more}" for units in (4, 2) for filters in (128, 96, 64, 32, 16)
               for more in ("", " row=64", " row=32", " wide=64", " together=2", " together=4")]  # fmt: skip
    return crossed("wgmma_halo", problems, configs)


def wgmma_halo_split_k():
    problems = [conv(*sizes, 3, behind=behind) for sizes in ((1, 256, 14, 64), (1, 256, 28, 256), (4, 256, 28, 128),
                                                             (1, 256, 56, 256), (1, 128, 112, 64))
                for behind in (HALF, " +bias +relu")]  # fmt: skip
    return crossed("wgmma_halo", problems, [f"lines=14 filters=64 split_k={n}{taps}" for n in (1, 2, 4) for taps in ("", " taps=3")])


def grouped_tf32():
    rows = []
    for groups, filters in ((32, (8,)), (16, (8, 16)), (8, (8, 16, 32)), (32 // 3, (8, 24))):
        width = {32: 8, 16: 16, 8: 32, 10: 24}[groups]
        problems = [conv(n, groups * width, side, groups * width, 3, groups=groups) for n, side in ((1, 14), (8, 28), (64, 28))]
        tiles = ("4x16", "8x16", "8x8", "16x8")
        rows += crossed("grouped_tf32", problems, [f"filters={f} tile={t} channels={width}" for f in filters for t in tiles])
    return rows


class CostModels(unittest.TestCase):
    def test_constants_are_read_as_the_program_has_them(self):
        for name in refit.MODELS:
            constants = refit.constants_of(name)
            with asked(name, []) as model:
                self.assertEqual([float(constant.text) for constant in constants.values()], model.shipped, name)

    def test_those_that_are_set_by_hand_are_listed(self):
        def by_hand(model):
            return {name for name, constant in refit.constants_of(model).items() if constant.by_hand}

        self.assertEqual(by_hand("grouped_tf32"), set(refit.constants_of("grouped_tf32")))
        self.assertLess({"split_k.block_us", "split_k.unhidden"}, by_hand("wgmma_halo_split_k"))
        self.assertEqual(set(refit.constants_of("wgmma_tf32")) - by_hand("wgmma_tf32"), {"sustained"})  # all but

    def test_other_constants_give_other_estimates(self):
        rows = [("mma_gemm", conv(1, 64, 28, 64, 3), f"tile={tile} split_k=1") for tile in ("64x64", "7x7")]
        with asked("mma_gemm", rows) as model:
            self.assertEqual([row.config for row in model.rows], ["tile=64x64 split_k=1"])  # 7x7 has no kernel
            (plain,), (slower,) = model.us(model.shipped), model.us([1.0] + model.shipped[1:])  # block_us
            self.assertAlmostEqual(slower, plain + 1)

    def test_refusals(self):
        for model, line in (("nothing", ""), ("mma_gemm", "no row"), ("mma_gemm", "mma_gemm | 1x2 | tile=64x64 split_k=1")):
            done = subprocess.run([ESTIMATE, model], input=line + "\n\n", text=True, capture_output=True)
            self.assertEqual(done.returncode, 1, line)
            self.assertRegex(done.stderr, "^lenslet-estimate: .")


@unittest.skipUnless(importlib.util.find_spec("scipy"), "SciPy is absent")
class Refit(unittest.TestCase):
    def fit(self, model, *arguments):
        command = [sys.executable, "-B", refit.__file__, model, *arguments, "--estimate", ESTIMATE, "--check"]
        return subprocess.run(command, text=True, capture_output=True)

    def passes(self, model, *arguments):
        done = self.fit(model, *arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_constants_come_out_of_times_that_follow_the_model(self):
        # Every tile of wgmma_halo has as many outputs, so that the two parts of its exchange cannot be told apart.
        kept = {"wgmma_halo_split_k": ("--keep", "split_k.exchange_us")}
        for rows_of in (implicit_gemm, mma_gemm, wgmma_gemm, wgmma_tf32, wgmma_halo, wgmma_halo_split_k,
                        grouped_tf32):  # fmt: skip
            with self.subTest(rows_of.__name__), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "measured.csv"
                with file.open("w", newline="") as out:
                    print("# nothing measured: the model's own times", file=out)
                    table = csv.writer(out)
                    table.writerow(("set", "algorithm", "problem", "config", "us"))
                    with asked(rows_of.__name__, rows_of()) as model:
                        table.writerows((*row[:-1], us) for row, us in zip(model.rows, model.us(model.shipped)))
                options = ("--by-hand", "--start", "1.1", "--near", "1000", *kept.get(rows_of.__name__, ()))
                text = self.passes(rows_of.__name__, str(file), *options)
                self.assertIn("rms 0.0%", text)
                self.assertLess(2 * text.count("(kept)"), len(refit.constants_of(rows_of.__name__)))
                slower = re.sub(r"[\d.]+$", lambda us: str(1.2 * float(us[0])), file.read_text(), flags=re.MULTILINE)
                file.write_text(slower)
                done = self.fit(rows_of.__name__, str(file), *options)
                self.assertEqual(done.returncode, 1)
                self.assertIn("not the source's: ", done.stderr)

    def test_constants_come_out_of_what_was_measured(self):
        files = sorted((ROOT / "docs" / "results").glob("cost-model-*.csv"))
        of = [re.match(r"cost-model-(\w+)-(\w+)-", file.name).groups() for file in files]
        self.assertEqual([model for model, _ in of], sorted(refit.MODELS))
        for file, (model, gpu) in zip(files, of):
            with self.subTest(file.name):
                self.passes(model, str(file), "--gpu", gpu)


if __name__ == "__main__":
    unittest.main()
