#!/usr/bin/env python3
"""An ONNX file of lenslet's sparse operators out of a state dict in spconv 2's weight layout and a list of the layers.

    spconv_onnx.py LAYERS.json OUTPUT.onnx [--state STATE.npz|STATE.pth] [--seed 1]

Needs NumPy and onnx, neither PyTorch nor spconv. STATE is a NumPy archive (numpy.savez(path, **{name: tensor.numpy()
for name, tensor in module.state_dict().items()})) or a checkpoint of PyTorch's legacy format; without it weights are
drawn from the seed, as for measurements. spconv 2 keeps filters as [K, kernel axes, C] ("weight layout" in its README),
ONNX and lenslet as [K, C, kernel axes]. docs/sparse.md has the operators; second.json beside this file is an example:

    {"spatial_shape": [z, y, x], "images": 1, "channels": 4, "max_sites": 160000,
     "layers": [{"name": "conv1.0", "type": "SubMConv3d", "channels": [16, 16], "kernel": 3, "indice_key": "subm1",
                 "norm": "conv1.1", "relu": true}, ...]}

Types are spconv's SubMConv2d/3d, SparseConv2d/3d, SparseConvTranspose2d/3d, SparseInverseConv2d/3d, SparseMaxPool2d/3d,
and ToDense, which only ends a network. `name` is what its weight and bias are called in the state dict before the dot,
`norm` the BatchNorm1d that follows (`eps`, 1e-3), `add` the layer whose result is added before the activation.
`kernel`, `stride`, `padding`, `dilation`, `output_padding` are numbers or a number an axis; layers of one indice_key share a
rulebook, and an inverse one goes back to the sites from which the layer of its key came. `max_sites` bounds the outputs
of a layer that makes sites. With "voxels": {"size": [x, y, z], "min": [x, y, z], "max": [x, y, z]}, in metres, the
network takes points [n, channels] and begins by making sites of them; else it takes indices and features.
"""

import argparse
import json

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import legacy_checkpoint

OPSET = 17
IR_VERSION = 8
DOMAIN = "lenslet"
KINDS = {"SubMConv": "submanifold", "SparseConv": "regular", "SparseConvTranspose": "transposed",
         "SparseInverseConv": "inverse", "SparseMaxPool": "regular"}


class Sites:
    """Where features are: the value of their indices, and their grid."""

    def __init__(self, indices, shape):
        self.indices, self.shape = indices, list(shape)


class Converter:
    """Appends the nodes of one layer after the other."""

    def __init__(self, description, state, seed):
        self.description, self.state = description, state
        self.random = np.random.default_rng(seed)
        self.dims = len(description["spatial_shape"])
        self.nodes, self.weights = [], []
        self.books = {}  # by indice_key: (what makes it, rulebook, sites before, sites behind)
        self.results = {}  # by layer: (features, sites, channels)
        self.features, self.channels = "sorted_features", description["channels"]
        self.sites = Sites("sorted_indices", description["spatial_shape"])
        bound = {"max_sites": description["max_sites"]} if "max_sites" in description else {}
        if "voxels" in description:
            self._voxelize(description["voxels"], bound)
        else:
            self._node("SparseSort", ["indices", "features"], [self.sites.indices, self.features], "sort",
                       spatial_shape=self.sites.shape, images=self.images(), **bound)

    def _voxelize(self, voxels, bound):
        size, low, high = (voxels[key] for key in ("size", "min", "max"))
        cells = [round((b - a) / s) for a, b, s in zip(low, high, size)]
        if len(cells) != 3 or self.dims != 3 or any(c > n for c, n in zip(reversed(cells), self.sites.shape)):
            raise ValueError("voxels make %s cells (x, y, z) of a spatial_shape %s" % (cells, self.sites.shape))
        if self.images() != 1:
            raise ValueError("voxels are for one image")
        self._node("SparseVoxelize", ["points"], [self.sites.indices, self.features], "voxelize",
                   voxel_size=[float(v) for v in size], range_min=[float(v) for v in low],
                   range_max=[float(v) for v in high], **bound)

    def images(self):
        return self.description.get("images", 1)

    def _node(self, op, inputs, outputs, name, domain=DOMAIN, **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def _constant(self, name, array):
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))
        return name

    def _tensor(self, name, shape, drawn):
        """From the state dict, or drawn by `drawn(shape)`."""
        if self.state is None:
            return drawn(shape)
        if name not in self.state:
            raise ValueError("the state dict has no %s" % name)
        array = self.state[name]
        if tuple(array.shape) != tuple(shape):
            raise ValueError("%s is %s instead of %s" % (name, tuple(array.shape), tuple(shape)))
        return array

    def per_axis(self, layer, key, default):
        value = layer.get(key, default)
        values = list(value) if isinstance(value, list) else [value] * self.dims
        if len(values) != self.dims:
            raise ValueError("%s: %s has %d entries for %d axes" % (layer["name"], key, len(values), self.dims))
        return values

    def _rulebook(self, layer, kind, name):
        """(rulebook, the sites that it leads to), made once for an indice_key."""
        kernel, stride, padding, dilation = (self.per_axis(layer, key, default) for key, default in
                                             (("kernel", 3), ("stride", 1), ("padding", 0), ("dilation", 1)))
        extra = self.per_axis(layer, "output_padding", 0)
        made_by = (kind, self.sites.indices, kernel, dilation)
        if kind != "submanifold":
            made_by += (stride, padding, extra)
        key = layer.get("indice_key", name)
        if key in self.books:
            if self.books[key][0] != made_by:
                raise ValueError("%s: indice_key %s is of another geometry" % (name, key))
            return self.books[key][1], self.books[key][3]
        attributes = dict(kind=kind, spatial_shape=self.sites.shape, images=self.images(), kernel_shape=kernel,
                          dilations=dilation)
        book, behind = "%s:rulebook" % key, self.sites
        outputs = [book]
        if kind != "submanifold":
            attributes.update(strides=stride, pads=padding + padding)
            extents = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
            if kind == "regular":
                shape = [(n + 2 * p - e) // s + 1
                         for n, p, e, s in zip(self.sites.shape, padding, extents, stride)]
            else:
                attributes.update(output_padding=extra)
                shape = [(n - 1) * s - 2 * p + e + more
                         for n, s, p, e, more in zip(self.sites.shape, stride, padding, extents, extra)]
            if "max_sites" in layer:
                attributes.update(max_sites=layer["max_sites"])
            behind = Sites("%s:indices" % key, shape)
            outputs.append(behind.indices)
        self._node("SparseRulebook", [self.sites.indices], outputs, "%s:rulebook" % key, **attributes)
        self.books[key] = (made_by, book, self.sites, behind)
        return book, behind

    def _norm(self, name, eps, value):
        shape = [self.channels]
        parts = [self._constant("%s.%s" % (name, part), self._tensor("%s.%s" % (name, part), shape, drawn))
                 for part, drawn in (("weight", lambda s: self.random.uniform(0.8, 1.2, s)),
                                     ("bias", lambda s: self.random.normal(0, 0.1, s)),
                                     ("running_mean", lambda s: self.random.normal(0, 0.1, s)),
                                     ("running_var", lambda s: self.random.uniform(0.5, 1.5, s)))]
        return self._node("BatchNormalization", [value] + parts, [name], name, "", epsilon=eps)

    def add(self, layer, number):
        kind_name = layer["type"].removesuffix("%dd" % self.dims)
        name = layer.setdefault("name", "layer%d" % number)
        if layer["type"] == "ToDense":
            self.features = self._node("SparseToDense", [self.sites.indices, self.features], [name], name,
                                       spatial_shape=self.sites.shape, images=self.images())
            return
        if kind_name not in KINDS:
            raise ValueError("%s: unknown type %s" % (name, layer["type"]))
        kind = KINDS[kind_name]
        if kind == "inverse":
            key = layer["indice_key"]
            if key not in self.books or self.books[key][0][0] == "submanifold":
                raise ValueError("%s: no layer before it made sites under the indice_key %s" % (name, key))
            _, book, behind, before = self.books[key]
            if before.indices != self.sites.indices:
                raise ValueError("%s: indice_key %s leads from other sites" % (name, key))
        else:
            book, behind = self._rulebook(layer, kind, name)
        kernel = self.per_axis(layer, "kernel", 3)
        if kind_name == "SparseMaxPool":
            value = self._node("SparseMaxPool", [self.features, book, behind.indices], [name], name,
                               kernel_shape=kernel)
        else:
            channels, filters = layer["channels"]
            if channels != self.channels:
                raise ValueError("%s: %d channels, but %d arrive" % (name, channels, self.channels))
            deviation = np.sqrt(2 / (channels * np.prod(kernel) * 0.35))
            weight = self._tensor(name + ".weight", [filters, *kernel, channels],
                                  lambda shape: self.random.normal(0, deviation, shape))
            inputs = [self.features, book, self._constant(name + ".weight", np.moveaxis(weight, -1, 1)),
                      "" if kind == "submanifold" else behind.indices]
            if layer.get("bias", self.state is not None and name + ".bias" in self.state):
                inputs.append(self._constant(name + ".bias", self._tensor(name + ".bias", [filters],
                                                                          lambda s: self.random.normal(0, 0.1, s))))
            while not inputs[-1]:
                inputs.pop()
            value = self._node("SparseConv", inputs, [name], name,
                               kind="regular" if kind == "transposed" else kind)
            self.channels = filters
        if "norm" in layer:
            value = self._norm(layer["norm"], layer.get("eps", 1e-3), value)
        if "add" in layer:
            other, sites, channels = self.results[layer["add"]]
            if sites.indices != behind.indices or channels != self.channels:
                raise ValueError("%s: %s has other sites or channels" % (name, layer["add"]))
            value = self._node("Add", [value, other], [name + ":sum"], name + ":sum", "")
        if layer.get("relu"):
            value = self._node("Relu", [value], [name + ":relu"], name + ":relu", "")
        self.features, self.sites = value, behind
        self.results[name] = (value, behind, self.channels)

    def model(self):
        for number, layer in enumerate(self.description["layers"]):
            self.add(dict(layer), number)
        if self.nodes[-1].op_type == "SparseToDense":
            shape = [self.images(), self.channels, *self.sites.shape]
            outputs = [helper.make_tensor_value_info(self.features, TensorProto.FLOAT, shape)]
        else:
            outputs = [helper.make_tensor_value_info(self.features, TensorProto.FLOAT, ["rows", self.channels]),
                       helper.make_tensor_value_info(self.sites.indices, TensorProto.INT32, ["rows", 1 + self.dims])]
        channels = self.description["channels"]
        if "voxels" in self.description:
            inputs = [helper.make_tensor_value_info("points", TensorProto.FLOAT, ["points", channels])]
        else:
            inputs = [helper.make_tensor_value_info("indices", TensorProto.INT32, ["sites", 1 + self.dims]),
                      helper.make_tensor_value_info("features", TensorProto.FLOAT, ["sites", channels])]
        graph = helper.make_graph(self.nodes, self.description.get("name", "sparse"), inputs, outputs, self.weights)
        model = helper.make_model(graph, ir_version=IR_VERSION, producer_name="lenslet",
                                  opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)])
        onnx.checker.check_model(model)
        return model


def read_state(path):
    """Arrays by name. Nothing is executed."""
    if path.endswith(".npz"):
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    return legacy_checkpoint.read_state_dict(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layers")
    parser.add_argument("output")
    parser.add_argument("--state")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with open(arguments.layers, encoding="utf-8") as file:
        description = json.load(file)
    state = read_state(arguments.state) if arguments.state else None
    try:
        model = Converter(description, state, arguments.seed).model()
    except (KeyError, ValueError) as error:
        raise SystemExit("%s: %s" % (arguments.layers, error))
    onnx.save(model, arguments.output)


if __name__ == "__main__":
    main()
