"""PYTHONPATH=models/convert python3 tests/tools/legacy_checkpoint_test.py. Tests that need numpy or onnx skip without
them; refusals need neither."""

import os
import pathlib
import pickle
import struct
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    np = None

import legacy_checkpoint
from legacy_checkpoint import CheckpointError, parse_state_dict


# Pickle protocol 2 by hand, so that the tests need no PyTorch and can write invalid data.
def number(value):
    return b"J" + struct.pack("<i", value)


def text(value):
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor(key="0", elems=6, offset=0, shape=(2, 3), strides=(3, 1), kind="FloatStorage", view=b"N"):
    storage = b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu")
    storage += number(elems) + view + b"tQ"
    hooks = b"ccollections\nOrderedDict\n)R"
    arguments = b"(" + storage + number(offset) + numbers(shape) + numbers(strides) + b"\x89" + hooks + b"t"
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R"


def state(entries):
    body = b"".join(text(name) + value for name, value in entries.items())
    return b"\x80\x02ccollections\nOrderedDict\n)R(" + body + b"u."


def checkpoint(state_pickle, storages=(("0", struct.pack("<6f", *range(6))),), system=None, magic=None):
    dump = lambda value: pickle.dumps(value, protocol=2)
    parts = [dump(magic or legacy_checkpoint.MAGIC), dump(1001)]
    parts += [dump(system or {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}})]
    parts += [state_pickle, dump([key for key, _ in storages])]
    for _, raw in storages:
        parts += [struct.pack("<q", len(raw) // 4), raw]
    return b"".join(parts)


@unittest.skipIf(np is None, "numpy is not installed")
class Accepts(unittest.TestCase):
    def test_tensors_of_one_storage(self):
        tensors = {"a": tensor(), "transposed": tensor(shape=(3, 2), strides=(1, 3)),
                   "tail": tensor(offset=4, shape=(2,), strides=(1,)), "scalar": tensor(offset=5, shape=(), strides=())}
        arrays = parse_state_dict(checkpoint(state(tensors)))
        np.testing.assert_array_equal(arrays["a"], [[0, 1, 2], [3, 4, 5]])
        np.testing.assert_array_equal(arrays["transposed"], [[0, 3], [1, 4], [2, 5]])
        np.testing.assert_array_equal(arrays["tail"], [4, 5])
        self.assertEqual(arrays["scalar"], 5)
        self.assertEqual(arrays["a"].dtype, np.float32)


class Refuses(unittest.TestCase):
    def refuse(self, content, word):
        with self.assertRaises(CheckpointError) as caught:
            parse_state_dict(content)
        self.assertIn(word, str(caught.exception))

    def test_code_execution(self):
        # Each of these would run a command in pickle.load.
        calls = {
            "os.system": b"cos\nsystem\n(" + text("false") + b"tR",
            "builtins.eval": b"cbuiltins\neval\n(" + text("1") + b"tR",
            "torch.load": b"ctorch\nload\n(" + text("x") + b"tR",
            "collections.namedtuple": b"ccollections\nnamedtuple\n(" + text("x") + text("y") + b"tR",
        }
        for name, call in calls.items():
            with self.subTest(name):
                self.refuse(checkpoint(state({"a": call})), name)

    def test_reduce_objects_of_python(self):
        class Evil:
            def __reduce__(self):
                return (exec, ("raise SystemExit(77)",))

        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with self.subTest(protocol):
                self.refuse(checkpoint(pickle.dumps({"a": Evil()}, protocol=protocol)), "")

    def test_opcodes_outside_the_list(self):
        for opcode, body in {"INST": b"(" + text("false") + b"ios\nsystem\n", "NEWOBJ": b"ccollections\nOrderedDict\n)\x81",
                             "STACK_GLOBAL": text("os") + text("system") + b"\x93", "EXT1": b"\x82\x01",
                             "OBJ": b"(ccollections\nOrderedDict\no"}.items():
            with self.subTest(opcode):
                self.refuse(checkpoint(state({"a": body})), opcode)

    def test_calling_a_storage_type(self):
        self.refuse(checkpoint(state({"a": b"ctorch\nFloatStorage\n(" + number(3) + b"tR"})), "damaged")

    def test_a_huge_memo_slot(self):
        self.refuse(checkpoint(state({"a": b"Nr" + struct.pack("<I", 0xFFFFFFF0)})), "too long")

    def test_values_that_are_no_tensors(self):
        self.refuse(checkpoint(state({"a": tensor(), "b": number(3)})), "'b'")
        self.refuse(checkpoint(state({"a": b"ctorch\nFloatStorage\n"}), storages=()), "'a'")

    def test_tensors_outside_their_storage(self):
        for odd in (dict(shape=(3, 3)), dict(offset=1), dict(strides=(4, 1)), dict(offset=-1), dict(strides=(-3, 1)),
                    dict(shape=(1 << 30, 1 << 30), strides=(0, 0)), dict(shape=(2,)), dict(shape=(2, -3))):
            with self.subTest(odd):
                self.refuse(checkpoint(state({"a": tensor(**odd)})), "tensor")

    def test_storages_that_lie(self):
        self.refuse(checkpoint(state({"a": tensor(elems=1 << 30)})), "larger than the file")
        self.refuse(checkpoint(state({"a": tensor(), "b": tensor(elems=5, shape=(5,), strides=(1,))})), "two ways")
        self.refuse(checkpoint(state({"a": tensor(elems=7)})), "another size")
        self.refuse(checkpoint(state({"a": tensor(key="7")})), "does not fit")
        self.refuse(checkpoint(state({"a": tensor(view=number(1))})), "unknown way")
        self.refuse(checkpoint(state({"a": tensor(kind="DoubleStorage")})), "torch.DoubleStorage")

    def test_damaged_files(self):
        whole = checkpoint(state({"a": tensor()}))
        self.refuse(whole + b"\0", "follow")
        self.refuse(b"PK\x03\x04" + whole, "")
        self.refuse(checkpoint(state({"a": tensor()}), magic=7), "no PyTorch checkpoint")
        self.refuse(checkpoint(state({"a": tensor()}), system={"little_endian": False}), "little-endian")
        for end in range(len(whole)):
            with self.assertRaises(CheckpointError):
                parse_state_dict(whole[:end])


class Graph(unittest.TestCase):
    def test_padding_is_tensorflows_same(self):
        try:
            import efficientnet_lite0
        except ImportError:
            self.skipTest("onnx is not installed")
        self.assertEqual(efficientnet_lite0.same_pads(224, 3, 2), (0, 1))
        self.assertEqual(efficientnet_lite0.same_pads(56, 5, 2), (1, 2))
        self.assertEqual(efficientnet_lite0.same_pads(28, 3, 1), (1, 1))
        self.assertEqual(efficientnet_lite0.same_pads(7, 1, 1), (0, 0))
        with self.assertRaisesRegex(ValueError, "_conv_stem.weight"):
            efficientnet_lite0.build({})
        with self.assertRaisesRegex(ValueError, "_conv_stem.weight"):
            efficientnet_lite0.build({"_conv_stem.weight": np.zeros((32, 3, 3, 4), np.float32)})


class WriteAtomically(unittest.TestCase):
    def test_what_is_there_is_replaced(self):
        try:
            from prepare import write_atomically
        except ImportError as error:
            self.skipTest(str(error))
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            file, link, stale = folder / "deep" / "file", folder / "link", folder / "deep" / "file.partial"
            write_atomically(file, b"one")
            file.chmod(0o640)
            stale.write_bytes(b"of another writer")
            link.symlink_to(file)
            with file.open("rb") as old:
                write_atomically(link, b"two")
                self.assertEqual(old.read(), b"one")
            self.assertTrue(link.is_symlink())
            self.assertEqual((file.read_bytes(), file.stat().st_mode & 0o777), (b"two", 0o640))
            self.assertEqual(stale.read_bytes(), b"of another writer")
            self.assertEqual(sorted(os.listdir(folder / "deep")), ["file", "file.partial"])


if __name__ == "__main__":
    unittest.main()
