"""Objects that can be sent to other processes, and refusals of the others."""

import copy
import multiprocessing
import os
import pickle
import shutil
import unittest

import lenslet
import numpy as np
from models import InFolder


def from_a_model(model, x):
    """Runs in a process of a pool."""
    return os.getpid(), model.path, model.runner(device="cpu", threads=1)(x)


class Pickling(InFolder, unittest.TestCase):
    def assert_refused(self, thing, instead):
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with self.assertRaisesRegex(lenslet.UnsupportedError, instead):
                copied(thing)

    def test_models_in_other_processes(self):
        """By absolute path and by bytes, with the options of loading."""
        expected = self.model.runner(device="cpu", threads=1)(self.x)
        there = os.getcwd()
        try:
            os.chdir(self.folder)
            relative = lenslet.Model("rgb.onnx")
        finally:
            os.chdir(there)
        of_bytes = lenslet.Model((self.folder / "rgb.onnx").read_bytes(), name="mine")
        for method in ("spawn", "fork"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                for model in (self.model, relative, of_bytes):
                    process, path, y = pool.apply(from_a_model, (model, self.x))
                    self.assertNotEqual(process, os.getpid())
                    self.assertEqual(path, None if model is of_bytes else str(self.folder / "rgb.onnx"))
                    np.testing.assert_array_equal(y, expected)
        relative.inspect(device="cpu")

    def test_what_a_model_was_loaded_with(self):
        with self.assertRaisesRegex(lenslet.InvalidModelError, "^mine"):
            kind, (loaded, source, name, external, _) = lenslet.Model(
                (self.folder / "rgb.onnx").read_bytes(), name="mine", external_data_dir=self.folder
            ).__reduce__()
            self.assertEqual((loaded, external), (lenslet.Model, str(self.folder)))
            kind(loaded, source[:-40], name, external)
        moved = self.folder / "moved.onnx"
        shutil.copy(self.folder / "rgb.onnx", moved)
        pickled = pickle.dumps(lenslet.Model(moved))
        moved.unlink()
        with self.assertRaisesRegex(lenslet.FileError, "moved.onnx"):
            pickle.loads(pickled)

        class Mine(lenslet.Model):
            pass

        self.assertIs(Mine(self.folder / "rgb.onnx").__reduce__()[1][0], Mine)
        self.assertIs(copy.deepcopy([self.model])[0], self.model)
        self.assertIs(copy.copy(self.model), self.model)

    def test_what_belongs_to_the_process_says_so(self):
        self.assert_refused(self.model.runner(device="cpu"), "Runner is of this process.*send its Model")
        self.assert_refused(lenslet.Classifier(self.model, device="cpu"), "Classifier.*send its model and card")
        self.assert_refused(lenslet.Cancel(), "Cancel is of this process")
        for plain in (lenslet.Prediction(3, "cat", 0.5), self.model.inputs[0]):
            self.assertEqual(pickle.loads(pickle.dumps(plain)), plain)


if __name__ == "__main__":
    unittest.main()
