"""Errors that mypy --strict must report: on exactly the marked lines, with that code."""

from __future__ import annotations

from typing import List

import lenslet
from lenslet import backend

model = lenslet.Model(3)  # error: arg-type
lenslet.Model("net.onnx", external="folder")  # error: call-arg
runner = lenslet.Model("net.onnx").runner(threads="two")  # error: arg-type
lenslet.Model("net.onnx").runner(layer_algorithms=["im2col"])  # error: arg-type
runner.inputs = ()  # error: misc
names: List[str] = runner.outputs  # error: assignment
runner.outputs[0].dim  # error: attr-defined
lenslet.classify("photo.jpg")[0].probability  # error: attr-defined
scores: int = lenslet.classify("photo.jpg")[0].label  # error: assignment
lenslet.Classifier(top=5)  # error: call-arg
lenslet.Cancel().wait()  # error: attr-defined
lenslet.image_tiles(9, 9, 4, 4, overlap="1")  # error: arg-type
lenslet.Card("net.card.json").photo_box([1, 2, 3, 4], 9, 9, part="tile")  # error: arg-type
lenslet.Rect(1, 2, 3)  # error: call-arg
backend.prepare("net.onnx")  # error: arg-type
wrong: int = backend.supports_device("CPU").upper()  # error: attr-defined
