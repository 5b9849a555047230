"""Clicks through the pages of 20 networks in headless Chromium, with LENSLET_PAGES=1 as in .ci/deep (some 100 s): no
complaint on the console, and every figure is the data's. LENSLET_SCREENSHOTS names a folder for pictures of them."""

import base64
import copy
import json
import os
import pathlib
import unittest

from browser import CHROMIUM, Browser
from command import SHARED, conv_net, noise
from report_page import ReportVerb
from report_test import hostile_net
from tiny_model import FLOAT, initializer, model, node, port

CLICK_THROUGH = (pathlib.Path(__file__).parent / "click_through.js").read_text(encoding="utf-8")
DRAWN = "new Promise((done) => (function wait() { performance.getEntriesByName('drawn').length ? done() : setTimeout(wait, 5); })())"
#: Below shared/data; the checks in double precision of the larger ones take minutes.
NETWORKS = (
    "models/cifar10-resnet20", "models/cifar10-cnn4", "models/ultraface-rfb-320", "models/super-resolution-x3",
    "models/ppocr-cls-mobilenetv3", "models/blazeface-front-128", "generated-ops/fire_module/model", "faults/nhwc_squeeze_excite/model",
    "faults/lstm_bidirectional/model", "faults/nhwc_dense_between_convs/model", "generated-ops/conv_3x3_64to64_14/model",
)  # fmt: skip
SHAPES = {"models/super-resolution-x3": "input=1x1x24x24", "models/ppocr-cls-mobilenetv3": "x=1x3x48x192"}
LARGE = ("models/resnet50", "models/squeezenet1.1", "models/squeezenet1.1-fp16", "models/mobilenetv2-nhwc", "models/mobilenetv2-int8-qdq")
LIGHT = ("squeezenet", "resnet50", "inception_v1")  # of onnx-light: weights are fillers


def chain_net(count):
    """`count` convolutions, each a layer."""
    return model(
        [node("Conv", [f"v{i}", "w"], f"v{i + 1}") for i in range(count)],
        [port("v0", FLOAT, [1, 4, 5, 5])],
        [port(f"v{count}", FLOAT, [1, 4, 5, 5])],
        [initializer("w", [4, 4, 1, 1], noise(16, 3))],
    )


def as_of_a_gpu(run):
    """A run of the CPU as one of a GPU looks: another device, precision and limits, no threads; errors beyond float32."""
    run = copy.deepcopy(run)
    run.update(device="cuda:0", precision="fp16")
    run["machine"]["gpu"] = "NVIDIA H100 80GB HBM3"
    run["peak"] = {"fma_gflops": 400e3, "copy_gb_per_s": 2500, "how": "measured"}
    for layer in run["layers"]:
        layer["ms"] /= 100
        layer["gflops"] *= 100
        if layer["op"] == "Conv":
            layer["algorithm"], layer["config"] = "gemm_cute", "tile=128x128x64 stages=4 split_k=2"
    run["inspect"]["plan"]["device"] = "cuda:0"
    for step in run["inspect"]["plan"]["steps"]:
        if step["op"] == "Conv":
            step["algorithm"] = "gemm_cute"
    threads = run["timeline"]["lanes"]
    spans = [[layer, "step", begin, end] for layer, _, begin, end in threads[0]["spans"]]
    run["timeline"]["lanes"] = [{"name": "stream", "spans": spans}, {"name": "prefetch", "spans": [[0, "step", 0, spans[0][3]]]}]
    if run["layers"][0].get("tolerance"):
        run["layers"][0].update(error="infinite", verdict="EXCEEDED")
    run.pop("run", None)
    return run


@unittest.skipUnless(CHROMIUM and os.environ.get("LENSLET_PAGES"), "LENSLET_PAGES is not set, or no chromium")
class PagesInChromium(ReportVerb):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, address):
        """Until all parts are drawn."""
        self.browser.open(address)
        self.browser.run(DRAWN)

    def visit(self, name, *arguments):
        """Returns the page's data."""
        browser, page = self.browser, self.page_of(*arguments)
        browser.complaints.clear()
        self.open(page.as_uri())
        self.assertEqual(browser.run(CLICK_THROUGH), [], name)
        for place in ("svg[aria-label=treemap] .hit", "svg[aria-label=roofline] .hit", "svg[aria-label=graph] .hit", "tr.layer"):
            if not browser.run(f"!!document.querySelector({json.dumps(place)})"):
                continue
            browser.click(place)  # a real one: nothing lies above it
            self.assertTrue(browser.run("!!document.querySelector('#layer')"), f"{name}: {place}")
            browser.run("document.querySelector('#layer button').click()")
        for width in (400, 2000):
            browser.resize(width, 900)
            self.open(page.as_uri() + f"?{width}")
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width, f"{name} at {width}")
        browser.resize(1200, 900)
        self.assertEqual(browser.complaints, [], name)
        if folder := os.environ.get("LENSLET_SCREENSHOTS"):
            self.photograph(pathlib.Path(folder) / name.replace("/", "_"), page)
        return json.loads(browser.run("document.getElementById('data').textContent"))

    def photograph(self, file, page):
        for scheme in ("light", "dark"):
            self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            self.open(page.as_uri() + f"?{scheme}")
            self.browser.resize(1200, self.browser.run("document.documentElement.scrollHeight"))  # parts out of sight stay empty
            shot = self.browser.call("Page.captureScreenshot", captureBeyondViewport=True, format="webp", quality=60)
            self.browser.resize(1200, 900)
            file.with_name(f"{file.name}-{scheme}.webp").write_bytes(base64.b64decode(shot["data"]))

    def test_twenty_networks(self):
        if not SHARED.is_dir():
            self.skipTest("shared/data is not there")
        visited = 0
        networks = [(name, ()) for name in NETWORKS] + [(name, ("--no-errors",)) for name in LARGE]
        networks += [(f"onnx-light/light_{name}", ("--no-errors",)) for name in LIGHT]
        for name, options in networks:
            with self.subTest(name):
                file = SHARED / f"{name}.onnx"
                batch = ("--batch", 4) if name == "models/cifar10-cnn4" else ()
                shape = ("--shape", SHAPES[name]) if name in SHAPES else ()
                data = self.visit(name, file, *options, *batch, *shape)
                visited += 1
                if name in NETWORKS[:3]:
                    self.visit(f"{name} gpu", self.stored({**data, "runs": [as_of_a_gpu(data["runs"][0])]}))
                    both = {**data, "runs": [data["runs"][0], as_of_a_gpu(data["runs"][0])]}
                    self.visit(f"{name} both", self.stored(both))
        for name, made in (("conv", conv_net()), ("hostile", hostile_net())):
            with self.subTest(name):
                self.visit(name, self.write("made.onnx", made))
                visited += 1
        self.assertGreaterEqual(visited, 20)

    def test_three_hundred_layers_open_soon(self):
        self.visit("chain", self.write("chain.onnx", chain_net(300)), "--no-errors")
        took = self.browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd")  # the first screen is drawn
        self.assertLess(took, 1500)  # the aim is 1 s, on a machine without other work
        self.assertLess(self.browser.run("performance.getEntriesByName('drawn')[0].startTime"), 3000)


if __name__ == "__main__":
    unittest.main()
