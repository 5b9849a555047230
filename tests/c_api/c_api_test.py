"""lenslet.h as an app uses it: compiled as C99, called through ctypes, and its ABI compared with abi.txt.

Needs only Python's standard library. LENSLET_LIBRARY is liblenslet.so, LENSLET_CXX a compiler that takes -x c,
LENSLET_SANITIZE what the library was sanitized with. `c_api_test.py --update` rewrites abi.txt, only for additions.
"""

import concurrent.futures
import ctypes
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HEADER = ROOT / "include" / "lenslet" / "lenslet.h"
LIBRARY = os.environ["LENSLET_LIBRARY"]
COMPILER = os.environ.get("LENSLET_CXX", "c++")
SANITIZE = os.environ.get("LENSLET_SANITIZE", "")
STRICT = ["-x", "c", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lenslet-c-api-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


def tiny_model(folder):
    subprocess.run([sys.executable, ROOT / "tests" / "install" / "tiny_model.py", folder], check=True)
    return folder / "rgb.onnx"


def compiled(source, program, libraries=()):
    command = [COMPILER, *STRICT, f"-I{ROOT / 'include'}", str(source), "-x", "none", *libraries, "-o", str(program)]
    if libraries and SANITIZE:
        command.insert(1, f"-fsanitize={SANITIZE}")
    subprocess.run(command, check=True)
    return program


class C99(InFolder):
    def test_compiles_and_runs(self):
        library = pathlib.Path(LIBRARY)
        program = compiled(HERE / "c99.c", self.folder / "c99", [library, f"-Wl,-rpath,{library.parent}"])
        done = subprocess.run([program, tiny_model(self.folder)], stdout=subprocess.PIPE, text=True, check=True)
        self.assertRegex(done.stdout, r"^[1-9]\d* steps, scores 0 10 0, plan of the cpu\n$")


# ---- The binary interface ----


def described():
    """abi.txt for the current header and library."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    lines = []
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", text, re.DOTALL):
        lines.append(f'printf("struct {name} %u\\n", (unsigned)sizeof({name}));')
        for declaration in filter(None, map(str.strip, body.split(";"))):
            pointer = re.match(r".*?\(\*(\w+)\)\(", declaration, re.DOTALL)
            names = [pointer[1]] if pointer else re.findall(r"(\w+)(?:\[\w+\])?(?=,|$)", declaration)
            for member in names:
                lines.append(
                    f'printf("  {member} at %u of %u bytes\\n", (unsigned)offsetof({name}, {member}), '
                    f"(unsigned)sizeof((({name}*)0)->{member}));"
                )
    for constant in re.findall(r"\b(LENSLET_\w+)(?= = |\s+UINT64_C| \d)", text):
        lines.append(f'printf("{constant} %ld\\n", (long){constant});')
    with tempfile.TemporaryDirectory(prefix="lenslet-abi-") as folder:
        source = pathlib.Path(folder) / "abi.c"
        source.write_text(
            "#include <lenslet/lenslet.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n"
            + "\n".join(lines)
            + "\nreturn 0;\n}\n"
        )
        of_header = subprocess.run(compiled(source, source.with_suffix("")), stdout=subprocess.PIPE, text=True, check=True)
    return of_header.stdout + "".join(f"{declared().get(name, name)}\n" for name in exported())


def exported():
    symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], stdout=subprocess.PIPE, text=True, check=True)
    return sorted(re.findall(r"^\w+ \w (lenslet_\w+)$", symbols.stdout, re.MULTILINE))


def declared():
    """{function: its declaration}."""
    text = re.sub(r"/\*.*?\*/|^#.*?$", "", HEADER.read_text(), flags=re.DOTALL | re.MULTILINE)
    declarations = [" ".join(d.split()) for d in re.findall(r"LENSLET_C_API ([^;]*);", text)]
    return {d.split("(")[0].split()[-1].lstrip("*"): d for d in declarations}


@unittest.skipIf(sys.maxsize < 2**32, "abi.txt is of 64-bit machines")
class Abi(unittest.TestCase):
    def test_is_what_is_written_down(self):
        self.maxDiff = None
        self.assertEqual(described(), (HERE / "abi.txt").read_text())

    def test_exports_what_is_declared(self):
        self.assertEqual(exported(), sorted(declared()))


# ---- Through ctypes ----

Size = ctypes.c_size_t


class Tensor(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("data", ctypes.c_void_p), ("bytes", Size), ("dtype", ctypes.c_int32),
                ("memory", ctypes.c_int32), ("rank", ctypes.c_int32), ("reserved", ctypes.c_int32),
                ("dims", ctypes.c_int64 * 8)]  # fmt: skip


class Port(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("dims", ctypes.c_int64 * 8), ("dim_names", ctypes.c_char_p * 8)]  # fmt: skip


Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)
RunTasks = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, Task, ctypes.c_void_p)
Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Executor(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("context", ctypes.c_void_p), ("run", RunTasks), ("release", Release)]


class LayerAlgorithm(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("layer", ctypes.c_char_p), ("algorithm", ctypes.c_char_p)]


class PlanOptions(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("device", ctypes.c_char_p), ("precision", ctypes.c_char_p),
                ("conv_algorithm", ctypes.c_char_p), ("batch", ctypes.c_int64), ("threads", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("flags", ctypes.c_uint64), ("other_shapes", ctypes.c_uint64),
                ("shapes", ctypes.c_void_p), ("shape_count", Size), ("executor", ctypes.POINTER(Executor)),
                ("allocator", ctypes.c_void_p), ("layer_algorithms", ctypes.POINTER(LayerAlgorithm)),
                ("layer_algorithm_count", Size), ("disabled_passes", ctypes.POINTER(ctypes.c_char_p)),
                ("disabled_pass_count", Size), ("calibration", ctypes.POINTER(Tensor)), ("calibration_count", Size),
                ("input_values", ctypes.c_void_p), ("input_value_count", Size)]  # fmt: skip


class RunOptions(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("cancel", ctypes.c_void_p), ("cuda_stream", ctypes.c_void_p)]


class Event(ctypes.Structure):
    _fields_ = [("struct_size", Size), ("name", ctypes.c_char_p), ("op", ctypes.c_char_p),
                ("algorithm", ctypes.c_char_p), ("ms", ctypes.c_double), ("step", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("inputs", Size), ("outputs", Size), ("values", ctypes.c_void_p)]  # fmt: skip


Observer = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Event))


def made(kind, **members):
    return kind(struct_size=ctypes.sizeof(kind), **members)


def tensor(array, *dims):
    return made(Tensor, data=ctypes.addressof(array), bytes=ctypes.sizeof(array), rank=len(dims),
                dims=(ctypes.c_int64 * 8)(*dims))  # fmt: skip


@unittest.skipIf(SANITIZE, "a sanitized library wants a sanitized program")
class Ctypes(InFolder):
    def setUp(self):
        super().setUp()
        self.lib = ctypes.CDLL(LIBRARY)
        pointer = ctypes.c_void_p
        self.lib.lenslet_last_error.restype = ctypes.c_char_p
        self.lib.lenslet_version.restype = ctypes.c_char_p
        self.lib.lenslet_status_name.restype = ctypes.c_char_p
        for name in declared():
            if "_free" in name or "_request" in name:
                getattr(self.lib, name).argtypes = [pointer]
        self.must(self.lib.lenslet_negotiate(1, 0))
        self.model = pointer()
        self.must(self.lib.lenslet_model_load(os.fsencode(tiny_model(self.folder)), None, ctypes.byref(self.model)))
        self.addCleanup(self.lib.lenslet_model_free, self.model)

    def must(self, status):
        self.assertEqual(status, 0, (self.lib.lenslet_status_name(status), self.lib.lenslet_last_error()))

    def runner(self, **options):
        runner = ctypes.c_void_p()
        options = made(PlanOptions, device=b"cpu", **options)
        self.must(self.lib.lenslet_runner_create(self.model, ctypes.byref(options), ctypes.byref(runner)))
        self.addCleanup(self.lib.lenslet_runner_free, runner)
        return runner

    def run_on(self, runner, image, scores, options=None):
        x, y = tensor(image, len(scores) // 3, 3, 224, 224), tensor(scores, len(scores) // 3, 3)
        return self.lib.lenslet_runner_run(runner, ctypes.byref(x), Size(1), ctypes.byref(y), Size(1),
                                           ctypes.byref(options) if options else None)  # fmt: skip

    def blue(self, images=1):
        image = (ctypes.c_float * (images * 3 * 224 * 224))()
        for n in range(images):
            for i in range(224 * 224):
                image[(3 * n + 2) * 224 * 224 + i] = 0.5
        return image, (ctypes.c_float * (3 * images))()

    def test_a_picture_in_and_scores_out(self):
        self.assertRegex(self.lib.lenslet_version(), rb"^\d+\.\d+\.\d+$")
        port = made(Port)
        self.must(self.lib.lenslet_model_input(self.model, Size(0), ctypes.byref(port)))
        self.assertEqual((port.name, port.rank, list(port.dims)[:4], port.dim_names[0]), (b"image", 4, [-1, 3, 224, 224], b"N"))
        image, scores = self.blue()
        runner = self.runner(threads=1)
        self.must(self.run_on(runner, image, scores))
        self.assertEqual(list(scores), [0, 0, 5])
        result = made(Tensor)
        self.must(self.lib.lenslet_runner_result(runner, Size(0), ctypes.byref(result)))
        self.assertEqual(result.data, ctypes.addressof(scores))

    def plan(self, runner):
        text = ctypes.c_void_p()
        self.must(self.lib.lenslet_runner_plan_json(runner, ctypes.byref(text)))
        plan = json.loads(ctypes.string_at(text))
        self.must(self.lib.lenslet_text_free(text))
        return plan

    def test_a_plan_is_json(self):
        plan = self.plan(self.runner(threads=2, batch=3))
        self.assertEqual(plan["threads"], 2)
        self.assertEqual(plan["inputs"], [{"name": "image", "shape": [3, 3, 224, 224]}])
        self.assertTrue(all(math.isfinite(step["estimated_us"]) for step in plan["steps"]))

    def test_options_of_layers_and_passes(self):
        plan = self.plan(self.runner(threads=1))
        layer = next(step["name"] for step in plan["steps"] if step["op"] == "Gemm")
        for wrong in (b"no such layer", layer.encode()):
            layers = (LayerAlgorithm * 1)(made(LayerAlgorithm, layer=wrong, algorithm=b"magic"))
            options = made(PlanOptions, device=b"cpu", layer_algorithms=layers, layer_algorithm_count=1)
            runner = ctypes.c_void_p()
            self.assertEqual(self.lib.lenslet_runner_create(self.model, ctypes.byref(options), ctypes.byref(runner)), 1)
            self.assertIn(wrong if wrong != layer.encode() else b"magic", self.lib.lenslet_last_error())
        passes = (ctypes.c_char_p * 2)(b"fold_constants", b"drop_dead")
        image, scores = self.blue()
        calibration = (Tensor * 1)(tensor(image, 1, 3, 224, 224))
        runner = self.runner(disabled_passes=passes, disabled_pass_count=2, calibration=calibration, calibration_count=1)
        self.must(self.run_on(runner, image, scores))
        self.assertEqual(list(scores), [0, 0, 5])

    def test_an_app_of_the_first_version(self):
        """Its struct ends at the allocator."""
        options = made(PlanOptions, device=b"cpu", batch=2, layer_algorithm_count=99)
        options.struct_size = PlanOptions.layer_algorithms.offset
        runner = ctypes.c_void_p()
        self.must(self.lib.lenslet_runner_create(self.model, ctypes.byref(options), ctypes.byref(runner)))
        self.addCleanup(self.lib.lenslet_runner_free, runner)
        self.assertEqual(self.plan(runner)["inputs"], [{"name": "image", "shape": [2, 3, 224, 224]}])

    def test_an_observer_and_an_end(self):
        ops, cancel = [], ctypes.c_void_p()

        @Observer
        def observer(_, event):
            ops.append(event.contents.op)
            if len(ops) == 5:
                self.lib.lenslet_cancel_request(cancel)
            return 0

        runner = self.runner(threads=1)
        image, scores = self.blue()
        self.must(self.lib.lenslet_cancel_create(ctypes.byref(cancel)))
        self.addCleanup(self.lib.lenslet_cancel_free, cancel)
        self.must(self.lib.lenslet_runner_set_observer(runner, observer, None))
        self.must(self.run_on(runner, image, scores))
        steps, options = len(ops), made(RunOptions, cancel=cancel.value)
        self.assertIn(b"Gemm", ops)
        self.assertLess(steps, 5)
        ops += [b""] * (4 - len(ops))
        self.assertEqual(self.run_on(runner, image, scores, options), 9)
        self.assertIn(b"cancelled after 1 of", self.lib.lenslet_last_error())

    def test_threads_of_our_own(self):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            calls = []

            @RunTasks
            def run(_, tasks, task, context):
                calls.append(tasks)
                concurrent.futures.wait([pool.submit(task, context, i) for i in range(tasks)])

            released = []
            release = Release(lambda _: released.append(1))
            executor = made(Executor, run=run, release=release)
            runner = self.runner(threads=3, batch=8, executor=ctypes.pointer(executor))
            image, scores = self.blue(8)
            self.must(self.run_on(runner, image, scores))
            self.assertEqual(list(scores), [0, 0, 5] * 8)
            self.assertTrue(calls)
            self.must(self.lib.lenslet_runner_free(runner))
            self.assertEqual(released, [1])

    def test_misuse_is_a_status(self):
        runner = self.runner()
        image, scores = self.blue()
        self.assertEqual(self.run_on(runner, image, (ctypes.c_float * 6)()), 1)
        self.assertIn(b"bytes, but float32[2,3,224,224] has", self.lib.lenslet_last_error())
        self.must(self.lib.lenslet_runner_free(runner))
        self.assertEqual(self.lib.lenslet_runner_free(runner), 1)
        self.assertEqual(self.run_on(runner, image, scores), 1)
        self.assertIn(b"it was freed", self.lib.lenslet_last_error())


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        (HERE / "abi.txt").write_text(described())
    else:
        unittest.main()
