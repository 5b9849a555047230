#!/usr/bin/env python3
"""Photos a second by `lenslet classify`, beside what the machine allows, and a loop of ONNX Runtime and Pillow.

    bench_photos.py LENSLET MODEL... --photos PHOTO... [--count 1000] [--size 500x375] [--devices cpu] [--batch N]
                    [--precision P] [--decode cpu|gpu] [--before LENSLET] [--peer] [--rounds 5] [--csv FILE] [--json FILE]

PHOTOs are scaled to SIZE, written as JPEG (quality 90), and copied until there are COUNT. Rates are of all photos but the
first, from its row to the last one's, so that starting and planning do not count. The limit on the CPU: cores / (decode +
preparation + network, each by one thread alone). With GPUs: the network's rate on the device by `lenslet bench`, at the same
batch, times their number, or, unless the GPU decodes, that of decoding alone on all cores but one if it is less, by what
`classify` there says that decoding takes, beside a network of 0.03 ms. --before: another build, which may know no --devices. --peer: on the CPU a process for each
core, each with a session of ONNX Runtime of one thread, resizing as the model's card says (shorter side 256, crop 224), by
Pillow; on a GPU torchvision's ResNet-50, compiled by torch.compile, fp16, NHWC, behind torchvision's decode_jpeg on the GPU
(nvJPEG).
"""

import json
import multiprocessing
import os
import pathlib
import resource
import statistics
import subprocess
import sys
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
    begin, times, lines = time.perf_counter(), [], []
    with subprocess.Popen([command, "classify", "--model", model, "--format", "jsonl", "--top", "1", *map(str, options), folder],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # fmt: skip
        for line in process.stdout:
            times.append(time.perf_counter())
            lines.append(line)
    if process.returncode != 0:
        raise timing.Refused(f"{command} classify: exit status {process.returncode}")
    steps = [json.loads(line)["ms"] for line in lines[:: 1 + len(lines) // 1000]]
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


def gpu_peer(folder, batch):
    import concurrent.futures

    import torch
    import torchvision

    files = sorted(folder.iterdir())
    net = torchvision.models.resnet50().eval().half().cuda().to(memory_format=torch.channels_last)
    net = torch.compile(net)
    mean = torch.tensor([0.485, 0.456, 0.406], device="cuda")[:, None, None] * 255
    std = torch.tensor([0.229, 0.224, 0.225], device="cuda")[:, None, None] * 255

    def prepared(photo):
        scale = 256 / min(photo.shape[1:])
        size = [round(side * scale) for side in photo.shape[1:]]
        photo = torch.nn.functional.interpolate(photo[None].float(), size, mode="bilinear", antialias=True)[0]
        top, left = (size[0] - 224) // 2, (size[1] - 224) // 2
        return ((photo[:, top : top + 224, left : left + 224] - mean) / std).half()

    def read(part):
        return [torchvision.io.read_file(str(file)) for file in part]

    def scores(photos):
        photos = torchvision.io.decode_jpeg(photos, torchvision.io.ImageReadMode.RGB, device="cuda")
        return net(torch.stack([prepared(photo) for photo in photos]).contiguous(memory_format=torch.channels_last)).argmax(1)

    parts = [files[at : at + batch] for at in range(0, len(files) - batch + 1, batch)]
    with torch.inference_mode(), concurrent.futures.ThreadPoolExecutor(CORES - 1) as readers:
        for _ in range(3):
            scores(read(parts[0])).cpu()
        begin, found = time.perf_counter(), []
        waiting = [readers.submit(read, part) for part in parts]
        for photos in waiting:
            found.append(scores(photos.result()))
        torch.cat(found).cpu()
    return len(parts) * batch / (time.perf_counter() - begin)


def network_rate(arguments, model):
    batch = arguments.batch or 32
    options = ["--precision", arguments.precision] if arguments.precision else []
    found = timing.lenslet(arguments.lenslet, "bench", model, "--batch", batch, "--device", "cuda", *options)
    return 1e3 * batch / found["results"][0]["device_ms"]["median"]


def main():
    parser = timing.options(__doc__, rounds=5)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--photos", nargs="+", required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--size", default="500x375")
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--precision")
    parser.add_argument("--decode", choices=["cpu", "gpu"])
    parser.add_argument("--before", metavar="LENSLET")
    parser.add_argument("--peer", action="store_true")
    arguments = parser.parse_args()
    options = ["--devices", arguments.devices]
    options += ["--batch", arguments.batch] if arguments.batch else []
    options += ["--precision", arguments.precision] if arguments.precision else []
    options += ["--decode", arguments.decode] if arguments.decode else []
    results = timing.Results(arguments, f"{arguments.count} photos of {arguments.size} pixels by classify {timing.shlex.join(map(str, options))}.",
                             "Photos a second. limit: what the steps alone allow. Ratios: classify / that.")  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name, "photos")
        folder.mkdir()
        write_photos(arguments.photos, arguments.size, arguments.count, folder)
        for model in arguments.models:
            measure(arguments, results, model, folder, options)


def measure(arguments, results, model, folder, options):
    gpus = arguments.devices.count("cuda")

    def ours():
        rate, first, _ = classify(arguments.lenslet, model, folder, *options)
        return {"rate": rate, "first": first}

    def alone():
        rate, _, means = classify(arguments.lenslet, model, folder, "--threads", 1, "--devices", "cpu")
        return {"rate": rate, **means}

    runs = {"lenslet": ours}
    if gpus == 0:
        runs["one thread"] = alone
    else:
        runs["network"] = lambda: network_rate(arguments, model)
    if gpus > 0 and arguments.decode != "gpu":
        tiny = folder.parent / "tiny"
        tiny.mkdir(exist_ok=True)
        subprocess.run([sys.executable, timing.ROOT / "tests" / "install" / "tiny_model.py", tiny], check=True)
        threads = ["--devices", "cpu", "--threads", CORES - 1]
        runs["decoding"] = lambda: 1e3 * (CORES - 1) / classify(arguments.lenslet, tiny / "rgb.onnx", folder, *threads)[2]["decode"]
    if arguments.before:
        runs["before"] = lambda: classify(arguments.before, model, folder)[0]
    if arguments.peer:
        runs["peer"] = lambda: peer(model, folder) if gpus == 0 else gpu_peer(folder, arguments.batch or 32)
    samples = timing.in_turns(runs, arguments.rounds)
    rates = samples["lenslet", "rate"]
    row = {"model": pathlib.Path(model).stem, "classify": rates}
    if gpus == 0:
        steps = {step: statistics.median(samples["one thread", step]) for step in ("decode", "preprocess", "inference")}
        row |= {"limit": 1e3 * CORES / sum(steps.values()), "one_thread": samples["one thread", "rate"], **steps}
    else:
        limits = [gpus * statistics.median(samples["network"])]
        limits += [statistics.median(samples["decoding"])] if "decoding" in samples else []
        row |= {"limit": min(limits), "network": samples["network"]}
        row |= {"decoding": samples["decoding"]} if "decoding" in samples else {}
    row |= {"ratio_limit": statistics.median(rates) / row["limit"], "first_row_s": samples["lenslet", "first"],
            "peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3}  # fmt: skip
    for name in ("before", "peer"):
        if name in samples:
            row |= {name: samples[name], f"ratio_{name}": statistics.median(rates) / statistics.median(samples[name])}
    results.add(**row)


if __name__ == "__main__":
    main()
