"""The verb classify on many photos: streamed, stopped, continued."""

import csv
import fcntl
import io
import json
import os
import random
import re
import resource
import signal
import subprocess
import threading
import time
import unittest
import unittest.mock

from command import ADDRESS_SPACE, COMMAND, SHARED, WithPhotos, at_terminal, lenslet, write_ppm

REDUCED = "LENSLET_TEST_REDUCED" in os.environ


class ClassifyMany(WithPhotos):
    """A folder with odd and broken photos: streamed, stopped, killed, continued."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(42)
        self.photos = self.folder / "photos"
        self.photos.mkdir()
        for i in range(60):
            colours = [self.random.randrange(256) for _ in range(3)]
            write_ppm(self.photos / f"{i:02}.ppm", 1 + 7 * i % 40, 40 - 3 * i % 40, colours * ((1 + 7 * i % 40) * (40 - 3 * i % 40)))
        whole = (self.photos / "05.ppm").read_bytes()
        for name, data in (("10.ppm", b""), ("20.jpg", whole), ("20.png", b"no picture"), ("30.ppm", whole[:-1]),
                           ("a, \"b\"\n.ppm", whole), ("a\n,.ppm", b"P6"), ("\u00e4.ppm", whole)):  # fmt: skip
            (self.photos / name).write_bytes(data)
        (self.photos / os.fsdecode(b"\xff.ppm")).write_bytes(whole)
        (self.photos / "loop.ppm").symlink_to("loop.ppm")
        (self.photos / "missing.jpg").symlink_to("nowhere")
        if SHARED.is_dir():
            for file in (*(SHARED / "images/odd").iterdir(), *(SHARED / "images/bad").iterdir()):
                (self.photos / file.name).symlink_to(file)
        self.model = (*self.model, "--top", "2")

    def results(self, form, text):
        """A list with an entry for each photo: what is printed of it, without times. Fails for what is not whole."""
        if form == "json":
            return self.without_times(json.loads(text)["results"])
        if form == "jsonl":
            self.assertTrue(text.endswith("\n") or not text)
            return self.without_times(map(json.loads, text.split("\n")[:-1]))
        if form == "table":
            text = re.sub("  [(]decode .*", "", text)
            self.assertRegex(text, r"\A((?!\d+ photos).+\n( .+\n){2})*(\d+ photos on .*\n)?\Z")
            return [[line, *rows.splitlines()] for line, rows in re.findall(r"^(\S.*)\n((?: .+\n)+)", text, re.MULTILINE)]
        rows = list(csv.reader(io.StringIO(text)))
        self.assertTrue(not rows or rows[0] == ["file", "rank", "index", "label", "prob", "score", "error"])
        groups = []
        for row in rows[1:]:
            if row[1] in ("", "1"):
                groups.append([])
            groups[-1].append(row)
        for group in groups:
            self.assertEqual([row[1] for row in group], [""] if group[0][-1] else ["1", "2"])
        return groups

    @staticmethod
    def without_times(results):
        return [{key: value for key, value in result.items() if key != "ms"} for result in results]

    def start(self, *arguments, **streams):
        command = [COMMAND, *map(str, (*self.model, *arguments))]
        child = subprocess.Popen(command, env={**os.environ, "LENSLET_DEVICE": "cpu"}, stderr=subprocess.PIPE, **streams)
        patience = threading.Timer(60, child.kill)
        patience.start()
        self.addCleanup(patience.cancel)
        return child

    def run_verb(self, *arguments):
        """Names that are not UTF-8 are printed as they are in CSV."""
        child = self.start(*arguments, stdout=subprocess.PIPE)
        stdout, stderr = map(os.fsdecode, child.communicate())
        return subprocess.CompletedProcess(arguments, child.returncode, stdout, stderr)

    def test_every_format_and_number_of_threads(self):
        for i in range(11, 60 if REDUCED else 0):
            (self.photos / f"{i:02}.ppm").unlink()
        names = sorted(self.photos.iterdir(), key=os.fsencode)
        alone = {form: [] for form in ("table", "json", "jsonl", "csv")}
        for name in names:
            done = lenslet(*self.model, "--format", "json", name)
            text = os.fsencode(name).decode(errors="replace")
            (result,) = self.results("json", done.stdout)
            self.assertEqual((result["file"], done.returncode), (text, 1 if "error" in result else 0))
            if "error" in result:
                error = done.stderr.splitlines()[-1]
                self.assertTrue(error.endswith(f": {result['error']}"), error)
            alone["json"].append(result)
        alone["jsonl"] = alone["json"]
        self.assertGreaterEqual(sum("error" in result for result in alone["json"]), 7 if SHARED.is_dir() else 6)
        for form in alone:
            for threads in (1, 2, 3, 4) if not REDUCED or form == "jsonl" else (2,):
                for batch in ((), ("--batch", "3")) if threads == 2 else ((),):
                    done = self.run_verb("--format", form, "--threads", threads, *batch, self.photos)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    found = self.results(form, done.stdout)
                    alone[form] = alone[form] or found  # table and csv: those of one thread, which json's tops confirm
                    self.assertEqual(found, alone[form], (form, threads))
                    self.assertEqual(done.stderr.count("\n"), 1 + sum("error" in result for result in alone["json"]))
        expected = [[[os.fsencode(name), top["label"]] for top in result.get("top", [{"label": ""}])]
                    for name, result in zip(names, alone["json"])]  # fmt: skip
        self.assertEqual([[[os.fsencode(row[0]), row[3]] for row in group] for group in alone["csv"]], expected)
        good = [result for result in alone["json"] if "top" in result]
        self.assertEqual(len(alone["table"]), len(good))
        for (_, *rows), result in zip(alone["table"], good):
            self.assertEqual([row.split()[-1] for row in rows], [top["label"] for top in result["top"]])
            self.assertEqual([row.split()[0] for row in rows], [f"{100 * top['prob']:.2f}" for top in result["top"]])

    def test_stopped_by_a_signal(self):
        for form in ("table", "json", "jsonl", "csv"):
            whole = self.run_verb("--format", form, self.photos).stdout
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
                child = self.start("--format", form, self.photos, stdout=subprocess.PIPE)
                text = b""
                for _ in range(self.random.randrange(1, whole.count("\n") * 3 // 4)):
                    text += child.stdout.readline()
                child.send_signal(number)
                text += child.stdout.read()
                notes = child.communicate()[1]
                self.assertIn(child.returncode, (130, 1), notes)  # 1: it was too late
                found = self.results(form, os.fsdecode(text))
                self.assertEqual(found, self.results(form, whole)[: len(found)])
                if child.returncode == 130:
                    self.assertRegex(notes.decode(errors="replace").splitlines()[-1], r"lenslet: stopped after \d+ of \d+ photos")

    def test_stopped_while_a_pipe_is_read(self):
        for form in ("json", "jsonl"):
            child = self.start("--format", form, self.photos / "01.ppm", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            text = b""
            while b"02.ppm" not in text and text.count(b"{") < (6 if form == "json" else 3):
                text += child.stdout.readline()
            child.send_signal(signal.SIGINT)
            text += child.stdout.read()
            self.assertEqual(child.wait(), 130)
            self.assertEqual([os.path.basename(result["file"]) for result in self.results(form, text.decode())], ["01.ppm"])
            child.communicate()

    def test_a_reader_that_goes(self):
        for form in ("table", "json", "jsonl", "csv"):
            child = self.start("--format", form, *[self.photos] * 10, stdout=subprocess.PIPE)
            child.stdout.readline()
            child.stdout.close()
            error = child.stderr.read().decode(errors="replace")
            child.stderr.close()
            self.assertEqual(child.wait(), 141)
            self.assertNotIn("error", error)

    def test_killed_and_continued(self):
        for form in ("jsonl", "csv"):
            photos = [self.photos, self.photos / "01.ppm", self.photos]  # names that are there twice
            whole = self.run_verb("--format", form, *photos).stdout
            file = self.folder / f"out.{form}"
            options = ("--format", form, "--output", file, "--resume", *photos)
            for _ in range(6):
                child = self.start(*options, stdout=subprocess.PIPE)
                size = file.stat().st_size if file.exists() else 0
                enough = size + self.random.randrange(len(whole) // 8)
                while child.poll() is None and not (file.exists() and file.stat().st_size > enough):
                    time.sleep(0.001)
                child.kill()
                self.assertEqual(child.communicate()[0], b"")
                if file.stat().st_size > 0:  # as when the system dies, too
                    os.truncate(file, file.stat().st_size - self.random.randrange(min(file.stat().st_size, 80)))
            done = lenslet(*self.model, *options)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            self.assertEqual(done.stdout, "")
            text = os.fsdecode(file.read_bytes())
            self.assertEqual(self.results(form, text), self.results(form, whole))
            done = lenslet(*self.model, *options)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"^lenslet: .*: \d+ photos have results, 0 are left\n$")
            self.assertEqual(os.fsdecode(file.read_bytes()), text)

    def test_what_cannot_be_continued(self):
        red = self.folder / "red.ppm"
        out = self.folder / "out"
        with_output = (*self.model, "--output", out, red)
        for form in ("table", "json", "jsonl", "csv"):
            self.assertEqual(lenslet(*with_output, "--format", form).returncode, 0)
            self.assertEqual(self.results(form, out.read_text()), self.results(form, lenslet(*self.model, "--format", form, red).stdout))
            before = out.read_bytes()
            self.fails(4, "out: is there already (--resume continues it)", *with_output, "--format", form)
            for other in {"jsonl", "csv"} - {form}:
                self.fails(2, "out: row 1 is not of classify --format", *with_output, "--format", other, "--resume")
            if form in ("table", "json"):
                self.fails(2, "--resume needs --format jsonl or csv", *with_output, "--format", form, "--resume")
            self.assertEqual(out.read_bytes(), before)
            out.unlink()
        self.fails(2, "requires", *self.model, "--resume", "--format", "csv", red)
        self.fails(4, "no regular file", *self.model, "--output", "/dev/null", red)
        self.fails(4, "cannot be written: ", *self.model, "--output", self.folder, red)
        with open(out, "w") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.fails(4, "another run is writing to it", *with_output)
        # A model that is refused leaves an empty file, which is as good as none.
        self.assertEqual(lenslet("classify", "--model", red, *with_output[-3:]).returncode, 3)
        self.assertEqual(lenslet(*with_output).returncode, 0)

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

        full = self.folder / "full"
        done = lenslet(*self.model, "--format", "jsonl", "--output", full, self.photos, before=limit)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(done.stderr.splitlines()[-1], f"lenslet: error: {full}: cannot be written: File too large")

    @unittest.skipUnless(ADDRESS_SPACE, "sanitizers map terabytes")
    def test_large_files_are_not_read_side_by_side(self):
        folder = self.folder / "large"
        folder.mkdir()
        for i in range(3):
            (folder / f"{i}.png").touch()
            os.truncate(folder / f"{i}.png", 300 << 20)
        done = lenslet(*self.model, "--devices", "cpu", "--threads", 3, folder,
                       before=lambda: resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20)))  # fmt: skip
        self.assertEqual(done.stderr.count("this is no JPEG, PNG, BMP, PNM or WebP file"), 3, done.stderr)

    def test_devices(self):
        red = self.folder / "red.ppm"
        for devices in ("cpu", "cpu,cpu", "all"):
            done = lenslet(*self.model, "--devices", devices, "--json", self.photos / "00.ppm", red, red)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"\nlenslet: (2 Runners of 1 thread on cuda:0, batch 2)?.*\bon ")
            document = json.loads(done.stdout)
            self.assertEqual(document["results"][1]["top"][0]["label"], "red")
            self.assertTrue(document["device"] == "cpu" or devices == "all", document["device"])
        done = lenslet(*self.model, "--devices", "cpu,wrong", red)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("wrong", done.stderr)
        done = lenslet(*self.model, "--devices", "cpu", "--decode", "gpu", red)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("error: photos are decoded on the GPU where a GPU runs them; none does", done.stderr)
        self.fails(2, "standard input can be given once", *self.model, "-", "-")

    def test_progress_at_a_terminal(self):
        line = r"\x1b\[K([^\r\n]*)\r"
        for form in ("table", "jsonl"):
            options = (*self.model, "--format", form, self.photos)
            code, text = at_terminal(*options, LENSLET_DEVICE="cpu", NO_COLOR="1", LC_ALL="C")
            self.assertEqual(code, 1)
            shown = re.findall(line, text)
            total = len(list(self.photos.iterdir()))
            self.assertRegex(shown[-1], rf"^\[#+ *\] \d+/{total} photos, [\d.]+/s, \d+:\d\d left$")
            self.assertLess(max(map(len, shown)), 80)
            printed = re.sub(line, "", text)
            self.assertEqual(printed.count("\x1b"), len(re.findall(r"(?m)\x1b\[K", printed)))
            printed = printed.replace("\x1b[K", "")
            self.assertRegex(printed, r"\nlenslet: \d+ Runners? of \d threads? on cpu, batch 1\n")
            rows = "".join(row for row in printed.splitlines(True) if not row.startswith("lenslet: "))
            whole = lenslet(*options)
            self.assertNotIn("\r", whole.stderr)
            if form == "jsonl":
                self.assertEqual(self.results(form, rows), self.results(form, whole.stdout))
            else:
                self.assertEqual(len(self.results(form, rows)), len(self.results(form, whole.stdout)))


if __name__ == "__main__":
    unittest.main()
