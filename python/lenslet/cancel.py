"""Ends runs from any thread."""

from __future__ import annotations

import ctypes
from typing import NoReturn

from ._library import Handle, check, library
from .errors import stays_here


class Cancel:
    """Pass one to ``runner(..., cancel=...)``; `request` ends such runs, now or later, with CancelledError.

    It works for any number of runs, also concurrent ones, and cannot be reset: make one for each request. On CUDA a
    network is one launch, which cannot be stopped.
    """

    def __init__(self) -> None:
        self._handle = Handle()
        check(library.lenslet_cancel_create(ctypes.byref(self._handle)))

    def request(self) -> None:
        check(library.lenslet_cancel_request(self._handle))

    def __reduce__(self) -> NoReturn:
        raise stays_here("Cancel", "it reaches the threads of this process")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.lenslet_cancel_free(self._handle)
