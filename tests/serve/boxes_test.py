"""Boxes: `detect` answers, and the page draws, what `lenslet detect` finds."""

import base64
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from harness import ROOT, Server, model, ppm, skip_without, write_models

sys.path.insert(0, str(ROOT / "tests" / "tools"))
from browser import CHROMIUM, Browser  # noqa: E402

HOSTILE = "<script>alert(1)</script>\u202e" + "x" * 10_000
SIDES = ("left", "top", "right", "bottom")


def write_detector(folder):
    """found.onnx: x[N,3,20,40] -> YOLOv8's [N,4+2,2]. A photo's mean red moves both boxes, its green is their width."""
    import numpy as np

    weights = np.zeros((3, 6, 2), np.float32)
    weights[0, 0], weights[1, 2] = 0.1, 0.05
    rest = np.float32([[5, 6], [10, 9], [2, 3], [8, 6], [0.9, 0], [0, 0.6]])
    nodes = "p = GlobalAveragePool(x) f = Flatten(p) m = MatMul(f, w) s = Add(m, b) y = Reshape(s, to)"
    given = {"w": weights.reshape(3, 12), "b": rest.reshape(12), "to": np.int64([-1, 6, 2])}
    (folder / "found.onnx").write_bytes(model("float[N,3,20,40] x", "float[N,6,2] y", nodes, given).SerializeToString())
    card = {"input": {"size": [20, 40]}, "resize": {"mode": "stretch"}, "labels": "found.txt", "output": {"boxes": {"form": "yolov8"}}}
    (folder / "found.card.json").write_text(json.dumps(card))
    (folder / "found.txt").write_text(f"{HOSTILE}\ndog\n", encoding="utf-8")
    # Of the same network another card: its outputs are not as it says.
    (folder / "wrong.onnx").write_bytes((folder / "found.onnx").read_bytes())
    card["output"]["boxes"]["form"] = "end_to_end"
    (folder / "wrong.card.json").write_text(json.dumps(card))


class WithDetector:
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="lenslet-serve-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        write_detector(cls.folder)
        write_models(cls.folder)
        cls.server = Server(*(cls.folder / f"{name}.onnx" for name in ("found", "rgb", "wrong")), "--max-body-mib", 1)
        cls.addClassCleanup(cls.server.stop)

    def detect(self, photo, query="", name="found", **headers):
        status, given, body = self.server.request("POST", f"/v2/models/{name}/detect{query}", photo, headers)
        return status, given, json.loads(body)

    def by_command(self, photo, *options):
        file = self.folder / "photo.ppm"
        file.write_bytes(photo)
        done = subprocess.run([sys.executable, "-m", "lenslet", "detect", "--model", self.folder / "found.onnx", "--json", *options, file],
                              capture_output=True, check=True)  # fmt: skip
        (result,) = json.loads(done.stdout)["results"]
        return {name: result[name] for name in ("height", "width", "boxes")}


@skip_without()
class Boxes(WithDetector, unittest.TestCase):
    def test_they_are_the_commands(self):
        import lenslet

        about = json.loads(self.server.request("GET", "/v2/models/found")[2])
        self.assertIs(about["parameters"]["image_boxes"], True)
        self.assertEqual(about["inputs"][0]["shape"], [-1, 3, 20, 40])  # batched
        self.assertNotIn("image_boxes", json.loads(self.server.request("GET", "/v2/models/rgb")[2])["parameters"])
        photo = ppm(100, 120, 7, 400, 200)
        for query, options in (("", ()), ("?threshold=0.7&iou=0.2&top=5", ("--threshold", "0.7", "--iou", "0.2")), ("?top=1", ("--top", "1"))):
            status, headers, answer = self.detect(photo, query)
            self.assertEqual((status, headers["content-type"]), (200, "application/json"), answer)
            self.assertEqual((answer.pop("model_name"), answer.pop("model_version")), ("found", "1"))
            self.assertEqual(answer, self.by_command(photo, *options))
            for stage in ("prepare", "queue", "run", "boxes"):
                self.assertRegex(headers["server-timing"], rf"\b{stage};dur=\d")
        _, _, answer = self.detect(photo)
        self.assertEqual([(box["class"], box["label"]) for box in answer["boxes"]], [(0, HOSTILE), (1, "dog")])
        self.assertEqual([round(answer["boxes"][0][side], 3) for side in SIDES], [110, 60, 190, 140])
        detector = lenslet.Detector(self.folder / "found.onnx", device="cpu")
        found = [[one.index, one.label, one.score, one.left, one.top, one.right, one.bottom] for one in detector.detect(photo)]
        self.assertEqual(found, [list(box.values()) for box in answer["boxes"]])

    def test_many_at_once_keep_their_own(self):
        photos = [ppm(red, 40 + red, 0, 100 + red, 50) for red in range(0, 200, 5)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(self.detect, photos))
        for red, (status, _, answer) in zip(range(0, 200, 5), answers):
            self.assertEqual((status, answer["width"], answer["height"]), (200, 100 + red, 50))
            box = answer["boxes"][0]
            self.assertAlmostEqual((box["left"] + box["right"]) / 2, (5 + 0.1 * red) * (100 + red) / 40, places=3)

    def test_refusals(self):
        photo = ppm(9, 9, 9)
        for name, query, body, status, why in (
            ("found", "", b"", 400, "the file is empty"), ("found", "", b"no photo", 400, "no JPEG"), ("found", "", photo[:30], 400, "picture"),
            ("rgb", "", photo, 400, "'rgb' has no card that says how"), ("nosuch", "", photo, 404, "no model is named"),
            ("wrong", "", photo, 500, "is not as the card's output.boxes say: wanted [1,N,6]"), ("found", "", bytes(1 << 21), 413, "at most"),
            ("found", "?top=0", photo, 400, "top a whole one"), ("found", "?top=1001", photo, 400, "top a whole one"),
            ("found", "?top=1.5", photo, 400, "top a whole one"), ("found", "?top=inf", photo, 400, "top a whole one"),
            ("found", "?iou=1.1", photo, 400, "iou one from 0 to 1"), ("found", "?iou=nan", photo, 400, "iou one from 0 to 1"),
            ("found", "?threshold=nan", photo, 400, "threshold is a number"), ("found", "?threshold=x", photo, 400, "could not convert"),
            ("found", "?threshold", photo, 400, "bad query"), ("found", "?%3Cb%3E=1", photo, 400, "detect has no '<b>'"),
            ("found", "?" + "top=1&" * 2000, photo, 400, "query"),
        ):  # fmt: skip
            with self.subTest(name=name, query=query[:30], size=len(body)):
                got, _, answer = self.detect(body, query, name)
                self.assertEqual(got, status, answer)
                self.assertIn(why, answer["error"])
        got, _, answer = self.detect(photo, **{"Inference-Header-Content-Length": "5"})
        self.assertEqual((got, answer["error"]), (400, "the body of detect is a picture, and nothing else"))
        self.assertEqual(self.server.request("GET", "/v2/models/found/detect")[0], 405)
        self.assertEqual(self.server.request("POST", "/v2/models/found/detect/more", photo)[0], 404)
        self.assertEqual(self.detect(photo)[0], 200)
        self.assertEqual(self.detect(photo, **{"Inference-Header-Content-Length": "0"})[0], 200)
        self.assertEqual(self.server.metrics()['lenslet_failures_total{kind="image",model="found",protocol="http"}'], 3)

    def test_memory_is_given_back(self):
        import lenslet

        self.detect(ppm(9, 9, 9))
        before = self.server.metrics()["lenslet_memory_bytes"]
        for _ in range(20):
            self.assertEqual(self.detect(ppm(9, 9, 9, 300, 200), "?threshold=-1&iou=1")[0], 200)
        self.assertLessEqual(self.server.metrics()["lenslet_memory_bytes"], before + (1 << 20))
        self.assertTrue(lenslet.Card(self.folder / "found.card.json").boxes)


@unittest.skipUnless(CHROMIUM and os.environ.get("LENSLET_PAGES"), "LENSLET_PAGES is not set, or no chromium")
@skip_without()
class PageWithBoxes(WithDetector, unittest.TestCase):
    """LENSLET_SCREENSHOTS names a folder for a picture of it."""

    def test_it_draws_what_is_answered(self):
        from PIL import Image

        browser = Browser()
        self.addCleanup(browser.close)
        Image.new("RGB", (400, 200), (100, 120, 7)).save(self.folder / "photo.png")
        found = self.by_command(ppm(100, 120, 7, 400, 200))
        self.assertEqual(len(found["boxes"]), 2)
        browser.open(f"http://127.0.0.1:{self.server.http_port}/")
        until = "new Promise((done, bad) => {{ const end = Date.now() + 20000; (function look() {{ if ({}) done(1); else if (Date.now() > end) bad(new Error('late')); else setTimeout(look, 50); }})(); }})"  # fmt: skip
        browser.run(until.format("document.getElementById('ports').rows.length"))

        def choose(file):
            root = browser.call("DOM.getDocument")["root"]["nodeId"]
            node = browser.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
            browser.call("DOM.setFileInputFiles", nodeId=node, files=[str(self.folder / file)])

        choose("photo.png")
        browser.run(until.format("document.querySelectorAll('.box').length === 2 && document.querySelector('.frame').style.width"))
        drawn = browser.run("""(() => { const frame = document.querySelector('.frame img').getBoundingClientRect();
          return [...document.querySelectorAll('.box')].reverse().map(box => { const r = box.getBoundingClientRect(); return [box.textContent,
            (r.left - frame.left) / frame.width, (r.top - frame.top) / frame.height, (r.right - frame.left) / frame.width, (r.bottom - frame.top) / frame.height]; }); })()""")  # fmt: skip
        for (text, *sides), box in zip(drawn, found["boxes"]):
            self.assertEqual(text, f"{box['label']} {100 * box['score']:.2f} %")
            for side, name in zip(sides, SIDES):
                self.assertAlmostEqual(side, box[name] / found["width" if name in ("left", "right") else "height"], delta=0.003)
        rows = browser.run("[...document.getElementById('classes').rows].map(row => [...row.cells].map(cell => cell.textContent))")
        self.assertEqual(rows, [[box["label"], f"{100 * box['score']:.2f} %", "{:.0f}, {:.0f} to {:.0f}, {:.0f}".format(*(box[side] for side in SIDES))]
                                for box in found["boxes"]])  # fmt: skip
        self.assertIn("read boxes", browser.run("document.getElementById('times').textContent"))
        self.assertIn("/v2/models/found/detect'", browser.run("document.getElementById('curl').textContent"))
        self.assertEqual(browser.run("document.scripts.length"), 1)
        label = browser.run("(() => { const r = document.querySelector('.box span').getBoundingClientRect(); return r.width; })()")
        self.assertLess(label, 200)  # a label of 10,000 characters is cut
        self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 1200)
        asked = browser.run("performance.getEntriesByType('resource').map(entry => new URL(entry.name).host)")
        self.assertEqual(set(filter(None, asked)), {f"127.0.0.1:{self.server.http_port}"})
        if folder := os.environ.get("LENSLET_SCREENSHOTS"):
            shot = browser.call("Page.captureScreenshot", format="webp", quality=60)
            (pathlib.Path(folder) / "serve-boxes.webp").write_bytes(base64.b64decode(shot["data"]))
        self.assertEqual(browser.complaints, [])
        (self.folder / "bad.jpg").write_bytes(b"no photo")
        choose("bad.jpg")
        browser.run(until.format("document.getElementById('error').textContent"))
        self.assertIn("no JPEG", browser.run("document.getElementById('error').textContent"))
        self.assertEqual(browser.run("document.querySelectorAll('.box').length"), 0)


if __name__ == "__main__":
    unittest.main()
