"""Inputs and outputs."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Tuple, Union

from . import _structs as structs
from ._dtypes import NAMES
from ._library import check, text_of


class Port(NamedTuple):
    """An input or an output.

    ``dtype`` is the name in NumPy ("float32"; in ml_dtypes for "bfloat16" and smaller ones). ``shape`` has a string for
    a free dimension, its name or "", and is None if the rank is unknown before a run. ``unread``: an input that no node
    reads, which is optional.
    """

    name: str
    dtype: str
    shape: Optional[Tuple[Union[int, str], ...]]
    unread: bool = False


def ports_of(ask: Callable[[Any, int, Any], int], handle: Any, count: int) -> Tuple[Port, ...]:
    """The ports that `ask(handle, number, struct)` describes."""
    return tuple(_port_of(ask, handle, number) for number in range(count))


def _port_of(ask: Callable[[Any, int, Any], int], handle: Any, number: int) -> Port:
    given = structs.made(structs.Port)
    check(ask(handle, number, given))
    shape: Optional[Tuple[Union[int, str], ...]] = None
    if given.rank >= 0:
        shape = tuple(
            int(given.dims[i]) if given.dims[i] >= 0 else text_of(given.dim_names[i]) for i in range(given.rank)
        )
    return Port(text_of(given.name), NAMES[given.dtype], shape, bool(given.unread))


def shown(ports: Tuple[Port, ...]) -> str:
    """For people: "x float32[N,3,224,224]"."""
    return ", ".join(
        f"{port.name} {port.dtype}[{'...' if port.shape is None else ','.join(str(dim or '?') for dim in port.shape)}]"
        for port in ports
    )
