"""`advise`: tries changes one by one, then together, until the run fits; every figure is a run's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from peakmem.advise.knobs import KNOBS, Knob
from peakmem.advise.trials import AT_A_TIME, Trial, Trials
from peakmem.errors import PeakmemError
from peakmem.forecast.model import Forecast, Gpu
from peakmem.units import MIB

TrialOf = Callable[[Sequence[Knob]], Trial | str]
"""The trial with some knobs turned, or why there can't be one."""
Say = Callable[[str], None]

WORTH_IT = MIB
"""A change that saves less is no help: the allocator's segments are at least 2 MiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """One change, tried by itself, or a whole plan. Sizes in bytes.

    Attributes:
        keys: the changes.
        titles: them in words.
        costs: what each costs, in words.
        lines: the lines to change.
        keeps_mathematics: whether the training computes the same.
        used: what the run takes with it where memory is no limit, context included; None: it was not tried.
        allocated: peak of `torch.cuda.max_memory_allocated`; None likewise.
        saving: how much less is used than without it; None likewise.
        fits: whether it ran on the card; None: not tried.
        why_not: why it was not tried or took no effect; empty if it did.
    """

    keys: tuple[str, ...]
    titles: tuple[str, ...]
    costs: tuple[str, ...]
    lines: tuple[str, ...]
    keeps_mathematics: bool
    used: int | None = None
    allocated: int | None = None
    saving: int | None = None
    fits: bool | None = None
    why_not: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advised:
    """The answer of `peakmem advise`. Sizes in bytes.

    Attributes:
        what: the command or the model.
        gpu: the card.
        used: what the run takes as it is, where memory is no limit.
        allocated: its peak of bytes handed out.
        fits_already: whether it runs on the card as it is.
        advices: every change by itself, in the order tried.
        plan: the changes to make, run together on the card; None: nothing that was tried is enough.
        best: where nothing is enough, all that helped together.
        interrupted: the search was stopped.
        seconds: wall time.
        runs: how many runs were made.
    """

    what: str
    gpu: Gpu
    used: int
    allocated: int
    fits_already: bool
    advices: tuple[Advice, ...]
    plan: Advice | None
    best: Advice | None
    interrupted: bool
    seconds: float
    runs: int


class Advising:
    """A search for changes that make a run fit; what is known so far can be taken at any time."""

    def __init__(self, what: str, gpu: Gpu, trial_of: TrialOf, trials: Trials, say: Say, *, alloc_conf: str) -> None:
        self._what = what
        self._gpu = gpu
        self._trial_of = trial_of
        self._trials = trials
        self._say = say
        self._alloc_conf = alloc_conf
        self._started = time.monotonic()
        self._base: Forecast | None = None
        self._fits_already = False
        self._advices: list[Advice] = []
        self._free: dict[tuple[str, ...], Forecast | PeakmemError] = {}
        self._on_card: dict[tuple[str, ...], bool] = {}
        self._plan: Advice | None = None
        self._best: Advice | None = None
        self._done = False
        self.batch_of: Callable[[int], str] = lambda divisor: f"of 1/{divisor} of the size"
        """The batch divided by something, in words."""

    def run(self, *, even_if_it_fits: bool) -> None:
        """Search.

        Raises:
            PeakmemError: the script fails by itself.
        """
        self._say("running it as it is")
        base = self._trial(())
        assert isinstance(base, Trial)
        free, on_card = self._trials.forecasts([replace(base, limited=False), base])
        if isinstance(free, PeakmemError):
            raise free
        if free.error is not None:
            where = f" ({free.error.line})" if free.error.line else ""
            raise PeakmemError(f"the script fails: {free.error.type}: {free.error.message}{where}")
        self._base = free
        self._fits_already = isinstance(on_card, Forecast) and on_card.verdict != "does_not_fit"
        if self._fits_already and not even_if_it_fits:
            self._done = True
            return
        useful = self._singly()
        if not self._fits_already:
            self._together(useful)
        self._done = True

    def result(self) -> Advised | None:
        """What is known by now; None if nothing is."""
        if self._base is None:
            return None
        return Advised(
            what=self._what,
            gpu=replace(self._gpu, usable=self._trials.usable()),
            used=self._base.peak.used,
            allocated=self._base.peak.allocated,
            fits_already=self._fits_already,
            advices=tuple(self._advices),
            plan=self._plan,
            best=self._best,
            interrupted=not self._done,
            seconds=round(time.monotonic() - self._started, 2),
            runs=self._trials.count,
        )

    # ------------------------------------------------------------------ by themselves

    def _singly(self) -> list[Knob]:
        """Try each change alone; those that took effect."""
        tried, useful = [], []
        for knob in KNOBS:
            made = self._trial((knob,))
            if isinstance(made, str):
                self._advices.append(self._advice((knob,), None, why_not=made))
            else:
                tried.append(knob)
        enough: set[str] = set()
        while tried:
            tried = [knob for knob in tried if knob.family not in enough]
            part, tried = tried[:AT_A_TIME], tried[AT_A_TIME:]
            if not part:
                break
            self._say(f"trying {' and '.join(self._title(knob) for knob in part)}")
            self._measure([(knob,) for knob in part])
            for knob in part:
                advice = self._judged((knob,))
                self._advices.append(advice)
                if not advice.why_not:
                    useful.append(knob)
                if advice.fits and knob.divisor > 1:  # an even smaller batch is not needed
                    enough.add(knob.family)
        return useful

    def _judged(self, knobs: tuple[Knob, ...]) -> Advice:
        made = self._free[_keys(knobs)]
        if isinstance(made, PeakmemError):
            return self._advice(knobs, None, why_not=made.message)
        if made.error is not None:
            return self._advice(knobs, None, why_not=f"the script then fails: {made.error.type}: {made.error.message}")
        idle = [row.why_not for row in made.changed if not row.count]
        if idle:
            return self._advice(knobs, None, why_not=idle[0])
        return self._advice(knobs, made)

    def _advice(self, knobs: Sequence[Knob], made: Forecast | None, *, why_not: str = "") -> Advice:
        advice = Advice(
            keys=_keys(knobs),
            titles=tuple(self._title(knob) for knob in knobs),
            costs=tuple(knob.cost for knob in knobs),
            lines=tuple(self._line(knob, knobs) for knob in knobs),
            keeps_mathematics=all(knob.keeps_mathematics for knob in knobs),
            why_not=why_not,
        )
        if made is None or self._base is None:
            return advice
        return replace(
            advice,
            used=made.peak.used,
            allocated=made.peak.allocated,
            saving=self._base.peak.used - made.peak.used,
            fits=self._fits(knobs, made),
        )

    def _title(self, knob: Knob) -> str:
        return knob.title.replace("{batch}", self.batch_of(knob.divisor))

    def _line(self, knob: Knob, knobs: Sequence[Knob]) -> str:
        divisor = 1
        for one in knobs:
            divisor *= one.divisor
        return knob.line.replace("{batch}", self.batch_of(divisor)).replace(
            "{alloc_conf}", ",".join(part for part in (self._alloc_conf, knob.alloc_conf) if part)
        )

    # ------------------------------------------------------------------ together

    def _together(self, useful: Sequence[Knob]) -> None:
        """The first change that is enough, or the changes that are enough together."""
        for knob in useful:
            if self._on_card.get((knob.key,)):
                self._plan = self._judged((knob,))
                if knob.keeps_mathematics:
                    return
                break  # several that keep the mathematics are better than one that does not
        chosen: tuple[Knob, ...] = ()
        single = self._plan
        for knob in useful:
            if single is not None and not knob.keeps_mathematics:
                return
            wider = (*(one for one in chosen if one.family != knob.family), knob)
            self._say(f"trying together: {', '.join(self._title(one) for one in wider)}")
            self._measure([wider])
            advice = self._judged(wider)
            if advice.saving is None or advice.saving < self._saving(chosen) + WORTH_IT:
                continue
            chosen = wider
            self._best = advice
            if advice.fits:
                self._plan = self._judged(self._fewer(chosen))
                return

    def _saving(self, knobs: Sequence[Knob]) -> int:
        made = self._free.get(_keys(knobs))
        if not knobs or self._base is None or not isinstance(made, Forecast):
            return 0
        return self._base.peak.used - made.peak.used

    def _fewer(self, chosen: tuple[Knob, ...]) -> tuple[Knob, ...]:
        """The same without what is not needed, the costliest looked at first."""
        for knob in reversed(chosen[:-1]):
            fewer = tuple(one for one in chosen if one is not knob)
            self._say(f"trying without {self._title(knob)}")
            self._measure([fewer])
            if self._judged(fewer).fits:
                chosen = fewer
        return chosen

    # ------------------------------------------------------------------ runs

    def _trial(self, knobs: Sequence[Knob]) -> Trial | str:
        made = self._trial_of(knobs)
        if isinstance(made, str):
            return made
        added = [knob.alloc_conf for knob in knobs if knob.alloc_conf]
        if not added:
            return made
        return replace(made, alloc_conf=",".join(part for part in (self._alloc_conf, *added) if part))

    def _measure(self, plans: Sequence[tuple[Knob, ...]]) -> None:
        """Run plans where memory is no limit."""
        new = [plan for plan in plans if _keys(plan) not in self._free]
        trials = []
        for plan in list(new):
            made = self._trial(plan)
            if isinstance(made, str):
                self._free[_keys(plan)] = PeakmemError(made)
                new.remove(plan)
            else:
                trials.append(replace(made, limited=False))
        for plan, forecast in zip(new, self._trials.forecasts(trials), strict=True):
            self._free[_keys(plan)] = forecast

    def _fits(self, knobs: Sequence[Knob], made: Forecast) -> bool:
        """Whether it runs on the card: by a run there, unless even what is allocated is more than there is."""
        keys = _keys(knobs)
        if keys not in self._on_card:
            fits = False
            if made.peak.allocated <= self._trials.usable():
                trial = self._trial(knobs)
                assert isinstance(trial, Trial)
                [on_card] = self._trials.forecasts([trial])
                fits = isinstance(on_card, Forecast) and on_card.error is None and on_card.verdict != "does_not_fit"
            self._on_card[keys] = fits
        return self._on_card[keys]


def _keys(knobs: Sequence[Knob]) -> tuple[str, ...]:
    return tuple(knob.key for knob in knobs)
