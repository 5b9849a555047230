"""`lenslet serve MODEL...`: models over the Open Inference Protocol. `pip install 'lenslet-runtime[serve]'`.

Nothing here is imported by lenslet itself.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import List

#: The packages of `lenslet-runtime[serve]`, by import name.
WANTED = ("httptools", "grpc", "google.protobuf", "prometheus_client")


def _missing() -> List[str]:
    found = []
    for name in WANTED:
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:  # for "google"
            spec = None
        if spec is None:
            found.append(name)
    return found


def main(arguments: List[str]) -> int:
    """Serves until SIGTERM or SIGINT. The exit code (`lenslet --help` lists them)."""
    from .options import parsed

    options = parsed(arguments)
    missing = _missing()
    if missing:
        print(f"lenslet serve: error: no {', '.join(missing)} here: pip install 'lenslet-runtime[serve]'", file=sys.stderr)
        return 2
    from .start import start

    return start(options)
