"""Runs: inputs and outputs, threads, signals, and refusals."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import lenslet
import numpy as np
from models import InFolder, written
from tiny_model import node


class Runs(InFolder, unittest.TestCase):
    def check(self, y, exact=None):
        np.testing.assert_allclose(y, self.exact if exact is None else exact, rtol=2e-6)

    def test_arrays_as_they_lie(self):
        runner = self.model.runner(device="cpu", threads=2)
        self.check(runner(self.x))
        room = np.empty(self.x.size + 16, np.float32)
        start = -room.ctypes.data % 64 // 4
        for beyond in (0, 4, 1):  # aligned to a cache line, to 16 bytes, to an element's 4
            x = room[start + beyond : start + beyond + self.x.size].reshape(self.x.shape)
            x[:] = self.x
            np.testing.assert_array_equal(runner(x), runner(self.x))
        frozen = self.x.copy()
        frozen.flags.writeable = False
        np.testing.assert_array_equal(runner(frozen), runner(self.x))

    def test_inputs_that_nothing_reads(self):
        for first in (False, True):
            ports = {"x": (1, ["N", 3]), "label": (7, ["N"])}
            ports = dict(reversed(ports.items())) if first else ports
            model = lenslet.Model(written([node("Relu", ["x"], "y")], ports, {"y": (1, ["N", 3])}))
            self.assertEqual([port.name for port in model.inputs if port.unread], ["label"])
            x, label = np.float32([[-1, 2, 3]] * 2), np.int64([4, 5])
            exact = np.maximum(x, 0)
            runner = model.runner(device="cpu", batch=2)
            for _ in range(2):
                self.check(runner(x), exact)
                self.check(runner(*((label, x) if first else (x, label))), exact)
                self.check(runner(*((None, x) if first else (x, None))), exact)
                self.check(runner({"x": x})["y"], exact)
                self.check(runner({"x": x, "label": label})["y"], exact)
            for wrong in ({"label": label}, {"x": x, "labels": label}):
                with self.assertRaises(lenslet.InvalidArgumentError):
                    runner(wrong)
            with self.assertRaises(lenslet.InvalidArgumentError):
                runner()
            self.check(model.runner(device="cpu", other_shapes=1)(x), exact)

    def test_inputs_that_nothing_reads_of_strings(self):
        """Not listed: no tensor holds strings. Any other extra input is still an error."""
        ports = {"label": (8, ["N"]), "x": (1, ["N", 3])}
        model = lenslet.Model(written([node("Relu", ["x"], "y")], ports, {"y": (1, ["N", 3])}))
        self.assertEqual([port.name for port in model.inputs], ["x"])
        x = np.float32([[-1, 2, 3]])
        self.check(model.runner(device="cpu")(x), np.maximum(x, 0))
        self.check(model.runner(device="cpu")({"x": x})["y"], np.maximum(x, 0))

    def test_first_dimensions_that_are_no_batch(self):
        rows = [node("Transpose", ["x"], "t"), node("MatMul", ["t", "w"], "y")]  # [6,frames] times [4,2]
        ports = {"x": (1, ["frames", 6]), "w": (1, [4, 2])}
        model = lenslet.Model(written(rows, ports, {"y": (1, [6, 2])}))
        x, w = np.random.default_rng(3).random((4, 6), np.float32), np.random.default_rng(4).random((4, 2), np.float32)
        for how in ({"batch": 4}, {"shapes": {"x": (4, 6)}}):
            self.check(model.runner(device="cpu", **how)(x, w), x.T @ w)
        with self.assertRaisesRegex(lenslet.InvalidModelError, r"x \[frames,6\] was taken for a batch of 1"):
            model.runner(device="cpu")

    def test_other_layouts_are_copied(self):
        runner = self.model.runner(device="cpu")
        self.check(runner(self.x[:, :, ::-1]))
        self.check(runner(np.asfortranarray(self.x)))
        self.check(runner(self.x.astype(">f4")))
        self.check(runner(self.x.tolist()))

    def test_dlpack(self):
        class Foreign:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **how):
                return self.array.__dlpack__(**how)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        self.check(self.model.runner(device="cpu")(Foreign(self.x)))

        class Negated(Foreign):  # as PyTorch's, whose memory has the opposite sign
            def is_neg(self):
                return True

            def resolve_neg(self):
                return Foreign(-self.array)

        self.check(self.model.runner(device="cpu")(Negated(-self.x)))

        class Elsewhere(Foreign):
            def __dlpack_device__(self):
                return (2, 0)

            def __dlpack__(self, **how):
                raise BufferError("not on the host")

        with self.assertRaisesRegex(lenslet.UnsupportedError, "input image"):
            self.model.runner(device="cpu")(Elsewhere(self.x))

    def test_names(self):
        y = self.model.runner(device="cpu")({"image": self.x})
        self.assertEqual(list(y), ["scores"])
        self.check(y["scores"])
        for wrong in ({}, {"photo": self.x}, {"image": self.x, "more": self.x}):
            with self.assertRaisesRegex(lenslet.InvalidArgumentError, "where the model has image"):
                self.model.runner(device="cpu")(wrong)

    def test_out(self):
        runner = self.model.runner(device="cpu")
        out = np.full((1, 3), np.nan, np.float32)
        self.assertIs(runner(self.x, out=out), out)
        self.check(out)
        named = {"scores": np.empty((1, 3), np.float32)}
        self.check(runner({"image": self.x}, out=named)["scores"])
        frozen = np.empty((1, 3), np.float32)
        frozen.flags.writeable = False
        for wrong in (np.empty((1, 4), np.float32), np.empty((1, 3)), np.empty((3, 1), np.float32).T[:, ::-1], frozen, []):
            with self.subTest(wrong=type(wrong)), self.assertRaises(lenslet.InvalidArgumentError):
                runner(self.x, out=wrong)
        self.check(runner(self.x))  # without any lasting effect

    def test_results_are_fresh(self):
        runner = self.model.runner(device="cpu")
        first = runner(self.x)
        kept = first.copy()
        runner(1 - self.x)
        np.testing.assert_array_equal(first, kept)

    def test_arrays_are_read_and_written_where_they_lie(self):
        """Copies would touch as many pages of the Runner's memory, as the misaligned array (by 4 bytes) does."""
        code = (
            "import re, sys, numpy as np, lenslet\n"
            "model, beyond = sys.argv[1], int(sys.argv[2])\n"
            # Uses an algorithm without conversions, which would copy on either side.
            "model = lenslet.Model(model)\n"
            "shapes = {'image': (1, 3, 2000, 2000)}\n"
            "runner = model.runner(device='cpu', threads=1, shapes=shapes, algorithm='direct')\n"
            "make = lambda: np.ones(12_000_016, np.float32)[beyond : beyond + 12_000_000].reshape(1, 3, 2000, 2000)\n"
            "x, y = make(), make()\n"
            # Not ru_maxrss, which starts with the parent's.
            "kib = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
            "before = kib()\n"
            "runner(x, out=y)\n"
            "print(kib() - before)\n"
        )
        kib = [
            int(subprocess.check_output([sys.executable, "-c", code, self.folder / "segment.onnx", str(beyond)]))
            for beyond in (4, 1)
        ]
        self.assertGreater(kib[1] - kib[0], 2 * 46_875 * 0.9, kib)

    def test_other_shapes(self):
        runner = self.segment.runner(device="cpu", shapes={"image": (1, 3, 8, 8)}, other_shapes=3)
        for height, width in ((8, 8), (5, 9), (1, 1), (8, 8)):
            x = np.random.default_rng().random((1, 3, height, width), np.float32)
            np.testing.assert_allclose(runner(x), 10 * x, rtol=2e-6)
            out = np.empty_like(x)
            self.assertIs(runner(x, out=out), out)
            np.testing.assert_allclose(out, 10 * x, rtol=2e-6)
        with self.assertRaises(lenslet.InvalidArgumentError):
            runner(x, out=np.empty((1, 3, 2, 2), np.float32))
        with self.assertRaises(lenslet.InvalidArgumentError):
            self.segment.runner(device="cpu", shapes={"image": (1, 3, 8, 8)})(x[:, :, :3])

    def test_misfits_are_refused(self):
        runner = self.model.runner(device="cpu")
        for wrong in (
            self.x.astype(np.float64),
            self.x[0],
            self.x[:, :2],
            np.zeros((1,) * 9, np.float32),
            np.array(["a"]),
            np.array([1j]),
            np.array([object()]),
            "picture",
            b"\0" * 16,
            None,
            object(),
            3,
            [[1], [1, 2]],
        ):
            with self.subTest(type(wrong)), self.assertRaises((lenslet.InvalidArgumentError, lenslet.UnsupportedError)):
                runner(wrong)
        for count in ((), (self.x, self.x)):
            with self.assertRaisesRegex(lenslet.InvalidArgumentError, "where the model has 1"):
                runner(*count)
        self.check(runner(self.x))

    def test_closed_and_freed(self):
        with self.model.runner(device="cpu") as runner:
            runner(self.x)
        with self.assertRaises(lenslet.InvalidArgumentError):
            runner(self.x)
        runner.close()
        runner = lenslet.Model(self.folder / "rgb.onnx").runner(device="cpu")  # whose Model is gone
        gc.collect()
        self.check(runner(self.x))

    def test_observer(self):
        runner = self.model.runner(device="cpu")
        seen = []
        runner.observe(seen.append)
        y = runner(self.x)
        self.assertEqual([event.step for event in seen], list(range(len(runner.plan["steps"]))))
        np.testing.assert_array_equal(seen[-1].outputs[0], y)

        def stop(event):
            return event.step == 0

        runner.observe(stop)
        with self.assertRaises(lenslet.CancelledError):
            runner(self.x)

        def fail(event):
            raise KeyError(event.name)

        runner.observe(fail)
        with self.assertRaises(KeyError):
            runner(self.x)
        refused = []

        def again(_):
            for ask in (lambda: runner(self.x), lambda: runner.observe(None)):
                try:
                    ask()
                except lenslet.InvalidArgumentError as error:
                    refused.append(error)

        runner.observe(again)
        runner(self.x)
        self.assertGreater(len(refused), 1)
        runner.observe(None)
        np.testing.assert_array_equal(runner(self.x), y)

    def test_cancel(self):
        cancel = lenslet.Cancel()
        runner = self.model.runner(device="cpu")
        self.check(runner(self.x, cancel=cancel))
        cancel.request()
        with self.assertRaises(lenslet.CancelledError):
            runner(self.x, cancel=cancel)
        self.check(runner(self.x))

    def test_threads(self):
        """Runners of one Model in different threads give one thread's bits, and the GIL is free meanwhile."""
        expected = self.model.runner(device="cpu", threads=1)(self.x)
        different, ticks, done = [], [0], threading.Event()

        def work():
            runner = self.model.runner(device="cpu", threads=1)
            for _ in range(50):
                if not np.array_equal(runner(self.x), expected):
                    different.append(1)

        def tick():
            while not done.is_set():
                ticks[0] += 1
                time.sleep(0)

        workers = [threading.Thread(target=work) for _ in range(3)]
        ticking = threading.Thread(target=tick)
        for thread in (ticking, *workers):
            thread.start()
        for thread in workers:
            thread.join()
        done.set()
        ticking.join()
        self.assertFalse(different)
        self.assertGreater(ticks[0], 0)

    def test_a_runner_serves_one_thread(self):
        runner = self.segment.runner(device="cpu", threads=1, shapes={"image": (1, 3, 1500, 1500)})
        x = np.zeros((1, 3, 1500, 1500), np.float32)
        refused, start = [], threading.Barrier(4)

        def work():
            start.wait()
            for _ in range(10):
                try:
                    runner(x)
                except lenslet.InvalidArgumentError as error:
                    refused.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(refused)
        self.assertTrue(all("at work" in words for words in refused))

    def test_a_signal_in_a_run_raises(self):
        """Also if an observer is called then, whose function it would end before the first line."""
        runner = self.segment.runner(device="cpu", threads=1, shapes={"image": (1, 3, 700, 700)})
        x = np.zeros((1, 3, 700, 700), np.float32)
        expected = runner(x)

        class Rang(Exception):
            pass

        def ring(*_):
            raise Rang

        before = signal.signal(signal.SIGUSR1, ring)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        for observer in (None, lambda event: None):
            runner.observe(observer)
            for number in range(40):
                timer = threading.Timer(0.0005 * number, os.kill, (os.getpid(), signal.SIGUSR1))
                with self.assertRaises(Rang):
                    timer.start()
                    while True:
                        runner(x)
                timer.join()
        runner.observe(None)
        np.testing.assert_array_equal(runner(x), expected)

    @unittest.skipIf(sys.version_info < (3, 11), "older ones look for signals between any two instructions")
    def test_signals_leave_no_runner_at_work(self):
        """Some thousand, at any line of the package."""
        runner = self.segment.runner(device="cpu", threads=1, shapes={"image": (1, 3, 8, 8)})
        x = self.x[:, :, :8, :8].copy()
        expected, rang, runs = runner(x), 0, 0

        class Rang(Exception):
            pass

        def ring(_, frame):
            if frame.f_code.co_filename.endswith("lenslet/runner.py"):
                raise Rang

        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.00007)
        try:
            until = time.monotonic() + 2
            while time.monotonic() < until or min(rang, runs) <= 100:
                try:
                    np.testing.assert_array_equal(runner(x), expected)
                    runs += 1
                except Rang:
                    rang += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertGreater(min(rang, runs), 100)
        np.testing.assert_array_equal(runner(x), expected)

    def test_what_makes_no_sense_to_a_run(self):
        runner = self.model.runner(device="cpu")
        for how in ({"cancel": 1}, {"stream": "a"}, {"stream": -1}, {"stream": 2**64}, {"stream": 8}, {"out": "a"}):
            with self.subTest(how), self.assertRaises(lenslet.InvalidArgumentError):
                runner(self.x, **how)
        for wrong in (5, "print"):
            with self.assertRaisesRegex(lenslet.InvalidArgumentError, "an observer is a function"):
                runner.observe(wrong)
        self.check(runner(self.x))
        runner.close()
        for ask in (lambda: runner(self.x), lambda: runner.inputs, lambda: runner.outputs, lambda: runner.plan,
                    lambda: runner.device, lambda: runner.observe(None), lambda: runner.observe(print)):  # fmt: skip
            with self.assertRaisesRegex(lenslet.InvalidArgumentError, "the Runner is closed"):
                ask()
        self.assertRegex(repr(runner), "Runner of image, closed")

    def test_closed_by_another_thread(self):
        """The active run completes; the next is refused."""
        runner = self.segment.runner(device="cpu", threads=1, shapes={"image": (1, 3, 900, 900)})
        x, errors = np.ones((1, 3, 900, 900), np.float32), []

        def work():
            try:
                while True:
                    y = runner(x)
                    if not (y == 10).all():
                        errors.append("wrong")
            except lenslet.InvalidArgumentError as error:
                errors.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.05)
        runner.close()
        thread.join(20)
        self.assertEqual(errors, ["the Runner is closed"])

    def test_fork(self):
        runner = self.model.runner(device="cpu", threads=2)
        expected = runner(self.x)
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(runner(self.x), expected) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


if __name__ == "__main__":
    unittest.main()
