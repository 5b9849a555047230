"""tiny_model.py FOLDER: writes rgb.onnx, which names the main colour of a photo, its labels, and two photos; and
segment.onnx, which does so pixel by pixel, and halves.ppm, red and, in its last quarter, blue; and voxels.onnx, which
puts points [n,4] into a dense map of 2x3x4 cells of a metre, and points.bin, of two cells.

rgb.onnx is GlobalAveragePool -> Flatten -> Gemm(10 * identity) over [N,3,224,224], segment.onnx a 1x1 Conv of the same
weights over [N,3,H,W]. They are written field by field in protobuf's wire format, so that tests of the package, the
command and Python need neither the onnx package nor downloads: they run in an empty environment (tests/install,
tests/python/wheel_test.sh) and with a Python without packages (tests/tools). Tests with onnx use that.
"""

import pathlib
import struct
import sys
import zlib


FLOAT, INT64 = 1, 7


def varint(number):
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def field(number, value):
    """One field: an int as varint, text, bytes or a nested message as length-delimited."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def port(name, element, dims):
    shape = b"".join(field(1, field(2, dim) if isinstance(dim, str) else field(1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, element) + field(2, shape)))


def initializer(name, dims, values, element=FLOAT):
    raw = struct.pack(f"<{len(values)}{'f' if element == FLOAT else 'q'}", *values)
    return b"".join(field(1, dim) for dim in dims) + field(2, element) + field(8, name) + field(9, raw)


def node(op, inputs, output, **integers):
    """With integer attributes."""
    attributes = b"".join(field(5, field(1, name) + field(20, 2) + field(3, value)) for name, value in integers.items())
    return b"".join(field(1, name) for name in inputs) + field(2, output) + field(3, op.lower()) + field(4, op) + attributes


def model(nodes, inputs, outputs, initializers=(), name="graph", more=b""):
    """From ports; IR 8, opset 13. `more`: fields of the model."""
    parts = {1: nodes, 5: initializers, 11: inputs, 12: outputs}
    graph = field(2, name) + b"".join(field(number, part) for number, list in parts.items() for part in list)
    return field(1, 8) + field(7, graph) + field(8, field(2, 13)) + more


def floats(name, values):
    return field(1, name) + field(20, 6) + field(7, struct.pack(f"<{len(values)}f", *values))


def integers(name, values):
    return field(1, name) + field(20, 7) + field(8, b"".join(map(varint, values)))


def own(op, inputs, outputs, *attributes):
    return (
        b"".join(field(1, name) for name in inputs)
        + b"".join(field(2, name) for name in outputs)
        + field(4, op)
        + b"".join(field(5, attribute) for attribute in attributes)
        + field(7, "lenslet")
    )


def png_chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, colour, rows, depth=8, level=-1):
    """A PNG of the colour type, from rows of bytes, compressed one by one."""
    packer = zlib.compressobj(level)
    data = b"".join(packer.compress(b"\0" + row) for row in rows) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", head) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def main():
    folder = pathlib.Path(sys.argv[1])
    weights = [10.0 if row == column else 0.0 for row in range(3) for column in range(3)]
    rgb = model(
        [node("GlobalAveragePool", ["image"], "pooled"), node("Flatten", ["pooled"], "flat"),
         node("Gemm", ["flat", "weights", "bias"], "scores")],
        [port("image", FLOAT, ["N", 3, 224, 224])], [port("scores", FLOAT, ["N", 3])],
        [initializer("weights", [3, 3], weights), initializer("bias", [3], [0.0, 0.0, 0.0])], "rgb")
    segment = model(
        [node("Conv", ["image", "weights"], "scores")],
        [port("image", FLOAT, ["N", 3, "H", "W"])], [port("scores", FLOAT, ["N", 3, "H", "W"])],
        [initializer("weights", [3, 3, 1, 1], weights)], "segment")
    voxels = model(
        [own("SparseVoxelize", ["points"], ["indices", "features"], floats("voxel_size", [1.0] * 3),
             floats("range_min", [0.0] * 3), floats("range_max", [4.0, 3.0, 2.0])),
         own("SparseToDense", ["indices", "features"], ["map"], integers("spatial_shape", [2, 3, 4]))],
        [port("points", FLOAT, ["n", 4])], [port("map", FLOAT, [1, 4, 2, 3, 4])],
        name="voxels", more=field(8, field(1, "lenslet") + field(2, 1)))
    for name, data in (("rgb", rgb), ("segment", segment), ("voxels", voxels)):
        (folder / f"{name}.onnx").write_bytes(data)
    points = [0.5, 0.5, 0.5, 0.1, 0.6, 0.6, 1.5, 0.1, 3.5, 1.5, 1.5, 0.1, 9.0, 9.0, 9.0, 0.1]
    (folder / "points.bin").write_bytes(struct.pack(f"<{len(points)}f", *points))
    halves = bytes((240, 0, 0) * 30 + (0, 0, 240) * 10) * 20
    (folder / "halves.ppm").write_bytes(b"P6 40 20 255\n" + halves)
    (folder / "rgb.txt").write_text("red\ngreen\nblue\n")
    for name, pixel in (("red", (250, 20, 30)), ("blue", (10, 40, 240))):
        width, height = 300, 260
        (folder / f"{name}.ppm").write_bytes(b"P6 %d %d 255\n" % (width, height) + bytes(pixel) * (width * height))


if __name__ == "__main__":
    main()
