"""Draws a graph of the operators in OPERATORS."""

import numpy
import onnx
from onnx import helper

from .drawing import OPERATORS, Redraw
from .exclusions import excluded
from .graph import Graph, Refused, compute, error_text

OPSETS = range(7, 29)


class Drawer:
    """Draws one graph. Operators receive it as `d`."""

    def __init__(self, seed, number, operators, refused, opsets=OPSETS):
        self.random = numpy.random.default_rng([seed, number])
        self.refused = refused
        opset = int(self.random.choice(opsets))
        lowest = helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
        self.graph = Graph(opset, int(self.random.choice([lowest, 10, 14])))
        self.graph.ir = max(self.graph.ir, lowest)
        self.half = self.random.random() < 0.1  # float16 for float32
        self.special = self.random.random() < 0.05  # NaN, infinities, -0
        self.operators = operators

    # Random choices.
    def chance(self, probability):
        return self.random.random() < probability

    def integer(self, low, high):
        """From low to high, inclusive; Redraw if there is none."""
        if low > high:
            raise Redraw
        return int(self.random.integers(low, high + 1))

    def pick(self, choices):
        choices = list(choices)
        return choices[self.integer(0, len(choices) - 1)]

    def dims(self, low, high, largest=6):
        drawn = [self.integer(1, largest) for _ in range(self.integer(low, high))]
        if drawn and self.chance(0.15):  # more than a vector, with a tail
            drawn[self.integer(0, len(drawn) - 1)] = self.integer(7, 70)
        return drawn

    # Values.
    def name(self, prefix):
        return f"{prefix}{len(self.graph.arrays)}"

    def array(self, dtype, dims):
        """Random elements of a type."""
        dtype = numpy.dtype(dtype)
        if dtype.kind == "b":
            return self.random.random(dims) < 0.5
        if dtype.kind == "u":
            return self.random.integers(0, 12, dims).astype(dtype)
        if dtype.kind == "i":
            return self.random.integers(-9, 10, dims).astype(dtype)
        if self.chance(0.25):  # ties
            values = self.random.integers(-6, 7, dims) / 2
        else:
            values = self.random.standard_normal(dims) * self.pick([0.3, 1, 1, 1, 4])
        values = numpy.asarray(values, dtype)
        if self.special and values.size:
            values = values.reshape(-1)
            for value in (numpy.nan, numpy.inf, -numpy.inf, -0.0):
                if self.chance(0.4):
                    values[self.integer(0, values.size - 1)] = value
            values = values.reshape(dims)
        return values

    def add(self, array, constant):
        name = self.name("c" if constant else "x")
        self.graph.arrays[name] = numpy.ascontiguousarray(array) if numpy.ndim(array) else numpy.asarray(array)
        (self.graph.constants if constant else self.graph.inputs).append(name)
        return name

    def new(self, array):
        """A run-time value or, sometimes, a constant."""
        return self.add(array, self.chance(0.2))

    def known(self, values, dtype=numpy.int64):
        """A value that determines shapes: a constant, sometimes an input."""
        return self.add(numpy.asarray(values, dtype), not self.chance(0.08))

    def __getitem__(self, name):
        return self.graph.arrays[name]

    def float_type(self):
        return numpy.float16 if self.half else numpy.float32

    def types(self, types):
        """NumPy `types`, with float16 in place of float32 in a float16 graph."""
        return [numpy.float16 if self.half and type is numpy.float32 else type for type in types]

    def value(self, types=(numpy.float32,), rank=None, dims=None, fits=lambda array: True, fresh=0.25):
        """The name of an existing or a new value of one of these types. `rank`: (low, high)."""
        types = self.types(types)
        low, high = rank or (0, 5)
        found = [name for name, array in self.graph.arrays.items()
                 if array.dtype.type in types and low <= array.ndim <= high and (dims is None or list(array.shape) == list(dims))
                 and array.size <= 4096 and not name.startswith("c") and fits(array)]  # fmt: skip
        if found and not self.chance(fresh):
            return self.pick(found[-3:])
        dims = self.dims(max(low, 1) if self.chance(0.95) else low, min(high, 4)) if dims is None else dims
        array = self.array(self.pick(types), dims)
        if not fits(array):
            raise Redraw
        return self.new(array)

    def emit(self, op, inputs, outputs=1, domain="", **attributes):
        """Adds a node, computes its outputs and makes them values. Attributes that the opset lacks or that are None are
        omitted. Returns the names of its outputs; Redraw if ONNX or ONNX Runtime refuse the node."""
        attributes = {key: value for key, value in attributes.items() if value is not None}
        inputs = list(inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        if not domain:
            try:
                schema = onnx.defs.get_schema(op, self.graph.opset)
            except Exception as error:
                raise Redraw from error
            attributes = {key: value for key, value in attributes.items() if key in schema.attributes}
            if len(inputs) > schema.max_input or schema.deprecated:
                raise Redraw
        names = [f"{self.pick(['v', 'v', 'v', 'out'])}{len(self.graph.arrays)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, inputs, names, domain=domain, **attributes)
        try:
            arrays = compute(self.graph, node)
        except Refused as error:
            self.refused[op, str(error)] += 1
            raise Redraw from error
        if any(array.ndim > 8 or array.size > 40000 for array in arrays):
            raise Redraw
        self.graph.nodes.append(node)
        self.graph.arrays.update(zip(names, arrays))
        return names

    def takes_any_first(self, name):
        """Whether the graph works for any first dimension of an input, as a free one declares. ONNX Runtime accepts
        shapes for Compress and GatherND that ONNX does not allow."""
        array = self[name]
        if not array.size or any(node.op_type in ("Compress", "GatherND") for node in self.graph.nodes):
            return False
        try:
            for size in (1, array.shape[0] + 1):
                self.graph.recompute({name: numpy.resize(array, (size, *array.shape[1:]))})
        except Refused:
            return False
        return True

    def wanted(self):
        return self.integer(1, 6) if self.chance(0.6) else 1

    def next_operator(self, drawn):
        """The operator after `drawn` nodes."""
        return self.pick(self.operators)

    def draw(self):
        wanted, drawn = self.wanted(), 0
        for _ in range(50):
            if drawn >= wanted:
                break
            op = self.next_operator(drawn)
            before = self.graph.copy()
            try:
                OPERATORS[op](self, op)
                for node in self.graph.nodes[len(before.nodes):]:
                    if reason := excluded(self.graph, node):
                        self.refused["excluded", reason] += 1
                        raise Redraw
                drawn += 1
            except Redraw:
                self.graph = before
        if not self.graph.nodes:
            return None
        if self.chance(0.1):
            for name in self.graph.inputs:
                if self.graph.arrays[name].ndim > 1 and self.chance(0.5) and self.takes_any_first(name):
                    self.graph.free[name] = {0: f"N{name}"}
        try:
            onnx.checker.check_model(self.graph.model(), full_check=True)
        except Exception as error:
            self.refused["onnx.checker", error_text(error)] += 1
            return None
        return self.graph
