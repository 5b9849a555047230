"""Reads PNG files with Python's standard library only."""

import pathlib
import struct
import zlib


def read_png(file):
    """(height, width, channels), and the bytes of an 8-bit PNG file, by its specification."""
    data, at, packed = pathlib.Path(file).read_bytes(), 8, b""
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, bits, colour = struct.unpack(">IIBB", body[:10])
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    channels = {0: 1, 2: 3, 6: 4}[colour]
    assert bits == 8
    raw, stride, above, pixels = zlib.decompress(packed), width * channels, bytes(width * channels), b""
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for i in range(stride):
            left, corner = (line[i - channels], above[i - channels]) if i >= channels else (0, 0)
            up, guess = above[i], left + above[i] - corner
            paeth = min((left, up, corner), key=lambda value: abs(guess - value))
            line[i] = (line[i] + (0, left, up, (left + up) // 2, paeth)[kind]) % 256
        above = bytes(line)
        pixels += above
    return (height, width, channels), list(pixels)
