"""Memory that decoding a picture takes, from its header: counted before it is decoded."""

from __future__ import annotations

import re
import struct

from .protocol import Buffer

#: Bytes a pixel of the decoder, including its output; measured, with a margin.
OF_JPEG, OF_OTHERS, OF_HEIF = 16, 12, 20
#: Pixels of the largest picture that is decoded (docs/limits.md); the decoder refuses larger ones.
MOST_PIXELS = 100_000_000
#: Bytes of a JPEG searched at a time, and maximum number of segments, far above any camera's; a million take seconds.
LOOK_BYTES, JPEG_STEPS = 1 << 18, 4096
_MARKER = re.compile(rb"\xff[^\x00\x01\xff\xd0-\xd8]", re.DOTALL)
_PNM = re.compile(rb"P[1-6](?:\s|#[^\n]*\n)+(\d{1,9})(?:\s|#[^\n]*\n)+(\d{1,9})")

#: The size of a picture of a HEIF file.
_ISPE = re.compile(rb"\x00\x00\x00\x14ispe\x00\x00\x00\x00(.{8})", re.DOTALL)


def decoding_bytes(picture: Buffer) -> int:
    """0 for anything that is not a picture."""
    head = bytes(picture[:32])
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        if len(head) < 26:
            return 0
        width, height, depth, colour = struct.unpack(">IIBB", head[16:26])
        samples = {0: 1, 2: 3, 3: 4, 4: 2, 6: 4}.get(colour, 4)
        return _bytes(width, height, 2 * samples * max(1, depth // 8) + 4)
    if head.startswith(b"\xff\xd8"):
        return _jpeg_bytes(picture)
    if head.startswith(b"BM") and len(head) >= 26:
        width, height = struct.unpack("<ii", head[18:26])
        return _bytes(abs(width), abs(height), OF_OTHERS)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp_bytes(head, len(picture))
    if head[4:8] == b"ftyp":
        sizes = (struct.unpack(">II", found[1]) for found in _ISPE.finditer(picture))
        return max((_bytes(width, height, OF_HEIF) for width, height in sizes), default=0)
    found = _PNM.match(bytes(picture[:4096]))
    return _bytes(int(found[1]), int(found[2]), OF_OTHERS) if found else 0


def _bytes(width: int, height: int, each: int) -> int:
    return width * height * each if 0 < width * height <= MOST_PIXELS else 0


def _jpeg_bytes(picture: Buffer) -> int:
    """By the largest frame before the first scan."""
    at, most = 2, 0
    for _ in range(JPEG_STEPS):
        found = _MARKER.search(picture, at, at + LOOK_BYTES + 1)
        if found is None:
            at += LOOK_BYTES
        else:
            at = found.start()
        if at + 9 >= len(picture):
            return most
        if found is None:
            continue
        marker = picture[at + 1]
        if marker == 0xDA:
            return most
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", bytes(picture[at + 5 : at + 9]))
            most = max(most, _bytes(width, height, OF_JPEG))
        at += 2 + int.from_bytes(picture[at + 2 : at + 4], "big")
    return MOST_PIXELS * OF_JPEG


def _webp_bytes(head: bytes, size: int) -> int:
    if len(head) < 30:
        return 0
    kind = head[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
    elif kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (int.from_bytes(head[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    return _bytes(width, height, OF_OTHERS) + 16 * size
