#!/usr/bin/env python3
"""Compares two builds of lenslet: the bits of every output, the choices of every plan, and the time of whole networks.

    compare_builds.py record LENSLET FILE.json [--device cuda] [--shared FOLDER] [--cases FOLDER...] [--quick]
    compare_builds.py diff OLD.json NEW.json
    compare_builds.py time OLD_LENSLET NEW_LENSLET [--device cuda] [--shared FOLDER] [--rounds N] [--threads N]

`record` runs every shared model by the rule's choice and with each convolution algorithm forced where it is accepted
(`--quick`: by the rule alone), every folder of cases (`lenslet check`), and writes digests of all outputs and each
step's choice to FILE. Records of two builds, or of one on two days, are compared by `diff`: exit 1 and one line for each
difference. Inputs are drawn in a fixed order, so a record made elsewhere compares as well; bits belong to a machine.

`time` runs both builds in turn, A B A B, and prints the ratio old/new of the medians, with its spread. Standard library
only.
"""

import argparse
import array
import json
import math
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Models with a free size.
SHAPES = {
    "waifu2x-vgg7": {"input": [1, 3, 61, 75]},
    "super-resolution-x3": {"input": [1, 1, 40, 57]},
    "ppocr-cls-mobilenetv3": {"x": [1, 3, 48, 192]},
}
TYPES = {"float32": ("<f4", "f"), "float16": ("<f2", "e"), "uint8": ("|u1", "B"), "int64": ("<i8", "q")}


def run(lenslet, *arguments):
    """(exit code, standard output, standard error)"""
    done = subprocess.run([lenslet, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def write_npy(path, dtype, shape, seed):
    descr, code = TYPES[dtype]
    count = math.prod(shape)
    draw = random.Random(seed)
    if code in "fe":
        values = [draw.uniform(-1, 1) for _ in range(count)]
        data = array.array("f", values).tobytes() if code == "f" else struct.pack(f"<{count}e", *values)
    else:
        data = struct.pack(f"<{count}{code}", *(draw.randrange(256) for _ in range(count)))
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def shape_options(name):
    return [x for port, dims in SHAPES.get(name, {}).items() for x in ("--shape", f"{port}={'x'.join(map(str, dims))}")]


def choices(plan):
    """Each step with several candidates: its algorithm, and the candidates' texts."""
    rows = {}
    for step in plan["steps"]:
        if "candidates" in step:
            said = {c["algorithm"]: c.get("refusal") or "accepts" for c in step["candidates"]}
            rows[step["name"]] = {"algorithm": step["algorithm"], "candidates": said}
    return rows


def record(arguments):
    shared = pathlib.Path(arguments.shared)
    device = ["--device", arguments.device]
    result = {"device": arguments.device, "models": {}, "cases": {}}
    help_text = run(arguments.lenslet, "inspect", "--help")[1]
    # Builds older than --strict refuse where later ones keep the rule's choice.
    where_accepted = ["--where-accepted"] if "--where-accepted" in help_text else []
    listed = help_text.split("cuda: " if arguments.device.startswith("cuda") else "cpu: ", 1)
    algorithms = listed[1].split(";")[0].split(")")[0].replace("\n", " ").split(",") if len(listed) == 2 else []
    algorithms = ["".join(name.split()) for name in algorithms]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for model in sorted((shared / "models").glob("*.onnx")):
            name = model.stem
            code, out, err = run(arguments.lenslet, "inspect", model, "--json", *device, *shape_options(name))
            if code != 0:
                result["models"][name] = {"refused": err.strip()}
                continue
            document = json.loads(out)
            entry = {"choices": choices(document["plan"]), "outputs": {}}
            inputs = []
            for i, (port, planned) in enumerate(zip(document["inputs"], document["plan"]["inputs"])):
                path = folder / f"{i}.npy"
                write_npy(path, port["dtype"], planned["shape"], i + 1)
                inputs += ["--input", f"{port['name']}={path}"]
            for algorithm in [""] + ([] if arguments.quick else algorithms):
                forced = ["--conv-algorithm", algorithm, *where_accepted] if algorithm else []
                code, out, err = run(arguments.lenslet, "run", model, *inputs, "--output-dir", folder / "out", "--json",
                                     *device, *forced)
                entry["outputs"][algorithm or "by the rule"] = (
                    {o["name"]: o["digest"] for o in json.loads(out)["outputs"]} if code == 0 else err.strip())
            result["models"][name] = entry
            print(f"{name}: {len(entry['outputs'])} runs", flush=True)
    for cases in arguments.cases:
        code, out, err = run(arguments.lenslet, "check", cases, "--json", *device)
        if not out:
            sys.exit(f"check {cases}: {err.strip()}")
        document = json.loads(out)
        for case in document["cases"]:
            name = os.path.relpath(case["case"], pathlib.Path(cases).parent)
            result["cases"][name] = {key: case[key] for key in ("status", "reason", "digests") if key in case}
        print(f"{cases}: {document['passed']} passed, {document['failed']} failed, {document['unsupported']} unsupported",
              flush=True)
    pathlib.Path(arguments.file).write_text(json.dumps(result, indent=1))


def differences(old, new, path=()):
    """Lines that describe where two records differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(set(old) | set(new)):
            yield from differences(old.get(key), new.get(key), (*path, key))
    elif old != new:
        yield f"{' / '.join(path)}: {old} -> {new}"


def diff(arguments):
    old, new = (json.loads(pathlib.Path(f).read_text()) for f in (arguments.old, arguments.new))
    lines = list(differences(old, new))
    print("\n".join(lines))
    digests = sum(len(m.get("outputs", {})) for m in new["models"].values()) + len(new["cases"])
    print(f"{digests} runs compared, {len(lines)} differences")
    sys.exit(1 if lines else 0)


def milliseconds(lenslet, model, arguments):
    """One process's median."""
    code, out, err = run(lenslet, "bench", model, "--json", "--device", arguments.device,
                         *(["--threads", arguments.threads] if arguments.device == "cpu" else []),
                         *shape_options(model.stem))
    if code != 0:
        raise RuntimeError(f"{lenslet} bench {model}: {err.strip().partition(chr(10))[0] or f'exit code {code}'}")
    row = json.loads(out)["results"][0]
    return (row.get("device_ms") or row["ms"])["median"]


def time(arguments):
    all_ratios = []
    models = sorted((pathlib.Path(arguments.shared) / "models").glob("*.onnx"))
    models = [m for m in models if not arguments.models or m.stem in arguments.models]
    print(f"{'model':28} {'old ms':>9} {'new ms':>9} {'old/new':>8}  ratios of pairs, min .. max")
    for model in models:
        olds, news = [], []
        try:
            milliseconds(arguments.old, model, arguments)  # warms up, too
        except RuntimeError as error:
            print(f"{model.stem:28} left out: {error}", flush=True)
            continue
        for _ in range(arguments.rounds):
            olds.append(milliseconds(arguments.old, model, arguments))
            news.append(milliseconds(arguments.new, model, arguments))
        ratios = sorted(a / b for a, b in zip(olds, news))
        ratio = statistics.median(ratios)
        all_ratios.append(ratio)
        print(f"{model.stem:28} {statistics.median(olds):9.3f} {statistics.median(news):9.3f} {ratio:8.3f}  "
              f"{ratios[0]:.3f} .. {ratios[-1]:.3f}", flush=True)
    if not all_ratios:
        sys.exit("no model ran")
    print(f"geometric mean of old/new: {statistics.geometric_mean(all_ratios):.3f} ({arguments.rounds} rounds)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    shared = ROOT.parent / "shared" / "data"
    verb = verbs.add_parser("record")
    verb.add_argument("lenslet")
    verb.add_argument("file")
    verb.add_argument("--device", default="cpu")
    verb.add_argument("--shared", default=shared)
    verb.add_argument("--cases", nargs="*", default=[])
    verb.add_argument("--quick", action="store_true")
    verb.set_defaults(run=record)
    verb = verbs.add_parser("diff")
    verb.add_argument("old")
    verb.add_argument("new")
    verb.set_defaults(run=diff)
    verb = verbs.add_parser("time")
    verb.add_argument("old")
    verb.add_argument("new")
    verb.add_argument("--device", default="cpu")
    verb.add_argument("--shared", default=shared)
    verb.add_argument("--models", nargs="*")
    verb.add_argument("--rounds", type=int, default=5)
    verb.add_argument("--threads", default="2")
    verb.set_defaults(run=time)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
