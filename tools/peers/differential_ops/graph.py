"""Graphs with the arrays of all their values, which ONNX Runtime computes node by node."""

import re

import numpy
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from timing import onnxruntime_session

onnxruntime.set_default_logger_severity(4)
MICROSOFT = "com.microsoft"  # ONNX Runtime's own operators


def session(model):
    return onnxruntime_session(model.SerializeToString(), optimized=False)


class Refused(Exception):
    """By ONNX Runtime or onnx.checker."""


class Graph:
    """Nodes with the arrays of all their values."""

    def __init__(self, opset, ir):
        self.opset, self.ir = opset, ir
        self.nodes, self.arrays = [], {}  # arrays: of inputs, constants and node outputs
        self.inputs, self.constants = [], []
        self.free = {}  # {input: {axis: name}}: free dimensions of the model

    def copy(self):
        other = Graph(self.opset, self.ir)
        other.nodes, other.arrays = list(self.nodes), dict(self.arrays)
        other.inputs, other.constants, other.free = list(self.inputs), list(self.constants), dict(self.free)
        return other

    def readers(self):
        return {name for node in self.nodes for name in node.input}

    def outputs(self):
        """Values that no node reads, and marked ones."""
        read = self.readers()
        made = [name for node in self.nodes for name in node.output if name]
        return [name for name in made if name not in read or name.startswith("out")]

    def model(self):
        def info(name):
            array = self.arrays[name]
            dims = [self.free.get(name, {}).get(axis, size) for axis, size in enumerate(array.shape)]
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)

        read = self.readers()
        constants = [name for name in self.constants if name in read]
        outputs = self.outputs()
        # onnx knows no types of ONNX Runtime's own operators, and 1.23's inference of EyeLike crashes without one.
        between = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(self.arrays[name].dtype), None)
                   for node in self.nodes for name in node.output if name and name not in outputs]  # fmt: skip
        graph = helper.make_graph(
            self.nodes, "graph", [info(name) for name in self.inputs if name in read], [info(name) for name in outputs],
            [numpy_helper.from_array(self.arrays[name], name) for name in constants], value_info=between)  # fmt: skip
        if self.ir < 4:
            graph.input.extend(info(name) for name in constants)
        return helper.make_model(graph, opset_imports=imports(self), ir_version=self.ir)

    def feeds(self):
        read = self.readers()
        return {name: self.arrays[name] for name in self.inputs if name in read}

    def write(self, folder):
        """As a case folder; the files contain the names."""
        data = folder / "test_data_set_0"
        data.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(self.model().SerializeToString())
        for kind, names in (("input", self.feeds()), ("output", self.outputs())):
            for i, name in enumerate(names):
                (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(self.arrays[name], name).SerializeToString())

    def recompute(self, feeds=None):
        """The graph on other inputs (or the same), as computed by ONNX Runtime; Refused if that fails."""
        other = self.copy()
        other.arrays = {name: array for name, array in self.arrays.items() if name in self.constants or name in self.inputs}
        other.arrays.update(feeds or {})
        for node in other.nodes:
            for name, array in zip([name for name in node.output if name], compute(other, node)):
                other.arrays[name] = array
        return other

    def part(self, nodes):
        """Some of the nodes; results of the others become inputs."""
        other = self.copy()
        other.nodes = nodes
        made = {name for node in nodes for name in node.output if name}
        read = [name for node in nodes for name in node.input if name and name not in made]
        other.constants = [name for name in self.constants if name in read]
        other.inputs = [name for name in dict.fromkeys(read) if name not in other.constants]
        other.free = {name: axes for name, axes in self.free.items() if name in self.inputs}
        return other


def imports(graph):
    own = {node.domain for node in graph.nodes} - {""}
    return [helper.make_opsetid("", graph.opset)] + [helper.make_opsetid(domain, 1) for domain in sorted(own)]


def compute(graph, node):
    """Computes one node on the graph's arrays by ONNX Runtime."""
    single = Graph(graph.opset, graph.ir)
    single.nodes, single.arrays = [node], graph.arrays
    read = [name for name in dict.fromkeys(node.input) if name]
    single.constants = [name for name in read if name in graph.constants]
    single.inputs = [name for name in read if name not in graph.constants]
    names = [name for name in node.output if name]
    model = helper.make_model(
        helper.make_graph(single.nodes, "node", [helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(graph.arrays[name].dtype), graph.arrays[name].shape)
            for name in single.inputs], [helper.make_empty_tensor_value_info(name) for name in names],
            [numpy_helper.from_array(graph.arrays[name], name) for name in single.constants]),
        opset_imports=imports(single), ir_version=max(4, graph.ir))  # fmt: skip
    try:
        outputs = session(model).run(None, {name: graph.arrays[name] for name in single.inputs})
    except Exception as error:
        # For types without a kernel onnx's reference is no better witness: it has one arithmetic for all of them.
        other = any(graph.arrays[name].dtype in (numpy.float16, numpy.float64) for name in read)
        if other or not ("NOT_IMPLEMENTED" in str(error) or "No Op registered" in str(error)):
            raise Refused(error_text(error)) from error
        outputs = by_reference(model, {name: graph.arrays[name] for name in single.inputs})
    return [numpy.asarray(output) for output in outputs]


def by_reference(model, feeds):
    """Computes by onnx's reference where ONNX Runtime has no kernel."""
    try:
        with numpy.errstate(all="ignore"):
            return ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:
        raise Refused(f"onnx's reference: {error_text(error)}") from error


def error_text(error):
    text = " ".join(str(error).split())
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : (\w+) : ", r"\1: ", text)
    text = re.sub(r"\S*/onnxruntime/\S+|Status Message:|'[^']*'|\[[^\]]*\]|\{[^}]*\}|\(node_[^)]*\)|\b-?\d+|\(node \)|with name.*|Non-zero status code returned while running", "", text)
    return " ".join(text.split())[:110]
