"""Graphs with permutations before, between and after every operator, as in exports from [N,H,W,C]."""

import numpy
import onnx
from onnx import helper

from .drawer import OPSETS, Drawer

# Usual orders of axes in exports, by rank: channels last, channels first, attention's; others are drawn, too.
USUAL = {
    2: [(1, 0)],
    3: [(0, 2, 1), (1, 0, 2)],
    4: [(0, 2, 3, 1), (0, 2, 3, 1), (0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (0, 1, 3, 2)],
    5: [(0, 2, 3, 4, 1), (0, 4, 1, 2, 3), (0, 2, 1, 3, 4)],
}

# Operators that are next to most others in exports.
AROUND = ("MatMul", "Einsum", "MatMulInteger", "QLinearMatMul", "Gemm", "Conv", "Add", "Mul", "Relu", "ReduceMean", "Reshape", "Concat")


def has(op, opset):
    try:
        return not onnx.defs.get_schema(op, opset).deprecated
    except onnx.defs.SchemaError:
        return False


class PermutedDrawer(Drawer):
    """Graph i has operator i of the list, cyclically, and some others."""

    def __init__(self, seed, number, operators, refused):
        self.first = operators[number % len(operators)]
        super().__init__(seed, number, operators, refused, [opset for opset in OPSETS if has(self.first, opset)])
        self.special = False
        self.likes = (0, 2, 3, 1) if self.chance(0.5) else None

    def dims(self, low, high, largest=5):
        if (low, high) == (1, 4):  # any rank: every second one is not an image
            low, high = self.pick([(4, 4), (4, 4), (4, 4), (3, 3), (2, 2), (1, 5)])
        return [1 if self.chance(0.2) else self.integer(1, largest) for _ in range(self.integer(low, high))]

    def array(self, dtype, dims):
        """Floats with few digits, which compress well."""
        array = super().array(dtype, dims)
        return (numpy.round(array * 32) / 32).astype(array.dtype) if array.dtype.kind == "f" else array

    def new(self, array):
        return self.add(array, self.chance(0.4))

    def add(self, array, constant):
        """Sometimes the result of a Transpose."""
        if numpy.ndim(array) < 2 or not self.chance(0.05 if constant else 0.5):
            return super().add(array, constant)
        perm = self.permutation(array.ndim)
        return self.transpose(super().add(numpy.transpose(array, numpy.argsort(perm)), constant), perm)

    def value(self, types=(numpy.float32,), rank=None, dims=None, fits=lambda array: True, fresh=0.2):
        name = super().value(types, rank, dims, fits, fresh)
        array = self[name]
        if dims is not None or array.ndim < 2 or not self.chance(0.4):
            return name
        perm = self.permutation(array.ndim)
        return self.transpose(name, perm) if fits(array.transpose(perm)) else name

    def permutation(self, rank):
        if self.likes and rank == 4 and self.chance(0.7):  # there and back
            perm, self.likes = self.likes, (0, 3, 1, 2) if self.likes == (0, 2, 3, 1) else (0, 2, 3, 1)
            return perm
        return self.pick(USUAL[rank]) if rank in USUAL and self.chance(0.6) else tuple(self.random.permutation(rank).tolist())

    def transpose(self, name, perm):
        made = self.name("t")
        self.graph.nodes.append(helper.make_node("Transpose", [name], [made], perm=perm))
        self.graph.arrays[made] = numpy.ascontiguousarray(self[name].transpose(perm))
        return made

    def emit(self, op, inputs, outputs=1, **attributes):
        """With a permutation after results with axes."""
        made = super().emit(op, inputs, outputs, **attributes)
        for name in made:
            if self[name].ndim > 1 and self.chance(0.35):
                self.transpose(name, self.permutation(self[name].ndim))
        return made

    def next_operator(self, drawn):
        if not drawn:
            return self.first
        around = [op for op in AROUND if op in self.operators]
        return self.pick(around if around and self.chance(0.5) else self.operators)

    def wanted(self):
        return self.integer(1, 3)
