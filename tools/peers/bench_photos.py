#!/usr/bin/env python3
"""Photos a second by `lenslet classify`, beside what the machine allows, and a loop of ONNX Runtime and Pillow.

    bench_photos.py LENSLET MODEL... --photos PHOTO... [--count 1000] [--size 500x375] [--devices cpu] [--batch N]
                    [--precision P] [--before LENSLET] [--peer] [--rounds 5] [--csv FILE] [--json FILE]

PHOTOs are scaled to SIZE, written as JPEG (quality 90), and copied until there are COUNT. Rates are of all photos but the
first, from its row to the last one's, so that starting and planning do not count. The limit on the CPU: cores / (decode +
preparation + network, each by one thread alone). With a GPU: the lesser of cores / decode and the network's rate by
`lenslet bench` at the same batch. --before: another build, which may know no --devices. --peer: a process for each core,
each with a session of one thread, resizing as the model's card says (shorter side 256, crop 224).
"""

import json
import multiprocessing
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time

import timing

CORES = len(os.sched_getaffinity(0))


def write_photos(sources, size, count, folder):
    from PIL import Image

    width, height = map(int, size.split("x"))
    pictures = []
    for source in sources:
        path = folder / f"source{len(pictures)}.jpg"
        Image.open(source).convert("RGB").resize((width, height)).save(path, quality=90)
        pictures.append(path.read_bytes())
        path.unlink()
    for number in range(count):
        (folder / f"{number:06}.jpg").write_bytes(pictures[number % len(pictures)])


def classify(command, model, folder, *options):
    """Photos a second, seconds to the first row, and the mean milliseconds of a photo's steps."""
    begin, times, steps = time.perf_counter(), [], []
    with subprocess.Popen([command, "classify", "--model", model, "--format", "jsonl", "--top", "1", *map(str, options), folder],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # fmt: skip
        for line in process.stdout:
            times.append(time.perf_counter())
            steps.append(json.loads(line)["ms"])
    if process.returncode != 0:
        raise timing.Refused(f"{command} classify: exit status {process.returncode}")
    means = {step: statistics.fmean(ms[step] for ms in steps) for step in steps[0]}
    return (len(times) - 1) / (times[-1] - times[0]), times[0] - begin, means


def peer_share(model, files, ready, go, ended):
    import numpy
    from PIL import Image

    session = timing.onnxruntime_session(model)
    name, channels_last = session.get_inputs()[0].name, session.get_inputs()[0].shape[-1] == 3
    mean, std = numpy.float32([[[0.485]], [[0.456]], [[0.406]]]), numpy.float32([[[0.229]], [[0.224]], [[0.225]]])

    def scores(file):
        picture = Image.open(file).convert("RGB")
        scale = 256 / min(picture.size)
        picture = picture.resize([round(side * scale) for side in picture.size], Image.Resampling.BILINEAR)
        left, top = (picture.width - 224) // 2, (picture.height - 224) // 2
        pixels = numpy.asarray(picture.crop((left, top, left + 224, top + 224)), numpy.float32).transpose(2, 0, 1) / 255
        pixels = (pixels - mean) / std
        return session.run(None, {name: (pixels.transpose(1, 2, 0) if channels_last else pixels)[None]})[0]

    scores(files[0])
    ready.wait()
    go.wait()
    for file in files:
        numpy.argmax(scores(file))
    ended.put(time.perf_counter())


def peer(model, folder):
    files = sorted(map(str, folder.iterdir()))
    ready, go, ended = multiprocessing.Barrier(CORES + 1), multiprocessing.Event(), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=peer_share, args=(model, files[part::CORES], ready, go, ended))
               for part in range(CORES)]  # fmt: skip
    for worker in workers:
        worker.start()
    ready.wait()
    begin = time.perf_counter()
    go.set()
    last = max(ended.get() for _ in workers)
    for worker in workers:
        worker.join()
    return len(files) / (last - begin)


def network_rate(arguments, model):
    batch = arguments.batch or 32
    options = ["--precision", arguments.precision] if arguments.precision else []
    found = timing.lenslet(arguments.lenslet, "bench", model, "--batch", batch, "--device", "cuda", *options)
    return 1e3 * batch / found["results"][0]["ms"]["median"]


def main():
    parser = timing.options(__doc__, rounds=5)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--photos", nargs="+", required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--size", default="500x375")
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--precision")
    parser.add_argument("--before", metavar="LENSLET")
    parser.add_argument("--peer", action="store_true")
    arguments = parser.parse_args()
    options = ["--devices", arguments.devices]
    options += ["--batch", arguments.batch] if arguments.batch else []
    options += ["--precision", arguments.precision] if arguments.precision else []
    results = timing.Results(arguments, f"{arguments.count} photos of {arguments.size} pixels by classify on {arguments.devices}.",
                             "Photos a second. limit: what the steps alone allow. Ratios: classify / that.")  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_photos(arguments.photos, arguments.size, arguments.count, folder)
        for model in arguments.models:
            measure(arguments, results, model, folder, options)


def measure(arguments, results, model, folder, options):
    def ours():
        rate, first, _ = classify(arguments.lenslet, model, folder, *options)
        return {"rate": rate, "first": first}

    def alone():
        rate, _, means = classify(arguments.lenslet, model, folder, "--threads", 1, "--devices", "cpu")
        return {"rate": rate, **means}

    runs = {"lenslet": ours, "one thread": alone}
    if arguments.before:
        runs["before"] = lambda: classify(arguments.before, model, folder)[0]
    if arguments.peer:
        runs["peer"] = lambda: peer(model, folder)
    samples = timing.in_turns(runs, arguments.rounds)
    steps = {step: statistics.median(samples["one thread", step]) for step in ("decode", "preprocess", "inference")}
    limit = 1e3 * CORES / sum(steps.values())
    if "cuda" in arguments.devices:
        limit = min(1e3 * CORES / steps["decode"], network_rate(arguments, model))
    rates = samples["lenslet", "rate"]
    row = {"model": pathlib.Path(model).stem, "classify": rates, "limit": limit, "ratio_limit": statistics.median(rates) / limit,
           "first_row_s": samples["lenslet", "first"], "one_thread": samples["one thread", "rate"], **steps,
           "peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3}  # fmt: skip
    for name in ("before", "peer"):
        if name in samples:
            row |= {name: samples[name], f"ratio_{name}": statistics.median(rates) / statistics.median(samples[name])}
    results.add(**row)


if __name__ == "__main__":
    main()
