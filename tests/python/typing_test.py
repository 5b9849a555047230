"""mypy --strict on the package, and on a user's program with the published types.

Skips by name without mypy. Errors of modules whose libraries are not installed are ignored.
"""

import ast
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "lenslet"
PROGRAMS = ROOT / "tests" / "python" / "typing"
# The oldest Python version that the wheel supports.
OLDEST = (3, 9)


def imported(file):
    """Names of the libraries that a file imports when it is imported."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


def is_judged(file):
    return all(name == "lenslet" or importlib.util.find_spec(name) is not None for name in imported(file))


def modules():
    return sorted(PACKAGE.rglob("*.py"))


@unittest.skipIf(importlib.util.find_spec("mypy") is None, "mypy is not installed")
class Mypy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="lenslet-mypy-") as folder:
            # No other configuration, and only the published types.
            config = pathlib.Path(folder, "mypy.ini")
            config.write_text("[mypy]\nstrict = True\nignore_missing_imports = True\n", encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", folder, "--show-error-codes",
                 "--no-error-summary", "--no-pretty", "--hide-error-context", "--no-color-output",
                 *modules(), *sorted(PROGRAMS.glob("*.py"))],
                env={**os.environ, "MYPYPATH": str(PACKAGE.parent), "PYTHONPATH": "", "MYPY_FORCE_COLOR": ""},
                cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        if done.returncode not in (0, 1):
            raise AssertionError(f"mypy ended with {done.returncode}: {done.stdout}{done.stderr}")
        cls.lines = done.stdout.splitlines()

    def of(self, folder):
        """Errors by file below a folder: [(file, line, code, text)]."""
        found = []
        for line in self.lines:
            match = re.match(r"(.*?\.py):(\d+): error: .*?(?:\[([\w-]+)\])?$", line)
            if match and (ROOT / match[1]).is_relative_to(folder):
                found.append((ROOT / match[1], int(match[2]), match[3], line))
        return found

    def test_package(self):
        self.assertGreater(len([file for file in modules() if is_judged(file)]), 10)
        wrong = [line for file, _, _, line in self.of(PACKAGE) if is_judged(file)]
        self.assertEqual(wrong, [], "\n".join(wrong))

    @unittest.skipIf(importlib.util.find_spec("onnx") is None, "onnx is not installed")
    def test_programs(self):
        self.assertTrue((PACKAGE / "py.typed").exists())
        expected = []
        for file in sorted(PROGRAMS.glob("*.py")):
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                if code := re.search(r"# error: ([\w-]+)$", line):
                    expected.append((file, number, code[1]))
        self.assertGreater(len(expected), 10)
        self.maxDiff = None
        self.assertEqual([error[:3] for error in self.of(PROGRAMS)], expected, "\n".join(self.lines))


class Syntax(unittest.TestCase):
    """Syntax that the oldest Python cannot import, as far as the text shows."""

    def test_is_that_of_the_oldest_python(self):
        for file in modules():
            with self.subTest(file.name):
                ast.parse(file.read_text(encoding="utf-8"), str(file), feature_version=OLDEST)

    def test_annotations_are_not_evaluated(self):
        for file in modules():
            with self.subTest(file.name):
                tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
                annotated = any(isinstance(node, (ast.FunctionDef, ast.AnnAssign)) for node in ast.walk(tree))
                first = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) and
                         node.module == "__future__" for alias in node.names}  # fmt: skip
                self.assertTrue(not annotated or "annotations" in first)


if __name__ == "__main__":
    unittest.main()
