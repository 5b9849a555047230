"""PyTorch tensors in and out, on the CPU and, if there is one, on a CUDA device."""

import unittest

import lenslet
import numpy as np
from models import tiny_models

try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary, cls.folder = tiny_models()
        cls.addClassCleanup(temporary.cleanup)
        cls.segment = lenslet.Model(cls.folder / "segment.onnx")

    def runner(self, device, **how):
        return self.segment.runner(device=device, shapes={"image": (2, 3, 64, 96)}, batch=2, **how)

    def test_on_the_cpu(self):
        runner = self.runner("cpu")
        x = torch.rand(2, 3, 64, 96)
        y = runner(x)
        self.assertIsInstance(y, torch.Tensor)
        torch.testing.assert_close(y, 10 * x, rtol=2e-6, atol=0)
        strided = torch.rand(2, 64, 96, 3).permute(0, 3, 1, 2)
        torch.testing.assert_close(runner(strided), 10 * strided, rtol=2e-6, atol=0)
        out = torch.empty(2, 3, 64, 96)
        self.assertIs(runner(x, out=out), out)
        torch.testing.assert_close(out, y)
        with self.assertRaises(lenslet.InvalidArgumentError):
            runner(x.double())
        with self.assertRaises(lenslet.InvalidArgumentError):
            runner(x, out=strided)
        np.testing.assert_array_equal(runner(x.numpy()), y.numpy())
        torch.testing.assert_close(runner(x.requires_grad_()), y)

    def test_what_memory_does_not_show(self):
        """Negated and conjugated views, and zeros without memory have PyTorch's values, also in subclasses."""
        runner = self.runner("cpu")
        kind = type("Image", (torch.Tensor,), {})
        x = torch.rand(2, 3, 64, 96) - 0.3
        conjugated = torch.complex(x, x).conj().imag
        self.assertTrue(conjugated.is_neg())
        zeros = torch._efficientzerotensor((2, 3, 64, 96)) if hasattr(torch, "_efficientzerotensor") else 0 * x
        for name, given in (("neg", torch._neg_view(x)), ("conj", conjugated), ("zeros", zeros)):
            for tensor in (given, given.as_subclass(kind)):
                with self.subTest(name, of=type(tensor).__name__):
                    y = runner(tensor)
                    self.assertIs(type(y), torch.Tensor)
                    torch.testing.assert_close(y, 10 * (0 * x if name == "zeros" else -x), rtol=2e-6, atol=1e-6)
        out = torch.full((2, 3, 64, 96), 7.0)
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "neg bit"):
            runner(x, out=torch._neg_view(out))
        self.assertTrue(bool((out == 7).all()))
        card = lenslet.Card({"input": {"size": [2, 2]}, "output": {"softmax": True}})
        with self.assertRaisesRegex(lenslet.InvalidArgumentError, "negative bit"):
            card.top(torch._neg_view(torch.rand(3)))

    def test_on_cuda(self):
        if not torch.cuda.is_available():
            self.skipTest("no CUDA device")
        runner = self.runner("cuda")
        x = torch.rand(2, 3, 64, 96, device="cuda")
        y = runner(x)
        self.assertEqual(y.device, x.device)
        torch.testing.assert_close(y, 10 * x, rtol=2e-6, atol=0)
        # Host memory in, device memory in: the same bits.
        np.testing.assert_array_equal(runner(x.cpu().numpy()), y.cpu().numpy())
        out = torch.full((2, 3, 64, 96), float("nan"), device="cuda")
        self.assertIs(runner(x, out=out), out)
        self.assertTrue(torch.equal(out, y))
        torch.testing.assert_close(runner(torch._neg_view(x)), -y, rtol=0, atol=0)

    def test_cuda_runs_behind_its_stream(self):
        """A tensor still being written on PyTorch's current stream is read after that."""
        if not torch.cuda.is_available():
            self.skipTest("no CUDA device")
        runner = self.runner("cuda")
        stream = torch.cuda.Stream()
        a = torch.rand(4096, 4096, device="cuda")
        runner(torch.rand(2, 3, 64, 96, device="cuda"))
        torch.cuda.synchronize()
        for _ in range(10):
            with torch.cuda.stream(stream):
                for _ in range(20):  # some milliseconds
                    a = (a @ a).clamp(0, 1)
                x = a[:192, :192].reshape(2, 3, 64, 96).contiguous()
                y = runner(x)
                torch.testing.assert_close(y, 10 * x, rtol=2e-6, atol=0)


if __name__ == "__main__":
    unittest.main()
