"""lenslet.spark in a local session of two tasks, a worker of which is killed: 2,000 pictures, with one process's
results."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Iterator
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# For the Python workers, and before Java starts.
os.environ.update(
    PYSPARK_PYTHON=sys.executable,
    PYSPARK_DRIVER_PYTHON=sys.executable,
    PYTHONPATH=os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
    SPARK_LOCAL_IP="127.0.0.1",
)

try:
    import cluster_data as data
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as parquet
    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.functions import pandas_udf

    import lenslet
    from lenslet.spark import TaskContext, _assigned, predict_udf

    missing = ""
except ImportError as error:
    missing = f"lenslet.spark is not tested here: {error}"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:-UsePerfData"  # starts sooner, and leaves nothing in /tmp
java = shutil.which("java") or os.environ.get("JAVA_HOME")


def exact(classes):
    return None if classes is None else data.exact([best.asDict() for best in classes])


@unittest.skipIf(missing, missing)
@unittest.skipUnless(java, "lenslet.spark is not tested here: there is no Java (openjdk-17-jre-headless)")
class Spark(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        data.ends_within(cls, 400)
        cls.folder = tempfile.mkdtemp(prefix="lenslet-spark-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.model = data.write_model(cls.folder)
        cls.card = str(cls.model.with_suffix(".card.json"))
        cls.expected = data.expected(cls.model)
        cls.spark = (
            SparkSession.builder.master("local[2,4]")  # two tasks at once, three failures a task, as on a cluster
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", f"{JAVA_OPTIONS} -Djava.io.tmpdir={cls.folder}")
            .config("spark.local.dir", cls.folder)
            .config("spark.sql.warehouse.dir", os.path.join(cls.folder, "warehouse"))
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
            .config("spark.sql.files.openCostInBytes", "1m")  # 16 tasks for 2,000 small files, not 62
            .config("spark.log.level", "OFF")
            .getOrCreate()
        )
        cls.addClassCleanup(cls.spark.stop)

    def compare(self, rows, expected):
        self.assertEqual(len(rows), len(expected))
        seen = {row["id"]: (exact(row["classes"]), row["error"]) for row in rows}
        self.assertEqual(seen, expected)

    def parquet_of(self, count):
        """The table's folder, four files, and the expected results: every fortieth picture is null."""
        expected = {index: self.expected[index] for index in range(count)}
        cells = [data.picture(index) for index in expected]
        for index in range(0, count, 40):
            cells[index] = None
            expected[index] = (None, "invalid argument: a picture is encoded bytes or an array of uint8, no null")
        table = pa.table({"id": list(expected), "photo": pa.array(cells, pa.binary())})
        folder = tempfile.mkdtemp(dir=self.folder)
        for start in range(0, count, count // 4):
            parquet.write_table(table.slice(start, count // 4), os.path.join(folder, f"{start}.parquet"))
        return self.spark.read.parquet(folder), expected

    def test_files_with_a_worker_killed(self):
        pictures = os.path.join(self.folder, "pictures")
        data.write_pictures(pictures)
        marker = os.path.join(self.folder, "killed")

        def dies(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            for count, batch in enumerate(batches):
                if count == 1:
                    data.die_once(marker)
                yield batch

        content = pandas_udf(dies, "binary")("content")
        found = predict_udf(self.model.read_bytes(), self.card)(content).alias("found")
        files = self.spark.read.format("binaryFile").load(pictures)
        rows = files.select("path", found).select("path", "found.classes", "found.error").collect()
        self.assertTrue(os.path.exists(marker), "no worker died")
        rows = [{**row.asDict(), "id": int(pathlib.Path(row["path"]).stem)} for row in rows]
        # Spark's binaryFile omits empty files.
        self.compare(rows, {index: row for index, row in self.expected.items() if data.picture(index)})
        broken = [index for index, (classes, _) in self.expected.items() if classes is None]
        self.assertEqual(broken, [index for index in range(data.COUNT) if data.broken(index)])

    def test_parquet_with_nulls(self):
        table, expected = self.parquet_of(400)
        rows = table.select("id", predict_udf(str(self.model))("photo").alias("f")).select("id", "f.*").collect()
        self.compare(rows, expected)

    def test_two_functions_in_one_query(self):
        table, expected = self.parquet_of(120)
        first = predict_udf(lenslet.Model(self.model.read_bytes()), lenslet.Card(self.card), top=2)
        second = predict_udf(str(self.model), top=1, labels=list("abcdef"))
        rows = table.select("id", first("photo").alias("a"), second("photo").alias("b")).collect()
        for row in rows:
            whole = expected[row["id"]][0]
            self.assertEqual(row["a"].error, row["b"].error)
            if whole is not None:
                self.assertEqual(exact(row["a"].classes), whole[:2])
                self.assertEqual([best.label for best in row["b"].classes], ["abcdef"[whole[0][0]]])

    def test_a_picture_is_computed_once(self):
        """Although a query filters the rows by the result."""
        table, expected = self.parquet_of(80)
        found = table.select("id", predict_udf(str(self.model))("photo").alias("f")).select("id", "f.*")
        good = found.where("error is null")
        plan = good._jdf.queryExecution().executedPlan().toString()
        self.assertEqual(plan.count("ArrowEvalPython"), 1, plan)
        self.compare(good.collect(), {index: row for index, row in expected.items() if row[1] is None})

    def test_sample(self):
        folder = os.path.join(self.folder, "few")
        data.write_pictures(folder, 60)
        command = [sys.executable, "-B", str(data.ROOT / "samples/spark_batch.py"), folder, "--model", str(self.model)]
        environment = {**os.environ, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS, "SPARK_LOCAL_DIRS": self.folder}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=200, cwd=self.folder
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split("\t") for line in done.stdout.splitlines()]
        seen = {int(pathlib.Path(line[0]).stem): line[1:] for line in lines}
        self.assertEqual(seen, data.printed(self.expected, [index for index in range(60) if data.picture(index)]))

    def test_a_model_that_is_none_ends_the_job(self):
        table, _ = self.parquet_of(8)
        with self.assertRaises(Exception) as caught:
            table.select(predict_udf(b"no model", self.card)("photo")).collect()
        self.assertIn("InvalidModelError", str(caught.exception))


@unittest.skipIf(missing, missing)
class WithoutASession(unittest.TestCase):
    def test_what_spark_gives(self):
        task = mock.Mock()
        for cpus, gpu, wanted in ((1, None, ("cpu", 1)), (4, None, ("cpu", 4)), (2, "3", ("cuda:3", 2))):
            task.cpus.return_value = cpus
            task.resources.return_value = {} if gpu is None else {"gpu": mock.Mock(addresses=[gpu])}
            with mock.patch.object(TaskContext, "get", return_value=task):
                self.assertEqual(_assigned(), wanted)
        self.assertEqual(_assigned(), ("auto", 0))


if __name__ == "__main__":
    unittest.main()
