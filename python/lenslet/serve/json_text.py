"""JSON of requests. No objects are built before their number is checked.

"data" of numbers, and long strings, are cut out; the rest is at most REST_BYTES and goes to json.loads. Numbers are
parsed in pieces into an array of the size that the model expects. Only a piece at a time is processed under the GIL, so
that a thread that parses JSON delays the event loop by milliseconds at most.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import secrets
from typing import Any, Iterator, List, NamedTuple, Union

import numpy as np

from .memory import Memory
from .protocol import Array, Buffer, LongText, Shape, TextOfNumbers, malformed, quoted

#: Bytes of JSON besides numbers and long strings.
REST_BYTES = 1 << 16
#: Longer strings are cut out.
LONG_STRING = 512
#: Bytes searched or converted at a time; the second is the maximum length of a number.
LOOK_BYTES, PIECE_BYTES = 1 << 18, 1 << 14

# Marks the place of a part that was cut out. It cannot be guessed, and no answer contains it.
_MARK = secrets.token_hex(16)
_OPENING = re.compile(rb"[ \t\r\n]{0,64}:[ \t\r\n]{0,64}\[")
_NO_STRING = re.compile(rb'[^"{}:]*')
_QUOTE, _QUOTE_OR_ESCAPE = re.compile(rb'"'), re.compile(rb'["\\]')
_NO_STRUCTURE = bytes(set(range(256)) - set(b"[],"))
_OF_NUMBERS, _OF_TRUTHS = b"0123456789+-.eE \t\r\n[],NaInfity", b"truefals \t\r\n[],"
_BRACKETS_TO_BLANKS = bytes.maketrans(b"[]", b"  ")
_NO_ELEMENT = re.compile(rb"[^\[,\s]\s*\[|\]\s*[^\],\s]")
# Characters of base64 that some clients escape.
_ESCAPED = ((b"\\/", b"/"), (b"\\u002B", b"+"), (b"\\u002b", b"+"), (b"\\u002F", b"/"), (b"\\u003D", b"="))


class Numbers(TextOfNumbers):
    """"data" of numbers or booleans: the text of a JSON array."""

    __slots__ = ("text", "memory")

    def __init__(self, text: memoryview, memory: Memory) -> None:
        self.text, self.memory = text, memory

    def array(self, name: str, datatype: str, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """The elements, flat or nested like `shape`. RequestError."""
        count, where = math.prod(shape), f"input {quoted(name)}: "
        commas, empty = 0, True
        for piece in self._looked_at():
            if piece.translate(None, _OF_TRUTHS if dtype == np.bool_ else _OF_NUMBERS):
                raise malformed(f"{where}'data' does not hold {datatype}")
            commas += piece.count(b",")
            empty = empty and not piece.translate(None, b" \t\r\n[],")
        nested = bytes(self.text[1:65]).lstrip(b" \t\r\n")[:1] == b"["
        structure = (piece.translate(None, _NO_STRUCTURE) for piece in self._looked_at())
        if nested and not _alike(structure, _nested(shape)):
            raise malformed(f"{where}'data' is ragged, or nested other than its shape {list(shape)}")
        elements = 0 if empty else commas + 1
        if elements != count:
            raise malformed(f"{where}{elements} elements, but shape {list(shape)} has {count}")
        if not nested and not _alike(structure, _nested((count,))):
            raise malformed(f"{where}'data' is ragged")
        made = self.memory.array(count * dtype.itemsize, f"input {quoted(name)}").view(dtype)
        filled = 0
        for piece in self._pieces(where) if count else ():
            if nested and _NO_ELEMENT.search(piece):
                raise malformed(f"{where}'data' is no JSON")
            try:
                values = json.loads(b"[%b]" % piece.translate(_BRACKETS_TO_BLANKS))
            except (ValueError, RecursionError) as error:
                raise malformed(f"{where}'data' is no JSON: {error}") from None
            part = _converted(values, where, datatype, dtype)
            made[filled : filled + len(part)] = part
            filled += len(part)
        assert filled == count
        return made.reshape(shape)

    def _looked_at(self) -> Iterator[bytes]:
        for at in range(0, len(self.text), LOOK_BYTES):
            yield bytes(self.text[at : at + LOOK_BYTES])

    def _pieces(self, where: str) -> Iterator[bytes]:
        """Split at commas."""
        at = 0
        while at < len(self.text):
            piece = bytes(self.text[at : at + PIECE_BYTES])
            if at + len(piece) < len(self.text):
                cut = piece.rfind(b",")
                if cut < 0:
                    raise malformed(f"{where}a number of more than {PIECE_BYTES} bytes")
                piece = piece[:cut]
            yield piece
            at += len(piece) + 1


def _converted(values: List[Any], where: str, datatype: str, dtype: np.dtype[Any]) -> Array:
    """Converts a piece. RequestError."""
    if not values:
        raise malformed(f"{where}'data' is no JSON: an element is missing")
    if dtype.kind == "f":
        try:
            with np.errstate(over="ignore"):  # a float beyond the type's range becomes infinite, as in files
                return np.array(values, np.float64).astype(dtype)
        except OverflowError:
            raise malformed(f"{where}'data' goes beyond {datatype}") from None
    wanted = bool if dtype.kind == "b" else int
    if any(type(value) is not wanted for value in values):
        raise malformed(f"{where}'data' does not hold {datatype}")
    if wanted is int:
        limits = np.iinfo(dtype)
        if min(values) < limits.min or max(values) > limits.max:
            raise malformed(f"{where}'data' goes beyond {datatype}")
    return np.array(values, dtype)


def _nested(shape: Shape) -> Iterator[bytes]:
    """The brackets and commas of an array with this shape."""
    if not shape:
        return
    yield b"["
    size = _nested_bytes(shape[1:])
    if size > PIECE_BYTES:
        for number in range(shape[0]):
            yield b"," if number else b""
            yield from _nested(shape[1:])
    elif shape[0]:
        part = b"".join(_nested(shape[1:]))
        yield part
        left, most = shape[0] - 1, PIECE_BYTES // (size + 1) + 1
        while left:
            yield (b"," + part) * min(left, most)
            left -= min(left, most)
    yield b"]"


def _nested_bytes(shape: Shape) -> int:
    return shape[0] * (_nested_bytes(shape[1:]) + 1) + 2 - (shape[0] > 0) if shape else 0


def _alike(ones: Iterator[bytes], others: Iterator[bytes]) -> bool:
    """Whether both give the same bytes, however they are split."""
    one = other = b""
    while True:
        while not one:
            following = next(ones, None)
            if following is None:
                return not other and not any(others)
            one = following
        while not other:
            following = next(others, None)
            if following is None:
                return False
            other = following
        size = min(len(one), len(other))
        if one[:size] != other[:size]:
            return False
        one, other = one[size:], other[size:]


class Text(LongText):
    """A long string, without its quotes."""

    __slots__ = ("text", "memory")

    def __init__(self, text: memoryview, memory: Memory) -> None:
        self.text, self.memory = text, memory

    def string(self) -> str:
        """For a name, or a short picture. RequestError."""
        if len(self.text) > REST_BYTES:
            raise malformed(f"a string of more than {REST_BYTES} bytes that is no base64")
        return str(_loaded(b'"%b"' % self.text.tobytes()))

    def decoded(self) -> Buffer:
        """Decodes base64. binascii.Error."""
        made = self.memory.array(len(self.text) // 4 * 3 + 3, "a picture")
        left, at, filled = b"", 0, 0
        while at < len(self.text):
            piece = bytes(self.text[at : at + LOOK_BYTES])
            cut = piece.find(b"\\", -5)
            if cut > 0 and at + len(piece) < len(self.text):
                piece = piece[:cut]
            at += len(piece)
            for escaped, letter in _ESCAPED if b"\\" in piece else ():
                piece = piece.replace(escaped, letter)
            left += piece
            whole = len(left) if at == len(self.text) else len(left) // 4 * 4
            if at < len(self.text) and b"=" in left[:whole]:
                raise binascii.Error("it ends before its end")
            part = base64.b64decode(left[:whole], validate=True)
            made[filled : filled + len(part)] = np.frombuffer(part, np.uint8)
            filled += len(part)
            left = left[whole:]
        return made[:filled].data


#: The parts that were cut out.
Cut = Union[Numbers, Text]


class Rest(NamedTuple):
    """JSON without the parts that were cut out."""

    text: bytes
    cut: List[Cut]

    def loaded(self) -> Any:
        """RequestError."""
        return _loaded(self.text)


def found(value: Any, cut: List[Cut]) -> Any:
    """The part that a marker stands for; other values unchanged."""
    if isinstance(value, str) and value.startswith(_MARK):
        return cut[int(value[len(_MARK) :])]
    return value


def string(value: Any, cut: List[Cut]) -> Any:
    """The same, but a long string stays unparsed."""
    value = found(value, cut)
    return value.string() if isinstance(value, Text) else value


def numbers(values: List[Any], memory: Memory) -> Numbers:
    """For a list that was not cut out, because it is short."""
    return Numbers(memoryview(json.dumps(values).encode()), memory)


def _loaded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise malformed(f"the body is no JSON: {error or type(error).__name__}") from None


def cut_out(body: memoryview, memory: Memory) -> Rest:
    """RequestError for obviously invalid JSON, and for too much besides the data."""
    kept: List[bytes] = []
    cut: List[Cut] = []
    size = at = 0

    def keep(end: int) -> None:
        nonlocal size
        size += end - at
        if size > REST_BYTES:
            raise malformed(f"more than {REST_BYTES} bytes of JSON besides the data of inputs")
        kept.append(bytes(body[at:end]))

    def leave(what: Cut) -> None:
        kept.append(b'"%b%d"' % (_MARK.encode(), len(cut)))
        cut.append(what)

    while True:
        begin = _search(_QUOTE, body, at)
        if begin == len(body):
            keep(begin)
            return Rest(b"".join(kept), cut)
        end = _string_end(body, begin + 1)
        if end - begin > LONG_STRING:
            keep(begin)
            leave(Text(body[begin + 1 : end], memory))
            at = end + 1
            continue
        keep(end + 1)
        at = end + 1
        if bytes(body[begin:at]) == b'"data"':
            opening = _OPENING.match(body, at)
            if opening is not None:
                first = opening.end() - 1
                last = _array_end(body, first)
                if last:
                    keep(first)
                    leave(Numbers(body[first:last], memory))
                    at = last


def _search(pattern: re.Pattern[bytes], body: memoryview, at: int) -> int:
    """Position of the first match; the end if there is none."""
    while at < len(body):
        match = pattern.search(body, at, at + LOOK_BYTES)
        if match is not None:
            return match.start()
        at += LOOK_BYTES
    return len(body)


def _string_end(body: memoryview, at: int) -> int:
    """The closing quote of the string that begins there. RequestError."""
    while True:
        at = _search(_QUOTE_OR_ESCAPE, body, at)
        if at >= len(body):
            raise malformed("the body is no JSON: a string has no end")
        if body[at] == 0x22:
            return at
        at += 2


def _array_end(body: memoryview, first: int) -> int:
    """The end of an array without strings and objects; 0 if it has any, or no end."""
    at = first
    while at < len(body):
        match = _NO_STRING.match(body, at, at + LOOK_BYTES)
        assert match is not None
        if match.end() == at:
            break
        at = match.end()
    tail = b""
    while at > first and not tail:  # the text up to the next name
        begin = max(first, at - PIECE_BYTES)
        tail = bytes(body[begin:at]).rstrip(b" \t\r\n,")
        at = begin
    return at + len(tail) if tail.endswith(b"]") else 0
