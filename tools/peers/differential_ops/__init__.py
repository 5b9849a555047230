"""The operators that differential.py draws (drawing.py says how), and what it leaves out (exclusions.py)."""

from . import elementwise, layers, moves
from .drawing import OPERATORS, Redraw
from .exclusions import EXACT, EXCLUSIONS, SHAPED_BY_FLOATS, excluded

PARTS = (elementwise, layers, moves)  # importing them fills OPERATORS

__all__ = ["EXACT", "EXCLUSIONS", "OPERATORS", "PARTS", "Redraw", "SHAPED_BY_FLOATS", "excluded"]
