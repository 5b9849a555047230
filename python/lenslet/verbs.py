"""Verbs of the command for a Model, as objects. Each runs the command in a separate process, which prints JSON."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type, Union

import numpy as np

from .errors import (
    DeviceError,
    Error,
    FileError,
    InternalError,
    InvalidArgumentError,
    UnsupportedError,
)

# By exit code (`lenslet --help`). 3 means that the model cannot run; since this one was loaded, it exceeds a limit.
_BY_EXIT: Dict[int, Type[Error]] = {
    1: Error,
    2: InvalidArgumentError,
    3: UnsupportedError,
    4: FileError,
    5: DeviceError,
    6: InternalError,
}

# Arguments whose options have another name.
_OPTIONS = {"algorithm": "conv-algorithm"}


def _arguments(how: Mapping[str, Any], folder: pathlib.Path) -> List[str]:
    made: List[str] = []
    for name, value in how.items():
        option = "--" + _OPTIONS.get(name, name).replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            made.append(option)
        elif name == "shapes":
            made += [f"--shape={port}={'x'.join(map(str, dims))}" for port, dims in value.items()]
        elif name == "layer_algorithms":
            made += [f"--conv-algorithm={layer}={algorithm}" for layer, algorithm in value.items()]
        elif name in ("photos", "keep", "skip_op"):
            made += [f"{option}={each}" for each in ([value] if isinstance(value, (str, os.PathLike)) else value)]
        elif name == "samples":
            for number, array in enumerate(value):
                file = folder / f"sample-{number}.npy"
                np.save(file, np.asarray(array))
                made.append(f"--inputs={file}")
        elif name == "inputs":
            for number, (port, array) in enumerate(value.items()):
                file = folder / f"input-{number}.npy"
                np.save(file, np.asarray(array))
                made.append(f"--input={port}={file}")
        elif isinstance(value, (list, tuple)):
            made.append(f"{option}={','.join(map(str, value))}")
        else:
            made.append(f"{option}={value}")
    return made


def run(
    verb: str, model: Optional[bytes], path: Optional[str], external_data_dir: Any, how: Mapping[str, Any]
) -> Dict[str, Any]:
    """`how` are the verb's options, "_" for "-". Without an Error in the output the exit code selects its kind."""
    if external_data_dir is not None:
        raise UnsupportedError(f"{verb} reads weights beside the model's file only")
    with tempfile.TemporaryDirectory(prefix="lenslet-") as made:
        folder = pathlib.Path(made)
        if model is not None:
            path = str(folder / "model.onnx")
            pathlib.Path(path).write_bytes(model)
        done = _command(verb, "--json", *_arguments(how, folder), "--", str(path))
    if done.stdout.strip():
        result: Dict[str, Any] = json.loads(done.stdout.decode("utf-8", "replace"))
        return result
    raise _error_of(done)


def _command(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "lenslet", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)


def _error_of(done: "subprocess.CompletedProcess[bytes]") -> Error:
    words = done.stderr.decode("utf-8", "replace").strip()
    start = words.rfind("lenslet: error: ")
    message = words[start + len("lenslet: error: ") :] if start >= 0 else words or f"exit code {done.returncode}"
    return _BY_EXIT.get(done.returncode, InternalError)(message.partition("\n")[0], message)


def quantize(model: Any, output: Any, *, photos: Any = None, samples: Any = None, **how: Any) -> List[Dict[str, Any]]:
    """Writes a copy of the file `model` with 8-bit weights and values as `output`: ``lenslet quantize``.

    `photos` (a folder, or a list of folders and photos) or `samples` (arrays, each an input) say what values to expect.
    `how` are the verb's options: `method`, `budget`, `keep` (a list), `card` ... Returns the rows of its table, for
    pandas: each layer's "name", "op", "error" if it alone is quantised, "snr_db", and the "form" in which it is written.
    After an interrupt the same call goes on where it was.
    """
    given = {"output": os.fspath(output), "photos": photos, "samples": samples, **how}
    rows: List[Dict[str, Any]] = run("quantize", None, os.fspath(model), None, given)["layers"]
    return rows


Files = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


def report(models: Files, output: Union[str, "os.PathLike[str]"], **how: Any) -> None:
    """Writes a page about one or several model files, or JSON of earlier runs, as `output`: ``lenslet report``. `how` are
    the verb's options: `precision` (one or a list), `device`, `threads`, `batch`, `seconds` ..."""
    files = [models] if isinstance(models, (str, os.PathLike)) else models
    given = [os.fspath(file) for file in files]
    options = _arguments({"output": os.fspath(output), **how}, pathlib.Path())
    done = _command("report", *options, "--", *given)
    if done.returncode != 0:
        raise _error_of(done)
