"""Code that the test of Ray runs in its workers, which import it by this name."""

import os

import pyarrow as pa

from cluster_data import die_once
from lenslet.ray import Predictor, _assigned


class Worker(Predictor):
    """Reports who computed a row with how many threads; with a marker, the first worker at its third batch dies."""

    def __init__(self, *arguments, marker=None, **named):
        super().__init__(*arguments, **named)
        self.marker, self.calls = marker, 0

    def __call__(self, batch):
        self.calls += 1
        if self.marker and self.calls == 3:
            die_once(self.marker)
        table = super().__call__(batch)
        device, threads = _assigned()
        table = table.append_column("pid", pa.array([os.getpid()] * len(table), pa.int64()))
        return table.append_column("assigned", pa.array([f"{device} {threads}"] * len(table), pa.string()))
