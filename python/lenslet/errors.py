"""Errors: one class for each kind that lenslet distinguishes (samples/README.md has the table)."""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """Base of all errors that lenslet raises.

    ``str(error)`` is one line that names file and node if known; ``details`` has a line for each of several invalid
    nodes.
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
    """An argument makes no sense: a shape, an option, a card that does not match the model."""

    kind = "invalid argument"


class InvalidModelError(Error):
    """A model file that is damaged or contradicts itself."""

    kind = "invalid model"


class UnsupportedError(Error):
    """The model is valid, but lenslet does not support it."""

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
    """An internal invariant is broken: please report it."""

    kind = "internal"


class CancelledError(Error):
    """The caller ended the run (Cancel, or an observer that returned True)."""

    kind = "cancelled"


class CardWarning(UserWarning):
    """A model card was guessed, or contradicts the model's graph; the text is the command's."""


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
    """The error for pickling or copying objects that belong to this process."""
    return UnsupportedError(f"a {what} is of this process, and is not pickled or copied: {instead}")
