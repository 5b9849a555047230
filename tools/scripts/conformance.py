#!/usr/bin/env python3
"""Writes docs/conformance.md: how many of ONNX's own backend cases pass, and why the others are not run.

    conformance.py LENSLET [--onnx FOLDER] [--debian FOLDER] [--cuda RESULT.json...] [--backend RESULT.json...]
    conformance.py LENSLET --check [--without-light] [--backend RESULT.json]
                                       writes nothing; exit code 1 if the document differs from a run
    conformance.py --section NAME=FILE puts what another tool wrote (torchvision, differential) into its section

--onnx is what write_onnx_cases.py wrote (build/peers/onnx-cases), --debian Debian's libonnx-testdata; each may be
absent with --check, and its numbers are then not compared. --cuda are results of `lenslet check FOLDER --json --device
cuda` over the same folders, from a machine with a GPU; without them the document's CUDA half stays as it is. --backend
are outputs of onnx_runner.py for either device; each case is then compared with the result of `check`. Python's
standard library is enough.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "conformance.md"
PACKAGES = ("onnx 1.23.2", "libonnx-testdata 1.12")
SUITES = ("node", "light", "simple", "pytorch-converted", "pytorch-operator")

# Reasons that are out of scope: (kind, parts of the reason). The first match counts.
OUT_OF_SCOPE = (
    ("strings", r"tensors of string|element type string|String|TfIdfVectorizer|LabelEncoder|RegexFullMatch"),
    ("sequences and optionals", r"Sequence(?!_lens)\w*[_ ]|Optional|is not a tensor"),
    ("training", r"Loss[_ ]|Adagrad|Adam|Momentum|Gradient|training_mode"),
    ("control flow", r"\b(If|Loop|Scan)[_ ]"),
    ("signal", r"\b(DFT|STFT|\w+Window|MelWeightMatrix)_"),
    ("attention", r"Attention|RotaryEmbedding|CausalConvWithState|TensorScatter"),
    ("random", r"\b(Bernoulli|Multinomial|Random\w+)_"),
    ("tables and trees (ai.onnx.ml)", r"ai\.onnx\.ml opset"),
    ("pictures inside the model", r"ImageDecoder"),
    ("data that contradict the case's own model, or exceed float32", r"contradicts the model|beyond float32"),
)
ELEMENTS = (
    ("8-bit floats", r"float8"),
    ("4-bit floats", r"float4"),
    ("2- and 4-bit integers", r"u?int[24]\b"),
)


def operators(reason):
    named = re.findall(r"node \S+ \((\w+)", reason) + re.findall(r"(\w+) x\d+[,)]", reason)
    return list(dict.fromkeys(named))


def group(reason):
    """("out", kind) or ("yet", (operator, the missing feature))."""
    for kind, pattern in OUT_OF_SCOPE:
        if re.search(pattern, reason):
            return "out", kind
    for name, pattern in ELEMENTS:
        if re.search(pattern, reason):
            return "yet", ("any", f"elements of {name}")
    what = re.sub(r"^.*?\((\w+)(, [\w.]+)?( opset \d+)?\): ", "", reason.removeprefix("model.onnx: "))
    if "operator is not supported" in what:
        what = "the operator"
    what = re.sub(r" is not supported.*| \(supported.*|\s*\([^()]*are done\)|; .*are done", "", what)
    what = re.sub(r"(has shape|of) \[([\d,]*)\]", lambda found: f"of {found[2].count(',') + 1} axes", what)
    return "yet", ((operators(reason) or ["any"])[0], what.replace("|", "/"))


def count(results):
    """Counts the results of `check`: {(package, suite): [passed, failed, not run]} and {(package, group): cases}."""
    counts = collections.defaultdict(lambda: [0, 0, 0])
    groups = collections.defaultdict(list)
    for case in (case for result in results for case in result["cases"]):
        path = pathlib.PurePath(case["case"])
        package = PACKAGES["libonnx-testdata" in case["case"]]
        counts[package, path.parent.name][("passed", "failed", "unsupported").index(case["status"])] += 1
        if case["status"] != "passed":
            case = {**case, "group": group(case["reason"]), "id": (package, path.parent.name, path.name)}
            groups[case["group"]].append(case)
    return counts, groups


def by_package(cases):
    found = collections.Counter(case["id"][0] for case in cases)
    return [str(found[package] or "") for package in PACKAGES]


def row(*cells):
    return "| " + " | ".join(map(str, cells)) + " |\n"


def table(*head):
    return row(*head) + "|" + "---|" * len(head) + "\n"


def counts_table(counts, device):
    text = table("cases", "device", "passed", "failed", "not run")
    for package in PACKAGES:
        of = [(suite, counts[package, suite]) for suite in SUITES if (package, suite) in counts]
        for suite, numbers in of:
            text += row(f"{package} {suite}", device, *numbers)
    return text


def not_run(groups):
    out = sorted(((kind, cases) for (scope, kind), cases in groups.items() if scope == "out"), key=lambda e: -len(e[1]))
    yet = sorted(((what, cases) for (scope, what), cases in groups.items() if scope == "yet"),
                 key=lambda e: (-sum(c["id"][0] == PACKAGES[0] for c in e[1]), e[0]))  # fmt: skip
    text = f"**Out of scope**, {sum(len(cases) for _, cases in out)} in both packages:\n\n"
    text += table("what", *PACKAGES, "operators named")
    for kind, cases in out:
        named = sorted({name for case in cases for name in operators(case["reason"])})
        shown = ", ".join(named[:8]) + (f" and {len(named) - 8} more" if len(named) > 8 else "")
        text += row(kind, *by_package(cases), shown)
    text += f"\n**Not yet**, {sum(len(cases) for _, cases in yet)} in both:\n\n"
    text += table("operator", "what is missing", *PACKAGES)
    for (name, what), cases in yet:
        text += row(name, what, *by_package(cases))
    return text


def only_on_cuda(cpu, cuda):
    """Cases that run on the CPU but not on CUDA."""
    elsewhere = {case["id"] for cases in cpu.values() for case in cases}
    groups = {}
    for key, cases in cuda.items():
        if rest := [case for case in cases if case["id"] not in elsewhere]:
            groups[key] = rest
    text = table("operator", "refused on CUDA alone", *PACKAGES)
    for (_, what), cases in sorted(groups.items(), key=lambda e: (-len(e[1]), str(e[0]))):
        name, why = what if isinstance(what, tuple) else ("any", what)
        text += row(name, why, *by_package(cases))
    return text


BACKEND_SECTIONS = {"backend": "CPU", "backend-cuda": "CUDA"}


def backend(runs, checked):
    """Compares results of onnx_runner.py with those of `check` on the CPU."""
    verdicts = {(case["suite"], case["case"]): case for result in checked for case in by_suite(result)}
    text = table("cases", "device", "passed", "failed", "skipped")
    said = ""
    for run in runs:
        tally = collections.Counter((case["suite"], case["status"]) for case in run["cases"])
        for suite in (suite for suite in SUITES if any(of == suite for of, _ in tally)):
            of = [tally[suite, status] for status in ("passed", "failed", "skipped")]
            text += row(f"onnx {run['onnx']} {suite}", run["device"], *of)
        if run["device"] != "CPU" or PACKAGES[0] != f"onnx {run['onnx']}":
            continue
        differing = [difference for case in run["cases"] if (difference := differs(case, verdicts))]
        whole = "no case has another verdict or another reason" if not differing else f"{len(differing)} differ:"
        said = f"\nBeside `lenslet check` on the CPU, case by case: {whole}"
        said += "".join(f"\n- {line}" for line in differing) if differing else "."
    return text + said


def by_suite(result):
    for case in result["cases"]:
        path = pathlib.PurePath(case["case"])
        if PACKAGES["libonnx-testdata" in case["case"]] == PACKAGES[0]:
            name = re.sub("^light_", "test_", path.name)
            yield {"suite": path.parent.name, "case": name, "status": case["status"], "reason": case.get("reason", "")}


def differs(case, verdicts):
    """The difference as text, or None."""
    known = verdicts.get((case["suite"], case["case"]))
    name = f"{case['suite']}/{case['case']}"
    if known is None:
        return f"{name} is none of its cases"
    status = known["status"].replace("unsupported", "skipped")
    if status != case["status"]:
        return f"{name}: {case['status']} ({case['reason']}), there {status} ({known['reason']})"
    if status == "skipped" and group(case["reason"]) != group(known["reason"]):
        return f"{name}: {case['reason']}; there {known['reason']}"
    return None


TEMPLATE = """# Conformance

This page counts which of ONNX's own test cases pass, and compares networks with ONNX Runtime. `tools/scripts/conformance.py` writes
the tables from a run. [check.md](check.md) defines the verdicts; "not run" counts the cases that lenslet refuses by name. A test
runs Debian's cases again, and onnx's if they were written as folders.

## ONNX's own cases

The backend cases of onnx 1.23.2 from PyPI, which `tools/scripts/write_onnx_cases.py` writes as folders, and those of
Debian's libonnx-testdata.

<!-- cpu -->
<!-- end -->

<!-- cuda -->
| cases | device | passed | failed | not run |
|---|---|---|---|---|
| onnx 1.23.2 node | CUDA | 1133 | 0 | 751 |
<!-- end -->

## ONNX's own runner

`onnx.backend.test.runner` runs over `lenslet.backend` (the Python package) with its own comparison: the same type and shape, and
every element, integers too, within 1e-3 of the expected one plus 1e-7. All cases of the package run, and nothing is downloaded:
the networks that the runner calls real are the light ones in the package. "Skipped" counts the cases that lenslet refused with a
reason (`lenslet.UnsupportedError`), when the model was prepared or run. Cases fail with older releases of onnx whose expectations
ONNX has corrected since: qlinearmatmul of int8 wrapped at 8 bits up to 1.21, l2normalization of zeros was NaN up to 1.20.

<!-- backend -->
<!-- end -->

On CUDA (`onnx_runner.py --device CUDA`, from a machine with a GPU):

<!-- backend-cuda -->
<!-- end -->

## Cases that are not run on the CPU

<!-- not-run -->
<!-- end -->

## Cases that only CUDA refuses

<!-- only-on-cuda -->
The forms stand in [limits.md](limits.md#what-cuda-refuses).
<!-- end -->

## torchvision's networks

<!-- torchvision -->
<!-- end -->

## Random graphs beside ONNX Runtime

<!-- differential -->
<!-- end -->
"""


def put(document, name, text):
    pattern = rf"<!-- {name} -->\n.*?<!-- end -->"
    if not re.search(pattern, document, re.DOTALL):
        sys.exit(f"no section {name} in {DOCUMENT}")
    return re.sub(pattern, lambda _: f"<!-- {name} -->\n{text.strip()}\n<!-- end -->", document, flags=re.DOTALL)


def section_of(document, name):
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", document, re.DOTALL)
    return found[1] if found else ""


def numbers_of(document, package, left_out):
    """The document's CPU rows about one package as a set of lines, without those of a suite."""
    lines, column, names = set(), None, 1
    for name in ("cpu", "not-run"):
        for line in section_of(document, name).splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if name == "cpu":
                lines |= {line} if cells[0].startswith(package) and cells[0] != f"{package} {left_out}" else set()
            elif package in cells:
                column, names = cells.index(package), cells.index(PACKAGES[0])
            elif line.startswith("| ") and cells[column]:
                lines.add(" | ".join(cells[:names]) + f": {cells[column]}")
    return lines


def run(lenslet, folders):
    results = []
    for folder in folders:
        done = subprocess.run([lenslet, "check", folder, "--json", "--device", "cpu"], capture_output=True, text=True)
        if not done.stdout:
            sys.exit(f"{folder}: {done.stderr}")
        results.append(json.loads(done.stdout))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lenslet", nargs="?", type=pathlib.Path)
    parser.add_argument("--onnx", type=pathlib.Path, default=ROOT / "build" / "peers" / "onnx-cases")
    parser.add_argument("--debian", type=pathlib.Path, default="/usr/share/libonnx-testdata/data")
    parser.add_argument("--cuda", type=pathlib.Path, nargs="+", default=[])
    parser.add_argument("--backend", type=pathlib.Path, nargs="+", default=[])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--without-light", action="store_const", const="light", help="whole networks: slow in some builds")
    parser.add_argument("--section", metavar="NAME=FILE")
    arguments = parser.parse_args()
    old = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else TEMPLATE
    if arguments.section:
        name, _, file = arguments.section.partition("=")
        DOCUMENT.write_text(put(old, name, pathlib.Path(file).read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    if not arguments.lenslet:
        parser.error("which lenslet?")
    if arguments.backend and arguments.without_light:
        parser.error("--backend is compared with all suites, --without-light leaves one out")

    present = [folder for folder in (arguments.onnx, arguments.debian) if folder.is_dir()]
    if len(present) < (1 if arguments.check else 2):
        sys.exit(f"skipped: neither {arguments.onnx} nor {arguments.debian} is there" if arguments.check
                 else f"{arguments.onnx} and {arguments.debian} must both be there")  # fmt: skip
    suites = [folder / suite for folder in present for suite in SUITES if suite != arguments.without_light]
    checked = run(arguments.lenslet, [folder for folder in suites if folder.is_dir()])
    counts, groups = count(checked)
    new = put(old, "cpu", counts_table(counts, "CPU"))
    new = put(new, "not-run", not_run(groups))
    runs = [json.loads(file.read_text()) for file in arguments.backend]
    for section, device in BACKEND_SECTIONS.items():
        if on_device := [run for run in runs if run["device"] == device]:
            new = put(new, section, backend(on_device, checked))
    failed = [case for cases in groups.values() for case in cases if case["status"] == "failed"]
    for case in failed:
        print(f"failed: {case['case']}: {case['reason']}")
    if arguments.check:
        wrong = 0
        for package in {package for package, _ in counts}:
            is_said, holds = (numbers_of(text, package, arguments.without_light) for text in (old, new))
            for sign, lines in (("-", is_said - holds), ("+", holds - is_said)):
                for line in sorted(lines):
                    print(f"{sign} {package}: {line}")
                    wrong += 1
        for section in BACKEND_SECTIONS:
            if (old_backend := section_of(old, section)) != (now := section_of(new, section)):
                print(f"- {old_backend}\n+ {now}")
                wrong += 1
        return 1 if wrong or failed else 0
    if arguments.cuda:
        cuda_counts, cuda_groups = count([json.loads(file.read_text()[file.read_text().index("{"):])
                                          for file in arguments.cuda])  # fmt: skip
        new = put(new, "cuda", counts_table(cuda_counts, "CUDA"))
        new = put(new, "only-on-cuda", only_on_cuda(groups, cuda_groups))
    DOCUMENT.write_text(new, encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
