"""lenslet.classify_many: every photo once, with one-by-one's classes; bounded; nothing is left behind."""

import importlib.util
import io
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
import unittest
import warnings

import lenslet
import numpy as np
from cluster_data import broken, picture
from lenslet.photos import Pipeline
from models import InFolder, written
from tiny_model import field, node


def threads():
    return len(os.listdir("/proc/self/task"))


def threads_left(expected):
    """threads(), once it is `expected` or five seconds have passed: the kernel lists a joined thread a little longer."""
    deadline = time.monotonic() + 5
    while threads() != expected and time.monotonic() < deadline:
        time.sleep(0.001)
    return threads()


class Photos(InFolder, unittest.TestCase):
    def setUp(self):
        kept = warnings.catch_warnings()
        kept.__enter__()
        self.addCleanup(kept.__exit__, None, None, None)
        warnings.simplefilter("ignore", lenslet.CardWarning)
        self.red = (self.folder / "red.ppm").read_bytes()

    def many(self, photos, **how):
        return lenslet.classify_many(photos, self.model, **{"devices": "cpu", "labels": self.folder / "rgb.txt", **how})

    def alone(self, photos):
        one = lenslet.Classifier(self.model, labels=self.folder / "rgb.txt", device="cpu", threads=1)
        return one.classify_each(photos)

    def check(self, results, expected):
        for result, one in zip(results, expected):
            if isinstance(one, lenslet.Error):
                self.assertEqual((type(result.error), str(result.error)), (type(one), str(one)))
                self.assertEqual((result.classes, result.device), ([], ""))
            else:
                self.assertEqual((result.classes, result.error, result.device), (one, None, "cpu"))

    def test_draft(self):
        """A Classifier and classify_many draft as Card.prepare does (drawn_pictures_test), where the card allows it."""
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("PIL is not installed")
        file = io.BytesIO()
        Image.fromarray(np.random.default_rng(1).integers(0, 256, (600, 900, 3), np.uint8)).save(file, "jpeg")
        pixels, classes = [], []
        for draft in (False, True):
            card = lenslet.Card({"input": {"size": [224, 224]}, "resize": {"mode": "stretch", "draft": draft}})
            self.assertEqual("drafted" in card.preparation, draft)
            pixels.append(card.prepare(file.getvalue()))
            classes.append(lenslet.Classifier(self.model, card=card, device="cpu")(file.getvalue()))
            for prediction in classes[-1]:
                self.assertAlmostEqual(prediction.prob, 10 * pixels[-1][prediction.index].mean(dtype=np.float64), delta=1e-2)
            (many,) = self.many([file.getvalue()], card=card, labels=None)
            self.assertEqual([p.prob for p in many.classes], [p.prob for p in classes[-1]])
        self.assertEqual(np.array_equal(*pixels), classes[0] == classes[1])

    def test_each_photo_once_as_one_by_one(self):
        photos = [picture(index) for index in range(200)]
        expected = self.alone(photos)
        self.assertEqual([isinstance(one, lenslet.Error) for one in expected], [broken(i) for i in range(200)])
        for count, batch, in_order in itertools.product((1, 3), (0, 4), (True, False)):
            with self.subTest(threads=count, batch=batch, in_order=in_order):
                results = list(self.many(iter(photos), threads=count, batch=batch, in_order=in_order))
                if in_order:
                    self.assertEqual([result.index for result in results], list(range(200)))
                results.sort(key=lambda result: result.index)
                self.assertEqual([result.index for result in results], list(range(200)))
                self.check(results, expected)
        self.assertEqual(list(self.many([])), [])

    def test_kinds_of_photos(self):
        random = np.random.default_rng()
        arrays = [random.integers(0, 256, shape, np.uint8) for shape in ((7, 5), (9, 300, 1), (30, 20, 3), (8, 9, 4))]
        path = self.folder / "blue.ppm"
        photos = [path, str(path), self.red, bytearray(self.red), memoryview(self.red), b"", *arrays, arrays[2][:, ::-1]]
        refused = [np.zeros((2, 2)), 7, None, "none.jpg", "no\0file", np.zeros((0, 5, 3), np.uint8), self.folder]
        if importlib.util.find_spec("PIL"):
            import PIL.Image

            photos.append(PIL.Image.fromarray(arrays[2]))
        results = list(self.many(photos + refused))
        self.check(results, self.alone(photos + refused))
        self.assertEqual([result.name for result in results[:3]], [str(path), str(path), ""])
        self.assertTrue(all(result.error for result in results[len(photos) :]))

        named = list(self.many([("a", self.red), ("b", path), ("c", b"nothing"), (1, self.red), ("d", b"", 3)]))
        self.assertEqual([result.name for result in named], ["a", "b", "c", "", ""])
        self.assertEqual([result.classes[0].label for result in named[:2]], ["red", "blue"])
        self.assertRegex(str(named[2].error), "^c: ")
        self.assertIsInstance(named[3].error, lenslet.InvalidArgumentError)
        self.assertIsInstance(named[4].error, lenslet.InvalidArgumentError)
        with self.assertRaises(AttributeError):
            named[0].name = "b"

    def test_a_tar_and_a_parquet_column(self):
        names = ["red.ppm", "blue.ppm"]
        with tarfile.open(self.folder / "photos.tar", "w") as tar:
            for name in names:
                tar.add(self.folder / name, name)
            tar.addfile(tarfile.TarInfo("broken.jpg"), io.BytesIO())
        with tarfile.open(self.folder / "photos.tar") as tar:
            results = list(self.many((file.name, tar.extractfile(file).read()) for file in tar if file.isfile()))
        self.assertEqual([result.name for result in results], [*names, "broken.jpg"])
        self.assertEqual([result.classes[0].label for result in results[:2]], ["red", "blue"])
        self.assertIsInstance(results[2].error, lenslet.InvalidImageError)
        if importlib.util.find_spec("pyarrow") is None:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        column = [(self.folder / name).read_bytes() for name in names] + [None]
        pq.write_table(pa.table({"photo": pa.array(column, pa.binary())}), self.folder / "photos.parquet")
        batches = pq.ParquetFile(self.folder / "photos.parquet").iter_batches(columns=["photo"])
        results = list(self.many(photo.as_py() for batch in batches for photo in batch.column(0)))
        self.assertEqual([result.classes[0].label for result in results[:2]], ["red", "blue"])
        self.assertIsInstance(results[2].error, lenslet.InvalidArgumentError)

    def test_reads_no_further_than_its_capacity(self):
        how = {"labels": None, "devices": "cpu", "threads": 2, "batch": 2, "top": 1}
        capacity = Pipeline(self.model, None, **how).capacity
        for in_order in (True, False):
            read = 0

            def photos():
                nonlocal read
                for read in range(1, 20 * capacity):
                    yield self.red

            results = self.many(photos(), in_order=in_order, **how)
            self.assertEqual(read, 0)
            for taken, _ in enumerate(results):
                self.assertLessEqual(read - taken, capacity)
            self.assertEqual(taken + 2, 20 * capacity)

    def test_a_slow_source_does_not_hold_back_results(self):
        read = 0

        def photos():
            nonlocal read
            for read in range(1, 9):
                yield self.red
                time.sleep(0.2)

        next(self.many(photos()))
        self.assertLess(read, 5)

    def test_ends_early_and_leaves_nothing(self):
        before = threads()

        def failing():
            yield self.red
            raise ZeroDivisionError

        for _ in range(3):
            results = self.many(itertools.repeat(self.red))
            next(results)
            self.assertGreater(threads(), before)
            results.close()
            self.assertEqual(threads_left(before), before)
            self.assertEqual(list(results), [])
            with self.assertRaises(ZeroDivisionError):
                list(self.many(failing()))
            self.assertEqual(threads_left(before), before)
            self.many(itertools.repeat(self.red))  # not begun
            self.assertEqual(threads_left(before), before)

    def test_an_interrupt_ends_it(self):
        before = threads()
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        self.addCleanup(signal.signal, signal.SIGINT, handler)
        timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            for _ in self.many(itertools.repeat(self.red)):
                pass
        timer.join()
        self.assertEqual(threads_left(before), before)

    def test_one_pipeline_serves_several_streams(self):
        pipeline = Pipeline(self.model, None, labels=["r", "g", "b"], devices="cpu", threads=2, batch=1, top=1)
        for count in (3, 0, 40):
            results = list(pipeline.classify([self.red] * count))
            self.assertEqual([(r.index, r.classes[0].label) for r in results], [(i, "r") for i in range(count)])
        abandoned = pipeline.classify(itertools.repeat(self.red))
        next(abandoned)
        abandoned.close()
        self.assertEqual([result.index for result in pipeline.classify([self.red, b""])], [0, 1])

    def test_processes(self):
        """A process may end, and fork(), with results not taken."""
        program = f"""
import itertools, os, lenslet
results = lenslet.classify_many(itertools.repeat({str(self.folder / "red.ppm")!r}), {str(self.folder / "rgb.onnx")!r}, devices="cpu")
next(results)
child = os.fork()
if child == 0:
    try:
        list(itertools.islice(results, 100))
    except lenslet.InvalidArgumentError as error:
        assert "fork" in str(error), error
    else:
        raise AssertionError
else:
    assert os.waitpid(child, 0)[1] == 0
    next(results)
"""
        subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)

    def test_labels_of_an_output_that_a_run_gives_its_shape(self):
        nodes = [node("GlobalAveragePool", ["x"], "mean"), node("Flatten", ["mean"], "flat"), node("ReduceMax", ["x"], "max", keepdims=0)]
        nodes += [node("Less", ["max", "large"], "is_less"), node("Cast", ["is_less"], "one", to=7)]
        nodes += [node("Mul", ["one", "target"], "shape"), node("Reshape", ["flat", "shape"], "y")]
        large = field(2, 1) + field(8, "large") + field(9, np.float32(1e9).tobytes())
        target = field(1, 2) + field(2, 7) + field(8, "target") + field(9, np.int64((-1, 3)).tobytes())
        net = written(nodes, {"x": (1, ["N", 3, 8, 8])}, {"y": (1, ["N", "classes"])}, [large, target])
        for labels, error in ((["a"], "1 labels for more classes"), (list("abcd"), "4 labels for 3 classes")):
            with self.assertRaisesRegex(lenslet.InvalidArgumentError, error):
                list(lenslet.classify_many([self.red], net, labels=labels, devices="cpu"))
        results = lenslet.classify_many([b"", self.red], net, labels=list("abc"), devices="cpu", top=2)
        self.assertEqual([[best.label for best in result.classes] for result in results], [[], ["a", "c"]])

    def test_labels_are_of_the_classes_behind_the_offset(self):
        card = {"input": {"size": [224, 224]}, "output": {"class_offset": 1}}
        results = self.many([self.red], card=card, labels=["green", "blue"])
        one = lenslet.Classifier(self.model, card, labels=["green", "blue"], device="cpu", threads=1)
        self.assertEqual(next(results).classes, one(self.red))
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "3 labels for 2 classes"):
            self.many([self.red], card=card, labels=["red", "green", "blue"])

    def test_misuse(self):
        for words, call in (
            ("where many are meant", lambda: self.many("photo.jpg")),
            ("where many are meant", lambda: self.many(b"photo")),
            ("where many are meant", lambda: self.many(pathlib.Path("photo.jpg"))),
            ("top is 0", lambda: self.many([], top=0)),
            ("threads is -1", lambda: self.many([], threads=-1)),
            ("2 labels for 3 classes", lambda: self.many([], labels=["a", "b"])),
            ("labels are no strings", lambda: self.many([], labels=[1, 2, 3])),
            ("tpu", lambda: self.many([], devices="cpu,tpu")),
            ("decode is 'tpu'", lambda: self.many([], decode="tpu")),
            ("none does", lambda: self.many([], decode="gpu")),
            ("a name in devices", lambda: self.many([], devices=[1])),
        ):
            with self.subTest(words), self.assertRaisesRegex(lenslet.InvalidArgumentError, words):
                call()

    def test_random_ends(self):
        """Streams of random length, closed after a random number of results."""
        drawn = random.Random()
        photos = [picture(index) for index in range(30)]
        expected = self.alone(photos)
        for _ in range(20):
            first = drawn.randrange(30)
            taken = drawn.randrange(31 - first)
            results = self.many(photos[first:], threads=drawn.randrange(1, 4))
            self.check(itertools.islice(results, taken), expected[first:])
            results.close()


if __name__ == "__main__":
    unittest.main()
