"""A user's program, in which mypy --strict finds no error. It is checked, not run."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

import lenslet
import numpy as np
from lenslet import backend
from onnx import ModelProto, NodeProto


def best(files: List[str]) -> Dict[str, str]:
    classifier = lenslet.Classifier("net.onnx", device="cpu", threads=2, batch=8)
    found: Dict[str, str] = {}
    for file, result in zip(files, classifier.classify_each(files, top=1)):
        if isinstance(result, lenslet.Error):
            found[file] = f"{result.kind}: {result}"
        else:
            found[file] = f"{result[0].label.upper()} {result[0].prob * 100:.1f} {result[0].index + 1}"
    return found


def many(files: List[str]) -> List[str]:
    lines = []
    for photo in lenslet.classify_many(files, devices=["cpu"], in_order=False):
        why = "" if photo.error is None else photo.error.kind
        lines.append(f"{photo.name} {photo.index + 1} {why or photo.classes[0].label.upper()} {photo.device}")
    named = lenslet.classify_many((name, b"") for name in files)
    next(named)
    named.close()
    return lines


def scores(model: lenslet.Model, image: bytes) -> List[lenslet.Prediction]:
    card = lenslet.Card.of(model)
    x: np.ndarray[Tuple[int, ...], np.dtype[np.float32]] = card.prepare(image)[np.newaxis]
    port = model.inputs[0]
    shape: Optional[Tuple[Union[int, str], ...]] = port.shape
    with model.runner(shapes={port.name: x.shape}, other_shapes=2) as runner:
        assert shape is None or len(shape) == x.ndim
        return card.top(runner(x), 3)


def detections(card: lenslet.Card, photo: np.ndarray[Any, np.dtype[np.uint8]]) -> List[lenslet.Rect]:
    height, width = photo.shape[:2]
    tiles = lenslet.image_tiles(height, width, card.height, card.width, overlap=96)
    for tile in tiles:
        card.prepare(photo[tile.slices])
        boxes: np.ndarray[Tuple[int, ...], np.dtype[np.float32]] = card.photo_box([[0, 0, 1, 1]], height, width, tile)
        assert boxes[0, 0] == card.photo_box((0.5, 0, 1, 1), height, width)[0] + tile.left
    return tiles


def objects(photo: bytes) -> Dict[str, float]:
    detector = lenslet.Detector("yolo.onnx", labels=["cat", "dog"], device="cpu", threads=1)
    found: List[lenslet.Detection] = detector.detect(photo, threshold=0.5, iou=0.5, top=3, tile_overlap=96)
    return {one.label: (one.right - one.left) * (one.bottom - one.top) * one.score for one in found if one.index > 0}


def stop(runner: lenslet.Runner, x: object) -> bool:
    cancel = lenslet.Cancel()

    def slow(event: lenslet.LayerEvent) -> Optional[bool]:
        return event.ms > 100

    runner.observe(slow)
    cancel.request()
    try:
        runner(x, cancel=cancel)
    except (lenslet.CancelledError, lenslet.DeviceError) as error:
        return error.kind == "cancelled" and bool(error.details)
    return False


def tuned(model: lenslet.Model, x: np.ndarray[Tuple[int, ...], np.dtype[np.float32]]) -> str:
    how = {step["name"]: "im2col" for step in model.plan(threads=1)["steps"] if step["op"] == "Conv"}
    runner = model.runner(layer_algorithms=how, strict=True, disabled_passes=["fold_pad"], calibration={"x": x})
    runner = model.runner(input_values={"shape": np.array([2, 3])}, calibration=[x])
    card = lenslet.Card.of(model)
    return f"{runner.device} {card.found_by.upper()} {card.path or ''}"


def through_onnx(model: ModelProto, node: NodeProto) -> int:
    x = np.zeros([1, 3], np.float32)
    rep: backend.LensletRep = backend.prepare(model, "CPU", threads=1)
    outputs: Tuple[object, ...] = rep.run([x])
    if backend.supports_device("CUDA") and backend.is_compatible(model):
        outputs += backend.run_model(model, [x], "CUDA")
    return len(outputs + backend.run_node(node, [x]))


for prediction in lenslet.classify("photo.jpg", top=5, threads=0):
    print(prediction.label, lenslet.__version__)
