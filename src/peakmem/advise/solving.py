"""`solve`: the largest value that fits a card, and the smallest card that a run fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from peakmem.advise.bends import bends
from peakmem.advise.model import Attempt, Solved, attempt_of
from peakmem.advise.searching import Point, Search
from peakmem.advise.trials import Trial, Trials
from peakmem.advise.varying import Vary
from peakmem.errors import PeakmemError
from peakmem.forecast.model import Forecast, Gpu
from peakmem.vgpu.catalogue import Device

TrialOf = Callable[[int], Trial]
"""The trial of a value."""
Say = Callable[[str], None]


class Solving:
    """A search for the largest value; what is known so far can be taken at any time.

    Args:
        what: the command or the model, for print.
        vary: what is varied.
        trial_of: the trial of a value.
        trials: makes them.
        device: the card.
        say: shows what is being done.
    """

    def __init__(self, what: str, vary: Vary, trial_of: TrialOf, trials: Trials, device: Device, say: Say) -> None:
        self._what = what
        self._vary = vary
        self._trial_of = trial_of
        self._trials = trials
        self._device = device
        self._say = say
        self._started = time.monotonic()
        self._attempts: dict[int, Attempt] = {}
        self._wanted: Attempt | None = None
        self._certain = False
        self._search = Search(vary.values, self._measure, trials.usable)

    def run(self) -> None:
        """Search, then see what the next value would want.

        Raises:
            PeakmemError: the script fails by itself at the smallest value.
        """
        self._search.run()
        following = self._search.following()
        self._certain = True
        if following is not None and self._attempts[following].oom is not None:
            self._say(f"{following} does not fit; running it without a limit, to say what it would take")
            self._wanted = self._unlimited(following)

    def result(self) -> Solved:
        """What is known by now."""
        largest = self._search.largest()
        attempts = tuple(self._attempts[value] for value in sorted(self._attempts))
        islands = [a.value for a in attempts if largest is not None and not a.fits and a.value < largest]
        device = self._device
        return Solved(
            what=self._what,
            name=self._vary.name,
            lowest=self._vary.values[0],
            highest=self._vary.values[-1],
            gpu=Gpu(
                name=device.name,
                total=device.total_memory,
                compute_capability=device.capability,
                usable=self._trials.usable(),
            ),
            largest=largest,
            following=self._search.following(),
            attempts=attempts,
            wanted=self._wanted,
            bends=bends([*attempts, *([self._wanted] if self._wanted else [])]),
            islands=tuple(islands),
            interrupted=not self._certain,
            seconds=round(time.monotonic() - self._started, 2),
            runs=self._trials.count,
        )

    def _measure(self, values: Sequence[int]) -> list[Point]:
        self._say(f"{self._so_far()}trying {' and '.join(f'{value:,}' for value in values)}")
        for value, made in zip(
            values, self._trials.forecasts([self._trial_of(value) for value in values]), strict=True
        ):
            self._attempts[value] = self._attempt(value, made)
        return [self._point(self._attempts[value]) for value in values]

    def _so_far(self) -> str:
        largest = self._search.largest()
        return f"{self._vary.name} {largest:,} fits; " if largest is not None else ""

    def _attempt(self, value: int, made: Forecast | PeakmemError) -> Attempt:
        first = value == self._vary.values[0]
        if isinstance(made, PeakmemError):
            if first:
                raise made
            return Attempt(value=value, fits=False, peak=None, error=made.message)
        attempt = attempt_of(value, made, limited=True)
        if attempt.error is not None and first:
            where = f" ({made.error.line})" if made.error and made.error.line else ""
            raise PeakmemError(f"with {self._vary.name} {value} the script fails: {attempt.error}{where}")
        return attempt

    @staticmethod
    def _point(attempt: Attempt) -> Point:
        if not attempt.fits or attempt.peak is None:
            return Point(fits=False)
        return Point(fits=True, allocated=attempt.peak.allocated, reserved=attempt.peak.reserved)

    def _unlimited(self, value: int) -> Attempt | None:
        trial = self._trial_of(value)
        [made] = self._trials.forecasts([_without_limit(trial)])
        return None if isinstance(made, PeakmemError) else attempt_of(value, made, limited=False)


def _without_limit(trial: Trial) -> Trial:
    from dataclasses import replace

    return replace(trial, limited=False)
