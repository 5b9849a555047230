"""How long a request would wait for a runner, and whether that is too long.

Under overload an accepted request should wait no longer than the slowest hundredth does at nine tenths of the load. For
random arrivals that is the time of some fourteen images, shared by the runners, plus half an image for each runner;
with many runners, a part of a run's time (tests/serve/forecast_test.py). Active runs count with their remaining time.
If runs take longer than without overload, fewer requests wait, so that answers are as quick.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Tuple

#: Images that may be ahead of a request, plus a number for each runner; or this part of a full run.
AHEAD, AHEAD_OF_RUNNER, PART = 14, 0.5, 0.4
#: Weight of a new run in the estimated time of such runs, and of a request in the share of refused ones.
WEIGHT, SHARE_WEIGHT = 0.1, 0.02
#: Above this share of refused requests the server counts as overloaded.
OVERLOADED = 0.2


class _Known:
    """For one model: seconds of runs by rows, of a row for unseen numbers of rows, and of a full run without
    overload."""

    __slots__ = ("most", "seconds", "row", "quiet")

    def __init__(self, most: int) -> None:
        self.most = most  # rows of a run
        self.seconds: Dict[int, float] = {}
        self.row = self.quiet = 0.0

    def run(self, rows: int) -> float:
        return self.seconds.get(rows) or rows * self.row

    def queue(self, rows: int) -> float:
        """For all runs of that many rows."""
        full, rest = divmod(rows, self.most)
        return full * self.run(self.most) + (self.run(rest) if rest else 0.0)


class Forecast:
    """For `runners` workers. Any hashable key identifies a model. Not thread-safe."""

    def __init__(self, runners: int, most: Dict[Any, int]) -> None:
        """`most`: rows of a run, by model."""
        self._runners = runners
        self._known = {model: _Known(rows) for model, rows in most.items()}
        self._refused = 0.0  # share among the last requests

    def run(self, model: Any, rows: int) -> float:
        """Seconds that a run takes; 0 if unknown."""
        return self._known[model].run(rows)

    def ran(self, model: Any, rows: int, seconds: float) -> None:
        known = self._known[model]
        before = known.seconds.get(rows, seconds)
        if rows not in known.seconds and len(known.seconds) > 64:  # a request may have any number
            known.seconds.pop(next(iter(known.seconds)))
        known.seconds[rows] = before + WEIGHT * (seconds - before)
        known.row = min(each / count for count, each in known.seconds.items())
        if self._refused < OVERLOADED:
            known.quiet += WEIGHT * (known.run(known.most) - known.quiet) if known.quiet else known.run(known.most)

    def too_long(self, model: Any, now: float, running: Iterable[Tuple[Any, float]], waiting: Dict[Any, int],
                 least: float) -> float:  # fmt: skip
        """The seconds that a request would wait, if that is too long and more than `least`; else 0. `running`: each
        run's model and expected end; `waiting`: rows, by model."""
        seconds = longest = 0.0
        for other, end in running:
            seconds += max(0.0, end - now)
            longest = max(longest, self._known[other].quiet)
        for other, rows in waiting.items():
            if rows:
                seconds += self._known[other].queue(rows)
                longest = max(longest, self._known[other].quiet)
        seconds /= self._runners
        known = self._known[model]
        quiet = max(longest, known.quiet)
        # In parts of a full run.
        allowed = max(PART, (AHEAD / self._runners + AHEAD_OF_RUNNER) / known.most) * quiet
        own = known.run(min(known.most, waiting[model] + 1))
        full = known.run(known.most)
        if full > known.quiet:
            allowed -= min(allowed / 2, own * (1 - known.quiet / full))
        found = seconds if seconds > max(least, allowed) else 0.0
        self._refused += SHARE_WEIGHT * ((found > 0) - self._refused)
        return found
