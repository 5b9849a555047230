"""The package itself: its version, its names, its library, its errors."""

import os
import pathlib
import pickle
import subprocess
import sys
import unittest

import lenslet


class Package(unittest.TestCase):
    def test_version_is_the_headers(self):
        header = pathlib.Path(__file__).resolve().parents[2] / "include" / "lenslet" / "version.h"
        self.assertIn(f'LENSLET_VERSION "{lenslet.__version__}"', header.read_text())

    def test_what_is_named_is_there(self):
        for name in lenslet.__all__:
            self.assertTrue(hasattr(lenslet, name), name)

    def test_a_library_that_is_missing_is_an_import_error(self):
        done = subprocess.run(
            [sys.executable, "-c", "import lenslet"],
            env={**os.environ, "LENSLET_LIBRARY": "/nowhere/liblenslet_python.so"},
            capture_output=True,
            text=True,
        )
        self.assertIn("ImportError: lenslet's library cannot be opened", done.stderr)

    def test_errors_survive_pickling(self):
        for kind in (lenslet.Error, lenslet.FileError, lenslet.InvalidArgumentError):
            back = pickle.loads(pickle.dumps(kind("one line", "one line\n  and more")))
            self.assertEqual((type(back), str(back), back.details), (kind, "one line", "one line\n  and more"))


if __name__ == "__main__":
    unittest.main()
