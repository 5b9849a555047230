"""tools/peers/timing.py and networks.py, the shared parts of comparisons, without a peer."""

import argparse
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "peers"), str(ROOT / "tools" / "scripts")]
import networks  # noqa: E402
import plot_ratios  # noqa: E402
import timing  # noqa: E402


class Timing(unittest.TestCase):
    def test_rounds_alternate_and_a_warm_up_does_not_count(self):
        calls = []

        def ours():
            calls.append("a")
            return len(calls)

        def theirs():
            calls.append("b")
            return {"ms": len(calls), "graph": None}

        samples = timing.in_turns({"a": ours, "b": theirs}, rounds=2, warm_up=1)
        self.assertEqual("".join(calls), "ababab")
        self.assertEqual(samples, {"a": [3, 5], ("b", "ms"): [4, 6]})

    def test_the_ratio_is_to_the_quickest_peer(self):
        self.assertEqual(timing.ratio([1, 2, 9], [4, 4, 4], [8, 1, 8]), 0.5)
        self.assertAlmostEqual(timing.geometric_mean([0.5, 2]), 1)

    def test_runs_are_timed_after_the_warm_up(self):
        calls = []
        self.assertEqual(len(timing.timed(lambda: calls.append(0), seconds=0, warm_up=3, least=4)), 4)
        self.assertEqual(len(calls), 7)

    def test_a_command_that_fails_is_refused_in_a_line(self):
        fails = [sys.executable, "-c", "import sys; sys.exit('first\\nlast')"]
        for line, word in ((0, "first"), (-1, "last")):
            with self.assertRaisesRegex(timing.Refused, f"{word}$"):
                timing.checked(fails, line)
        with self.assertRaisesRegex(timing.Refused, "exit status 3"):
            timing.checked([sys.executable, "-c", "raise SystemExit(3)"])

    def test_the_csv_is_what_plot_ratios_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder, "results")
            results.mkdir()
            file = results / "some-networks-2026-11-27.csv"
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                made = timing.Results(argparse.Namespace(csv=file, json=file.with_suffix(".json")), "What.", "Units.")
                made.add(network="a, b", batch=8, lenslet_ms=[3.0, 1.0, 2.0], peer_ms=[0.004, 0.004], ratio=500.0)
                made.add(network="c", batch=8, lenslet_ms=[1.0], ratio=0.256)
            self.assertIn("2.000 (1.000-3.000)", said.getvalue())
            head = file.read_text().splitlines()[:5]
            self.assertEqual((head[0], head[3]), ("# What.", "# Units."))
            self.assertRegex(head[2], r"^# Date \d{4}-\d\d-\d\d, commit \w+\. ")
            docs, plot_ratios.DOCS = plot_ratios.DOCS, pathlib.Path(folder)
            self.addCleanup(setattr, plot_ratios, "DOCS", docs)
            first, second = plot_ratios.read("some-networks")
            self.assertEqual(first, {
                "network": "a, b", "batch": "8", "lenslet_ms": "2.000", "lenslet_ms_least": "1.000", "lenslet_ms_greatest": "3.000",
                "peer_ms": "0.004", "peer_ms_least": "0.004", "peer_ms_greatest": "0.004", "ratio": "500.00"})  # fmt: skip
            self.assertEqual((second["peer_ms"], second["ratio"]), ("", "0.26"))
            self.assertEqual(json.loads(file.with_suffix(".json").read_text())["rows"][0]["lenslet_ms"], [3.0, 1.0, 2.0])

    def test_networks_have_sizes(self):
        self.assertEqual([networks.size_of(name) for name in ("vgg16", "inception_v3", "espcn")], [(224, 224), (299, 299), (360, 640)])
        known = {*networks.CLASSIC, *networks.OTHERS, *networks.CLASSIFICATION, *networks.SEGMENTATION, *networks.DETECTION}
        self.assertLessEqual({*networks.SIZES, *networks.VARIANTS, *networks.ON_GPU}, known)


if __name__ == "__main__":
    unittest.main()
