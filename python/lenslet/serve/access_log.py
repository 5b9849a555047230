"""One line of JSON for each inference request, written by a separate thread. A slow or full disk loses lines, which are
counted, and delays no request."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from typing import Any, Deque, Dict

#: Maximum number of lines that wait for the disk.
WAITING = 8192
#: Seconds until a file that could not be written is tried again; also the time for the remaining lines at the end.
RETRY_SECONDS, CLOSE_SECONDS = 1.0, 2.0


class AccessLog:
    """Appends to `path`; "-" is standard output."""

    def __init__(self, path: str) -> None:
        """OSError for a file that cannot be opened."""
        self.lost = 0
        self._path = path
        self._lines: Deque[Dict[str, Any]] = deque()
        self._there = threading.Event()
        self._closed = False
        self._file = self._opened()
        self._thread = threading.Thread(target=self._work, name="lenslet-access-log", daemon=True)
        self._thread.start()

    def _opened(self) -> int:
        if self._path == "-":
            return sys.stdout.fileno()
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def write(self, line: Dict[str, Any]) -> None:
        """Called in the event loop's thread."""
        if len(self._lines) >= WAITING:
            self.lost += 1
            return
        self._lines.append(line)
        if not self._there.is_set():
            self._there.set()

    def close(self) -> None:
        self._closed = True
        self._there.set()
        self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        while True:
            self._there.wait()
            self._there.clear()
            while self._lines:
                taken = [self._lines.popleft() for _ in range(min(len(self._lines), 256))]
                text = "".join(json.dumps(line) + "\n" for line in taken)
                if not self._wrote(text.encode()):
                    self.lost += len(taken)
            if self._closed:
                return
            time.sleep(0.05)  # collects several lines

    def _wrote(self, text: bytes) -> bool:
        try:
            if self._path != "-" and not _is(self._file, self._path):  # it was moved, for example by logrotate
                os.close(self._file)
                self._file = self._opened()
            while text:
                text = text[os.write(self._file, text) :]
            return True
        except OSError:
            if not self._closed:
                time.sleep(RETRY_SECONDS)
            return False


def _is(file: int, path: str) -> bool:
    try:
        there, own = os.stat(path), os.fstat(file)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)
