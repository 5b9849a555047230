#!/usr/bin/env python3
"""Cost of classifying photos in one process, on Ray Data and on Spark: photos a second, and CPU time for each photo.

usage: bench_scale_out.py PHOTOS... [--model NET.onnx] [--count 560] [--rounds 5] [--jobs loops,ray,spark]
                          [--csv FILE] [--json FILE]

PHOTOS are files or folders, copied until there are COUNT. Run with the Python that has lenslet, ray and pyspark.
Rounds alternate between the jobs, each a process of its own; the table has medians, with the least and the greatest.

  loops   one process, encoded photos in memory: RUNNERSxTHREADS, a Classifier for each Runner in a thread of its own
  parts the steps of the first: decoding and preprocessing, running, choosing classes
  ray     map_batches(lenslet.ray.Predictor) over a folder of files, one and two workers of one thread: from the first
          batch's begin to the last one's end; CPU time is that within the workers' calls
  spark   lenslet.spark.predict_udf over the same folder by binaryFile, one and two tasks: the third run of a query,
          when the Python workers are there and have the model

An engine's own cost is that of the same jobs with a function that ignores the pictures: the additional CPU time for
each photo with four times as many, over all its processes (the driver, Java, Ray's servers, readers).
"""
import json
import os
import pathlib
import secrets
import shutil
import sys
import tempfile
import threading
import time

import timing

CLOCK = os.sysconf("SC_CLK_TCK")
LOOPS = ((1, 1, 1), (1, 2, 1), (2, 1, 1), (1, 1, 8), (1, 2, 8), (2, 1, 8))  # runners, threads, batch


class Cpu:
    """Sums the CPU time of this process and its descendants. Ray does not wait for its workers, so their time is lost
    when they end: the sum is sampled five times a second."""

    def __init__(self):
        self.seen, self.lock = {}, threading.Lock()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            self.seconds()
            time.sleep(0.2)

    def seconds(self):
        parents, spent = {}, {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    fields = pathlib.Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                parents[entry] = fields[1]
                spent[entry] = (entry, fields[19]), (int(fields[11]) + int(fields[12])) / CLOCK
        ours, grown = {str(os.getpid())}, True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in ours} - ours
            ours, grown = ours | more, bool(more)
        with self.lock:
            self.seen.update(spent[pid] for pid in ours)
            return sum(self.seen.values())


def loops(photos, model, _):
    import lenslet

    data = [path.read_bytes() for path in photos]
    for runners, threads, batch in LOOPS:
        made = [lenslet.Classifier(model, device="cpu", threads=threads, batch=batch) for _ in range(runners)]
        for classifier in made:
            classifier.classify_each(data[: 2 * batch])
        workers = [
            threading.Thread(target=classifier.classify_each, args=(data[part::runners],))
            for part, classifier in enumerate(made)
        ]
        begin, cpu = time.perf_counter(), time.process_time()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
        yield f"{runners}x{threads} batch {batch}", {"photos/s": len(data) / wall, "CPU ms": cpu / len(data) * 1e3}


def parts(photos, model, _):
    import lenslet

    data = [path.read_bytes() for path in photos]
    model = lenslet.Model(model)
    card = lenslet.Card.of(model)
    runner = model.runner(device="cpu", threads=1)
    spent = {"decode and prepare": 0.0, "run": 0.0, "choose classes": 0.0}
    for picture in data:
        times = [time.thread_time()]
        pixels = card.prepare(picture)
        times.append(time.thread_time())
        scores = runner(pixels[None])
        times.append(time.thread_time())
        card.top(scores[0])
        times.append(time.thread_time())
        for name, begin, end in zip(spent, times, times[1:]):
            spent[name] += end - begin
    for name, seconds in spent.items():
        yield name, {"CPU ms": seconds / len(data) * 1e3}


def costs(run, photos, copies):
    """CPU ms and wall ms for each additional photo, with run(folder) through only the engine."""
    cpu, measured = Cpu(), []
    run(photos)
    for folder in photos, copies:
        begin, before = time.perf_counter(), cpu.seconds()
        run(folder)
        measured.append((time.perf_counter() - begin, cpu.seconds() - before, len(os.listdir(folder))))
    few, many = measured
    more = many[2] - few[2]
    return {"CPU ms": (many[1] - few[1]) / more * 1e3, "wall ms": (many[0] - few[0]) / more * 1e3}


def ray_job(photos, model, copies):
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    import pyarrow as pa
    import ray
    import ray.data

    import lenslet.ray

    class Timed(lenslet.ray.Predictor):
        def __call__(self, batch):
            begin, cpu = time.time(), time.process_time()
            table = super().__call__(batch)
            spent = (time.process_time() - cpu) / max(1, len(table))
            times = pa.array([[begin, time.time(), spent]] * len(table))
            return table.append_column("times", times).append_column("pid", pa.array([os.getpid()] * len(table)))

    class Nothing:
        def __call__(self, batch):
            return {"path": batch["path"], "error": ["none"] * len(batch["path"])}

    def run(folder, function, workers, **named):
        return (
            ray.data.read_binary_files(folder, include_paths=True, num_cpus=0.1, override_num_blocks=16)
            .map_batches(
                function,
                fn_constructor_kwargs=named,
                batch_size=32,
                num_cpus=0.9,
                compute=ray.data.ActorPoolStrategy(size=workers),
            )
            .take_all()
        )

    folder = str(photos[0].parent)
    scratch = tempfile.mkdtemp(prefix="lr-")
    try:
        begin = time.perf_counter()
        ray.init(
            address="local", num_cpus=2, include_dashboard=False, object_store_memory=1 << 29, _temp_dir=scratch,
            logging_level="error", log_to_driver=False,
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        started = time.perf_counter() - begin
        run(copies, Nothing, 2)  # Ray starts processes in advance
        for workers in 1, 2:
            begin = time.perf_counter()
            rows = run(folder, Timed, workers, model=model)
            wall = time.perf_counter() - begin
            window = max(row["times"][1] for row in rows) - min(row["times"][0] for row in rows)
            assert len(rows) == len(photos) and len({row["pid"] for row in rows}) == workers
            cpu = sum(row["times"][2] for row in rows) / len(rows)
            figures = {"photos/s": len(rows) / window, "CPU ms": cpu * 1e3, "start s": started + wall - window}
            yield f"{workers} workers", figures
        yield "nothing but the engine", costs(lambda folder: run(folder, Nothing, 1), folder, copies)
    finally:
        ray.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)


def spark_job(photos, model, copies):
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    from typing import Iterator

    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import pandas_udf

    import lenslet.spark

    def nothing(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for batch in batches:
            yield pd.Series(["none"] * len(batch))

    nothing.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.Series]}
    folder = str(photos[0].parent)
    scratch = tempfile.mkdtemp(prefix="lenslet-spark-")
    try:
        for tasks in 1, 2:
            begin = time.perf_counter()
            spark = (
                SparkSession.builder.master(f"local[{tasks}]")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.log.level", "OFF")
                .config("spark.driver.memory", "2g")
                .config("spark.local.dir", scratch)
                .config("spark.sql.files.openCostInBytes", "256k")
                .config("spark.sql.files.maxPartitionBytes", "8m")
                .config("spark.sql.execution.arrow.maxRecordsPerBatch", "32")
                .getOrCreate()
            )

            def run(folder, function):
                return spark.read.format("binaryFile").load(folder).select("path", function("content")).collect()

            function = lenslet.spark.predict_udf(model)
            run(folder, function)
            first = time.perf_counter() - begin
            run(folder, function)  # lets Java compile hot code
            begin = time.perf_counter()
            assert len(run(folder, function)) == len(photos)
            wall = time.perf_counter() - begin
            figures = {"photos/s": len(photos) / wall}
            yield f"{tasks} workers", {**figures, "start s": first - wall} if tasks == 1 else figures
            if tasks == 2:
                yield "nothing but the engine", costs(lambda at: run(at, pandas_udf(nothing, "string")), folder, copies)
            spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


JOBS = {"loops": loops, "parts": parts, "ray": ray_job, "spark": spark_job}


def copied(sources, folder, count):
    folder.mkdir()
    for index in range(count):
        source = sources[index % len(sources)]
        shutil.copyfile(source, folder / f"{index:05}{source.suffix}")


def main():
    if sys.argv[1:2] == ["--job"]:  # runs in a separate process
        job, photos, copies, model = sys.argv[2:]
        made = JOBS[job](sorted(pathlib.Path(photos).iterdir()), model, copies)
        print(json.dumps([(name, what, value) for name, figures in made for what, value in figures.items()]))
        return
    parser = timing.options(__doc__.partition("\n")[0], rounds=5, lenslet=False)
    parser.add_argument("photos", nargs="+", type=pathlib.Path)
    parser.add_argument("--model")
    parser.add_argument("--count", type=int, default=560)
    parser.add_argument("--jobs", type=timing.words, default=",".join(JOBS))
    arguments = parser.parse_args()
    import lenslet

    model = os.path.abspath(arguments.model or lenslet.default_model())
    sources = [path for given in arguments.photos for path in (sorted(given.iterdir()) if given.is_dir() else [given])]
    results = timing.Results(arguments, f"{arguments.count} photos by {os.path.basename(model)} in one process, on Ray Data and on Spark.",
                              "Medians of the rounds, least, greatest.")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="lenslet-scale-") as scratch:
        few, many = pathlib.Path(scratch, "few"), pathlib.Path(scratch, "many")
        copied(sources, few, arguments.count)
        copied(sources, many, 4 * arguments.count)

        def measured(job):
            made = timing.in_own_process(__file__, "--job", job, few, many, model)
            print(f"{job}, load {os.getloadavg()[0]:.1f}: {made}", file=sys.stderr, flush=True)
            return {(name, what): value for name, what, value in made}

        samples = timing.in_turns({job: lambda job=job: measured(job) for job in arguments.jobs}, arguments.rounds)
    for (job, (name, what)), values in samples.items():
        results.add(job=f"{job}: {name}", figure=what, value=values)


if __name__ == "__main__":
    main()
