"""Memory does not grow with a runner's calls, nor with models and runners that are made and freed.

100,000 calls of each kind, or LENSLET_MEMORY_CALLS: a million takes some minutes. The network is MNIST's if shared/data
exists, else a small one.
"""

import gc
import os
import sys
import unittest

import lenslet
import models
import numpy as np

CALLS = int(os.environ.get("LENSLET_MEMORY_CALLS", "100000"))
# Bytes that allocators keep. A leak of malloc's smallest block, 32 bytes, in a tenth of the calls is more.
NOISE = 256 * 1024


def resident():
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def network():
    """The model's bytes."""
    if (data := models.shared_data()) is not None:
        return (data / "models" / "mnist-cntk.onnx").read_bytes()
    folder, path = models.tiny_models()
    with folder:
        return (path / "rgb.onnx").read_bytes()


@unittest.skipIf(os.environ.get("LENSLET_SANITIZE"), "a sanitizer keeps what was freed")
@unittest.skipUnless(sys.platform == "linux", "reads /proc")
class Memory(unittest.TestCase):
    def setUp(self):
        self.bytes = network()
        self.model = lenslet.Model(self.bytes)
        self.runner = self.model.runner(device="cpu", threads=1)
        port = self.runner.inputs[0]
        self.name = port.name
        self.x = np.random.default_rng(1).standard_normal(port.shape).astype(np.float32)

    def assert_steady(self, call, calls):
        for _ in range(max(calls // 10, 10)):
            call()
        before = resident()
        for _ in range(calls):
            call()
        grown = resident() - before
        print(f"\n{self.id()}: {grown} bytes more after {calls} calls", file=sys.stderr)
        self.assertLessEqual(grown, NOISE)

    def test_calls(self):
        self.assert_steady(lambda: self.runner(self.x), CALLS)

    def test_calls_by_name(self):
        self.assert_steady(lambda: self.runner({self.name: self.x}), CALLS)

    def test_calls_into_memory_of_ones_own(self):
        out = np.empty(self.runner.outputs[0].shape, np.float32)
        self.assert_steady(lambda: self.runner(self.x, out=out), CALLS)

    def test_calls_with_copies(self):
        gaps = np.repeat(self.x, 2, axis=-1)[..., ::2]
        self.assert_steady(lambda: self.runner(gaps), CALLS)

    def test_calls_that_are_refused(self):
        wrong = self.x.astype(np.float64)

        def refused():
            try:
                self.runner(wrong)
            except lenslet.InvalidArgumentError:
                return
            raise AssertionError("a float64 was taken")

        self.assert_steady(refused, CALLS)

    def test_calls_with_an_observer(self):
        seen = []
        self.runner.observe(lambda event: seen.append(event.step))

        def observed():
            seen.clear()
            self.runner(self.x)
            assert seen

        self.assert_steady(observed, CALLS // 20)

    def test_calls_with_a_cancel(self):
        def cancelled():
            cancel = lenslet.Cancel()
            cancel.request()
            try:
                self.runner(self.x, cancel=cancel)
            except lenslet.CancelledError:
                return
            raise AssertionError("was not cancelled")

        self.assert_steady(cancelled, CALLS // 4)

    def test_models_and_runners(self):
        def once():
            runner = lenslet.Model(self.bytes).runner(device="cpu", threads=1)
            runner(self.x)

        self.assert_steady(once, CALLS // 200)

    def test_runners_of_two_threads(self):
        def once():
            with self.model.runner(device="cpu", threads=2) as runner:
                runner(self.x)

        self.assert_steady(once, CALLS // 200)


if __name__ == "__main__":
    unittest.main()
