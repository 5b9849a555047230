"""The graphs that differential.py draws (drawer.py), their operators (drawing.py has the tools for these), and the
excluded cases (exclusions.py)."""

from . import contrib, elementwise, layers, moves
from .drawer import OPSETS, Drawer
from .drawing import OPERATORS
from .exclusions import EXACT, EXCLUSIONS, SHAPED_BY_FLOATS, excluded
from .graph import Graph, Refused, compute
from .permuted import PermutedDrawer

PARTS = (contrib, elementwise, layers, moves)  # importing them fills OPERATORS

__all__ = ["EXACT", "EXCLUSIONS", "OPERATORS", "OPSETS", "PARTS", "SHAPED_BY_FLOATS", "Drawer", "Graph", "PermutedDrawer",
           "Refused", "compute", "excluded"]  # fmt: skip
