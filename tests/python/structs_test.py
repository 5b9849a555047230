"""Compares the package's ctypes declarations with the C headers."""

import ctypes
import re
import unittest

from lenslet import _library, _structs
from models import ROOT

TYPES = {
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "lenslet_status": ctypes.c_int32,
}
HEADERS = ("include/lenslet/lenslet.h", "include/lenslet/lenslet_photos.h", "python/native/python.h")


def headers():
    text = "".join((ROOT / name).read_text() for name in HEADERS)
    return re.sub(r"/\*.*?\*/|^#.*?$", "", text, flags=re.DOTALL | re.MULTILINE)


def members(body):
    """[(name, bytes, whether it is an address)]"""
    found = []
    for declaration in filter(None, map(str.strip, body.split(";"))):
        kind, names = re.match(r"(?:const )?(\w+)(.*)", declaration, re.DOTALL).groups()
        for name in names.split(","):
            pointer = "*" in name or "*" in names.split(",")[0] and name == names.split(",")[0]
            word, count = re.match(r"[\s*]*(?:const\b[\s*]*)?(\w+)(?:\[(\w+)\])?", name).groups()
            size = 8 if pointer else ctypes.sizeof(TYPES[kind])
            found.append((word, size * (_structs.MAX_RANK if count else 1), pointer))
    return found


class Declarations(unittest.TestCase):
    def test_structs(self):
        structs = dict(re.findall(r"typedef struct lenslet_(\w+) \{(.*?)\} \w+;", headers(), re.DOTALL))
        ours = [s for s in vars(_structs).values() if isinstance(s, type) and issubclass(s, ctypes.Structure)]
        self.assertGreater(len(ours), 7)
        for struct in ours:
            name = re.sub(r"(?<!^)([A-Z])", r"_\1", struct.__name__).lower()
            if struct is ctypes.Structure:
                continue
            with self.subTest(name):
                declared = members(structs[name])
                self.assertEqual([n for n, _, _ in declared], [field[0] for field in struct._fields_])
                for (member, size, pointer), (_, kind) in zip(declared, struct._fields_):
                    self.assertEqual(ctypes.sizeof(kind), size, member)
                    if pointer:
                        self.assertTrue(
                            kind in (ctypes.c_void_p, ctypes.c_char_p)
                            or issubclass(kind, (ctypes._Pointer, ctypes.Array)),
                            member,
                        )

    def test_functions(self):
        declared = dict(re.findall(r"LENSLET_C_API lenslet_status (\w+)\((.*?)\);", headers(), re.DOTALL))
        for name, arguments in _library._FUNCTIONS.items():
            with self.subTest(name):
                given = [a.strip() for a in declared[name].split(",")]
                self.assertEqual(len(arguments), len(given), declared[name])
                for ours, theirs in zip(arguments, given):
                    number = TYPES.get(theirs.split()[0])
                    if "*" not in theirs and number is not None:
                        self.assertIs(ours, number, theirs)
                    else:
                        self.assertEqual(ctypes.sizeof(ours), 8, theirs)

    def test_element_types(self):
        from lenslet._dtypes import NAMES

        numbers = dict(re.findall(r"LENSLET_(\w+) = (\d+)", re.search(r"LENSLET_F32 = 0.*?\}", headers(), re.S).group()))
        self.assertEqual(len(numbers), len(NAMES))
        for number, name in enumerate(NAMES):
            self.assertIn(str(number), numbers.values())
            self.assertEqual(_library.library.lenslet_dtype_bytes(number), {"64": 8, "32": 4, "16": 2}.get(name[-2:], 1))

    def test_version(self):
        for part in ("MAJOR", "MINOR"):
            number = re.search(rf"LENSLET_API_{part} (\d+)u", (ROOT / HEADERS[0]).read_text()).group(1)
            self.assertEqual(getattr(_library, f"API_{part}"), int(number))


if __name__ == "__main__":
    unittest.main()
