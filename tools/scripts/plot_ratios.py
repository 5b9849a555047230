#!/usr/bin/env python3
"""Draws docs/ratios.svg and writes the table of ratios in docs/benchmarks.md, both from the CSV files of docs/results/.

usage: plot_ratios.py [--check]    (--check writes nothing; it exits with 1 where a file is not what would be written)

A ratio is lenslet's time / the peer's: below 1 lenslet is faster. The picture has a dot for each network, peer (CPU) or
precision (CUDA) and batch. The table has a row for each measurement: geometric means and the worst. Standard library
only.
"""

import csv
import math
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
EPYC, XEON, ZEN3 = "EPYC, AVX-512", "Sapphire Rapids", "EPYC, AVX2"
H100, H200 = "H100", "H200"
QUICKEST = ("onnxruntime_ms", "openvino_ms", "ncnn_ms")
THREE = "quickest of ONNX Runtime, OpenVINO, ncnn"
LABELS = {"vgg16": "VGG-16", "resnet18": "ResNet-18", "resnet50": "ResNet-50", "googlenet": "GoogLeNet",
          "densenet121": "DenseNet-121", "squeezenet1_1": "SqueezeNet 1.1", "shufflenet_v2_x1_0": "ShuffleNetV2",
          "mobilenet_v2": "MobileNetV2", "mobilenet_v3_large": "MobileNetV3", "efficientnet_b0": "EfficientNet-B0",
          "efficientnet_lite0": "EfficientNet-Lite0"}  # fmt: skip

CPU, CUDA = "cpu-networks", "cuda-networks"


def settings(*names):
    """(text, rows of a table) for each setting, "threads" or "threads x batch"."""
    words = {"1": "1 thread", "2": "2 threads", "1x1": "1 thread", "2x1": "2 threads", "2x8": "2 threads, batch 8"}
    return [(words[name], dict(zip(("threads", "batch"), name.split("x")))) for name in names]


# What is measured, file (the newest of that name), device, peer, the columns of both times (the least of the peer's
# counts) or of a ratio, and (setting, its rows in the file).
TABLE = (
    ("networks", CPU, EPYC, THREE, "lenslet_ms", QUICKEST, settings("1x1", "2x1", "2x8")),
    ("networks of other kinds", "cpu-other-networks", EPYC, THREE, "lenslet_ms", QUICKEST,
     settings("1x1", "2x1")),
    ("the first 11 networks", "cpu-networks-sapphire-rapids", XEON, "quicker of ONNX Runtime, OpenVINO", None,
     "quickest_over_lenslet", settings("1x1", "2x1", "2x8")),
    ("int8 networks", "cpu-int8-networks", XEON, "quickest of ONNX Runtime, OpenVINO, XNNPACK", "lenslet_qdq_ms",
     ("onnxruntime_qdq_ms", "onnxruntime_qoperator_ms", "openvino_qdq_ms", "executorch_qdq_ms"), settings("1x1", "2x1", "2x8")),
    ("bf16 networks", "cpu-bf16-networks", XEON, "OpenVINO", "lenslet_ms", ("openvino_ms",), settings("1x1", "2x1")),
    ("super-resolution, text, faces, segmentation, transformers", "cpu-more-networks", EPYC,
     "ONNX Runtime", "lenslet_ms", ("onnxruntime_ms",), settings("1", "2")),
    ("small networks, ResNet-50, MobileNetV2", "cpu-networks-avx2", ZEN3, "ONNX Runtime", "lenslet_ms", ("onnxruntime_ms",),
     settings("1", "2")),
    ("first result after process start", "cpu-first-result", EPYC, THREE, "lenslet_ms",
     QUICKEST, [("2 threads", {})]),
    ("most memory", "cpu-first-result", EPYC, "leanest of the three",
     "lenslet_over_leanest", (), [("2 threads", {})]),
    ("single operators", "cpu-operators", EPYC, "ONNX Runtime", "lenslet_ms", ("onnxruntime_ms",), settings("1")),
    ("networks", CUDA, H200, "PyTorch with cuDNN", "lenslet_ms", ("pytorch_ms",),
     [(f"{precision}, batch {batch}", {"precision": precision, "batch": batch})
      for precision, batches in (("fp16", ("1", "8", "64")), ("TF32", ("1", "64")), ("fp32", ("1", "64"))) for batch in batches]),
    ("networks", "cuda-networks-fp32", H200, "PyTorch with cuDNN", "lenslet_ms", ("pytorch_ms",),
     [(f"fp32, batch {batch}", {"batch": batch}) for batch in "18"]),
    ("networks with transformer blocks", "cuda-hybrids-more-h200", H200, "PyTorch, compiled too", "lenslet_ms", ("pytorch_ms",),
     [(f"fp16, batch {batch}", {"batch": batch}) for batch in ("1", "64")]),
    ("layers", "cuda-layers-fp32", H200, "cuDNN", "lenslet_us", ("cudnn_us",), [("fp32, batch 1", {})]),
    ("layers", "cuda-layers-fp16", H200, "cuDNN", "lenslet_us", ("cudnn_us",),
     [(f"fp16, batch {batch}", {"batch": batch}) for batch in ("1", "64")]),
    ("layers with narrow channels", "cuda-layers-narrow-fp16", H200, "cuDNN", "lenslet_us",
     ("cudnn_us",), [("fp16", {})]),
    ("layers with large filters", "cuda-large-windows-fp32", H200, "cuDNN", "lenslet_us", ("cudnn_us",),
     [("fp32", {})]),
    ("matrix products", "cuda-gemm", H200, "cuBLASLt", "lenslet_us", ("cublaslt_us",),
     [(name.replace("tf", "TF"), {"precision": name}) for name in ("fp16", "fp32", "tf32")]),
    ("sparse encoder SECOND", "cuda-sparse-networks", H100, "spconv", "lenslet_ms",
     ("spconv_ms",), [(name, {"precision": name, "part": "whole"}) for name in ("fp32", "fp16")]),
    ("the same, known rulebooks", "cuda-sparse-networks", H100, "spconv as a CUDA graph", "lenslet_ms",
     ("spconv_graph_ms",), [(name, {"precision": name, "part": "network"}) for name in ("fp32", "fp16")]),
)  # fmt: skip


def newest(name):
    return max((DOCS / "results").glob(f"{name}-[0-9]*.csv"))


def read(name):
    with open(newest(name), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def date_of(name):
    return re.search(r"\d{4}-\d\d-\d\d", newest(name).name)[0]


def ratio(row, ours, theirs):
    """Against the fastest peer. A column of ratios: None inverts peer / lenslet, () keeps lenslet / peer."""
    if ours is None:
        return 1 / float(row[theirs])
    return float(row[ours]) / min((float(row[name]) for name in theirs), default=1)


def table():
    lines = ["| what | against | lenslet / peer | device | date |", "|---|---|---|---|---|"]
    for what, file, device, peer, ours, theirs, rows in TABLE:
        cells = []
        for setting, wanted in rows:
            ratios = [ratio(row, ours, theirs) for row in read(file) if wanted.items() <= row.items()]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            cells.append(f"{setting}: **{mean:.2f}** of {len(ratios)}, worst {max(ratios):.2f}")
        lines.append(f"| {what} | {peer} | {'; '.join(cells)} | {device} | [{date_of(file)}](results/{newest(file).name}) |")
    return "\n".join(lines)


WIDTH, ROW, LEFT, SCALE = 470, 21, 130, 290  # of a panel, in pixels; SCALE is the width of ratio 1
COLOURS = ("#1b6ca8", "#d1662a", "#4f8a3c")


def panel(x, title, names, colours, batches, dots):
    """A panel with one row for each network; dots: (network, colour, large batch?, ratio)."""
    top = 66
    bottom = top + ROW * len(names)
    out = [f'<text x="{x + 8}" y="20" class="title">{title}</text>']
    for index, (colour, text) in enumerate(zip(COLOURS, colours)):
        out.append(f'<circle cx="{x + 14 + 118 * index}" cy="36" r="4.5" fill="{colour}"/>'
                   f'<text x="{x + 23 + 118 * index}" y="40">{text}</text>')  # fmt: skip
    out.append(f'<text x="{x + 8}" y="58" class="small">hollow: {batches[0]}; filled: {batches[1]}</text>')
    for tick in range(0, 11, 2):
        at = f"{x + LEFT + SCALE * tick / 10:.1f}"
        out.append(f'<path d="M{at} {top}V{bottom}" class="{"one" if tick == 10 else "grid"}"/>'
                   f'<text x="{at}" y="{bottom + 15}" class="tick">{tick / 10:g}</text>')  # fmt: skip
    for index, name in enumerate(names):
        y = top + ROW * index + ROW / 2
        out.append(f'<text x="{x + LEFT - 8}" y="{y + 4:g}" class="name">{name}</text>')
        for network, colour, large, value in dots:
            if network == name:
                fill = COLOURS[colour] if large else "#fff"
                out.append(f'<circle cx="{x + LEFT + SCALE * value:.1f}" cy="{y:g}" r="4" fill="{fill}" stroke="{COLOURS[colour]}"/>')
    return out, bottom


def picture():
    peers = (("ONNX Runtime", "onnxruntime_ms"), ("OpenVINO", "openvino_ms"), ("ncnn", "ncnn_ms"))
    cpu = [(LABELS[row["network"]], colour, row["batch"] == "8", ratio(row, "lenslet_ms", (column,)))
           for row in read(CPU) if (row["threads"], row["batch"]) in (("1", "1"), ("2", "8"))
           for colour, (_, column) in enumerate(peers)]  # fmt: skip
    precisions = ("fp16", "TF32", "fp32")
    cuda = [(row["network"], precisions.index(row["precision"]), row["batch"] == "64", ratio(row, "lenslet_ms", ("pytorch_ms",)))
            for row in read(CUDA) if row["batch"] != "8"]  # fmt: skip
    both = []
    for x, title, colours, batches, dots in (
        (0, f"CPU (two cores, {EPYC}), float32, {date_of(CPU)}", [name for name, _ in peers],
         ("batch 1, one thread", "batch 8, two threads"), cpu),
        (WIDTH, f"CUDA ({H200}), beside PyTorch with cuDNN, {date_of(CUDA)}", precisions, ("batch 1", "batch 64"), cuda),
    ):
        out, bottom = panel(x, title, list(dict.fromkeys(dot[0] for dot in dots)), colours, batches, dots)
        axis = "time of lenslet / time of the peer (below 1: lenslet is faster)"
        both += [*out, f'<text x="{x + LEFT + SCALE / 2:g}" y="{bottom + 32}" class="tick">{axis}</text>']
    height = max(int(y) for y in re.findall(r'y="(\d+)" class="tick"', "\n".join(both))) + 12
    style = ("text{font:12px sans-serif;fill:#222}.title{font-weight:bold;font-size:13px}.small{fill:#555}.name{text-anchor:end}"
             ".tick{text-anchor:middle;fill:#555}.grid{stroke:#ddd}.one{stroke:#c22;stroke-width:1.5}circle{stroke-width:1.5}")  # fmt: skip
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {height}" width="{2 * WIDTH}" height="{height}">',
        "<title>Time of lenslet / time of the peer, by network: below 1 lenslet is faster</title>",
        f"<style>{style}</style>", f'<rect width="{2 * WIDTH}" height="{height}" fill="#fff"/>', *both, "</svg>", ""])  # fmt: skip


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    benchmarks = DOCS / "benchmarks.md"
    text = benchmarks.read_text(encoding="utf-8")
    wrong = []
    text = re.sub(r"(?<=<!-- ratios -->\n).*?(?=<!-- end -->)", lambda _: table() + "\n", text, flags=re.DOTALL)
    for file, new in ((DOCS / "ratios.svg", picture()), (benchmarks, text)):
        if not file.exists() or file.read_text(encoding="utf-8") != new:
            wrong.append(file.name)
            if not check:
                file.write_text(new, encoding="utf-8")
    if check and wrong:
        sys.exit(f"{', '.join(wrong)}: not what tools/scripts/plot_ratios.py makes of docs/results")


if __name__ == "__main__":
    main()
