#!/usr/bin/env python3
"""lenslet beside spconv 2 on one GPU: a sparse encoder on generated scans, the same sites and weights, in one run.

usage: bench_sparse_peers.py LENSLET [--layers models/convert/second.json] [--scans 1x1024,3x2048,10x2048]
                             [--precisions fp32,fp16] [--rounds 3] [--csv FILE] [--json FILE]

Each scan is SWEEPSxSTEPS of `lenslet scan`, made into sites here. The layers are submanifold and strided convolutions
of the JSON that models/convert/spconv_onnx.py takes; BatchNormalization is folded into weights and bias on both sides,
and ReLU follows each (in spconv fused by act_type where that gives the same, else by torch).

network: only convolutions, with rulebooks made in advance. Ours is a file whose indices are constants, so that the plan
makes the rulebooks; spconv gets the pairs that its first run found, without finding them again. rulebooks: the
additional time of the whole. Ours is `lenslet bench --device cuda`: the network on the device, as a CUDA graph. spconv
is timed by CUDA events around forward(), the faster of its algorithms Native and MaskImplicitGemm, after it tuned
itself; spconv_graph_ms is that of its network as a CUDA graph, where it could be captured. Rounds alternate (ours,
theirs, ours ...); the table has medians of the rounds, and ratios ours / theirs (below 1: we are faster). error: the
largest difference of our output from spconv's in fp32, relative to its rms.

Needs PyTorch with CUDA, spconv (PyPI: spconv-cu126), numpy and onnx.
"""
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("SPCONV_ALLOW_TF32", "0")

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    import torch
    import spconv
    import spconv.pytorch as sparse
    from spconv.core import ConvAlgo
    from spconv.pytorch import ops as sparse_ops
except ImportError as error:
    raise SystemExit("bench_sparse_peers.py: %s is not installed: it needs PyTorch with CUDA, spconv, numpy and onnx "
                     "(%s)" % (error.name or "a package", error))

import timing
from timing import ROOT, timed_on_cuda

sys.path.insert(0, str(ROOT / "models" / "convert"))
import spconv_onnx  # noqa: E402

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
VERSION = getattr(spconv, "__version__", "of no version")
CACHED = ("get_indice_pairs", "get_indice_pairs_implicit_gemm")


# ---- the scan and the layers


def voxelized(points, description):
    """Indices [n,4] (0, z, y, x) in ascending order, and the mean of each site's points."""
    voxels = description["voxels"]
    low, high, size = (np.asarray(voxels[key], np.float32) for key in ("min", "max", "size"))
    cells = np.round((high.astype(np.float64) - low) / size).astype(np.int64)
    at = np.floor((points[:, :3] - low) / size)
    inside = np.all((at >= 0) & (at < cells), axis=1)
    at, points = at[inside].astype(np.int64), points[inside]
    _, height, width = description["spatial_shape"]
    numbers, where, counts = np.unique((at[:, 2] * height + at[:, 1]) * width + at[:, 0], return_inverse=True,
                                       return_counts=True)
    sums = np.zeros((len(numbers), points.shape[1]))
    np.add.at(sums, where.reshape(-1), points.astype(np.float64))
    indices = np.stack([np.zeros_like(numbers), numbers // (height * width), numbers // width % height,
                        numbers % width], axis=1).astype(np.int32)
    return indices, (sums / counts[:, None]).astype(np.float32)


def folded_layers(description):
    """The description with a bias and without norms, and random weights in spconv's layout that keep features'
    magnitude."""
    random = np.random.default_rng(1)
    layers, state = [], {}
    for layer in description["layers"]:
        layer = {key: value for key, value in layer.items() if key not in ("norm", "eps")}
        layers.append(layer)
        if layer["type"] == "ToDense":
            continue
        if layer["type"] not in ("SubMConv3d", "SparseConv3d"):
            raise SystemExit("%s: layers of type %s are not compared" % (layer["name"], layer["type"]))
        inputs, outputs = layer["channels"]
        kernel = layer.get("kernel", 3)
        kernel = kernel if isinstance(kernel, list) else [kernel] * 3
        met = 0.35 * np.prod(kernel) * inputs  # some third of a site's taps lead to sites
        state[layer["name"] + ".weight"] = random.normal(0, np.sqrt(2 / met), (outputs, *kernel, inputs)).astype(np.float32)
        state[layer["name"] + ".bias"] = random.normal(0, 0.1, outputs).astype(np.float32)
        layer["bias"] = True
    return {**description, "layers": layers}, state


# ---- spconv


def fused_relu():
    """The act_type with which spconv's convolutions apply a ReLU at inference, or None."""
    try:
        from cumm import tensorview as tv
        return tv.gemm.Activation.ReLU
    except (ImportError, AttributeError):
        return None


class Encoder(torch.nn.Module):
    def __init__(self, description, state, algo, fused):
        super().__init__()
        self.convs = torch.nn.ModuleList()
        self.relus = []
        for layer in description["layers"]:
            if layer["type"] == "ToDense":
                continue
            make = {"SubMConv3d": sparse.SubMConv3d, "SparseConv3d": sparse.SparseConv3d}[layer["type"]]
            arguments = dict(kernel_size=layer.get("kernel", 3), bias=True, indice_key=layer.get("indice_key"), algo=algo)
            if layer["type"] == "SparseConv3d":
                arguments.update(stride=layer.get("stride", 1), padding=layer.get("padding", 0))
            else:
                arguments.update(padding=1)
            conv = make(*layer["channels"], **arguments)
            with torch.no_grad():
                conv.weight.copy_(torch.from_numpy(state[layer["name"] + ".weight"]))
                conv.bias.copy_(torch.from_numpy(state[layer["name"] + ".bias"]))
            if layer.get("relu") and fused is not None:
                conv.act_type = fused
            self.convs.append(conv)
            self.relus.append(bool(layer.get("relu")) and fused is None)

    def forward(self, x):
        self.rows = []
        for conv, relu in zip(self.convs, self.relus):
            x = conv(x)
            if relu:
                x = x.replace_feature(torch.relu(x.features))
            self.rows.append(x.features.shape[0])
        return x


class KnownPairs:
    """With `replay`, requested pairs are those that the last recorded run found, in its order."""

    def __init__(self):
        self.calls, self.at, self.mode = [], 0, "off"
        for name in CACHED:
            setattr(sparse_ops, name, self.wrapped(getattr(sparse_ops, name)))

    def wrapped(self, find):
        def find_or_known(*arguments, **named):
            if self.mode == "replay":
                self.at += 1
                return self.calls[(self.at - 1) % len(self.calls)]
            found = find(*arguments, **named)
            if self.mode == "record":
                self.calls.append(found)
            return found
        return find_or_known

    def record(self, run):
        self.calls, self.at, self.mode = [], 0, "record"
        run()
        self.mode = "off"

    def replayed(self, run):
        self.at, self.mode = 0, "replay"
        try:
            run()
        finally:
            self.mode = "off"


class Spconv:
    """One algorithm in one type."""

    def __init__(self, description, state, indices, features, algo, precision, pairs):
        dtype = TYPES[precision]
        self.pairs = pairs
        self.indices = torch.from_numpy(indices).cuda()
        self.features = torch.from_numpy(features).cuda().to(dtype)
        self.shape = description["spatial_shape"]
        plain = self.network = Encoder(description, state, algo, None).cuda().to(dtype).eval()
        expected = self.run().features.float()
        self.fused = False
        try:
            self.network = Encoder(description, state, algo, fused_relu()).cuda().to(dtype).eval()
            off = (self.run().features.float() - expected).abs().max() / expected.square().mean().sqrt()
            self.fused = fused_relu() is not None and bool(off < (0.3 if precision == "bf16" else 0.05))
        except Exception as error:  # refusals of different versions have no common class
            print("spconv: no fused ReLU (%s)" % str(error).splitlines()[0][:100], file=sys.stderr)
        if not self.fused:
            self.network = plain
            self.run()
        for _ in range(3):
            self.run()
        self.pairs.record(self.run)
        self.calls = list(self.pairs.calls)
        self.graph = self.captured()

    def run(self):
        with torch.inference_mode():
            return self.network(sparse.SparseConvTensor(self.features, self.indices, self.shape, 1))

    def run_network(self):
        self.pairs.calls = self.calls
        self.pairs.replayed(self.run)

    def captured(self):
        """The network with known pairs as a CUDA graph, or None if that fails."""
        try:
            return timing.captured(self.run_network)[0]
        except Exception as error:  # as above
            print("spconv: no CUDA graph (%s)" % str(error).splitlines()[0][:100], file=sys.stderr)
            torch.cuda.synchronize()
            return None

    def times(self):
        return {"whole": timed_on_cuda(self.run, 5), "network": timed_on_cuda(self.run_network, 5),
                "graph": timed_on_cuda(self.graph.replay, 5) if self.graph else None}


# ---- ours


def our_models(description, state, indices, rows, folder):
    """The encoder's file, and the one with constant sites. Bounds are a quarter above the actual numbers, or exact."""
    paths = []
    np.savez(folder / "state.npz", **state)
    for known in (False, True):
        bounded = {key: value for key, value in description.items() if key != "voxels"}
        bounded["max_sites"] = len(indices) if known else len(indices) + len(indices) // 4
        bounded["layers"] = [dict(layer) for layer in description["layers"]]
        for layer, count in zip(bounded["layers"], rows):
            layer.pop("max_sites", None)
            if layer["type"] == "SparseConv3d":
                layer["max_sites"] = count if known else count + count // 4
        model = spconv_onnx.Converter(bounded, spconv_onnx.read_state(str(folder / "state.npz")), 1).model()
        if known:
            graph = model.graph
            sort = next(node for node in graph.node if node.op_type == "SparseSort")
            graph.node.remove(sort)
            graph.initializer.append(numpy_helper.from_array(indices, sort.output[0]))
            del graph.input[:]
            graph.input.append(helper.make_tensor_value_info(sort.output[1], TensorProto.FLOAT,
                                                             [len(indices), description["channels"]]))
        path = folder / ("known.onnx" if known else "whole.onnx")
        onnx.save(model, str(path))
        paths.append(path)
    return paths


def given(inputs):
    return [f"--input={name}={path}" for name, path in inputs]


def our_ms(lenslet, model, inputs, precision):
    found = timing.lenslet(lenslet, "bench", model, "--device", "cuda", "--precision", precision, *given(inputs))
    return found["results"][0]["device_ms"]["median"]


def our_output(lenslet, model, inputs, precision, folder):
    timing.checked([lenslet, "run", model, "--device", "cuda", "--precision", precision, "--output-dir", folder, *given(inputs)])
    output = onnx.load(str(model)).graph.output[0].name
    for path in Path(folder).glob("*.npy"):
        if path.stem == output or path.stem == output.replace(":", "_"):
            return np.load(path)
    raise SystemExit("no output %s in %s" % (output, sorted(p.name for p in Path(folder).glob("*.npy"))))


# ---- both


def compare(options, description, state, scan, pairs, results):
    sweeps, steps = scan.split("x")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        timing.checked([options.lenslet, "scan", folder / "scan.npy", "--sweeps", sweeps, "--steps", steps])
        indices, features = voxelized(np.load(folder / "scan.npy"), description)
        np.save(folder / "indices.npy", indices)
        np.save(folder / "features.npy", features)
        exact = None
        for precision in options.precisions.split(","):
            peers = {name: Spconv(description, state, indices, features, algo, precision, pairs)
                     for name, algo in (("Native", ConvAlgo.Native), ("MaskImplicitGemm", ConvAlgo.MaskImplicitGemm))}
            peer = peers["MaskImplicitGemm"]
            if exact is None:
                single = peer if precision == "fp32" else Spconv(description, state, indices, features,
                                                                 ConvAlgo.MaskImplicitGemm, "fp32", pairs)
                exact = single.run().dense().float().cpu().numpy()
                whole, known = our_models(description, state, indices, single.network.rows, folder)
            of_whole = [("indices", folder / "indices.npy"), ("features", folder / "features.npy")]
            of_known = [("sorted_features", folder / "features.npy")]
            got = our_output(options.lenslet, whole, of_whole, precision, folder / "out")
            error = float(np.abs(got.reshape(exact.shape) - exact).max() / np.sqrt((exact ** 2).mean()))
            runs = {"ours": lambda: {"whole": our_ms(options.lenslet, whole, of_whole, precision),
                                     "network": our_ms(options.lenslet, known, of_known, precision)}}
            samples = timing.in_turns({**runs, **{name: each.times for name, each in peers.items()}}, options.rounds)
            best = min(peers, key=lambda name: statistics.median(samples[name, "network"]))
            graph = min((samples[key] for key in samples if key[1] == "graph"), key=statistics.median, default=None)
            for part in ("network", "rulebooks", "whole"):
                if part == "rulebooks":
                    mine, other = (statistics.median(samples[name, "whole"]) - statistics.median(samples[name, "network"])
                                   for name in ("ours", best))
                    row = {"lenslet_ms": mine, "spconv_ms": other, "ratio": mine / other}
                else:
                    mine, other = samples["ours", part], samples[best, part]
                    row = {"lenslet_ms": mine, "spconv_ms": other, "ratio": timing.ratio(mine, other)}
                if part == "network":
                    row.update(spconv_graph_ms=graph, graph_ratio=graph and timing.ratio(mine, graph), algorithm=best,
                               fused_relu=str(peers[best].fused), error=f"{error:.1e}", sites_by_layer=" ".join(map(str, peer.network.rows)))
                results.add(scan=scan, sites=len(indices), precision=precision, part=part, **row)
            del peers, peer
            torch.cuda.empty_cache()


def main():
    parser = timing.options(__doc__.splitlines()[0], rounds=3)
    parser.add_argument("--layers", default=str(ROOT / "models" / "convert" / "second.json"))
    parser.add_argument("--scans", type=timing.words, default="1x1024,3x2048,10x2048")
    parser.add_argument("--precisions", default="fp32,fp16")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench_sparse_peers.py: PyTorch finds no CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    with open(options.layers, encoding="utf-8") as file:
        description, state = folded_layers(json.load(file))
    results = timing.Results(
        options, f"{Path(options.layers).name} on generated scans, beside spconv {VERSION}, PyTorch {torch.__version__}.",
        f"Device: {torch.cuda.get_device_name()}.",
        "Milliseconds: median of the rounds, least, greatest. network: rulebooks known beforehand. ratio: lenslet / spconv.")
    pairs = KnownPairs()
    try:
        for scan in options.scans:
            compare(options, description, state, scan, pairs, results)
    except timing.Refused as why:
        return str(why)
    return 0


if __name__ == "__main__":
    sys.exit(main())
