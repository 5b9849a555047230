"""lenslet.ray on a local cluster of two workers, one of which is killed: 2,000 pictures, with one process's results."""

import logging
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# Set before Ray is imported, also for its workers. Without the third its servers would listen on the whole network; the
# token keeps other users of the machine out, and is in no file.
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_DATA_DISABLE_PROGRESS_BARS="1",
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
    RAY_AUTH_MODE="token",
    RAY_AUTH_TOKEN=secrets.token_hex(32),
    PYTHONPATH=os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
)

try:
    import cluster_data as data
    import numpy as np
    import pyarrow as pa
    import ray
    import ray.data
    from cluster_workers import Worker
    from ray.data.extensions import ArrowTensorArray

    import lenslet
    from lenslet.ray import Predictor, _assigned

    missing = ""
except ImportError as error:
    missing = f"lenslet.ray is not tested here: {error}"

MB = 1 << 20


@unittest.skipIf(missing, missing)
class RayData(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        data.ends_within(cls, 400)
        # A short path: Unix sockets in it may have 107 bytes.
        cls.folder = tempfile.mkdtemp(prefix="lr-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.model = data.write_model(cls.folder)
        cls.expected = data.expected(cls.model)
        cls.addClassCleanup(ray.shutdown)
        # Three CPUs: two workers hold one each, and reading needs another or waits forever.
        ray.init(
            address="local",
            num_cpus=3,
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=128 * MB,
            _temp_dir=os.path.join(cls.folder, "r"),
            logging_level="error",
            log_to_driver=False,
        )
        logging.getLogger("ray.data").setLevel(logging.ERROR)

    def rows(self, dataset, batch_format, **named):
        """{id: row} from two workers with one thread each."""
        done = dataset.map_batches(
            Worker,
            fn_constructor_kwargs=named,
            batch_size=50,
            batch_format=batch_format,
            num_cpus=1,
            compute=ray.data.ActorPoolStrategy(size=2),
        )
        rows = done.take_all()
        self.assertEqual({row["assigned"] for row in rows}, {"cpu 1"})
        return rows

    def compare(self, rows, expected):
        self.assertEqual(len(rows), len(expected))
        seen = {row["id"]: (data.exact(row["classes"]), row["error"]) for row in rows}
        self.assertEqual(seen, expected)

    def test_files_with_a_worker_killed(self):
        pictures = os.path.join(self.folder, "pictures")
        data.write_pictures(pictures)
        marker = os.path.join(self.folder, "killed")
        files = ray.data.read_binary_files(pictures, include_paths=True, override_num_blocks=20)
        # The model's bytes by the object store; there is no card beside them.
        named = {"model": ray.put(self.model.read_bytes()), "card": str(self.model.with_suffix(".card.json"))}
        rows = self.rows(files, "numpy", marker=marker, **named)
        self.assertTrue(os.path.exists(marker), "no worker died")
        self.assertEqual(set(rows[0]), {"path", "classes", "error", "pid", "assigned"})
        for row in rows:
            row["id"] = int(pathlib.Path(row["path"]).stem)
        self.compare(rows, self.expected)
        broken = [index for index, (classes, _) in self.expected.items() if classes is None]
        self.assertEqual(broken, [index for index in range(data.COUNT) if data.broken(index)])
        self.assertGreater(len({row["pid"] for row in rows}), 1)

    def test_arrow_batches_with_nulls(self):
        card = lenslet.Card.of(lenslet.Model(self.model))
        expected = {index: self.expected[index] for index in range(400)}
        cells = [data.picture(index) for index in expected]
        for index in range(0, 400, 40):
            cells[index] = None
            expected[index] = (None, "invalid argument: a picture is encoded bytes or an array of uint8, no null")
        table = pa.table({"id": list(expected), "photo": pa.array(cells, pa.large_binary())})
        parts = [table.slice(start, 100) for start in range(0, 400, 100)]
        rows = self.rows(ray.data.from_arrow(parts), "pyarrow", model=lenslet.Model(self.model), card=card, column="photo")
        self.compare(rows, expected)

    def test_tensors(self):
        pixels = np.random.default_rng(3).standard_normal((300, 3, data.SIDE, data.SIDE)).astype(np.float32)
        runner = lenslet.Model(self.model).runner(device="cpu", threads=1)
        wanted = {float(row.sum()): runner(row[None])[0].tobytes() for row in pixels}
        dataset = ray.data.from_numpy([pixels[:150], pixels[150:]]).rename_columns({"data": "pixels"})
        dataset = dataset.map_batches(lambda batch: {**batch, "id": [float(row.sum()) for row in batch["pixels"]]})
        rows = self.rows(dataset, "pyarrow", model=lenslet.Model(self.model), inputs={"image": "pixels"})
        self.assertEqual({row["id"]: row["scores"].tobytes() for row in rows}, wanted)
        self.assertEqual({row["error"] for row in rows}, {None})

    def test_sample(self):
        """In a separate cluster, as on a desktop."""
        folder = os.path.join(self.folder, "few")
        data.write_pictures(folder, 60)
        command = [sys.executable, "-B", str(data.ROOT / "samples/ray_batch.py"), folder, "--model", str(self.model)]
        # Short, as above. RAY_ADDRESS would name a cluster.
        environment = {**os.environ, "RAY_TMPDIR": os.path.join(self.folder, "s")}
        environment.pop("RAY_ADDRESS", None)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split("\t") for line in done.stdout.splitlines()]
        seen = {int(pathlib.Path(line[0]).stem): line[1:] for line in lines}
        self.assertEqual(seen, data.printed(self.expected, range(60)))


@unittest.skipIf(missing, missing)
class InOneProcess(unittest.TestCase):
    """Tests without a cluster."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lr-")
        cls.addClassCleanup(folder.cleanup)
        cls.model = data.write_model(folder.name)
        cls.predictor = Predictor(cls.model, device="cpu", threads=1, top=2)

    def refused(self, words, call, *arguments, **named):
        with self.assertRaises(lenslet.InvalidArgumentError) as caught:
            call(*arguments, **named)
        self.assertIn(words, str(caught.exception))

    def test_batches(self):
        photos = np.array([data.picture(0), b"", None, "net.onnx", 7], object)
        table = self.predictor({"bytes": photos, "id": np.arange(5)})
        self.assertEqual(table.column_names, ["id", "classes", "error"])
        errors = table.column("error").to_pylist()
        self.assertEqual([error is None for error in errors], [True, False, False, False, False])
        self.assertIn("no str", errors[3])
        self.assertEqual([len(row or "") for row in table.column("classes").to_pylist()], [2, 0, 0, 0, 0])
        # The types are the same for any block, whatever its content.
        for cells in [b""], [data.picture(0)], []:
            other = self.predictor({"bytes": np.array(cells, object), "id": np.arange(len(cells))})
            self.assertEqual(other.schema.field("classes"), table.schema.field("classes"))
            self.assertEqual(other.schema.field("error"), table.schema.field("error"))
        alone = self.predictor(pa.table({"bytes": [data.picture(0)]}))
        self.assertEqual(alone.column_names, ["classes", "error"])

    def test_pixels(self):
        pixels = np.random.default_rng(1).integers(0, 256, (3, 30, 40, 3), np.uint8)
        found = self.predictor({"bytes": pixels}).column("classes").to_pylist()
        one = lenslet.Classifier(self.model, device="cpu", threads=1)
        self.assertEqual([data.exact(row) for row in found], [data.exact(one(picture, 2)) for picture in pixels])

    def test_rows_that_do_not_fit(self):
        rows = [np.ones((3, data.SIDE, data.SIDE), np.float32) * value for value in range(5)]
        rows[1], rows[3] = np.ones((3, 2, 2), np.float32), None
        predictor = Predictor(self.model, inputs={"image": "x"}, device="cpu", threads=1, batch=4)
        cells = np.empty(5, object)
        cells[:] = rows
        table = predictor({"x": cells})
        self.assertEqual(table.column("scores").is_null().to_pylist(), [False, True, False, True, False])
        self.assertIn("image: [3, 2, 2] instead of [3, 24, 24]", table.column("error").to_pylist()[1])
        values = ray.data.block.BlockAccessor.for_block(table).to_numpy("scores")
        self.assertEqual(np.isnan(values).all(1).tolist(), [False, True, False, True, False])
        runner = lenslet.Model(self.model).runner(device="cpu", threads=1, batch=4)
        whole = np.stack([row if index in (0, 2, 4) else rows[0] for index, row in enumerate(rows)])
        self.assertEqual(values[[0, 2]].tobytes(), runner(whole[:4])[[0, 2]].tobytes())
        again = predictor({"x": whole})
        by_arrow = predictor(again.select([]).append_column("x", ArrowTensorArray.from_numpy(whole)))
        self.assertEqual(by_arrow, again)

    def test_refusals(self):
        self.refused("no column 'bytes' among ['id']", self.predictor, {"id": np.arange(2)})
        self.refused("a column 'error' is there already", self.predictor, {"bytes": [b""], "error": [1]})
        self.refused("batch_format is numpy or pyarrow", self.predictor, [1, 2])
        self.refused("the model's inputs are ['image']", Predictor, self.model, inputs={"x": "x"})
        self.refused("without card", Predictor, self.model, data.CARD, inputs={"image": "x"})

    def test_what_ray_gives(self):
        for resources, wanted in (
            ({"CPU": 4.0}, ("cpu", 4)),
            ({"CPU": 0.5}, ("cpu", 1)),
            ({}, ("cpu", 1)),
            ({"CPU": 2.0, "GPU": 0.25}, ("cuda", 2)),
        ):
            context = mock.Mock()
            context.get_assigned_resources.return_value = resources
            with mock.patch.object(ray, "is_initialized", return_value=True):
                with mock.patch.object(ray, "get_runtime_context", return_value=context):
                    self.assertEqual(_assigned(), wanted)
        self.assertEqual(_assigned()[1], 0)


if __name__ == "__main__":
    unittest.main()
