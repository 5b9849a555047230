"""The operators that differential.py draws (drawing.py says how), and what it leaves out (exclusions.py)."""

from . import elementwise, layers, moves  # noqa: F401  (they fill OPERATORS)
from .drawing import OPERATORS, Redraw
from .exclusions import EXACT, EXCLUSIONS, SHAPED_BY_FLOATS, excluded

__all__ = ["EXACT", "EXCLUSIONS", "OPERATORS", "Redraw", "SHAPED_BY_FLOATS", "excluded"]
