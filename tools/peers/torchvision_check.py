#!/usr/bin/env python3
"""torchvision's networks, as PyTorch exports them, through lenslet and ONNX Runtime.

  torchvision_check.py export FOLDER [--only REGEX] [--workers N]
      needs torch, torchvision, onnx, onnxscript: exports each network with both exporters and keeps the graphs
      (weights are dropped: some MB in all) as FOLDER/NETWORK-EXPORTER-TYPE-AXES.onnx. What the exporter itself cannot
      becomes a .txt that says why. Files that are there are not exported again.
  torchvision_check.py check FOLDER LENSLET [--only REGEX] [--device NAME] [--workers N] [--table FILE]
      needs onnx, onnxruntime, numpy: fills in random weights, runs both engines, compares the outputs; --table writes
      the section of docs/conformance.md (tools/scripts/conformance.py --section torchvision=FILE).

EXPORTER is dynamo or script, TYPE fp32 or fp16, AXES fixed or dynamic: the batch, and of segmentation and detection
height and width.
"""
import argparse
import collections
import json
import multiprocessing.pool
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import onnxruntime_session
from networks import CLASSIFICATION, DETECTION, SEGMENTATION, size_of

# Factor for the variance of random weights of convolutions and matrices, times their inputs.
GAINS = {network: (2.5, 60) for network in DETECTION}
GAINS["ssdlite320_mobilenet_v3_large"] = (4, 4)
GAINS["fasterrcnn_mobilenet_v3_large_320_fpn"] = (2.5, 20)  # scores of exactly 1 come in any order
GAINS["fasterrcnn_resnet50_fpn"] = (1.5, 60)
KEPT_BYTES = 4096  # smaller constants are shape arithmetic and are kept


def kind_of(network):
    return "detection" if network in DETECTION else "segmentation" if network in SEGMENTATION else "classification"


def side_of(network, dtype):
    """Side of the square images; PyTorch's CPU is slow with float16."""
    return 96 if dtype == "fp16" and network in SEGMENTATION + ["convnext_tiny"] else size_of(network)[0]


def variants():
    """(network, exporter, type, axes): unchecked ones first."""
    for networks in (SEGMENTATION + ["vit_b_16", "swin_t", "convnext_tiny"] + DETECTION, CLASSIFICATION):
        for dtype in ("fp32", "fp16"):
            for axes in ("fixed", "dynamic"):
                for exporter in ("script", "dynamo"):
                    for network in networks:
                        yield network, exporter, dtype, axes


def strip(model):
    import onnx

    for tensor in model.graph.initializer:
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16) and len(tensor.raw_data) > KEPT_BYTES:
            tensor.ClearField("raw_data")
    return model.SerializeToString()


def export_one(network, exporter, dtype, axes):
    import onnx
    import torch
    import torchvision

    kind, size = kind_of(network), side_of(network, dtype)
    options = {} if kind == "classification" else {"weights_backbone": None}
    if "rcnn" in network or network.startswith(("retinanet", "fcos")):
        options.update(min_size=size, max_size=size)  # the default of 800 only takes longer
    model = torchvision.models.get_model(network, weights=None, **options).eval()
    image = torch.rand(1, 3, size, size)
    if dtype == "fp16":
        model, image = model.half(), image.half()
    names = {"N": 0, "H": 2, "W": 3} if kind == "segmentation" else {"N": 0} if kind == "classification" else {"H": 1, "W": 2}
    given, inputs = (image,), {axis: name for name, axis in names.items()}
    if kind == "detection":
        given = ([image[0]],)
    outputs = {"segmentation": ["out"], "detection": ["boxes", "labels", "scores"]}.get(kind, ["output"])
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        if exporter == "dynamo":
            shapes = {axis: torch.export.Dim.DYNAMIC for axis in inputs}
            torch.onnx.export(model, given, path, dynamo=True, external_data=False, verbose=False,
                              dynamic_shapes=None if axes == "fixed" else (([shapes],) if kind == "detection" else (shapes,)))
        else:
            torch.onnx.export(model, given, path, dynamo=False, opset_version=17, input_names=["input"],
                              output_names=outputs, dynamic_axes={"input": inputs} if axes == "dynamic" else None)
        return strip(onnx.load(path))


def export_file(job):
    file, variant = job
    import torch

    torch.set_num_threads(1)
    try:
        file.with_suffix(".part").write_bytes(export_one(*variant))
        file.with_suffix(".part").rename(file)
        return file.stem, ""
    except Exception as error:  # a failing exporter is a result, not an error
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        file.with_suffix(".txt").write_text(text)
        return file.stem, text


def export(arguments):
    arguments.folder.mkdir(parents=True, exist_ok=True)
    jobs = {arguments.folder / ("-".join(variant) + ".onnx"): variant for variant in variants()}
    jobs = [(file, variant) for file, variant in jobs.items() if re.search(arguments.only, file.stem)
            and not file.exists() and not file.with_suffix(".txt").exists()]  # fmt: skip
    with multiprocessing.get_context("spawn").Pool(arguments.workers, maxtasksperchild=6) as pool:
        for label, problem in pool.imap(export_file, jobs):
            print("not exported" if problem else "exported", label, problem, flush=True)
    return 0


def fill(model, kind, gains):
    import numpy
    from onnx import numpy_helper

    generator = numpy.random.default_rng(1)
    # Variances of BatchNormalization must be positive; its other parameters stay near the identity.
    variances = {node.input[4] for node in model.graph.node if node.op_type == "BatchNormalization"}
    for tensor in model.graph.initializer:
        dims = list(tensor.dims)
        count = int(numpy.prod(dims)) if dims else 1
        if tensor.data_type not in (1, 10) or tensor.raw_data or tensor.float_data or tensor.int32_data or count == 0:
            continue
        if tensor.name in variances:
            values = generator.uniform(0.5, 1.5, dims)
        elif len(dims) >= 2:
            # A quarter of He's variance: with all of it the residual sums of a deep random network grow until rounding
            # decides its output (efficientnet_v2_s: ONNX Runtime's own optimisation levels then differ by 2 rms).
            # A detector needs more (GAINS), or no score is above its threshold, or rounding decides which comes first.
            fan_in, variance = int(numpy.prod(dims[1:])), gains[0 if len(dims) > 2 else 1]
            values = generator.standard_normal(dims) * (variance / max(1, fan_in)) ** 0.5
        else:
            values = generator.uniform(-0.5, 0.5, dims)
        tensor.raw_data = values.astype(numpy.float32 if tensor.data_type == 1 else numpy.float16).tobytes()
    # RetinaNet and FCOS begin with the bias of a rare class: nothing would be detected.
    for tensor in model.graph.initializer:
        if kind == "detection" and tensor.data_type == 1 and len(tensor.dims) == 1:
            values = numpy_helper.to_array(tensor)
            if values.size and numpy.all(values < -4):
                tensor.CopyFrom(numpy_helper.from_array(numpy.zeros_like(values), tensor.name))


def error_of(got, want):
    """The largest difference relative to the expected rms; infinite if type, shape or positions of NaN differ."""
    import numpy

    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if want.dtype.kind not in "f":
        return 0.0 if numpy.array_equal(got, want) else float("inf")
    number = ~numpy.isnan(want)
    if not numpy.array_equal(number, ~numpy.isnan(got)):
        return float("inf")
    got, want = got[number].astype(numpy.float64), want[number].astype(numpy.float64)
    if want.size == 0:
        return 0.0
    rms = float(numpy.sqrt(numpy.mean(want**2))) or 1.0
    return float(numpy.max(numpy.abs(got - want))) / rms


def rounding_decides(session, port, image, wanted, worst):
    """Whether ONNX Runtime's own outputs differ half as much, or in shape, when the image moves by its last place."""
    import numpy

    place = 2.0**-23 if image.dtype == numpy.float32 else 2.0**-10
    for seed in range(8):
        signs = numpy.random.default_rng(seed).choice([-1, 1], image.shape)
        moved = session.run(None, {port.name: (image * (1 + place * signs)).astype(image.dtype)})
        if max(map(error_of, moved, wanted)) >= worst / 2:
            return True
    return False


def compare(path, lenslet, device, kind, size, axes, dtype, optimized):
    """(state, text) of one model at one or two input shapes."""
    import numpy

    session = onnxruntime_session(path, 2, optimized)
    port = session.get_inputs()[0]
    shapes = [[3, size, size]] if kind == "detection" else [[1, 3, size, size], [2, 3, size, size]]
    if axes == "dynamic" and kind == "segmentation":
        shapes[1] = [2, 3, size - 32, size + 32]
    if axes == "dynamic" and kind == "detection":
        shapes.append([3, size - 32, size + 32])
    worst, folder, decided, nothing = 0.0, path.parent, False, True
    for shape in shapes:
        image = numpy.random.default_rng(shape[0]).random(shape).astype(numpy.float32 if dtype == "fp32" else numpy.float16)
        if isinstance(port.shape[0], int) and shape[0] != port.shape[0]:  # lenslet frees a baked-in batch
            each = [session.run(None, {port.name: image[i:i + 1]}) for i in range(shape[0])]
            wanted = [numpy.concatenate(parts) for parts in zip(*each)]
        else:
            wanted = session.run(None, {port.name: image})
        numpy.save(folder / "input.npy", image)
        for old in folder.glob("out/*.npy"):
            old.unlink()
        done = subprocess.run([lenslet, "run", str(path), "--input", str(folder / "input.npy"), "--output-dir",
                               str(folder / "out"), "--threads", "2", "--device", device, "--json"],
                              capture_output=True, text=True)  # fmt: skip
        at = "x".join(map(str, shape))
        if done.returncode != 0 and axes == "fixed" and shape is not shapes[0]:
            break  # as in the file; the batch could not be freed
        if done.returncode != 0:
            error = done.stderr.strip()
            refused = "error:" in error or "cannot run" in error or "not supported" in error
            return "refused" if refused else "FAILED", f"{at}: {error}"
        written = [entry["file"] for entry in json.loads(done.stdout)["outputs"]]
        for name, file, want in zip([output.name for output in session.get_outputs()], written, wanted):
            got = numpy.load(file)
            nothing = nothing and want.dtype.kind == "f" and bool(numpy.isnan(want).all())
            error = error_of(got, want)
            if error < (1e-3 if dtype == "fp32" else 3e-2):
                worst = max(worst, error)
            elif rounding_decides(session, port, image, wanted, error):
                decided = True
            else:
                return "FAILED", f"{at}: output {name}: {got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}, error {error:.1e} of rms"
    else:
        at = ""
    words = "NaN in both" if nothing else "rounding decides" if decided else f"{worst:.1e}"
    return "passed", words + (", batch 1 only" if at else "")


def reasons(text):
    """The reasons in a lenslet error without names: the missing features."""
    lines = [line for line in text.splitlines() if re.search(r"node \S+ \(\w+", line)] or text.splitlines()[:1]
    found = [f"{operator}: among the reasons" for operator in re.findall(r"(\w+) x\d+[,)]", text)
             if not any(f"({operator}" in line for line in lines[1:])]
    for line in lines:
        operator = re.search(r"node \S+ \((\w+)", line)
        why = re.sub(r"^.*?\)?: (?=[^:]*$)", "", line.strip())
        found.append(f"{operator[1] if operator else 'model'}: {why[:140]}")
    return sorted(set(found))


def variant_of(file):
    return tuple(file.stem.rsplit("-", 3))


def check_file(job):
    """(variant, state, text) of one export."""
    import onnx

    file, lenslet, device, optimized = job
    variant = variant_of(file)
    if file.suffix == ".txt":
        return variant, "not exported", file.read_text()
    with tempfile.TemporaryDirectory() as folder:
        model = onnx.load(file)
        fill(model, kind_of(variant[0]), GAINS.get(variant[0], (0.5, 0.5)))
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        try:
            state, words = compare(path, lenslet, device, kind_of(variant[0]), side_of(variant[0], variant[2]), variant[3],
                                   variant[2], optimized)  # fmt: skip
        except Exception as error:  # from ONNX Runtime
            return variant, "ONNX Runtime fails", " ".join(str(error).split())[:300]
    return variant, state, words


def send_check(job, sender):
    sender.send(check_file(job))


def check_apart(job):
    """check_file in a separate process, since ONNX Runtime may crash; without its optimisations if they fail."""
    context = multiprocessing.get_context("spawn")
    for optimized in (True, False):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=send_check, args=((*job, optimized), sender))
        child.start()
        sender.close()
        try:
            variant, state, words = receiver.recv()
        except EOFError:
            variant, state, words = variant_of(job[0]), "ONNX Runtime fails", "it crashed"
        child.join()
        if state != "ONNX Runtime fails":
            break
    return variant, state, words


def check(arguments):
    jobs = [(file, arguments.lenslet, arguments.device) for file in sorted(arguments.folder.glob("*.*"))
            if file.suffix in (".onnx", ".txt") and re.search(arguments.only, file.stem)]  # fmt: skip
    results = {}
    with multiprocessing.pool.ThreadPool(arguments.workers) as pool:
        for variant, state, words in pool.imap(check_apart, jobs):
            results[variant] = (state, words)
            shown = "; ".join(reasons(words)) if state == "refused" else words[:400]
            print(f"{state:<12} {'-'.join(variant)}: {shown}", flush=True)
    if arguments.table:
        arguments.table.write_text(table(results))
    counts = collections.Counter(state for state, _ in results.values())
    print(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    return 1 if counts["FAILED"] else 0


def table(results):
    """The section of docs/conformance.md: a row for each network, a column for each way of exporting."""
    columns = [(exporter, dtype, axes) for exporter in ("dynamo", "script") for dtype in ("fp32", "fp16")
               for axes in ("fixed", "dynamic")]  # fmt: skip
    columns = [column for column in columns if any(variant[1:] == column for variant in results)]
    text = ("Random weights, on the CPU; the largest difference from ONNX Runtime, of the output's rms, over batches of 1 and 2 (\"b1\": "
            "1 only, as the file says). float16 is rounded after each node there, and not here. \"rounding decides\": "
            "ONNX Runtime's own outputs differ half as much or more when the image moves by its last place. \"-\": the exporter "
            "cannot; empty: not tried.\n\n| network | " + " | ".join(" ".join(column) for column in columns) + " |\n" + "|---" * (len(columns) + 1) + "|\n")
    missing = collections.defaultdict(set)
    for network in SEGMENTATION + DETECTION + CLASSIFICATION:
        cells = []
        for column in columns:
            state, words = results.get((network, *column), ("", ""))
            cells.append({"passed": words.replace(", batch 1 only", " b1"), "not exported": "-"}.get(state, state))
            if state == "refused":
                for reason in reasons(words):
                    missing[reason].add(network)
        if any(cells):
            text += f"| {network} | " + " | ".join(cells) + " |\n"
    if missing:
        text += "\n| what is refused | in |\n|---|---|\n"
        for reason, networks in sorted(missing.items(), key=lambda entry: (-len(entry[1]), entry[0])):
            text += f"| {reason.replace('|', '/')} | {', '.join(sorted(networks))} |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("export")
    verb.add_argument("folder", type=Path)
    verb.add_argument("--only", default="")
    verb.add_argument("--workers", type=int, default=2)
    verb.set_defaults(verb=export)
    verb = verbs.add_parser("check")
    verb.add_argument("folder", type=Path)
    verb.add_argument("lenslet")
    verb.add_argument("--only", default="")
    verb.add_argument("--device", default="cpu")
    verb.add_argument("--workers", type=int, default=1)
    verb.add_argument("--table", type=Path)
    verb.set_defaults(verb=check)
    arguments = parser.parse_args()
    return arguments.verb(arguments)


if __name__ == "__main__":
    sys.exit(main())
