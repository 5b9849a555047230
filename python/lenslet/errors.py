"""What goes wrong: one class for each kind that lenslet tells apart (samples/README.md has the table)."""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """Base of everything that lenslet raises of its own.

    ``str(error)`` is one line that names file and node as far as they are known; ``details`` has a further line for
    each node at fault, where there are several.
    """

    kind: ClassVar[str] = "error"
    details: str

    def __init__(self, message: str, details: str | None = None) -> None:
        super().__init__(message)
        self.details = message if details is None else details

    def __reduce__(self) -> tuple[type[Error], tuple[str, str]]:
        return type(self), (str(self.args[0]), self.details)

    def __str__(self) -> str:  # OSError's would be empty
        return str(self.args[0])


class InvalidArgumentError(Error, ValueError):
    """You asked for something that makes no sense: a shape, an option, a card that does not fit the model."""

    kind = "invalid argument"


class InvalidModelError(Error):
    """A model file that is damaged or contradicts itself."""

    kind = "invalid model"


class UnsupportedError(Error):
    """Well-formed, but lenslet does not do it."""

    kind = "unsupported"


class InvalidImageError(Error):
    """A picture that is damaged or of a refused kind."""

    kind = "invalid image"


class FileError(Error, OSError):
    """A file that cannot be opened, read or written."""

    kind = "input/output"


class LimitError(Error):
    """A published limit (docs/limits.md) is exceeded, or memory is short."""

    kind = "limit"


class DeviceError(Error):
    """An accelerator, its driver or its library failed, or cannot be used."""

    kind = "device"


class InternalError(Error):
    """A broken invariant of lenslet: please report it."""

    kind = "internal"


class CancelledError(Error):
    """You asked for the end of the run (Cancel, or an observer that returned True)."""

    kind = "cancelled"


class CardWarning(UserWarning):
    """A model card that was guessed, or that contradicts the model's graph; in the command's words."""


# By lenslet_status (lenslet/lenslet.h).
BY_STATUS: dict[int, type[Error]] = {
    1: InvalidArgumentError,
    2: InvalidModelError,
    3: UnsupportedError,
    4: InvalidImageError,
    5: FileError,
    6: LimitError,
    7: DeviceError,
    8: InternalError,
    9: CancelledError,
}


def stays_here(what: str, instead: str) -> UnsupportedError:
    """What to raise where somebody pickles or copies what belongs to this process."""
    return UnsupportedError(f"a {what} is of this process, and is not pickled or copied: {instead}")
