"""PYTHONPATH=models/convert LENSLET_COMMAND=lenslet python3 -m unittest spconv_onnx_test: the command runs a converted
network; compared with sums over dictionaries of sites. Skipped without numpy and onnx."""

import itertools
import os
import pathlib
import subprocess
import tempfile
import unittest

try:
    import numpy as np
    import spconv_onnx
except ImportError:
    np = None

SHAPE = (5, 8, 7)
EPSILON = 1e-3

LAYERS = {
    "spatial_shape": list(SHAPE), "images": 2, "channels": 2, "max_sites": 90,
    "layers": [
        {"name": "a", "type": "SubMConv3d", "channels": [2, 3], "indice_key": "s", "norm": "a_norm", "relu": True},
        {"name": "b", "type": "SubMConv3d", "channels": [3, 3], "indice_key": "s", "add": "a", "relu": True},
        {"name": "down", "type": "SparseConv3d", "channels": [3, 4], "kernel": [3, 2, 3], "stride": 2,
         "padding": [1, 0, 1], "indice_key": "d", "max_sites": 120},
        {"name": "up", "type": "SparseInverseConv3d", "channels": [4, 2], "kernel": [3, 2, 3], "indice_key": "d"},
    ],
}


def taps(kernel):
    return list(itertools.product(*(range(k) for k in kernel)))


def through(site, tap, stride, pad):
    return (site[0], *(o * s + t - p for o, t, s, p in zip(site[1:], tap, stride, pad)))


def submanifold(x, weight):
    """`weight` [K,3,3,3,C], as spconv 2 has it; x: features by site."""
    return {o: sum(weight[:, t[0], t[1], t[2]] @ x[i] for t in taps((3, 3, 3))
                   if (i := through(o, t, (1, 1, 1), (1, 1, 1))) in x) for o in x}


@unittest.skipIf(np is None, "numpy or onnx is not installed")
class SpconvOnnx(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(3)
        draw = lambda *shape: self.random.normal(0, 0.3, shape).astype(np.float32)  # noqa: E731
        self.state = {"a.weight": draw(3, 3, 3, 3, 2), "b.weight": draw(3, 3, 3, 3, 3), "b.bias": draw(3),
                      "down.weight": draw(4, 3, 2, 3, 3), "up.weight": draw(2, 3, 2, 3, 4),
                      "a_norm.weight": draw(3), "a_norm.bias": draw(3), "a_norm.running_mean": draw(3),
                      "a_norm.running_var": draw(3) ** 2 + 1}

    def test_a_network_is_what_spconv_means(self):
        sites = [s for s in itertools.product(range(2), *map(range, SHAPE)) if self.random.random() < 0.12]
        self.random.shuffle(sites)
        x = {tuple(s): self.random.normal(0, 1, 2).astype(np.float32) for s in map(tuple, np.array(sites).tolist())}
        w = {name: array.astype(np.float64) for name, array in self.state.items()}
        a = {o: np.maximum(0, (v - w["a_norm.running_mean"]) / np.sqrt(w["a_norm.running_var"] + EPSILON)
                           * w["a_norm.weight"] + w["a_norm.bias"]) for o, v in submanifold(x, w["a.weight"]).items()}
        b = {o: np.maximum(0, v + w["b.bias"] + a[o]) for o, v in submanifold(a, w["b.weight"]).items()}
        window = ((3, 2, 3), (2, 2, 2), (1, 0, 1))
        out = [(n + 2 * p - k) // 2 + 1 for n, k, p in zip(SHAPE, window[0], window[2])]
        down = {}
        for o in itertools.product(range(2), *map(range, out)):
            met = [(t, i) for t in taps(window[0]) if (i := through(o, t, *window[1:])) in b]
            if met:
                down[o] = sum(w["down.weight"][:, t[0], t[1], t[2]] @ b[i] for t, i in met)
        up = {i: np.zeros(2) for i in b}
        for o, t in itertools.product(down, taps(window[0])):
            if (i := through(o, t, *window[1:])) in up:
                up[i] += w["up.weight"][:, t[0], t[1], t[2]] @ down[o]

        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            np.savez(folder / "state.npz", **self.state)
            model = spconv_onnx.Converter(LAYERS, spconv_onnx.read_state(str(folder / "state.npz")), 1).model()
            (folder / "net.onnx").write_bytes(model.SerializeToString())
            np.save(folder / "indices.npy", np.array(list(x), np.int32))
            np.save(folder / "features.npy", np.stack(list(x.values())))
            subprocess.run([os.environ["LENSLET_COMMAND"], "run", folder / "net.onnx", "--device", "cpu", "--input",
                            "indices=%s" % (folder / "indices.npy"), "--input",
                            "features=%s" % (folder / "features.npy"), "--output-dir", folder / "out"],
                           check=True, stdout=subprocess.DEVNULL)
            results = [np.load(path) for path in sorted((folder / "out").iterdir())]
        features, indices = sorted(results, key=lambda array: array.dtype.kind)
        self.assertEqual(features.shape[0], LAYERS["max_sites"])
        kept = indices[indices[:, 0] >= 0]
        self.assertEqual([tuple(row) for row in kept.tolist()], sorted(x))
        wanted = np.stack([up[site] for site in sorted(x)])
        np.testing.assert_allclose(features[: len(kept)], wanted, atol=1e-5 * np.abs(wanted).max())
        self.assertFalse(features[len(kept):].any())

    def test_points(self):
        """A network of points computes the same as that of their sites."""
        voxels = {"size": [0.5, 0.5, 0.5], "min": [0, -1, -2], "max": [3.5, 3, 0.5]}
        layers = {**LAYERS, "images": 1, "max_sites": 280, "voxels": voxels,
                  "layers": [dict(layer, max_sites=400) if "max_sites" in layer else layer
                             for layer in LAYERS["layers"]]}
        cells = np.array([s for s in itertools.product(*map(range, SHAPE)) if self.random.random() < 0.2], np.int32)
        points = (np.array(voxels["min"]) + (cells[:, ::-1] + 0.5) * np.array(voxels["size"])).astype(np.float32)
        outputs = []
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            self.state["a.weight"] = np.repeat(self.state["a.weight"], 2, axis=-1)[..., :3]
            layers["channels"], layers["layers"][0] = 3, dict(layers["layers"][0], channels=[3, 3])
            points.tofile(folder / "points.bin")
            np.save(folder / "indices.npy", np.insert(cells, 0, 0, axis=1))
            np.save(folder / "features.npy", points)
            of_sites = {key: value for key, value in layers.items() if key != "voxels"}
            for description, inputs in ((layers, ["points=points.bin"]),
                                        (of_sites, ["indices=indices.npy", "features=features.npy"])):
                model = spconv_onnx.Converter(description, self.state, 1).model()
                (folder / "net.onnx").write_bytes(model.SerializeToString())
                given = [text for name in inputs for text in ("--input", name)]
                subprocess.run([os.environ["LENSLET_COMMAND"], "run", "net.onnx", "--device", "cpu", *given,
                                "--output-dir", "out"], check=True, stdout=subprocess.DEVNULL, cwd=folder)
                outputs.append([np.load(path) for path in sorted((folder / "out").iterdir())])
        self.assertTrue((outputs[0][0] != 0).any() or (outputs[0][1] != 0).any())
        for mine, other in zip(*outputs):
            np.testing.assert_array_equal(mine, other)
        with self.assertRaisesRegex(ValueError, "voxels make"):
            spconv_onnx.Converter({**layers, "spatial_shape": [4, 8, 7]}, self.state, 1)

    def test_rulebooks_are_shared(self):
        nodes = spconv_onnx.Converter(LAYERS, self.state, 1).model().graph.node
        books = [node.name for node in nodes if node.op_type == "SparseRulebook"]
        self.assertEqual(books, ["s:rulebook", "d:rulebook"])

    def test_refusals(self):
        def refused(reason, number, **changes):
            layers = [dict(layer) for layer in LAYERS["layers"]]
            layers[number].update(changes)
            with self.assertRaisesRegex(ValueError, reason):
                spconv_onnx.Converter({**LAYERS, "layers": layers}, self.state, 1).model()

        refused("unknown type", 0, type="Conv3d")
        refused("2 channels, but 3 arrive", 1, channels=[2, 3])
        refused("another geometry", 1, dilation=2)
        refused("no a2.weight", 0, name="a2")
        refused("instead of", 0, channels=[2, 4])
        refused("made sites", 3, indice_key="s")
        refused("entries for 3 axes", 2, stride=[2, 2])


if __name__ == "__main__":
    unittest.main()
