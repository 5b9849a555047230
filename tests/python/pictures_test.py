"""Cards, classifiers and the command."""

import copy
import io
import json
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

import lenslet
import numpy as np
from models import ROOT, shared_data, tiny_models, written
from tiny_model import field, node

SPEC = {
    "name": "colours",
    "model": "rgb.onnx",
    "labels": "rgb.txt",
    "input": {"name": "image", "layout": "NCHW", "channels": "RGB", "size": [224, 224]},
    "resize": {"mode": "stretch", "filter": "bilinear", "antialias": True},
    "crop": "none",
    "normalize": {"scale": 0.00392156862745098, "mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]},
    "output": {"name": "scores", "softmax": True, "class_offset": 0},
}


def command(*arguments, **how):
    return subprocess.run([sys.executable, "-m", "lenslet", *map(str, arguments)], capture_output=True, text=True, **how)


def card_of_another():
    return lenslet.Card(SPEC | {"labels": "", "input": SPEC["input"] | {"name": "other"}})


class Pictures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary, cls.folder = tiny_models()
        cls.addClassCleanup(temporary.cleanup)
        cls.model = cls.folder / "rgb.onnx"
        cls.card = cls.folder / "rgb.card.json"
        cls.card.write_text(json.dumps(SPEC))

    def test_kinds_of_pictures_give_the_same(self):
        classify = lenslet.Classifier(self.model, device="cpu")
        file = self.folder / "red.ppm"
        pixels = np.empty((260, 300, 3), np.uint8)
        pixels[:] = (250, 20, 30)
        expected = classify(file)
        self.assertEqual(expected[0].label, "red")
        with_alpha = np.concatenate([pixels, np.full((260, 300, 1), 7, np.uint8)], 2)
        for image in (str(file), file.read_bytes(), bytearray(file.read_bytes()), pixels, with_alpha, pixels[:, ::-1]):
            with self.subTest(type(image)):
                self.assertEqual(classify(image), expected)
        gray = classify(np.full((20, 30), 100, np.uint8))
        self.assertEqual(gray, classify(np.full((20, 30, 1), 100, np.uint8)))
        self.assertEqual([p.prob for p in gray][0], [p.prob for p in gray][2])

    def test_pil(self):
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("PIL is not installed")
        classify = lenslet.Classifier(self.model, device="cpu")
        pixels = np.random.default_rng().integers(0, 256, (50, 70, 3), np.uint8)
        self.assertEqual(classify(Image.fromarray(pixels)), classify(pixels))
        self.assertEqual(classify(Image.fromarray(pixels).convert("RGBA")), classify(pixels))
        self.assertEqual(classify(Image.fromarray(pixels[:, :, 0])), classify(pixels[:, :, 0]))
        turned = Image.fromarray(pixels)
        exif = turned.getexif()
        exif[0x0112] = 6
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            turned.save(file.name, exif=exif)
            with Image.open(file.name) as opened:
                card = lenslet.Card(SPEC | {"labels": ""})
                np.testing.assert_array_equal(card.prepare(opened), card.prepare(np.rot90(pixels, -1)))

    def test_a_file_and_what_pil_reads_of_it(self):
        """The same bits, except for JPEG, whose decoders round differently (docs/python.md)."""
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("PIL is not installed")
        random = np.random.default_rng()
        pixels = random.integers(0, 256, (61, 83, 3), np.uint8)
        alpha = random.integers(0, 256, (61, 83, 1), np.uint8)
        wide = random.integers(0, 65536, (61, 83)).astype(np.uint16)
        kinds = {
            "RGB": Image.fromarray(pixels),
            "RGBA": Image.fromarray(np.concatenate([pixels, alpha], 2)),
            "L": Image.fromarray(pixels[:, :, 0]),
            "LA": Image.merge("LA", [Image.fromarray(pixels[:, :, 0]), Image.fromarray(alpha[:, :, 0])]),
            "P": Image.fromarray(pixels).quantize(200),
            "1": Image.fromarray(pixels[:, :, 0]).convert("1"),
            "I;16": Image.fromarray(wide),
        }
        card = lenslet.Card({"input": {"size": [61, 83], "layout": "NHWC"}})
        for kind, formats in (
            ("RGB", ("PNG", "BMP", "PPM", "WEBP", "JPEG")),
            ("RGBA", ("PNG", "WEBP")),
            ("L", ("PNG", "BMP", "PPM", "JPEG")),
            *((kind, ("PNG",)) for kind in ("LA", "P", "1", "I;16")),
        ):
            for file_format in formats:
                with self.subTest(kind, format=file_format):
                    file = io.BytesIO()
                    kinds[kind].save(file, file_format, quality=90)
                    try:
                        ours = card.prepare(file.getvalue())
                    except lenslet.InvalidImageError as error:
                        self.assertIn("WebP", str(error))  # built without it
                        continue
                    with Image.open(file) as opened:
                        theirs = card.prepare(opened)
                        if opened.mode in ("RGB", "L"):
                            np.testing.assert_array_equal(card.prepare(np.asarray(opened)), theirs)
                    np.testing.assert_allclose(theirs, ours, rtol=0, atol=4 if file_format == "JPEG" else 0)
        for mode in ("I", "F"):
            with self.assertRaisesRegex(lenslet.InvalidArgumentError, f"mode {mode}: 8-bit pixels"):
                card.prepare(kinds["L"].convert(mode))

    def test_resizes_as_pillow_does(self):
        """The columns first. docs/model-card.md has the versions of Pillow and the shapes that do so."""
        try:
            import PIL
            from PIL import Image
        except ImportError:
            self.skipTest("PIL is not installed")
        version = tuple(int(part) for part in PIL.__version__.split(".")[:2])
        random = np.random.default_rng()
        filters = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
        orders = set()
        for _ in range(60):
            name = random.choice(list(filters))
            height, width, new_height, new_width = (int(2 ** random.uniform(0, 8)) for _ in range(4))
            if random.integers(4) == 0:
                width = width // 16 + 1
                height = 150 * width
            picture = Image.fromarray(random.integers(0, 2, (height, width, 3), np.uint8) * np.uint8(255))

            def resized(*sizes):
                image = picture
                for size in sizes:
                    image = image.resize(size, filters[name])
                return np.asarray(image)

            columns_first = resized((new_width, height), (new_width, new_height))
            card = lenslet.Card(
                {
                    "input": {"size": [new_height, new_width], "layout": "NHWC"},
                    "resize": {"mode": "stretch", "filter": name},
                    "crop": "none",
                }
            )
            shape = (height, width, new_height, new_width, name)
            np.testing.assert_array_equal(card.prepare(picture), columns_first, str(shape))
            shrinks = height - new_height
            rows_first = shrinks > 0 and (
                shrinks > 2 * (width - new_width) if version >= (13, 0) else version >= (12, 2) and height > 100 * width
            )
            orders.add(rows_first)
            at_once = resized((width, new_height), (new_width, new_height)) if rows_first else columns_first
            np.testing.assert_array_equal(resized((new_width, new_height)), at_once, str(shape))
        self.assertEqual(orders, {False, True} if version >= (12, 2) else {False})

    def test_batches_are_as_one_by_one(self):
        random = np.random.default_rng()
        images = [random.integers(0, 256, (int(random.integers(1, 90)), 64, 3), np.uint8) for _ in range(11)]
        one = lenslet.Classifier(self.model, device="cpu", threads=1)
        alone = [one(image) for image in images]
        for batch in (1, 2, 4, 16):
            many = lenslet.Classifier(self.model, device="cpu", threads=1, batch=batch)
            self.assertEqual(many.classify_each(images), alone)
        self.assertEqual(one.classify_each([]), [])

    def test_an_output_that_a_run_gives_its_shape(self):
        """A Reshape to `target` times 1 of the pixels: its shape is known only in the run."""
        nodes = [node("GlobalAveragePool", ["x"], "mean"), node("Flatten", ["mean"], "flat"), node("ReduceMax", ["x"], "max", keepdims=0)]
        nodes += [node("Less", ["max", "large"], "is_less"), node("Cast", ["is_less"], "one", to=7)]
        nodes += [node("Mul", ["one", "target"], "shape"), node("Reshape", ["flat", "shape"], "y")]
        large = field(2, 1) + field(8, "large") + field(9, np.float32(1e9).tobytes())

        def net(*target):
            given = field(1, len(target)) + field(2, 7) + field(8, "target") + field(9, np.int64(target).tobytes())
            return written(nodes, {"x": (1, ["N", 3, 8, 8])}, {"y": (1, ["N", "classes"])}, [large, given])

        red, blue = ((self.folder / name).read_bytes() for name in ("red.ppm", "blue.ppm"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lenslet.CardWarning)
            for labels in (["red", "green", "blue"], self.folder / "rgb.txt"):
                classify = lenslet.Classifier(net(-1, 3), labels=labels, device="cpu", batch=2)
                self.assertIsInstance(classify.classify_each([b""])[0], lenslet.InvalidImageError)
                results = classify.classify_each([red, b"", blue, blue])
                self.assertEqual([(result[0].label, len(result)) for result in results if isinstance(result, list)], [("red", 3), ("blue", 3), ("blue", 3)])
            with self.assertRaisesRegex(lenslet.InvalidArgumentError, "2 labels for 3 classes"):
                lenslet.Classifier(net(-1, 3), labels=["a", "b"], device="cpu")(red)
            with self.assertRaisesRegex(lenslet.UnsupportedError, "holds no classes for each image"):
                lenslet.Classifier(net(3, -1), device="cpu")(red)

    def test_a_broken_picture_is_an_error_in_its_place(self):
        classify = lenslet.Classifier(self.model, device="cpu", batch=3)
        red, blue = ((self.folder / name).read_bytes() for name in ("red.ppm", "blue.ppm"))
        results = classify.classify_each([b"", red, red[:200], blue, "none.jpg", np.zeros((2, 2)), 7, blue])
        self.assertEqual(
            [type(r) if isinstance(r, lenslet.Error) else r[0].label for r in results],
            [
                lenslet.InvalidImageError,
                "red",
                lenslet.InvalidImageError,
                "blue",
                lenslet.FileError,
                lenslet.InvalidArgumentError,
                lenslet.InvalidArgumentError,
                "blue",
            ],
        )
        with self.assertRaises(lenslet.InvalidImageError):
            classify(b"no picture")

    def test_a_stream_takes_a_batch_ahead_at_most(self):
        taken = []

        def images():
            for i in range(9):
                taken.append(i)
                yield np.full((4, 4, 3), i, np.uint8)

        stream = lenslet.Classifier(self.model, device="cpu", batch=4).classify_stream(images())
        next(stream)
        self.assertEqual(len(taken), 4)
        self.assertEqual(len(list(stream)), 8)

    def test_threads_wait_for_each_other(self):
        """Threads that share a Classifier each get their own results, whatever the sizes of their batches."""
        shared = lenslet.Classifier(self.model, device="cpu", threads=1, batch=3)
        colours = {name: np.full((9, 9, 3), 250 * np.eye(3, dtype=np.uint8)[i]) for i, name in enumerate(shared.labels)}
        wrong = []

        def work(seed):
            draw = random.Random(seed)
            for _ in range(60):
                names = [draw.choice(["red", "green", "blue"]) for _ in range(draw.randrange(1, 8))]
                images = [colours[name] for name in names]
                images.insert(draw.randrange(len(names)), b"broken")
                found = [result[0].label for result in shared.classify_each(images) if isinstance(result, list)]
                if found != names:
                    wrong.append((found, names))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        # The iterator of pictures may use the Classifier itself.
        images = (colours[shared(colours[name])[0].label] for name in ("blue", "red", "green", "blue"))
        self.assertEqual([r[0].label for r in shared.classify_stream(images)], ["blue", "red", "green", "blue"])

    def test_misuse(self):
        classify = lenslet.Classifier(self.model, device="cpu")
        card = classify.card
        for words, call in (
            ("where many are meant", lambda: classify.classify_each("photo.jpg")),
            ("where many are meant", lambda: classify.classify_stream(b"photo")),
            ("where many are meant", lambda: classify.classify_each(pathlib.Path("photo.jpg"))),
            ("top is 0", lambda: classify(np.zeros((2, 2), np.uint8), top=0)),
            ("no list", lambda: classify([1, 2])),
            ("has no pixels", lambda: classify(np.zeros((0, 5, 3), np.uint8))),
            ("has no pixels", lambda: classify(np.zeros((5, 0), np.uint8))),
            ("labels are no strings", lambda: lenslet.Classifier(self.model, labels=[1, 2, 3], device="cpu")),
            ("2 labels for 3 classes", lambda: lenslet.Classifier(self.model, labels=["a", "b"], device="cpu")),
            ("those of one image", lambda: card.top(np.zeros((2, 3)))),
            ("no numbers", lambda: card.top("abc")),
            ("no scores", lambda: card.top([])),
            ("count is -5", lambda: card.top(np.zeros(3), -5)),
            ("count is a float", lambda: card.top(np.zeros(3), 2.5)),
            ("out has to be", lambda: card.prepare(np.zeros((2, 2), np.uint8), out=[1])),
            ("the card is no JSON", lambda: lenslet.Card({"name": object()})),
            ("input.name is 'other'", lambda: card_of_another().bound(classify.model)),
        ):
            with self.subTest(words), self.assertRaisesRegex(lenslet.InvalidArgumentError, words):
                call()
        self.assertEqual([p.index for p in card.top(np.array([[[[1]], [[3]], [[2]]]]), 2)], [1, 2])
        self.assertRegex(repr(card), "^<lenslet.Card 'colours': RGB 224x224 NCHW.*\\(beside the model\\)>$")

    def test_card_and_runner_are_the_classifier(self):
        """A Card and a Runner, as a server combines them."""
        image = np.random.default_rng().integers(0, 256, (90, 123, 3), np.uint8)
        model = lenslet.Model(self.model)
        card = lenslet.Card.of(model)
        self.assertEqual((card.name, card.input, card.output), ("colours", "image", "scores"))
        self.assertEqual((card.height, card.width, card.channels, card.nhwc), (224, 224, 3, False))
        self.assertEqual(card.labels, ("red", "green", "blue"))
        batch = np.empty((1, 3, 224, 224), np.float32)
        self.assertIs(card.prepare(image, batch[0]).base, batch)
        scores = model.runner(device="cpu", threads=1)(batch)[0]
        self.assertEqual(card.top(scores, 2), lenslet.Classifier(model, device="cpu", threads=1)(image, 2))

    def test_how_a_card_was_found(self):
        """With the command's text, and by the command's rules."""
        beside = lenslet.Card.of(lenslet.Model(self.model))
        self.assertEqual((beside.found_by, beside.path), ("beside the model", str(self.card)))
        given = lenslet.Card(self.card)
        self.assertEqual((given.found_by, given.path), ("given", str(self.card)))
        told = lenslet.Card(SPEC | {"labels": ""})
        self.assertEqual((told.found_by, told.path), ("given", None))
        with self.assertWarnsRegex(lenslet.CardWarning, "^no card knows the model's checksum: assuming RGB 224x224"):
            assumed = lenslet.Card.of(lenslet.Model(self.model.read_bytes()))
        self.assertEqual((assumed.found_by, assumed.path, assumed.softmax), ("assumed", None, True))
        self.assertEqual(beside.bound(lenslet.Model(self.model)).found_by, "beside the model")
        with tempfile.TemporaryDirectory() as folder:
            known = pathlib.Path(folder, "resnet-18.onnx")  # a name that a built-in card matches
            known.write_bytes(self.model.read_bytes())
            other = known.rename(known.with_name("other.onnx"))
            known.write_bytes(other.read_bytes())
            for file, found_by in ((known, "name"), (other, "assumed")):
                done = command("classify", "--json", "--model", file, self.folder / "red.ppm")
                said = json.loads(done.stdout)
                for source in (file, lenslet.Model(file)):  # the command's text, at the calling line
                    with self.assertWarns(lenslet.CardWarning) as warned:
                        card = lenslet.Classifier(source, device="cpu").card
                    self.assertIn(str(warned.warning), done.stderr)
                    self.assertEqual(warned.filename, __file__)
                self.assertEqual(card.found_by, found_by)
                self.assertEqual(said["card"] and said["card"]["found_by"], card.found_by if card.path else None)
                self.assertEqual(said["assumed"], card.found_by == "assumed")
        with warnings.catch_warnings():  # no guess for these
            warnings.simplefilter("error")
            for card in (None, self.card, beside):
                lenslet.Classifier(self.model, card, device="cpu")
            pickle.loads(pickle.dumps(assumed)).bound(lenslet.Model(self.model))
        scores = SPEC | {"labels": "", "output": {"softmax": False}}
        with self.assertWarnsRegex(lenslet.CardWarning, "output.softmax is false, but the model makes no probabilities"):
            lenslet.Classifier(self.model, scores, device="cpu")

    def test_a_model_from_memory_is_known_by_its_checksum(self):
        data = shared_data()
        if data is None:
            self.skipTest("shared/data is not there")
        photo = data / "images" / "photos" / "zebra.jpg"
        for name in ("squeezenet1.1", "mnist-cntk", "cifar10-cnn4", "mobilenetv2-nhwc"):
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("error")
                file = data / "models" / f"{name}.onnx"
                by_path = lenslet.Classifier(file, device="cpu", threads=1)
                with tempfile.TemporaryDirectory() as folder:  # no name to match
                    other = pathlib.Path(folder, "other.onnx")
                    other.write_bytes(file.read_bytes())
                    by_sum = lenslet.Card.of(lenslet.Model(other))
                by_bytes = lenslet.Classifier(memoryview(file.read_bytes()), device="cpu", threads=1)
                for card in (by_path.card, by_sum, by_bytes.card):
                    self.assertEqual((card.found_by, card.path), ("checksum", by_sum.path))
                self.assertEqual(by_bytes(photo), by_path(photo))

    def test_softmax_is_asked_of_the_graph(self):
        def network(*tail):
            nodes = [node("GlobalAveragePool", ["x"], "p"), node("Flatten", ["p"], "l"), *tail]
            return lenslet.Model(written(nodes, {"x": (1, [1, 3, 8, 8])}, {"y": (1, [1, 3])}))

        image = np.random.default_rng().integers(0, 256, (8, 8, 3), np.uint8)
        spec = {"input": {"size": [8, 8]}, "normalize": {"scale": 1 / 255}, "output": {"softmax": None}}
        logits = image.mean((0, 1), dtype=np.float64) / 255
        soft = np.exp(logits) / np.exp(logits).sum()
        for tail, softmax, wanted in (
            ([node("Identity", ["l"], "y")], True, soft),
            ([node("Softmax", ["l"], "s", axis=1), node("Cast", ["s"], "y", to=1)], False, soft),
            ([node("Sigmoid", ["l"], "y")], False, 1 / (1 + np.exp(-logits))),
            ([node("LogSoftmax", ["l"], "y", axis=1)], True, soft),
        ):
            with self.subTest(tail[0]):
                model = network(*tail)
                open_card = lenslet.Card(spec)
                card = open_card.bound(model)
                self.assertEqual((open_card.softmax, card.softmax), (None, softmax))
                scores = model.runner(device="cpu", threads=1)(card.prepare(image)[None])
                again = pickle.loads(pickle.dumps(card))
                for top in (card.top(scores), again.top(scores), lenslet.Classifier(model, spec, device="cpu")(image)):
                    found = [p.prob for p in sorted(top)]
                    np.testing.assert_allclose(found, wanted, rtol=1e-5)
                with self.assertRaisesRegex(lenslet.InvalidArgumentError, "output.softmax"):
                    open_card.top(scores)

    def test_cards_are_pickled_whole(self):
        """They need no file where they are loaded, and have the same content and results."""
        image = np.random.default_rng().integers(0, 256, (90, 123, 3), np.uint8)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("rgb.onnx", "rgb.card.json", "rgb.txt"):
                pathlib.Path(folder, name).write_bytes((self.folder / name).read_bytes())
            model = lenslet.Model(pathlib.Path(folder, "rgb.onnx").read_bytes())
            cards = [
                lenslet.Card(pathlib.Path(folder, "rgb.card.json")),
                lenslet.Card.of(lenslet.Model(pathlib.Path(folder, "rgb.onnx"))),
                lenslet.Card.of(model),
                lenslet.Card({"input": {"size": [224, 224]}, "resize": {"mode": "stretch"}}),
            ]
            expected = [lenslet.Classifier(model, card, device="cpu", threads=1)(image) for card in cards]
        for card, classes in zip(cards, expected):
            with self.subTest(card.found_by):
                back = pickle.loads(pickle.dumps(card))
                again = pickle.loads(pickle.dumps(back))
                for other in (back, again):
                    for place in ("name", "input", "output", "labels", "softmax", "preparation", "found_by", "path", "nhwc"):
                        self.assertEqual(getattr(other, place), getattr(card, place), place)
                    np.testing.assert_array_equal(other.prepare(image), card.prepare(image))
                    self.assertEqual(lenslet.Classifier(model, other, device="cpu", threads=1)(image), classes)
        labelled = pickle.loads(pickle.dumps(cards[0]))
        self.assertEqual(labelled.bound(model).labels, ("red", "green", "blue"))
        labelled._names = labelled.labels = ("red", "green")
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "2 labels for 3 classes"):
            lenslet.Classifier(model, labelled, device="cpu")
        self.assertIs(copy.deepcopy(labelled), labelled)

    def test_cards(self):
        prepared = lenslet.Card(SPEC | {"labels": ""}).prepare(np.full((9, 9, 3), 255, np.uint8))
        np.testing.assert_allclose(prepared, np.ones((3, 224, 224)), rtol=1e-6)
        self.assertEqual(lenslet.Card(self.card).labels, ("red", "green", "blue"))
        nhwc = lenslet.Card(SPEC | {"labels": "", "input": SPEC["input"] | {"layout": "NHWC", "size": [2, 5]}})
        self.assertEqual(nhwc.prepare(np.zeros((9, 9, 3), np.uint8)).shape, (2, 5, 3))
        for wrong in (SPEC | {"colour": "red"}, {"input": 3}, SPEC | {"crop": "left"}):
            with self.subTest(wrong), self.assertRaisesRegex(lenslet.InvalidArgumentError, "^card: "):
                lenslet.Card(wrong)
        with self.assertRaises(lenslet.FileError):
            lenslet.Card(self.folder / "none.card.json")
        with self.assertRaises(lenslet.InvalidArgumentError):
            lenslet.Card(3)
        card = lenslet.Card(SPEC | {"labels": ""})
        for out in (np.empty((3, 224, 223), np.float32), np.empty((3, 224, 224)), np.empty((224, 224, 3), np.float32).T):
            with self.assertRaises(lenslet.InvalidArgumentError):
                card.prepare(np.zeros((9, 9, 3), np.uint8), out)
        with self.assertRaises(lenslet.InvalidArgumentError):
            card.top(np.zeros(0, np.float32))

    def test_labels(self):
        names = ["rot", "grün", "blau"]
        self.assertEqual(
            lenslet.Classifier(self.model, labels=names, device="cpu")(self.folder / "blue.ppm")[0].label, "blau"
        )
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "2 labels for 3 classes"):
            lenslet.Classifier(self.model, labels=names[:2], device="cpu")
        two = self.folder / "two.txt"
        two.write_text("a\nb\n")
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "2 lines for 3 classes"):
            lenslet.Classifier(self.model, labels=two, device="cpu")

    def test_the_command_says_the_same(self):
        done = command("classify", "--json", "--device", "cpu", "--model", self.model, self.folder / "red.ppm")
        self.assertEqual(done.returncode, 0, done.stderr)
        top = json.loads(done.stdout)["results"][0]["top"]
        here = lenslet.classify(self.folder / "red.ppm", model=self.model, device="cpu")
        self.assertEqual([(t["index"], t["label"]) for t in top], [(p.index, p.label) for p in here])
        for theirs, ours in zip(top, here):
            self.assertAlmostEqual(theirs["prob"], ours.prob, places=6)

    def test_the_default_model(self):
        try:
            lenslet.default_model()
        except lenslet.FileError as error:
            self.assertRegex(str(error), "default model is not there")
            self.skipTest("the default model is not fetched")
        photos = pathlib.Path(lenslet.default_model()).parent / "photos"
        classifier = lenslet.Classifier(device="cpu", batch=2)
        done = command("classify", "--json", "--device", "cpu", "--batch", 2, photos)
        theirs = [[t["label"] for t in photo["top"]] for photo in json.loads(done.stdout)["results"]]
        self.assertEqual([[p.label for p in top] for top in classifier.classify_each(sorted(photos.iterdir()))], theirs)

    def test_shared_photos_are_prepared_as_by_the_command(self):
        for name in ("squeezenet1.1", "mobilenetv2-int8-qdq"):
            self.check_shared_photos(name)

    def check_shared_photos(self, name):
        data = shared_data()
        if data is None:
            self.skipTest("shared/data is not there")
        model = lenslet.Model(data / "models" / f"{name}.onnx")
        photos = sorted(p for p in (data / "images" / "photos").iterdir() if p.suffix in (".jpg", ".jpeg", ".png", ".webp"))[:8]
        done = command("classify", "--json", "--device", "cpu", "--model", model.path, *photos)
        theirs = {photo["file"]: photo.get("top") for photo in json.loads(done.stdout)["results"]}
        for photo, top in zip(photos, lenslet.Classifier(model, device="cpu").classify_each(photos)):
            with self.subTest(photo.name, model=name):
                wanted = theirs[str(photo)]
                if wanted is None:
                    self.assertIsInstance(top, lenslet.Error)
                else:
                    self.assertEqual([t["index"] for t in wanted], [p.index for p in top])
                    np.testing.assert_allclose([t["prob"] for t in wanted], [p.prob for p in top], rtol=1e-5)


class Command(unittest.TestCase):
    def test_is_the_command(self):
        self.assertRegex(command("--version").stdout, rf"^lenslet {lenslet.__version__}")
        help = command("--help")
        self.assertEqual(help.returncode, 0)
        self.assertIn("classify", help.stdout)
        wrong = command("clasify")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("did you mean classify?", wrong.stderr)
        self.assertEqual(command("inspect", "none.onnx").returncode, 4)

    def test_finds_the_known_cards(self):
        """share/lenslet/cards is beside the library."""
        temporary, folder = tiny_models()
        self.addCleanup(temporary.cleanup)
        model = (folder / "rgb.onnx").rename(folder / "resnet18.onnx")
        known = lenslet.Card(ROOT / "models" / "cards" / "imagenet-224.card.json")
        self.assertEqual(lenslet.Card.of(lenslet.Model(model)).name, known.name)

    def test_is_interrupted(self):
        arguments = [sys.executable, "-m", "lenslet", "classify", "-"]  # waits for a picture
        pipe = subprocess.PIPE
        with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe) as running:
            time.sleep(1)
            running.send_signal(signal.SIGINT)
            self.assertNotEqual(running.wait(20), 0)


if __name__ == "__main__":
    unittest.main()
