"""lenslet run as a program: inputs and pictures in, files and JSON out."""

import json
import os
import pathlib
import re
import resource
import struct
import unittest

from command import (
    FLOAT, SHARED, Verb, lenslet, model, node, noise, port, read_npy, tensor_pb, write_npy, write_ppm,
)
from tiny_model import INT64, field
from read_png import read_png


class Run(Verb):
    def setUp(self):
        super().setUp()
        # Sub: swapped inputs would show.
        ports = [port("a", FLOAT, ["N", 2]), port("b", FLOAT, ["N", 2])]
        nodes = [node("Sub", ["a", "b"], "a/b:0")]
        self.sub = self.write("sub.onnx", model(nodes, ports, [port("a/b:0", FLOAT, ["N", 2])]))
        self.a, self.b = self.folder / "a.npy", self.folder / "b.npy"
        write_npy(self.a, (3, 2), [5, 6, 7, 8, 9, 10])
        write_npy(self.b, (3, 2), [1, 2, 3, 4, 5, 7])
        self.out = self.folder / "out"

    def run_sub(self, *inputs):
        listed = [text for name in inputs for text in ("--input", name)]
        return self.json_of("run", self.sub, *listed, "--output-dir", self.out)

    def test_a_value_of_the_file_is_overridden_by_name(self):
        ports, nodes = [port("x", FLOAT, [2]), port("w", FLOAT, [2])], [node("Sub", ["x", "w"], "y")]
        file = self.write("with_value.onnx", model(nodes, ports, [port("y", FLOAT, [2])], [tensor_pb("w", [2], [1, 2])]))
        x, w = self.write("x.pb", tensor_pb("x", [2], [10, 20])), self.write("w.pb", tensor_pb("w", [2], [3, 5]))
        for inputs, expected in (([x], [9, 18]), ([f"w={w}", f"x={x}"], [7, 15])):
            listed = [text for name in inputs for text in ("--input", name)]
            self.passes("run", file, *listed, "--output-dir", self.out)
            self.assertEqual(read_npy(self.out / "y.npy"), ((2,), expected))
        self.fails(2, "no input is called 'v'", "run", file, "--input", f"v={w}", "--input", x)

    def test_npy_pb_and_names(self):
        pb = self.write("b.pb", tensor_pb("whatever", [3, 2], [1, 2, 3, 4, 5, 7]))
        expected = ((3, 2), [4, 4, 4, 4, 4, 3])
        for inputs in ([self.a, self.b], [self.a, pb], [f"b={self.b}", f"a={self.a}"], [f"b={pb}", self.a]):
            document = self.run_sub(*inputs)
            output = document["outputs"][0]
            self.assertEqual(output["name"], "a/b:0")
            self.assertEqual((output["type"], output["shape"]), ("float32", [3, 2]))
            self.assertEqual((output["min"], output["max"], output["nan"]), (3, 4, 0))
            file = pathlib.Path(output["file"])
            self.assertEqual(file.parent, self.out)
            self.assertEqual(read_npy(file), expected)
            file.unlink()
        text = self.passes("run", self.sub, "--input", self.a, "--input", self.b, "--output-dir", self.out)
        self.assertRegex(text, r"a/b:0: float32 \[3,2\] min 3 mean 3\.83333 max 4 -> ")

    def test_points(self):
        # Rows as long as the input's, whatever the first bytes look like: these begin like a bitmap.
        points = self.write("b.bin", b"BM\0\0" + struct.pack("<5f", 2, 3, 4, 5, 7))
        output = self.run_sub(self.a, points)["outputs"][0]
        self.assertEqual(output["shape"], [3, 2])
        self.assertEqual(read_npy(pathlib.Path(output["file"]))[1][1:], [4, 4, 4, 4, 3])
        for wrong, words in ((self.write("c.bin", points.read_bytes()[:-1]), "23 bytes are no whole number of points"),
                             (self.folder / "missing.bin", "no such file")):
            done = lenslet("run", self.sub, "--input", self.a, "--input", wrong, "--output-dir", self.out)
            self.assertIn(words, done.stderr)
            self.assertNotEqual(done.returncode, 0)
        flat = self.write("flat.onnx", model([node("Neg", ["x"], "y")], [port("x", FLOAT, ["N"])],
                                             [port("y", FLOAT, ["N"])]))
        done = lenslet("run", flat, "--input", points, "--output-dir", self.out)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a file of points is for inputs [points, columns], and x is [N]", done.stderr)

    def test_scans(self):
        file, again, other = (self.folder / name for name in ("a.bin", "b.npy", "c.npy"))
        options = ["--rings", 8, "--steps", 100]
        text = self.passes("scan", file, *options)
        points = int(re.search(r"a\.bin: (\d+) points of 4 float32", text)[1])
        self.assertTrue(400 < points <= 800, text)
        self.assertEqual(file.stat().st_size, points * 16)
        self.passes("scan", again, *options)
        self.passes("scan", other, *options, "--seed", 2, "--columns", 5, "--sweeps", 2)
        shape, values = read_npy(again)
        self.assertEqual(shape, (points, 4))
        self.assertEqual(tuple(values), struct.unpack(f"<{points * 4}f", file.read_bytes()))
        shape, _ = read_npy(other)
        self.assertEqual(shape[1], 5)
        self.assertGreater(shape[0], points)
        for wrong in (["x.txt"], ["x.bin", "--columns", 6], ["x.bin", "--rings", 0],
                      ["x.bin", "--rings", 1 << 20, "--steps", 1 << 20]):
            done = lenslet("scan", *wrong)
            self.assertEqual(done.returncode, 2, wrong)
        self.assertFalse(pathlib.Path("x.bin").exists())

    def test_one_name_of_two_sizes(self):
        """The nodes decide whether that is possible, as in ONNX Runtime."""
        one = self.folder / "one.npy"
        write_npy(one, (1, 2), [1, 2])
        self.run_sub(self.a, one)
        values = read_npy(self.a)[1]
        self.assertEqual(read_npy(self.out / "a_b_0.npy")[1], [v - 1 - i % 2 for i, v in enumerate(values)])

    def test_doubles_are_converted(self):
        write_npy(self.b, (3, 2), [1, 2, 3, 4, 5, 7], "<f8")
        self.run_sub(self.a, self.b)
        self.assertEqual(read_npy(self.out / "a_b_0.npy")[1], [4, 4, 4, 4, 4, 3])

    def test_what_is_wrong_is_named(self):
        def refused(code, text, *inputs):
            listed = [part for name in inputs for part in ("--input", name)]
            self.fails(code, text, "run", self.sub, *listed, "--output-dir", self.out)

        wide = self.folder / "wide.npy"
        write_npy(wide, (3, 4), range(12))
        refused(2, "input b: shape [3,4] does not fit the declared [N,2]", self.a, wide)
        two = self.folder / "two.npy"
        write_npy(two, (2, 2), range(4))
        refused(3, "[3,2]", self.a, two)  # one name with two sizes: the node decides
        integers = self.folder / "integers.npy"
        write_npy(integers, (3, 2), range(6), "<i8")
        refused(2, "int64", self.a, integers)
        refused(2, "no --input for b", self.a)
        refused(2, "one input too many: the model has a float32 [N,2], b float32 [N,2]", self.a, self.b, self.a)
        refused(2, "no input is called 'c'; the model has a float32 [N,2], b float32 [N,2]", self.a, f"c={self.b}")
        refused(2, "given twice", f"a={self.a}", f"a={self.b}")
        refused(2, ".npy, .pb or .bin", self.a, self.write("b.txt", b"1 2"))
        refused(4, "missing.npy: ", self.a, self.folder / "missing.npy")
        cut = self.write("cut.npy", self.b.read_bytes()[:-1])
        done = lenslet("run", self.sub, "--input", self.a, "--input", cut, "--output-dir", self.out)
        self.assertIn(done.returncode, (3, 4))
        self.assertIn("cut.npy: ", done.stderr)
        self.assertFalse(self.out.exists())

    def test_outputs_are_written_wholly_or_not_at_all(self):
        self.run_sub(self.a, self.b)
        before = (self.out / "a_b_0.npy").read_bytes()

        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        inputs = ("--input", self.b, "--input", self.a)
        for folder in (self.out, self.folder / "new"):
            text = "a_b_0.npy: cannot be written: File too large"
            self.fails(4, text, "run", self.sub, *inputs, "--output-dir", folder, before=small_files)
        self.assertEqual((self.out / "a_b_0.npy").read_bytes(), before)
        self.assertEqual(os.listdir(self.out), ["a_b_0.npy"])
        self.assertEqual(os.listdir(self.folder / "new"), [])

    def test_input_whose_value_is_a_shape(self):
        ports = [port("x", FLOAT, [2, 6]), port("shape", INT64, [2])]
        nodes = [node("Reshape", ["x", "shape"], "y")]
        file = self.write("reshape.onnx", model(nodes, ports, [port("y", FLOAT, [4, 3])]))
        x, shape = self.folder / "x.npy", self.folder / "shape.npy"
        write_npy(x, (2, 6), range(12))
        write_npy(shape, (2,), [4, -1], "<i8")
        self.passes("run", file, "--input", x, "--input", shape, "--output-dir", self.out)
        self.assertEqual(read_npy(self.out / "y.npy"), ((4, 3), list(range(12))))
        write_npy(shape, (2,), [5, -1], "<i8")
        self.fails(3, "Reshape", "run", file, "--input", x, "--input", shape, "--output-dir", self.out)


class Pictures(Verb):
    """run with pictures as inputs and outputs."""

    UINT8 = 2

    def setUp(self):
        super().setUp()
        self.pixels = [int(127.5 * (value + 1)) for value in noise(5 * 4 * 3, 9)]
        self.photo = self.folder / "photo.ppm"
        write_ppm(self.photo, 5, 4, self.pixels)
        self.png = self.folder / "out.png"

    def one_node(self, name, dims, element=FLOAT, op="Identity", out=None, more=b""):
        ports = [port("x", element, dims)], [port("y", out or element, [f"d{i}" for i in range(4)])]
        return self.write(name, model([node(op, ["x"], "y") + more], *ports))

    def run_picture(self, file, *options, photo=None):
        """The one line on stderr."""
        done = lenslet("run", file, "--input", photo or self.photo, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def values(self, file, *options, photo=None):
        self.run_picture(file, "--output-dir", self.folder / "values", *options, photo=photo)
        return read_npy(self.folder / "values" / "y.npy")

    def test_as_large_as_it_is(self):
        file = self.one_node("free.onnx", ["N", 3, "H", "W"])
        shape, values = self.values(file)
        self.assertEqual(shape, (1, 3, 5, 4))
        for i, value in enumerate(self.pixels):  # H x W x C
            self.assertAlmostEqual(values[i % 3 * 20 + i // 3], value / 255, places=6)
        words = "lenslet: no card says how x takes a picture: RGB 5x4 NCHW, not resized, (pixel * 0.00392157"
        self.assertIn(words, self.run_picture(file, "--output", self.png))
        self.assertEqual(read_png(self.png), ((5, 4, 3), self.pixels))
        self.assertEqual(self.values(file, "--size", "7,9")[0], (1, 3, 7, 9))
        # Its output can be read again, whatever the file's name.
        self.png.rename(named := self.folder / "picture.npy")
        self.run_picture(file, "--output", self.png, photo=named)
        self.assertEqual(read_png(self.png)[1], self.pixels)

    def test_files_that_are_written_over(self):
        file = self.one_node("free.onnx", ["N", 3, "H", "W"])
        target, mine = self.write("there.png", b"old"), self.write("out.png.part", b"mine")
        target.chmod(0o640)
        self.png.symlink_to(target)
        self.run_picture(file, "--output", self.png)
        self.assertTrue(self.png.is_symlink())
        self.assertEqual(read_png(target), ((5, 4, 3), self.pixels))
        self.assertEqual((target.stat().st_mode & 0o777, mine.read_bytes()), (0o640, b"mine"))

    def test_preparation(self):
        file = self.one_node("fixed.onnx", [1, 3, 5, 4])
        said = ("--scale", "0.5", "--mean", "1,2,3", "--std", "4", "--bgr")
        values = self.values(file, *said)[1]
        for i, value in enumerate(self.pixels):
            c = 2 - i % 3
            self.assertAlmostEqual(values[c * 20 + i // 3], (value * 0.5 - (c + 1)) / 4, places=5)
        # A card beside the model says the same without a message; the command line overrides it.
        card = {"input": {"size": [5, 4], "channels": "BGR"}, "resize": {"mode": "stretch"},
                "normalize": {"scale": 0.5, "mean": [1, 2, 3], "std": [4, 4, 4]}}  # fmt: skip
        beside = self.write("fixed.card.json", json.dumps(card).encode())
        self.assertEqual(self.values(file)[1], values)
        self.assertIn("beyond 0 to 2.55 and", self.run_picture(file, "--output", self.png, "--output-scale", "100"))
        self.assertNotEqual(self.values(file, "--mean", "0")[1], values)
        beside.rename(other := self.folder / "other.card.json")
        self.assertEqual(self.values(file, "--card", other)[1], values)
        gray = self.one_node("gray.onnx", [1, 1, 5, 4])
        self.assertEqual(self.values(gray)[0], (1, 1, 5, 4))
        self.run_picture(gray, "--output", self.png)
        self.assertEqual(read_png(self.png)[0], (5, 4, 1))

    @unittest.skipUnless((SHARED / "images/odd").is_dir(), "shared/data is not there")
    def test_draft(self):
        file = self.one_node("draft.onnx", [1, 3, 25, 37])
        photo = SHARED / "images/odd/cat_420.jpg"  # 300 x 200
        stb = "stb_image" in lenslet("--version").stdout
        values = {}
        for draft in (False, True):
            card = {"input": {"size": [25, 37]}, "resize": {"mode": "stretch", "draft": draft}}
            self.write("draft.card.json", json.dumps(card).encode())
            self.assertEqual(json.loads(lenslet("card", file).stdout)["resize"]["draft"], draft)
            values[draft] = self.values(file, photo=photo)[1]
        off = [abs(a - b) for a, b in zip(values[False], values[True])]
        self.assertLess(sum(off) / len(off), 6)
        self.assertEqual(max(off) == 0, stb)

    def test_letterbox(self):
        file = self.one_node("free.onnx", ["N", 3, "H", "W"])
        card = {"input": {"size": [8, 8]}, "resize": {"mode": "longer_side", "size": 8},
                "pad": {"color": [114, 7, 250], "position": "center"}}  # fmt: skip
        self.write("free.card.json", json.dumps(card).encode())
        shown = json.loads(lenslet("card", file).stdout)
        self.assertEqual(shown["pad"], card["pad"])
        self.assertEqual((shown["resize"]["mode"], shown["resize"]["size"]), ("longer_side", 8))
        for side, padding in ((8, {0, 7}), (10, {0, 9})):  # 5 x 4 becomes 8 x 6 and 10 x 8
            shape, values = self.values(file, "--size", side)
            self.assertEqual(shape, (1, 3, side, side))
            columns = {x for x in range(side) if set(values[x : side * side : side]) == {114}}
            self.assertEqual(columns, padding)

    def test_bytes_and_channels_last(self):
        file = self.one_node("bytes.onnx", [1, 5, 4, 3], self.UINT8)
        self.assertIn("NHWC, not resized, (pixel * 1 -", self.run_picture(file, "--output", self.png))
        self.assertEqual(read_png(self.png), ((5, 4, 3), self.pixels))
        shape, values = self.values(self.one_node("last.onnx", ["N", "H", "W", 3]), "--scale", "1")
        self.assertEqual((shape, values), ((1, 5, 4, 3), self.pixels))

    def test_values_beyond(self):
        file = self.one_node("free.onnx", ["N", 3, "H", "W"])
        note = self.run_picture(file, "--output", self.png, "--output-scale", "1000", "--card", self.write(
            "c.card.json", b'{"input": {"size": [5, 4]}, "normalize": {"scale": 0.00392156862745098}}'))  # fmt: skip
        self.assertRegex(note, r"^lenslet: output y: \d+ of 60 values are beyond 0 to 0.255 and were clamped")
        expected = [min(255, round(value / 255 * 1000)) for value in self.pixels]
        self.assertTrue(all(abs(a - b) <= 1 for a, b in zip(read_png(self.png)[1], expected)))
        # Of 60 values none may be beyond unnoticed: a hundredth is below one.
        self.assertNotIn("beyond", self.run_picture(file, "--output", self.png, "--output-scale", "255"))

    def test_classes_are_colours(self):
        axis = field(5, field(1, "axis") + field(3, 1) + field(20, 2))
        file = self.one_node("classes.onnx", ["N", 3, "H", "W"], op="ArgMax", out=INT64, more=axis)
        self.run_picture(file, "--output", f"y={self.png}")
        colours = ((0, 0, 0), (128, 0, 0), (0, 128, 0))  # PASCAL VOC's first
        triples = [self.pixels[i : i + 3] for i in range(0, 60, 3)]
        expected = [level for triple in triples for level in colours[triple.index(max(triple))]]
        self.assertEqual(read_png(self.png), ((5, 4, 3), expected))
        self.fails_after_note("these are classes", file, "--output", self.png, "--output-scale", "1")

    def fails_after_note(self, text, file, *options):
        done = lenslet("run", file, "--input", self.photo, *options)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn(text, done.stderr.splitlines()[-1])

    def test_what_is_refused(self):
        file = self.one_node("free.onnx", ["N", 3, "H", "W"])
        fixed = self.one_node("fixed.onnx", [1, 3, 6, 6])
        run = ("run", file, "--input", self.photo)
        self.fails(2, "wanted FILE.png", *run, "--output", "out.jpg")
        self.fails(2, "no output is called 'z'; the model has y", *run, "--output", "z=out.png")
        self.fails(2, "no --output asks", *run, "--output-scale", "2")
        self.fails(2, "--size 5,5 contradicts the input x [1,3,6,6]", "run", fixed, "--input", self.photo, "--size", "5")
        self.fails(2, "2 values", *run, "--mean", "1,2")
        self.fails(2, "takes 2 pictures at once", "run", self.one_node("two.onnx", [2, 3, 5, 4]), "--input", self.photo)
        self.fails(2, "neither 1 nor 3 channels", "run", self.one_node("four.onnx", [1, 4, 5, 7]), "--input", self.photo)
        self.fails(2, "takes none", "run", self.one_node("flat.onnx", [1, 60]), "--input", self.photo)
        self.fails(2, "int64", "run", self.one_node("int.onnx", [1, 3, 5, 4], INT64), "--input", self.photo)
        self.fails(1, "GIF is not read", "run", file, "--input", self.write("a.png", b"GIF89a and more bytes"))
        self.fails(4, "no such file", "run", file, "--input", self.folder / "missing.jpg")
        self.fails(1, "cut short", "run", file, "--input", self.write("cut.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF"))
        x = self.folder / "x.npy"
        write_npy(x, (1, 3, 2, 2), range(12))
        self.fails(2, "--scale says how pictures are prepared", "run", file, "--input", x, "--scale", "1")
        four = self.one_node("matrix.onnx", [2, 2])
        write_npy(x, (2, 2), range(4))
        self.fails(2, "no output shows a picture", "run", four, "--input", x, "--output", self.png)
        done = lenslet(*run, "--output", self.folder / "none" / "a.png")
        self.assertEqual(done.returncode, 4)
        self.assertIn("a.png: cannot be written: No such file", done.stderr)
        self.assertFalse(self.png.exists())

    def test_all_values(self):
        x = self.folder / "x.npy"
        write_npy(x, (1, 3, 12, 10), noise(360, 4))
        values = self.folder / "values"
        self.passes("run", self.folder / "net.onnx", "--input", x, "--all-values", values, "--output-dir", self.folder)
        self.assertLessEqual({"x.npy", "c2.npy", "p.npy", "y.npy"}, set(os.listdir(values)))
        self.assertEqual(read_npy(values / "x.npy"), read_npy(x))
        self.assertEqual(read_npy(values / "y.npy"), read_npy(self.folder / "y.npy"))
        self.assertEqual(read_npy(values / "c2.npy")[0], (1, 5, 10, 8))


if __name__ == "__main__":
    unittest.main()
