#!/usr/bin/env python3
"""Small random graphs of lenslet's operators, through lenslet and ONNX Runtime.

    differential.py LENSLET [--count N] [--seed S] [--minutes M] [--keep FOLDER] [--only REGEX] [--section FILE]
    differential.py LENSLET --permuted [...]
    differential.py LENSLET --permuted --pack FILE.tar.xz [...]

Graph i of seed S is the same in every run. Each has 1 to 6 nodes, built one by one: ONNX Runtime computes a node when
it is drawn, so that shapes are valid, the generator knows the values, and a refused node is drawn again. The outputs
become the expected ones of a case folder, and `lenslet check` runs the folders in batches. A case that differs is
reduced by nodes, attributes and inputs while it still differs, and kept in FOLDER.

With --permuted graph i has operator i of the table and few others, with permutations before, between and after them. It
runs with all graph passes, without each optional one in turn, and without any. --pack runs nothing and writes the case
folders to an archive for machines without ONNX Runtime, as KIND/THOUSAND/NUMBER. KIND is the narrowest float type,
which determines the tolerance (docs/check.md has the commands). --first NUMBER --count 1 reduces a case that differs
there.

Cases in which the two may disagree are not drawn (EXCLUSIONS has them with reasons). A difference does not count if
ONNX Runtime shows it, too, when rounded values move by a few units of the last place, or if onnx's reference
implementation agrees with lenslet.

Exit code 1 if a difference remains, 77 if onnx or onnxruntime is not installed. `differential_ops/` has the operators;
the list of those that must be drawn is docs/ops.md.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import differential_ops  # noqa: E402
from differential_ops import OPSETS, Drawer, PermutedDrawer, Refused, compute  # noqa: E402
from differential_ops.permuted import has  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
# rtol and atol of `lenslet check` by the narrowest float type in a graph; lenslet computes in float32 throughout, ONNX
# Runtime rounds to float16 after each node.
TOLERANCE = {"float32": (1e-3, 1e-5), "float16": (2e-2, 1e-2)}


def check(lenslet, graphs, folder):
    """[(status, reason)] of graphs, by one `lenslet check` for all. `lenslet`: the command with further options."""
    verdicts = [None] * len(graphs)
    for width, (rtol, atol) in TOLERANCE.items():
        mine = [i for i, graph in enumerate(graphs) if width == width_of(graph)]
        if not mine:
            continue
        batch = pathlib.Path(tempfile.mkdtemp(dir=folder))
        for i in mine:
            graphs[i].write(batch / f"{i:06}")
        command = [lenslet[0], "check", *lenslet[1:], "--json", "--device", "cpu", "--threads", "2", "--rtol", str(rtol), "--atol", str(atol)]
        done = subprocess.run([*command, batch], capture_output=True, text=True)
        if done.returncode in (0, 1):
            listed = json.loads(done.stdout)["cases"]
        else:  # it crashed: finds the graph
            listed = []
            for i in mine:
                done = subprocess.run([*command, batch / f"{i:06}"], capture_output=True, text=True)
                listed.append(json.loads(done.stdout)["cases"][0] if done.returncode in (0, 1) else
                              {"case": f"{i:06}", "status": "failed", "reason": f"exit code {done.returncode}: {done.stderr[-300:]}"})
        for case in listed:
            verdicts[int(pathlib.PurePath(case["case"]).name)] = (case["status"], case.get("reason", ""))
        shutil.rmtree(batch)
    return verdicts


def width_of(graph):
    return "float16" if any(array.dtype == numpy.float16 for array in graph.arrays.values()) else "float32"


def differs(got, want, width):
    """Judges like `lenslet check`, for results of ONNX Runtime."""
    rtol, atol = TOLERANCE[width]
    if got.dtype != want.dtype or got.shape != want.shape:
        return True
    if want.dtype.kind != "f":
        return not numpy.array_equal(got, want)
    got, want = got.astype(numpy.float64), want.astype(numpy.float64)
    finite = numpy.isfinite(want)
    if not numpy.array_equal(finite, numpy.isfinite(got)) or not numpy.array_equal(got[~finite], want[~finite], equal_nan=True):
        return True
    rms = numpy.sqrt(numpy.mean(want[finite] ** 2)) if finite.any() else 0
    return bool(numpy.any(numpy.abs(got - want)[finite] > rtol * numpy.abs(want[finite]) + atol * rms))


def unstable(graph):
    """Whether ONNX Runtime's own outputs differ as much when inputs and outputs of each rounding node move by some
    units of the last place: then rounding decides. Exact nodes have no such excuse."""
    if all(node.op_type in differential_ops.EXACT for node in graph.nodes):
        return False
    random = numpy.random.default_rng(0)

    def noisy(array):
        if array.dtype.kind != "f" or not array.size:
            return array
        unit = 2e-3 if array.dtype == numpy.float16 else 1e-6
        with numpy.errstate(all="ignore"):
            finite = array[numpy.isfinite(array)].astype(numpy.float64)
            size = numpy.abs(array) + (numpy.sqrt(numpy.mean(finite**2)) if finite.size else 0)
            return (array + unit * size * random.uniform(-1, 1, array.shape)).astype(array.dtype)

    for _ in range(12):
        other = graph.copy()
        try:
            for node in graph.nodes:
                if node.op_type in differential_ops.EXACT:
                    outputs = compute(other, node)
                else:
                    around = other.copy()
                    data = node.input[:1] if node.op_type in differential_ops.SHAPED_BY_FLOATS else node.input
                    around.arrays.update({name: noisy(other.arrays[name]) for name in data if name})
                    outputs = [noisy(output) for output in compute(around, node)]
                other.arrays.update(zip([name for name in node.output if name], outputs))
        except Refused:
            continue
        if any(differs(other.arrays[name], graph.arrays[name], width_of(graph)) for name in graph.outputs()):
            return True
    return False


def as_reference(lenslet, graph, folder):
    """Whether lenslet agrees with onnx's reference implementation."""
    other = graph.copy()
    try:
        with numpy.errstate(all="ignore"):
            outputs = ReferenceEvaluator(graph.model()).run(None, graph.feeds())
        other.arrays.update(zip(graph.outputs(), map(numpy.asarray, outputs)))
        return check(lenslet, [other], folder)[0][0] == "passed"
    except Exception:  # it is slow, incomplete and sometimes wrong, but a third opinion
        return False


def as_float32(lenslet, graph, folder):
    """Whether lenslet agrees with ONNX Runtime when the graph's 16-bit floats are widened to float32, as lenslet
    does."""
    if width_of(graph) != "float16":
        return False
    wide = graph.copy()
    wide.arrays = {name: array.astype(numpy.float32) if array.dtype == numpy.float16 else array for name, array in graph.arrays.items()}
    for i, node in enumerate(wide.nodes):
        wide.nodes[i] = onnx.NodeProto()
        wide.nodes[i].CopyFrom(node)
        for attribute in wide.nodes[i].attribute:
            if attribute.name in ("to", "dtype") and attribute.i == onnx.TensorProto.FLOAT16:
                attribute.i = onnx.TensorProto.FLOAT
            elif attribute.name == "value" and attribute.t.data_type == onnx.TensorProto.FLOAT16:
                attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(numpy.float32)))
    other = graph.copy()
    try:
        with numpy.errstate(all="ignore"):
            for name, array in wide.recompute().arrays.items():
                other.arrays[name] = array.astype(graph.arrays[name].dtype)
    except Refused:
        return False
    return check(lenslet, [other], folder)[0][0] == "passed"


def kind_of(reason):
    """The kind of failure that a smaller case must still show."""
    if "differ" in reason:
        return "differ"
    return re.sub(r"[\w.]+: |node \S+|\[[^]]*\]|\b-?\d+", "", reason)


def shrink(lenslet, graph, folder, reason):
    """A smaller graph that still fails in the same way."""
    def first_that_fails(candidates):
        candidates = [candidate for candidate in candidates if valid(candidate)]
        for candidate, (status, why) in zip(candidates, check(lenslet, candidates, folder)):
            if status == "failed" and kind_of(why) == kind_of(reason) and not unstable(candidate) and not as_float32(lenslet, candidate, folder):
                return candidate
        return None

    def valid(candidate):
        try:
            onnx.checker.check_model(candidate.model(), full_check=True)
            return not any(differential_ops.excluded(candidate, node) for node in candidate.nodes)
        except Exception:
            return False

    count = len(graph.nodes)
    parts = [graph.part(graph.nodes[i:i + length]) for length in range(1, count) for i in range(count - length + 1)]
    graph = first_that_fails(parts) or graph
    for _ in range(12):
        candidates = []
        for i, node in enumerate(graph.nodes):
            for attribute in node.attribute:
                other, fewer = graph.copy(), onnx.NodeProto()
                fewer.CopyFrom(node)
                fewer.attribute.remove(attribute)
                other.nodes[i] = fewer
                candidates.append((other, {}))
        for name in graph.inputs + graph.constants:
            array = graph.arrays[name]
            for axis, size in enumerate(array.shape):
                for keep in {k for k in (1, size // 2, size - 1) if 0 < k < size}:
                    candidates.append((graph.copy(), {name: numpy.ascontiguousarray(array.take(range(keep), axis))}))
        if graph.free:
            candidates.append((graph.copy(), {}))
            candidates[-1][0].free = {}
        computed = []
        for other, feeds in candidates:
            try:
                computed.append(other.recompute(feeds))
            except Refused:
                pass
        smaller = first_that_fails(computed)
        if smaller is None:
            break
        graph = smaller
    return graph


def describe(graph):
    text = [f"opset {graph.opset}"]
    for node in graph.nodes:
        attributes = ", ".join(f"{a.name}={helper.get_attribute_value(a)}" for a in node.attribute)
        shapes = ", ".join(f"{graph.arrays[name].dtype}{list(graph.arrays[name].shape)}" if name else "-" for name in node.input)
        text.append(f"{node.op_type}({shapes}; {attributes})")
    return " | ".join(text)


def pack(arguments, operators, drawer):
    """One archive with the graphs' case folders."""
    count = collections.Counter()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(arguments.pack, f"w:{arguments.pack.suffix[1:]}") as archive:
        for number in range(arguments.first, arguments.first + arguments.count):
            graph = drawer(arguments.seed, number, operators, collections.Counter()).draw()
            if graph is None:
                continue
            case = pathlib.Path(folder) / "case"
            graph.write(case)
            archive.add(case, f"{width_of(graph)}/{number // 1000:03}/{number:06}")
            shutil.rmtree(case)
            count[width_of(graph)] += 1
            if number % 500 == 0:
                print(f"{number} of {arguments.count}", end="\r", file=sys.stderr, flush=True)
    print(f"{arguments.pack}: {dict(count)}, {arguments.pack.stat().st_size / 1e6:.1f} MB")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lenslet")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first graph")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--keep", type=pathlib.Path, default=ROOT / "results" / "differential")
    parser.add_argument("--only", default="", metavar="REGEX", help="operators to draw")
    parser.add_argument("--permuted", action="store_true", help="with permutations around each operator, and each pass left out")
    parser.add_argument("--pack", type=pathlib.Path, metavar="FILE", help="writes the graphs into an archive, and runs none")
    parser.add_argument("--section", type=pathlib.Path, help="writes the section of docs/conformance.md")
    arguments = parser.parse_args()
    lenslet = [arguments.lenslet] + (["--each-pass"] if arguments.permuted else [])
    version = subprocess.run([arguments.lenslet, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    print(f"{version}, ONNX Runtime {onnxruntime.__version__}, onnx {onnx.__version__}, seed {arguments.seed}")

    table = re.findall(r"^\| (\w+) \| (?:ai\.onnx|com\.microsoft) \|", (ROOT / "docs" / "ops.md").read_text(), re.MULTILINE)
    missing = [op for op in table if op not in differential_ops.OPERATORS]
    operators = [op for op in differential_ops.OPERATORS if op in table and re.search(arguments.only, op)]
    if arguments.permuted:  # their opset is looked up in ONNX's table
        operators = [op for op in operators if any(has(op, opset) for opset in OPSETS)]
    if missing:
        print("no generator for", ", ".join(missing))
    if not operators:
        parser.error(f"--only {arguments.only}: no generator of an operator in docs/ops.md")
    drawer = PermutedDrawer if arguments.permuted else Drawer
    if arguments.pack:
        return pack(arguments, operators, drawer)
    drawn, refused, theirs = collections.Counter(), collections.Counter(), collections.Counter()
    sided = collections.defaultdict(list)
    state, found = collections.Counter(), []
    end = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as folder:
        number, last = arguments.first, arguments.first + arguments.count
        while number < last and time.monotonic() < end:
            graphs, numbers = [], []
            for number in range(number, min(number + 500, last)):
                graph = drawer(arguments.seed, number, operators, theirs).draw()
                if graph is None:
                    state["not drawn"] += 1
                    continue
                graphs.append(graph)
                numbers.append(number)
            number += 1
            print(f"{number} of {last}", end="\r", file=sys.stderr, flush=True)
            for graph, at, (status, reason) in zip(graphs, numbers, check(lenslet, graphs, folder)):
                ops = {node.op_type for node in graph.nodes}
                if status == "unsupported":
                    named = re.search(r"node \S+ \((\w+)", reason)
                    why = re.sub(r"^.*?\): |\[[-\w, ]*\]|'[^']*'|\b-?\d+", "", reason)[:100]
                    refused[f"{named[1] if named else 'any'}: {why}"] += 1
                else:
                    drawn.update(ops)
                if status == "failed" and (unstable(graph) or as_float32(lenslet, graph, folder)):
                    status = "rounding decides"
                if status != "failed":
                    state[status] += 1
                    continue
                small = shrink(lenslet, graph, folder, reason)
                if as_reference(lenslet, small, folder):
                    state["onnx agrees"] += 1
                    sided[" and ".join(node.op_type for node in small.nodes)].append(describe(small))
                    continue
                state[status] += 1
                case = arguments.keep / f"seed{arguments.seed}_{at}"
                shutil.rmtree(case, ignore_errors=True)
                small.write(case)
                (_, reason), = check(lenslet, [small], folder)
                found.append((case, describe(small), reason))
                print(f"DIFFERENT {case}\n  {found[-1][1]}\n  {reason}", flush=True)
    print("\ngraphs each operator was computed in:\n  " + ", ".join(f"{op} {n}" for op, n in sorted(drawn.items())))
    never = [op for op in table if op not in drawn and re.search(arguments.only, op)]
    print("in none: " + (", ".join(never) or "-"))
    print("\nonnx's reference agrees with lenslet, not with ONNX Runtime:")
    for op, cases in sorted(sided.items(), key=lambda entry: -len(entry[1])):
        print(f"  {len(cases):6} {op}: {cases[0]}")
    print("\nrefused by lenslet:")
    for reason, n in refused.most_common():
        print(f"  {n:6} {reason}")
    print("\nnot drawn or refused by ONNX Runtime:")
    for (op, reason), n in theirs.most_common():
        print(f"  {n:6} {op}: {reason}")
    print(f"\n{state['passed']} passed, {state['failed']} failed; onnx's reference agrees with lenslet {state['onnx agrees']}, rounding decides {state['rounding decides']}, lenslet refused "
          f"{state['unsupported']}, not drawn {state['not drawn']}")  # fmt: skip
    if arguments.section:
        arguments.section.write_text(section(state, drawn, table, sided, arguments.seed))
    return 1 if found else 0


def section(state, drawn, table, sided, seed):
    total = sum(state.values()) - state["not drawn"]
    ops = [op for op in table if op in drawn]
    text = (f"`tools/peers/differential.py` drew {total} graphs (seed {seed}) of 1 to 6 nodes, opset {OPSETS[0]} to {OPSETS[-1]}, beside "
            f"ONNX Runtime {onnxruntime.__version__}: {state['passed']} agree, {state['failed']} differ; in {state['onnx agrees']} "
            f"onnx's reference gives what lenslet does (of {', '.join(sorted(sided)) or 'none'}); in "
            f"{state['rounding decides']} rounding decides (ONNX Runtime's own outputs differ as much when values that are "
            f"rounded move by a few units of the last place); {state['unsupported']} lenslet refused by name. {len(ops)} of {len(table)} operators of "
            f"the table were computed, each in {min(drawn[op] for op in ops)} graphs or more.\n\n"
            "What is not drawn, since the two may disagree on it:\n\n")
    return text + "".join(f"- {why}\n" for why, _ in differential_ops.EXCLUSIONS)


if __name__ == "__main__":
    sys.exit(main())
