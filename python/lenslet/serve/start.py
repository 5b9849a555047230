"""Loads and plans the command line's models and runs the server; an error is one line and an exit code."""

from __future__ import annotations

import os
import sys

import lenslet

from .options import Options
from .protocol import quoted
from .repository import Repository, RunnerOptions, ServedModel, named

#: The command's exit codes (`lenslet --help`).
EXIT_CODES = (
    (lenslet.InvalidArgumentError, 2),
    (lenslet.FileError, 4),
    (lenslet.DeviceError, 5),
    (lenslet.InternalError, 6),
)


def start(options: Options) -> int:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # we report a port in use in one line
    try:
        from .server import run  # gRPC reads its environment when imported

        repository = _loaded(options)
        run(options, repository)
    except lenslet.Error as error:
        return _failed(str(error), next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 3))
    except ValueError as error:
        return _failed(str(error), 2)
    except OSError as error:
        return _failed(error.strerror or str(error), 4)
    return 0


def _failed(line: str, code: int) -> int:
    print("lenslet serve: error: " + " ".join(line.split()), file=sys.stderr)
    return code


def _loaded(options: Options) -> Repository:
    """ValueError for invalid names, lenslet.Error for a model."""
    files = {}
    for argument in options.models:
        name, path = named(argument)
        if name in files:
            raise ValueError(f"two models are named {quoted(name)}: NAME=FILE names them")
        files[name] = path
    for name in (*options.cards, *options.shapes):
        if name and name not in files:
            raise ValueError(f"no model is named {quoted(name)}")
    how = RunnerOptions(options.device, options.precision, options.threads, options.max_batch)
    repository = Repository()
    for name, path in files.items():
        card = options.cards.get(name, options.cards.get(""))
        shapes = options.shapes.get(name, options.shapes.get("", {}))
        served = ServedModel(name, path, card, shapes, how)
        repository.add(served)
        print(f"lenslet: {name}: {_about(served)}", flush=True)
    return repository


def _about(served: ServedModel) -> str:
    parts = []
    if not served.fixed:
        parts.append("any shape, a request at a time (--shape fixes it)")
    else:
        batches = f"batches of up to {served.sizes[0]}" if served.batchable else "a request at a time"
        parts.append(f"{served.device}, {batches}")
    if served.card is not None:
        how = f" ({served.guess}: --card says otherwise)" if served.guess else ""
        parts.append(f"pictures: {served.card.preparation}{how}")
    return "; ".join(parts)
