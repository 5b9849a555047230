"""lenslet report: what it refuses, the data in its page, and the page as Chromium draws it (skipped without one)."""

import json
import re
import shutil
import subprocess
import unittest

from command import FLOAT, initializer, model, node, noise, port
from report_page import Page, ReportVerb
from tiny_model import field

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = (
    "</script><script>document.title='taken'</script>",
    "<img src=x onerror=document.title='taken'>&amp;",
    "right\u202eto left\u2028lines\u2029",
    "n" * 4096,  # no model has longer ones
    "__proto__\u0001",
)


def hostile_net():
    """Convolutions whose names and outputs are called so."""
    names = ["x", *HOSTILE[:-1]]
    return model(
        [node("Conv", [names[i], "w"], name) + field(3, name) for i, name in enumerate(names[1:])],
        [port("x", FLOAT, [1, 2, 6, 6])],
        [port(names[-1], FLOAT, [1, 2, 6, 6])],
        [initializer("w", [2, 2, 1, 1], noise(4, 7))],
    )


def layer(name, ms=1.0, **more):
    return {"name": name, "op": "Conv", "algorithm": "direct", "ms": ms, "flops": 1e6, "bytes": 1000, **more}


def stored(*layers, **more):
    return {"model": "stored.onnx", "device": "cpu", "precision": "fp32", "threads": 1, "layers": list(layers), **more}


def lanes(*spans):
    return {"ms": 0.01, "undisturbed_ms": 0.01, "lanes": [{"name": f"thread {i + 1}", "spans": one} for i, one in enumerate(spans)]}


class Report(ReportVerb):
    def test_output_is_checked_before_work(self):
        missing = self.folder / "none" / "report.html"
        self.fails(4, f"{missing}: cannot be written", "report", "nosuch.onnx", "-o", missing)
        self.fails(4, f"{self.folder}: cannot be written", "report", "nosuch.onnx", "-o", self.folder)
        self.fails(2, "this is one of the models", "report", self.net, "-o", self.net)
        self.fails(2, "-o FILE", "report", self.net)

    def test_bad_files(self):
        out = ("-o", self.folder / "report.html")
        self.fails(4, "cannot be read", "report", self.folder / "nosuch.json", *out)
        self.fails(4, "nosuch.onnx", "report", self.folder / "nosuch.onnx", *out)
        self.fails(2, "bad.json: is no JSON", "report", self.write("bad.json", b'{"layers": ['), *out)
        self.fails(2, "nested too deeply", "report", self.write("deep.json", b"[" * 100000), *out)
        for document, what in (
            ([], "model is not a text"),
            ({"model": 3}, "model is not a text"),
            (stored(layer("a"), {**layer("b"), "ms": "fast"}), "layers[1].ms is not a number"),
            (stored(layer("a", ms=-1)), "layers[0].ms is not a number"),
            (stored(3), "layers[0].name is not a text"),
            (stored(layer("a"), timeline=None), "timeline.ms is not a number"),
            (stored(layer("a"), timeline=lanes([[0, "step", 0, 1]], [3])), "timeline.lanes[1].spans[0] is not [layer"),
            *((stored(layer("a"), timeline=lanes([[0, "step", 0, 1], span])), "timeline.lanes[0].spans[1] is not [layer")
              for span in ([1, "step", 1, 2], [2**64 - 1, "step", 1, 2], [-2, "step", 1, 2], [0, "step", .5, 2], [0, "step", 2, 1], [0, 3, 1, 2],
                           [0.5, "step", 1, 2], [0, "step", 1, "2"], [0, "step", 1, 1e300], [0, "step", 1])),
            (stored(layer("a"), timeline={**lanes(), "lanes": [{"name": 3, "spans": []}]}), "timeline.lanes[0].name is not a text"),
            ({"schema": "lenslet report", "version": 99, "runs": []}, "version 1"),
            ({"schema": "lenslet report", "version": 1, "runs": 7}, "runs is not a list"),
        ):
            self.fails(2, what, "report", self.stored(document), *out)
        self.assertFalse(out[1].exists())

    def test_a_page_has_what_layers_and_inspect_print(self):
        text = self.page_of(self.net).read_text(encoding="utf-8")
        self.assertNotRegex(text, r"https?://(?!www\.w3\.org/2000/svg)")
        data = Page(text).data
        self.assertEqual((data["schema"], data["version"], len(data["runs"])), ("lenslet report", 1, 1))
        run = data["runs"][0]
        plan = json.loads(self.passes("inspect", self.net, "--threads", 1, "--json"))
        self.assertEqual(run["inspect"], {key: value for key, value in plan.items() if key != "machine"})
        layers = json.loads(self.passes("layers", self.net, "--threads", 1, "--seconds", 0, "--json"))
        members = lambda of: [member for member in of if member != "disturbed"]  # by other work, in one of the two
        self.assertEqual(members(run), [*members(layers), "inspect"])
        for key in ("model", "device", "precision", "threads", "batch", "machine"):
            self.assertEqual(run[key], layers[key])
        for ours, theirs in zip(run["layers"], layers["layers"], strict=True):
            for key in ("name", "op", "algorithm", "reason", "problem", "flops", "bytes", "error", "tolerance", "verdict"):
                self.assertEqual(ours.get(key), theirs.get(key))

    def test_timeline_is_of_one_run(self):
        run = json.loads(self.passes("report", self.net, "--threads", 2, "--seconds", 0, "--no-errors", "--json"))["runs"][0]
        taken = run["timeline"]
        self.assertEqual([lane["name"] for lane in taken["lanes"]], ["thread 1", "thread 2"])
        for lane in taken["lanes"]:
            ends = [0, *(end for _, _, _, end in lane["spans"])]
            for (index, kind, begin, end), before in zip(lane["spans"], ends):
                self.assertTrue(-1 <= index < len(run["layers"]) and kind in ("step", "piece", "band") and before <= begin <= end)
            self.assertLessEqual(ends[-1], 1e3 * taken["ms"] + 1e-3)
        seen = {span[0] for lane in taken["lanes"] for span in lane["spans"]}
        self.assertLessEqual({*range(len(run["layers"]))}, seen)

    def test_stored_runs_are_kept(self):
        first = json.loads(self.passes("layers", self.net, "--seconds", 0, "--json"))
        both = json.loads(self.passes("report", self.stored(first), self.net, "--seconds", 0, "--json"))
        self.assertEqual((both["runs"][0], len(both["runs"])), (first, 2))
        file = self.folder / "both.json"
        self.passes("report", self.stored(both), "--json", "-o", file)
        self.assertEqual(json.loads(file.read_text()), both)
        self.assertEqual(Page(self.page_of(file).read_text(encoding="utf-8")).data, both)

    def test_precisions_side_by_side(self):
        data = json.loads(self.passes("report", self.net, "--precision", "fp32,bf16", "--seconds", 0, "--json"))
        self.assertEqual([run["precision"] for run in data["runs"]], ["fp32", "bf16"])
        self.fails(2, "--precision", "report", self.net, "--precision", "fp32,fp7", "--json")

    def test_hostile_names_stay_data(self):
        page = Page(self.page_of(self.write("net.onnx", hostile_net())).read_text(encoding="utf-8"))
        self.assertEqual(page.scripts, 2)
        self.assertLessEqual({*HOSTILE[:-1]}, {layer["name"] for layer in page.data["runs"][0]["layers"]})


@unittest.skipUnless(CHROMIUM, "no chromium")
class ReportInChromium(ReportVerb):
    def drawn(self, page, at=""):
        done = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder / 'chromium'}",
             "--enable-logging=stderr", "--log-level=0", "--virtual-time-budget=20000", "--dump-dom", f"file://{page}{at}"],
            capture_output=True, text=True, timeout=120)  # fmt: skip
        self.assertEqual(re.findall(".*CONSOLE.*", done.stderr), [])
        return Page(done.stdout)

    def test_figures_are_those_of_the_data(self):
        page = self.drawn(self.page_of(self.net), "#layer=0")
        run = page.data["runs"][0]
        self.assertEqual(page.ms, [layer["ms"] for layer in run["layers"]])
        self.assertEqual(page.figures["time"], run["run"]["ms"])
        self.assertEqual(page.figures["memory"], run["inspect"]["plan"]["memory"]["peak_bytes"])
        self.assertEqual(page.figures["layers"], len(run["layers"]))
        self.assertAlmostEqual(page.figures["limit"], sum(min(layer["floor_ms"], layer["ms"]) for layer in run["layers"]))
        self.assertEqual(page.figures["error"], max(
            (layer for layer in run["layers"] if layer.get("error") and layer["tolerance"]),
            key=lambda layer: layer["error"] / layer["tolerance"])["error"])  # fmt: skip
        text = " ".join(page.text)
        chosen = next(step for step in run["inspect"]["plan"]["steps"] if step["name"] == run["layers"][0]["name"])
        for candidate in chosen.get("candidates", []):
            self.assertIn(candidate["algorithm"], text)
            self.assertIn(candidate.get("refusal", ""), text)

    def test_timeline(self):
        spans = [[-1, "step", 0, 1], [0, "piece", 1, 3], [1, "step", 5, 10]], [[0, "piece", 1, 4]]
        page = self.drawn(self.page_of(self.stored(stored(layer("a"), layer("b"), timeline=lanes(*spans)))))
        self.assertEqual([page.figures[f"lane-{i}"] for i in range(2)], [0.008, 0.003])
        text = " ".join(" ".join(page.text).split())
        self.assertRegex(text, r"thread 2 waits 70.0 % of the run, longest behind b \(0.005 ms\)")
        spans = [[0, "step", 0, 1], [1, "step", 9, 10]],
        page = self.drawn(self.page_of(self.stored(stored(layer("a"), layer("b"), timeline=lanes(*spans)))))
        self.assertIn("waits 80.0 % of the run, most of it while no lane was at work (0.008 ms)", " ".join(" ".join(page.text).split()))
        self.assertIn("Not in this file: measured before", " ".join(self.drawn(self.page_of(self.stored(stored(layer("a"))))).text))

    def test_what_to_do(self):
        said = [{"text": HOSTILE[1], "layers": [1, 0, 7, "x"], "ms": 3, "lost_ms": 1.5}, {"text": "Measure again.", "layers": [], "ms": 0, "lost_ms": 0}]
        page = self.drawn(self.page_of(self.stored(stored(layer("a", 1), layer("b", 2, advice="Use less."), advice=said))), "#layer=1")
        text = " ".join(" ".join(page.text).split())
        self.assertIn(f"What to do {HOSTILE[1]} 3.000 ms in 2 layers, 1.500 ms of it above the machine's limits: b , a Measure again.", text)
        self.assertIn("what to do Use less.", text)
        self.assertIn("No rule knows.", " ".join(self.drawn(self.page_of(self.stored(stored(layer("a"), advice=[])))).text))
        for damaged in (None, 3, [3, {"text": 3}, {"text": "Half.", "layers": 3}]):
            page = self.drawn(self.page_of(self.stored(stored(layer("a"), advice=damaged))))
            self.assertNotRegex(" ".join(page.text), "undefined|NaN|damaged")

    def test_runs_side_by_side(self):
        slow, fast = stored(layer("a", 4), layer("b", 2)), stored(layer("a", 1, error="infinite", tolerance=1e-6), layer("b", 2))
        text = " ".join(self.drawn(self.page_of(self.stored(slow, "a.json"), self.stored(fast, "b.json"))).text)
        self.assertIn("2 times as fast as the first", text)
        self.assertIn("1 got faster, 0 slower, 1 less exact", text)

    def test_estimates_are_called_so(self):
        page = self.drawn(self.page_of(self.stored(stored(layer("a", 4), estimated=True))), "#layer=0")
        text = " ".join(page.text)
        self.assertIn("all times are estimates", text)
        self.assertIn("estimated time", text)
        self.assertNotIn("medians", text)

    def test_damaged_parts_leave_the_others(self):
        damaged = [
            stored(layer("a"), inspect={"plan": {"steps": [None], "placements": [], "memory": {}}}),
            stored(layer("a", runner_up="b", floor_ms=1), precision={"toString": 1}, inspect="no object"),
            stored(layer("a"), inspect={"plan": {"steps": [], "placements": [None], "memory": {"peak_bytes": 8}, "bands": [None]}}),
        ]
        for number in range(len(damaged)):
            file = self.stored({"schema": "lenslet report", "version": 1, "runs": damaged})
            page = self.drawn(self.page_of(file), f"#run={number}&layer=0")
            self.assertEqual(page.ms[-1], 1.0)
            self.assertNotRegex(" ".join(page.text), "undefined|NaN|Infinity")

    def test_hostile_names_are_text(self):
        net = self.write("net.onnx", hostile_net())
        page = self.drawn(self.page_of(net), "#layer=1")
        self.assertEqual(page.scripts, 2)
        for name in HOSTILE[:3]:
            self.assertIn(name, page.text)
        nothing = {"ms": 0, "undisturbed_ms": 1e18, "lanes": [{"name": HOSTILE[1] * 1000, "spans": []}]}
        page = self.drawn(self.page_of(self.stored(stored(*map(layer, [*HOSTILE, "n" * 10000]), inspect=None, timeline=nothing))), "#layer=0")
        self.assertEqual((page.scripts, page.figures["lane-0"]), (2, 0))
        self.assertNotRegex(" ".join(page.text), "undefined|NaN|Infinity")
        self.assertIn(HOSTILE[0], page.text)
        self.assertIn(HOSTILE[-1], page.text)


if __name__ == "__main__":
    unittest.main()
