"""What a plan, layers, verify and bench return: the dict that the command prints as JSON, shown as a summary and a small
table, in a notebook with bars."""

from __future__ import annotations

import html
import math
from typing import Any, ClassVar, Dict, List, Sequence, Tuple

#: Rows that are shown; `rows` has all.
SHOWN = 20
INFINITE = 1e300


class Table(Dict[str, Any]):
    """A dict whose `rows` are a list of dicts, as pandas.DataFrame takes it; those that matter most are shown first."""

    _list: ClassVar[str]
    _columns: ClassVar[Tuple[str, ...]]
    _weight: ClassVar[str]  # the column that orders rows and has bars

    @property
    def rows(self) -> List[Dict[str, Any]]:
        rows: List[Dict[str, Any]] = self.get(self._list, [])
        return rows

    @property
    def summary(self) -> str:
        """In a line."""
        where = [str(self[key]) for key in ("model", "device", "precision") if key in self]
        if threads := self.get("threads"):
            where.append(f"{threads} thread{'s' if threads != 1 else ''}")
        return ", ".join([*where, *self._totals()])

    def _totals(self) -> List[str]:
        return [f"{len(self.rows)} {self._list}"]

    def _weight_of(self, row: Dict[str, Any]) -> float:
        return _number(row.get(self._weight))

    def _shown(self) -> List[Dict[str, Any]]:
        return sorted(self.rows, key=lambda row: -self._weight_of(row))[:SHOWN]

    def _rest(self) -> str:
        rest = len(self.rows) - SHOWN
        return f"and {rest} more: .rows has all" if rest > 0 else ""

    def __repr__(self) -> str:
        cells = [list(self._columns), *([_text(row.get(key)) for key in self._columns] for row in self._shown())]
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
        return "\n".join([self.summary, *lines, *filter(None, [self._rest()])])

    def _repr_html_(self) -> str:
        rows = self._shown()
        most = max(map(self._weight_of, rows), default=0) or 1
        shares = [self._weight_of(row) / most for row in rows]
        return html_table(self.summary, self._columns, [[row.get(key) for key in self._columns] for row in rows], shares, self._rest())


def html_table(
    summary: str, head: Sequence[str], rows: Sequence[Sequence[Any]], shares: Sequence[float] = (), rest: str = ""
) -> str:
    """For notebooks. `shares`: of each row, a bar behind its cells. Everything may be hostile."""
    heads = "".join(f"<th style='text-align:left'>{html.escape(key)}</th>" for key in head)
    cells = ["".join(f"<td style='text-align:left'><bdi>{html.escape(_text(cell))}</bdi></td>" for cell in row) for row in rows]
    bars = [
        f"<td style='width:10em'><div style='height:.7em;background:#4a86e8;width:{max(0, min(1, _number(share))):.1%}'></div></td>"
        for share in shares
    ] or [""] * len(rows)
    body = "".join(f"<tr>{row}{bar}</tr>" for row, bar in zip(cells, bars))
    before, after = (f"<p>{html.escape(words)}</p>" if words else "" for words in (summary, rest))
    return f"{before}<table><tr>{heads}{'<th></th>' if shares else ''}</tr>{body}</table>{after}"


class Plan(Table):
    """What will run: "steps" in order, each with its algorithm, the reason and all candidates; "memory", "placements"."""

    _list, _weight = "steps", "estimated_us"
    _columns = ("name", "op", "algorithm", "config", "estimated_us", "reason")

    def _totals(self) -> List[str]:
        memory = self.get("memory") or {}
        mib = [f"{name} {memory[key] / 2**20:.1f} MiB" for name, key in
               (("weights", "weight_bytes"), ("packed", "prepared_bytes"), ("activations", "activation_bytes")) if key in memory]  # fmt: skip
        estimate = sum(_number(step.get("estimated_us")) for step in self.rows) / 1000
        return [f"{len(self.rows)} steps", f"estimated {estimate:.3g} ms", *mib]


class Layers(Table):
    """Each layer's time, limit, choice and error."""

    _list, _weight = "layers", "ms"
    _columns = ("name", "op", "algorithm", "ms", "percent_of_floor", "floor_by", "error", "tolerance", "verdict", "reason")

    def _totals(self) -> List[str]:
        ms, floor = (sum(_number(row.get(key)) for row in self.rows) for key in ("ms", "floor_ms"))
        judged = [row["verdict"] == "EXCEEDED" for row in self.rows if row.get("verdict") in ("ok", "EXCEEDED")]
        limits = [f"limit {floor:.3g} ms"] if floor else []
        verdicts = [f"{sum(judged)} of {len(judged)} beyond their tolerance"] if judged else []
        return [f"{len(self.rows)} layers", f"{ms:.3g} ms", *limits, *verdicts]


class Verified(Table):
    """Each layer beside its double-precision reference."""

    _list, _weight = "layers", "error"
    _columns = ("name", "op", "algorithm", "error", "tolerance", "passed")

    def _totals(self) -> List[str]:
        return [f"{self.get(key, 0)} {key}" for key in ("checked", "exceeded", "unchecked", "different")]

    def _weight_of(self, row: Dict[str, Any]) -> float:
        """The error in tolerances: what fails comes first."""
        if row.get("error") == "infinite":
            return INFINITE
        tolerance = _number(row.get("tolerance"))
        return _number(row.get("error")) / tolerance if tolerance else 0


class Timed(Table):
    """Times of whole runs."""

    _list, _weight = "results", "median"
    _columns = ("model", "device", "batch", "threads", "median", "p10", "p90", "percent_of_fma_peak")

    def _shown(self) -> List[Dict[str, Any]]:
        return [{**row, **(row.get("ms") or {})} for row in self.rows[:SHOWN]]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return printable(str(value)[:100])


def printable(text: str) -> str:
    """A name from a model may hold anything: control characters would reach the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
