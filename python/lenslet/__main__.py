"""The command: `lenslet` and `python -m lenslet`."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from typing import Dict, List, NoReturn, Optional

# Verbs implemented in Python: modules with main(arguments) -> exit code. All others belong to the native command.
PYTHON_VERBS: Dict[str, str] = {
    "fetch": "lenslet.fetch",
    "serve": "lenslet.serve",
}


def _native(arguments: List[str]) -> NoReturn:
    from ._library import library

    # Python's handler would only record a Ctrl-C until the command returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    encoded = [b"lenslet", *(os.fsencode(argument) for argument in arguments)]
    code = library.lenslet_command(len(encoded), (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None))
    sys.stdout.flush()
    os._exit(code)  # ends like the native command, without Python's cleanup


def main(arguments: Optional[List[str]] = None) -> int:
    """The verb's exit code; does not return from a native one."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in PYTHON_VERBS:
        return int(importlib.import_module(PYTHON_VERBS[given[0]]).main(given[1:]))
    _native(given)


if __name__ == "__main__":
    sys.exit(main())
