#!/usr/bin/env python3
"""torchvision's classifiers, as PyTorch exports them, through lenslet and ONNX Runtime.

  torchvision_check.py export OUT.zip            needs torch, torchvision, onnx: exports each network with both exporters and
                                                 keeps the graphs only (weights are dropped: a few hundred kB in all)
  torchvision_check.py check OUT.zip LENSLET     needs onnx, onnxruntime, numpy: fills in random weights, runs both
                                                 engines, compares the outputs
"""
import io
import multiprocessing
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NETWORKS = """alexnet vgg11 vgg11_bn vgg16 resnet18 resnet50 resnext50_32x4d wide_resnet50_2 squeezenet1_0 squeezenet1_1
densenet121 googlenet inception_v3 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet1_0 efficientnet_b0
efficientnet_v2_s shufflenet_v2_x1_0 regnet_y_400mf regnet_x_400mf convnext_tiny""".split()
KEPT_BYTES = 4096  # smaller constants are shape arithmetic and stay


def strip(model):
    import onnx

    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.raw_data) > KEPT_BYTES:
            tensor.ClearField("raw_data")
    return model.SerializeToString()


def export_one(torch, torchvision, onnx, name, dynamo):
    network = torchvision.models.get_model(name, weights=None).eval()
    size = 299 if name == "inception_v3" else 224
    image = torch.randn(1, 3, size, size)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        if dynamo:
            torch.onnx.export(network, (image,), path, dynamo=True, external_data=False, verbose=False)
        else:
            torch.onnx.export(network, (image,), path, dynamo=False, opset_version=13, input_names=["input"],
                              output_names=["output"], dynamic_axes={"input": {0: "N"}, "output": {0: "N"}})
        return onnx.load(path)


def export_label(job):
    name, dynamo = job
    import onnx
    import torch
    import torchvision

    torch.set_num_threads(2)
    try:
        return strip(export_one(torch, torchvision, onnx, name, dynamo)), ""
    except Exception as error:  # an exporter that cannot is a fact to report, not to die of
        return None, f"{type(error).__name__}: {str(error)[:200]}"


def export(out):
    jobs = [(name, dynamo) for dynamo in (True, False) for name in NETWORKS]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, \
            multiprocessing.get_context("spawn").Pool(8, maxtasksperchild=6) as pool:
        for (name, dynamo), (graph, problem) in zip(jobs, pool.imap(export_label, jobs)):
            label = f"{name}-{'dynamo' if dynamo else 'script'}"
            if graph is not None:
                archive.writestr(label + ".onnx", graph)
            print(("exported " if graph is not None else "not exported ") + label, problem, flush=True)


def fill(model):
    import numpy

    generator = numpy.random.default_rng(1)
    # A BatchNormalization's variance must be positive; its other parameters stay near the identity.
    variances = {node.input[4] for node in model.graph.node if node.op_type == "BatchNormalization"}
    for tensor in model.graph.initializer:
        dims = list(tensor.dims)
        count = int(numpy.prod(dims)) if dims else 1
        if tensor.data_type != 1 or tensor.raw_data or tensor.float_data or count == 0:
            continue
        if tensor.name in variances:
            values = generator.uniform(0.5, 1.5, dims)
        elif len(dims) >= 2:
            # A quarter of He's variance: with all of it the residual sums of a deep random network grow until rounding
            # decides its output (efficientnet_v2_s: ONNX Runtime's own optimisation levels then differ by 2 rms).
            fan_in = int(numpy.prod(dims[1:]))
            values = generator.standard_normal(dims) * (0.5 / max(1, fan_in)) ** 0.5
        else:
            values = generator.uniform(-0.5, 0.5, dims)
        tensor.raw_data = values.astype(numpy.float32).tobytes()


def check(archive_path, lenslet):
    import numpy
    import onnx
    import onnxruntime

    failures = 0
    with zipfile.ZipFile(archive_path) as archive, tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for entry in sorted(archive.namelist()):
            model = onnx.load(io.BytesIO(archive.read(entry)))
            fill(model)
            path = folder / "model.onnx"
            onnx.save(model, path)
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            port = session.get_inputs()[0]
            verdict = []
            for batch in (1, 2):
                shape = [batch] + [d for d in port.shape[1:]]
                image = numpy.random.default_rng(batch).standard_normal(shape).astype(numpy.float32)
                if batch != 1 and isinstance(port.shape[0], int):
                    want = numpy.concatenate([session.run(None, {port.name: image[i:i + 1]})[0] for i in range(batch)])
                else:
                    want = session.run(None, {port.name: image})[0]
                numpy.save(folder / "input.npy", image)
                for old in folder.glob("out/*.npy"):
                    old.unlink()
                done = subprocess.run([lenslet, "run", str(path), "--input", str(folder / "input.npy"), "--output-dir",
                                       str(folder / "out"), "--threads", "2"], capture_output=True, text=True)
                if done.returncode != 0:
                    verdict.append(f"batch {batch}: {done.stderr.strip()[:600]}")
                    break
                got = numpy.load(next(iter(sorted((folder / "out").glob("*.npy")))))
                rms = float(numpy.sqrt(numpy.mean(want.astype(numpy.float64) ** 2)))
                error = float(numpy.max(numpy.abs(got - want))) / rms if got.shape == want.shape else float("inf")
                verdict.append(f"batch {batch}: max error {error:.1e} of rms")
                if not error < 1e-3:
                    verdict[-1] += " FAILED"
            bad = any("max error" not in line or "FAILED" in line for line in verdict)
            failures += bad
            print(f"{'FAILED' if bad else 'passed'} {entry}: {'; '.join(verdict)}", flush=True)
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "export":
        sys.exit(export(sys.argv[2]))
    if len(sys.argv) == 4 and sys.argv[1] == "check":
        sys.exit(check(sys.argv[2], sys.argv[3]))
    sys.exit(__doc__)
