"""The page at "/", and the times that answers say."""

import base64
import hashlib
import html
import json
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from harness import ROOT, Server, model, ppm, skip_without, write_models

HOSTILE = "<script>alert(1)</script>\u202e" + "x" * 1000


def hostile_model():
    made = model("float[N,2] x", "float[N,2] y", "y = Relu(x)")
    made.graph.input[0].name = made.graph.node[0].input[0] = HOSTILE
    return made


@skip_without()
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lenslet-serve-")
        cls.addClassCleanup(cls.folder.cleanup)
        folder = pathlib.Path(cls.folder.name)
        write_models(folder)
        (folder / "hostile.onnx").write_bytes(hostile_model().SerializeToString())
        cls.server = Server(folder / "hostile.onnx", folder / "rgb.onnx")
        cls.addClassCleanup(cls.server.stop)

    def ask(self, path, **how):
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.http_port}{path}", **how)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def test_it_asks_nobody_else_and_runs_only_what_it_brings(self):
        status, headers, text = self.ask("/")
        self.assertEqual((status, headers["content-type"]), (200, "text/html; charset=utf-8"))
        self.assertEqual(text, (ROOT / "python/lenslet/serve/page.html").read_bytes())
        policy = headers["content-security-policy"]
        self.assertTrue(policy.startswith("default-src 'none'; "), policy)
        for tag in (b"script", b"style"):
            (own,) = re.findall(b"<%s>(.*?)</%s>" % (tag, tag), text, re.DOTALL)
            self.assertIn(f"{tag.decode()}-src 'sha256-{base64.b64encode(hashlib.sha256(own).digest()).decode()}'; ", policy)
        self.assertNotRegex(text.decode(), r"https?:|//\w+\.|innerHTML|insertAdjacentHTML|document\.write|eval\(")
        self.assertEqual(self.ask("/", method="HEAD")[2], b"")
        self.assertEqual(self.ask("/", method="POST", data=b"")[0], 405)

    def test_what_it_shows_is_there(self):
        """Which input takes photos and which output has classes; the times of an answer."""
        about = json.loads(self.ask("/v2/models/rgb")[2])["parameters"]
        self.assertEqual((about["image_input"], about["image_classes"]), ("image", "scores"))
        headers = {"Inference-Header-Content-Length": "0", "Content-Type": "image/x-portable-pixmap"}
        status, answered, _ = self.ask("/v2/models/rgb/infer", data=ppm(200, 10, 10), headers=headers)
        self.assertEqual(status, 200)
        times = dict(re.findall(r"(\w+);dur=(\d+\.\d{3})", answered["server-timing"]))
        self.assertEqual(set(times), {"prepare", "queue", "run"})
        self.assertGreater(float(times["run"]), 0)

    def test_reports_of_plans(self):
        for name in ("rgb", "hostile"):
            status, headers, text = self.ask(f"/v2/models/{name}/report")
            self.assertEqual((status, headers["content-type"]), (200, "text/html; charset=utf-8"))
            self.assertTrue(headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'; "))
            (data,) = re.findall(rb'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
            (run,) = json.loads(data)["runs"]
            self.assertEqual((run["model"], run["estimated"]), (name, True))
            self.assertEqual([layer["ms"] for layer in run["layers"]],
                             [step["estimated_us"] / 1000 for step in run["inspect"]["plan"]["steps"] if not step["no_op"]])  # fmt: skip
            self.assertEqual(self.ask(f"/v2/models/{name}/report", method="HEAD")[2], b"")
            self.assertEqual(self.ask(f"/v2/models/{name}/versions/1/report")[2], text)
            self.assertEqual(self.ask(f"/v2/models/{name}/report", method="POST", data=b"")[0], 405)
        for path, wanted in (("nosuch/report", 404), ("..%2f..%2fetc/report", 404), ("rgb/versions/2/report", 404), ("rgb/report/more", 404)):
            self.assertEqual(self.ask(f"/v2/models/{path}")[0], wanted, path)

    def test_reports_are_a_part_of_the_memory(self):
        """Counted once, and given up where a request needs the room."""
        import asyncio
        from unittest import mock

        from lenslet.serve import page
        from lenslet.serve.memory import Memory
        from lenslet.serve.protocol import RequestError

        async def ask():
            memory = Memory(100)
            reports, names = page.Reports(memory), [mock.Mock() for _ in range(3)]
            for number, served in enumerate(names):
                served.name = str(number)
            with mock.patch.object(page, "report_of", return_value=bytes(40)) as made:
                for served in (names[0], names[0], names[1]):
                    await reports.answer(served)
                self.assertEqual((memory.used, made.call_count), (80, 2))
                await reports.answer(names[2])  # the others go
                self.assertEqual((memory.used, made.call_count), (40, 3))
                await asyncio.sleep(0)  # the loop lets go of the last answer
                with memory.take(90, "a request"):
                    self.assertEqual(memory.used, 90)
                    with self.assertRaisesRegex(RequestError, "the report: 40 bytes are not free now"):
                        await reports.answer(names[0])
                await reports.answer(names[0])  # tried again
                self.assertEqual((memory.used, made.call_count), (40, 5))

        asyncio.run(ask())

    def test_runs_go_on_while_a_report_is_made(self):
        """Requests that are given up start no further process."""
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", self.server.http_port)) as connection:
                connection.sendall(b"GET /v2/models/rgb/report HTTP/1.1\r\nHost: x\r\n\r\n")
        headers = {"Inference-Header-Content-Length": "0", "Content-Type": "image/x-portable-pixmap"}
        self.assertEqual(self.ask("/v2/models/rgb/infer", data=ppm(200, 10, 10), headers=headers)[0], 200)
        self.assertEqual(self.ask("/v2/models/rgb/report")[0], 200)

    @unittest.skipUnless(shutil.which("chromium"), "no chromium here")
    def test_names_of_a_hostile_model_are_text(self):
        with tempfile.TemporaryDirectory() as profile:
            done = subprocess.run(
                ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--virtual-time-budget=20000",
                 "--dump-dom", f"http://127.0.0.1:{self.server.http_port}/"],
                capture_output=True, text=True, timeout=120,
            )  # fmt: skip
        self.assertIn(html.escape(HOSTILE, quote=False), done.stdout)
        self.assertIn("It takes no photos", done.stdout)
        self.assertEqual(done.stdout.count("<script>"), 1)

    def test_it_can_be_left_out(self):
        server = Server(pathlib.Path(self.folder.name) / "rgb.onnx", "--no-page")
        self.addCleanup(server.stop)
        with self.assertRaises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/", timeout=60)
        self.assertEqual(failed.exception.code, 404)
        failed.exception.close()
        with self.assertRaises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2/models/rgb/report", timeout=60)
        self.assertEqual(failed.exception.code, 404)
        failed.exception.close()


if __name__ == "__main__":
    unittest.main()
