"""Files of every supported format with random headers, compared with Pillow: the same pixels, or both refuse. Intended
differences are in docs/limits.md, and are not drawn."""

import io
import itertools
import random
import re
import struct
import subprocess
import sys
import unittest
import zlib

import lenslet
import numpy as np
from models import shared_data

try:
    import PIL
    from PIL import Image, ImageOps
except ImportError:
    PIL = None

SEED, EACH = 38, 300
VERSION = subprocess.run([sys.executable, "-m", "lenslet", "--version"], capture_output=True, text=True, check=True).stdout
#: stb_image rounds JPEG differently from libjpeg-turbo, which Pillow uses.
STB = "stb_image" in VERSION
JPEG_OFF = 4 if STB else 0


def as_read(file, height, width, draft=False):
    """lenslet's pixels [H,W,3]; None if it refuses."""
    card = {
        "name": "pixels",
        "model": "any.onnx",
        "input": {"name": "image", "layout": "NHWC", "channels": "RGB", "size": [height, width]},
        "resize": {"mode": "stretch", "filter": "bilinear", "antialias": True, "draft": draft},
        "crop": "none",
        "normalize": {"scale": 1.0, "mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]},
        "output": {"name": "scores", "softmax": False, "class_offset": 0},
    }
    try:
        return lenslet.Card(card).prepare(file)
    except (lenslet.InvalidImageError, lenslet.LimitError):
        return None


def as_pillow_reads(file):
    try:
        with Image.open(io.BytesIO(file)) as image:
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    except (OSError, SyntaxError, ValueError, IndexError):
        return None


def noise(draw, count):
    return bytes(draw.getrandbits(8) for _ in range(count))


def drawn_bmp(draw):
    size = draw.choice((12, 40, 40, 52, 56, 64, 108, 124, draw.choice((16, 41, 128))))
    bits = draw.choice((1, 4, 8, 16, 24, 32, draw.choice((2, 16, 48))))
    width, height = draw.randint(1, 20), draw.randint(1, 20)
    top_down = size != 12 and draw.random() < 0.4
    compression, masks = 0, b""
    if size != 12 and draw.random() < (0.5 if bits in (16, 32) else 0.1):
        compression = 3
        r, g, b = draw.choice(
            ((0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F), (0xF00, 0xF0, 0xF))
            if bits == 16
            else ((0xFF0000, 0xFF00, 0xFF), (0xFF, 0xFF00, 0xFF0000), (0xFF000000, 0xFF0000, 0xFF00), (0xFF000000, 0xFF00, 0xFF), (0, 0, 0))
        )
        alpha = draw.choice((0, 0, 0xFF, 0xFF0000, 0xFF000000))
        masks = struct.pack("<IIII", r, g, b, alpha)
    # For one or two colours, and for grays in order, Pillow uses modes that do not match the rows.
    colors = draw.choice((0, 0, draw.randint(3, 1 << bits))) if bits in (4, 8) else 0
    entries = 1 << bits if colors == 0 and bits <= 8 else colors
    if size == 12:
        header = struct.pack("<IHHHH", size, width, height, 1, bits)
        colors, entries = 0, (1 << bits if bits <= 8 else 0)
    else:
        header = struct.pack("<IiiHHIIiiII", size, width, -height if top_down else height, 1, bits, compression, 0, 0, 0, colors, 0)
        header = (header + (masks if masks and size > 40 else b""))[:size]
        header += bytes(max(0, size - len(header)))
        if size == 40 and masks:
            header += masks[:12]
    palette = noise(draw, entries * (3 if size == 12 else 4)) if bits <= 8 else b""
    gap = draw.choice((0, 0, 0, draw.randint(1, 9)))
    at = 14 + len(header) + len(palette) + gap
    offset = draw.choice((at, at, at, 0 if gap == 0 else at, 14 + size if gap == 0 and bits <= 8 else at))
    rows = noise(draw, (width * bits + 31) // 32 * 4 * height)
    if draw.random() < 0.15:
        rows = rows[: -draw.randint(1, 6)]
    file = b"BM" + struct.pack("<IHHI", at + len(rows), 0, 0, offset) + header + palette + bytes(gap) + rows
    return file, height, width, f"BMP header={size} bits={bits} {width}x{height} masks={masks.hex()} colors={colors} offset={offset} of {at} top_down={top_down}"


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def drawn_png(draw):
    color = draw.choice((0, 2, 3, 4, 6))
    # Pillow turns most 16-bit grays to white.
    depth = draw.choice({0: (1, 2, 4, 8), 3: (1, 2, 4, 8), 4: (8,)}.get(color, (8, 16)))
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    width, height, interlaced = draw.randint(1, 20), draw.randint(1, 20), draw.random() < 0.4
    passes = ((0, 0, 1, 1),)
    if interlaced:
        passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    data = b""
    for x, y, step_x, step_y in passes:
        columns, rows = (width - x + step_x - 1) // step_x, (height - y + step_y - 1) // step_y
        for _ in range(rows if columns > 0 else 0):
            data += bytes([draw.randint(0, 4)]) + noise(draw, (columns * channels * depth + 7) // 8)
    entries = draw.choice((1 << depth, draw.randint(1, 1 << depth))) if color == 3 else 0
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced)))
    if color == 3:
        file += chunk(b"PLTE", noise(draw, 3 * entries))
        if draw.random() < 0.3:
            file += chunk(b"tRNS", noise(draw, draw.randint(1, entries)))
    elif color in (0, 2) and draw.random() < 0.2:
        file += chunk(b"tRNS", struct.pack(">H", draw.randint(0, (1 << depth) - 1)) * channels)
    file += chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return file, height, width, f"PNG color={color} depth={depth} {width}x{height} interlaced={interlaced} entries={entries}"


def drawn_pnm(draw):
    kind = draw.choice((5, 6))
    # Pillow turns most 16-bit grays to white.
    maximum = draw.choice((1, 31, 100, 254, 255, draw.randint(1, 255)) + ((256, 1023, 65535, draw.randint(256, 65535)) if kind == 6 else ()))
    width, height = draw.randint(1, 20), draw.randint(1, 20)
    def blank():
        return draw.choice((" ", "\n", "\t", "\r\n", " # of 5\n", "\n# a\n#b\n", "  "))
    header = f"P{kind}{draw.choice(' ' + chr(10))}{blank().strip(' ') if draw.random() < 0.3 else ''}{width}{blank()}{height}{blank()}{maximum}"
    samples = [draw.randint(0, maximum) for _ in range(width * height * (3 if kind == 6 else 1))]
    pixels = b"".join(struct.pack(">H" if maximum > 255 else "B", sample) for sample in samples)
    if draw.random() < 0.1:
        pixels = pixels[:-1]
    file = header.encode() + draw.choice((b"\n", b" ")) + pixels
    return file, height, width, repr(header)


def drawn_tiff(draw):
    order = draw.choice("<>")
    # Pillow accepts a float, too.
    kind, count = draw.choice((1, 2, 3, 3, 3, 4, 4, 4, 5, 6, 7, 8, 9, 10)), draw.choice((1, 1, 1, 1, 0, 2))
    value = draw.randint(0, 9)
    code = {1: "B", 2: "B", 3: "H", 4: "I", 5: "I", 6: "b", 7: "B", 8: "h", 9: "i", 10: "i"}[kind]
    entries = [struct.pack(order + "HHI", 274, kind, count) + struct.pack(order + code, value).ljust(4, b"\0")]
    if draw.random() < 0.2:  # a second one does not count
        entries.append(struct.pack(order + "HHIHH", 274, 3, 1, draw.randint(1, 8), 0))
    for tag in draw.sample((256, 271, 282, 300), draw.randint(0, 2)):
        entries.insert(draw.randint(0, len(entries)), struct.pack(order + "HHIHH", tag, 3, 1, 7, 0))
    body = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    body = b"Exif\0\0" * draw.choice((0, 0, 0, 1)) + body
    return body, f"EXIF {order} type={kind} count={count} value={value}"


def with_markers(file, markers, ids, where):
    """A JPEG from Pillow with its APP0 and APP14 segments replaced by `markers`, and its components' ids by `ids`."""
    parts, at = [], 2  # (marker, the whole segment)
    while file[at + 1] != 0xD9:
        marker, end = file[at + 1], at + 2 + struct.unpack_from(">H", file, at + 2)[0]
        segment = bytearray(file[at:end])
        if marker in (0xC0, 0xC2):
            old = segment[10::3]
            segment[10::3] = ids
        elif marker == 0xDA:
            for place in range(5, 5 + 2 * segment[4], 2):
                segment[place] = ids[old.index(segment[place])]
            while file[end] != 0xFF or file[end + 1] == 0:
                end += 1
            segment += file[at + len(segment) : end]
        if marker not in (0xE0, 0xEE):
            parts.append((marker, bytes(segment)))
        at = end
    kinds = [marker for marker, _ in parts]
    place = {"in front": 0, "behind the frame": kinds.index(0xDA), "behind a scan": kinds.index(0xDA) + 1}[where]
    parts[place:place] = [(kind, struct.pack(">BBH", 0xFF, kind, 2 + len(body)) + body) for kind, body in markers]
    return file[:2] + b"".join(part for _, part in parts) + file[at:]


@unittest.skipIf(PIL is None or int(PIL.__version__.split(".")[0]) < 13, "Pillow 13 is not here")
class DrawnPictures(unittest.TestCase):
    def compare(self, file, height, width, what):
        theirs = as_pillow_reads(file)
        ours = as_read(file, *((height, width) if theirs is None else theirs.shape[:2]))
        if theirs is None or ours is None:
            self.assertTrue(theirs is None and ours is None, f"{what}: refused by {'Pillow' if theirs is None else 'us'} alone")
            return False
        self.assertTrue(np.array_equal(ours, theirs), f"{what}: {np.abs(ours - theirs).max()} of 255 off")
        return True

    def draw(self, drawn):
        draw = random.Random(SEED)
        same = sum(self.compare(*drawn(draw)) for _ in range(EACH))
        self.assertGreater(same, EACH // 4)
        self.assertLessEqual(same, EACH)

    def test_bmp(self):
        self.draw(drawn_bmp)

    def test_png(self):
        self.draw(drawn_png)

    def test_pnm(self):
        self.draw(drawn_pnm)

    def test_exif(self):
        draw = random.Random(SEED)
        turned = 0
        for _ in range(EACH):
            body, what = drawn_tiff(draw)
            pixels = np.frombuffer(noise(draw, 60), np.uint8).reshape(4, 5, 3)
            for kind in ("png", "webp"):
                plain = io.BytesIO()
                Image.fromarray(pixels).save(plain, kind, lossless=True, exif=b"Exif\0\0" + body)
                theirs = as_pillow_reads(plain.getvalue())
                turned += theirs.shape[:2] != (4, 5)
                self.compare(plain.getvalue(), 4, 5, what + " in " + kind)
        self.assertGreater(turned, EACH // 10)

    def test_webp_and_jpeg(self):
        draw = random.Random(SEED)
        for _ in range(60):
            height, width = draw.randint(8, 40), draw.randint(8, 40)
            x, y = np.meshgrid(np.arange(width), np.arange(height))
            waves = [(np.sin(x / draw.uniform(3, 9) + draw.uniform(0, 6)) * np.cos(y / draw.uniform(3, 9)) + 1) * 127 for _ in range(4)]
            image = Image.fromarray(np.stack(waves, 2).astype(np.uint8))
            image = image.convert(draw.choice(("RGB", "RGBA")))
            file = io.BytesIO()
            image.save(file, "webp", lossless=draw.random() < 0.5, quality=draw.randint(20, 95), exact=True)
            self.compare(file.getvalue(), height, width, "WebP")
            file = io.BytesIO()
            gray, progressive = draw.random() < 0.3, draw.random() < 0.5
            how = {"quality": draw.randint(40, 95), "progressive": progressive, "subsampling": draw.choice((0, 1, 2))}
            image.convert("L" if gray else "RGB").save(file, "jpeg", **how)
            theirs = as_pillow_reads(file.getvalue())
            ours = as_read(file.getvalue(), height, width)
            off = np.abs(ours - theirs)
            if STB and how["subsampling"] == 1:  # stb_image mixes the last pair of columns of 4:2:2 differently
                off = np.delete(off, (width - 1) // 2 * 2, axis=1)
            self.assertLessEqual(off.max(), JPEG_OFF, how)

    @unittest.skipUnless("libheif" in VERSION, "built without libheif")
    def test_avif(self):
        """Near Pillow's pixels, which another library converts from YCbCr; gray ones are the same. libheif repeats colour where
        that one interpolates: a quarter of a pixel off, of waves that rise by up to 127 / 6 a pixel."""
        draw = random.Random(SEED)
        for i in range(40):
            height, width = draw.randint(24, 90), draw.randint(24, 90)
            x, y = np.meshgrid(np.arange(width), np.arange(height))
            waves = [(np.sin(x / draw.uniform(6, 15) + draw.uniform(0, 6)) * np.cos(y / draw.uniform(6, 15)) + 1) * 127 for _ in range(4)]
            mode = draw.choice(("RGB", "RGBA", "L"))
            image = Image.fromarray(np.stack(waves, 2).astype(np.uint8)).convert(mode)
            how = {"quality": draw.randint(60, 95), "subsampling": draw.choice(("4:4:4", "4:2:2", "4:2:0")), "speed": 9}
            exif = Image.Exif()
            exif[274] = 1 + i % 8
            file = io.BytesIO()
            image.save(file, "avif", exif=exif, **how)
            theirs = as_pillow_reads(file.getvalue())
            ours = as_read(file.getvalue(), *theirs.shape[:2])
            self.assertIsNotNone(ours, how)
            off = np.abs(ours - theirs)
            self.assertLessEqual(off.mean(), 0 if mode == "L" else 0.3 if how["subsampling"] == "4:4:4" else 127 / 6 / 4, (mode, how))
            for size in draw.sample(range(len(file.getvalue())), 20):
                self.assertIsNone(as_read(file.getvalue()[:size], *theirs.shape[:2]))

    def test_colors_of_jpeg(self):
        """The colour space of a JPEG by JFIF's and Adobe's markers and the components' ids, in every combination."""
        draw = random.Random(SEED)
        x, y = np.meshgrid(np.arange(24), np.arange(16))
        waves = [(np.sin(x / draw.uniform(4, 9) + draw.uniform(0, 6)) * np.cos(y / draw.uniform(4, 9)) + 1) * 127 for _ in range(4)]
        image = Image.fromarray(np.stack(waves, 2).astype(np.uint8))
        jfif = {"": b"", "JFIF": b"JFIF\0\1\1\0\0\1\0\1\0\0", "short JFIF": b"JFIF\0\1\1"}
        adobe = {"": b"", "short Adobe": b"Adobe\0\x64\0\0\0\0"}
        for version, transform in ((100, 0), (100, 1), (100, 2), (100, 7), (256, 0), (256, 1)):
            adobe[f"Adobe {version} {transform}"] = struct.pack(">5sHHHB", b"Adobe", version, 0, 0, transform)
        for mode, progressive in itertools.product(("RGB", "CMYK"), (False, True)):
            plain = io.BytesIO()
            pixels = image.convert("RGB") if mode == "RGB" else Image.frombytes("CMYK", image.size, image.tobytes())
            pixels.save(plain, "jpeg", quality=95, subsampling=0, progressive=progressive)
            ids = ("\1\2\3", "RGB", "rgb", "\0\1\2", "BGR") if mode == "RGB" else ("\1\2\3\4", "RGBA", "CMYK")
            for (a, first), (b, second), letters in itertools.product(jfif.items(), adobe.items(), ids):
                where = draw.choice(("in front", "in front", "behind the frame", "behind a scan"))
                markers = [(kind, body) for kind, body in ((0xE0, first), (0xEE, second)) if body]
                draw.shuffle(markers)
                file = with_markers(plain.getvalue(), markers, letters.encode("latin-1"), where)
                with self.subTest(f"{mode}, progressive={progressive}, {a}, {b}, {letters!r}, {where}"):
                    theirs = as_pillow_reads(file)
                    ours = as_read(file, 16, 24)
                    # Four components are read only with Adobe's marker (docs/limits.md).
                    self.assertEqual(ours is None, mode == "CMYK" and (len(second) < 12 or where == "behind a scan"))
                    if ours is not None:
                        self.assertLessEqual(np.abs(ours - theirs).max(), JPEG_OFF)

    def test_draft(self):
        """JPEGs as Pillow's draft() decodes them. The resize that follows is Pillow's, the columns first."""
        draw = random.Random(SEED)
        reduced = 0
        for _ in range(EACH):
            width, height = draw.randint(8, 200), draw.randint(8, 200)
            x, y = np.meshgrid(np.arange(width), np.arange(height))
            waves = [(np.sin(x / draw.uniform(3, 9) + draw.uniform(0, 6)) * np.cos(y / draw.uniform(3, 9)) + 1) * 127 for _ in range(4)]
            mode, exif = draw.choice(("RGB", "RGB", "L", "CMYK")), Image.Exif()
            exif[0x0112] = draw.randint(1, 8)
            image = Image.frombytes("CMYK", (width, height), np.stack(waves, 2).astype(np.uint8).tobytes())
            how = {"quality": draw.randint(40, 95), "progressive": draw.random() < 0.5, "subsampling": draw.choice((0, 1, 2)), "exif": exif}
            file = io.BytesIO()
            image.convert(mode).save(file, "jpeg", **how)
            most = draw.choice((1, 2, 4, 8, 9))
            wanted = [max(1, side // most - draw.randint(0, 1)) for side in (width, height)]  # as stored
            with Image.open(file) as theirs:
                theirs.draft(None, wanted)
                reduced += theirs.size != (width, height)
                if exif[0x0112] >= 5:
                    wanted.reverse()
                theirs = ImageOps.exif_transpose(theirs).convert("RGB")
            for size in ((wanted[0], theirs.height), wanted):
                theirs = theirs.resize(size, Image.Resampling.BILINEAR)
            if STB:
                theirs = as_read(file.getvalue(), *reversed(wanted))
            ours = as_read(file.getvalue(), *reversed(wanted), draft=True)
            self.assertTrue(np.array_equal(ours, np.asarray(theirs)), (width, height, mode, wanted, how))
        self.assertGreater(reduced, EACH // 2)

    @unittest.skipIf(STB, "stb_image notices less")
    def test_lost_data(self):
        """Files with valid markers, chunks and checksums, whose pixels are incomplete."""
        draw = random.Random(SEED)
        image = Image.frombytes("RGB", (64, 64), noise(draw, 64 * 64 * 3))
        refused = lambda file: self.assertIsNone(as_read(file, 64, 64))  # noqa: E731
        for progressive in (False, True):
            file = io.BytesIO()
            image.save(file, "jpeg", progressive=progressive, restart_marker_blocks=4)
            whole = file.getvalue()
            self.compare(whole, 64, 64, "whole")
            for part in range(2, 9):
                refused(whole[: len(whole) * part // 10] + b"\xff\xd9")
            first = re.search(rb"\xff\xd1", whole).start()
            refused(whole[:first] + whole[first + 2 :])  # a restart is missing
            refused(whole[:first] + bytes(40) + whole[first:])  # extra bytes before one
            # After the last pixel no pixel is lost.
            self.compare(whole[:-2] + b"\0\0" + whole[-2:], 64, 64, "bytes in front of the end")
        sequential = io.BytesIO()
        image.convert("L").save(sequential, "jpeg", progressive=True)
        parts = re.split(rb"(?=\xff\xda)", sequential.getvalue()[:-2])
        self.compare(b"".join(parts) + b"\xff\xd9", 64, 64, "whole")
        refused(b"".join(parts[:-1]) + parts[-1] * 100 + b"\xff\xd9")

        head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0))
        data = zlib.compress((b"\0" + noise(draw, 64)) * 64)
        png = lambda data: head + chunk(b"IDAT", data) + chunk(b"IEND", b"")  # noqa: E731
        self.compare(png(data), 64, 64, "whole")
        refused(png(data[: len(data) // 2]))
        refused(png(data[:-4] + bytes(4)))  # a wrong checksum of the pixels
        refused(png(data[:-4]))
        self.compare(png(data + bytes(9)), 64, 64, "bytes behind the last pixel")

    def test_shared(self):
        if shared_data() is None or not (folder := shared_data() / "faults/pictures").is_dir():
            self.skipTest("shared/data/faults is not here")
        files = [file for file in sorted(folder.iterdir()) if not file.name.endswith(".expected.ppm")]
        self.assertGreater(len(files), 15)
        for file in files:
            with self.subTest(file.name):
                theirs = np.asarray(Image.open(str(file) + ".expected.ppm").convert("RGB"))
                ours = as_read(file, *theirs.shape[:2])
                self.assertIsNotNone(ours)
                self.assertLessEqual(np.abs(ours - theirs).max(), JPEG_OFF if file.suffix == ".jpg" else 0)


if __name__ == "__main__":
    unittest.main()
