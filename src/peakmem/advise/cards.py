"""The smallest card of the catalogue that a run fits; each card is tried, since kernels depend on it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from peakmem.advise.model import Attempt, attempt_of
from peakmem.advise.solving import Say
from peakmem.advise.trials import Trial, Trials
from peakmem.errors import PeakmemError
from peakmem.vgpu.catalogue import Device

FAILURES_BELOW = 3
"""How many of the next smaller cards must have failed: another architecture may need less than its neighbour."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CardTried:
    """A card and what became of the run on it.

    Attributes:
        name: the shortest name that finds it in the catalogue.
        full_name: as PyTorch prints it.
        total: its memory, bytes.
        compute_capability: "8.6".
        attempt: the run; its value is the rank of the card by memory.
    """

    name: str
    full_name: str
    total: int
    compute_capability: str
    attempt: Attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallestCard:
    """The answer.

    Attributes:
        what: the command or the model.
        wanted: bytes used where memory is no limit.
        smallest: the smallest card that it ran on; None: there is none.
        tried: all cards that were tried, the smallest first.
        passed_over: cards of the catalogue that the PyTorch at hand has no kernels for.
        interrupted: the search was stopped.
        seconds: wall time.
        runs: how many runs were made.
    """

    what: str
    wanted: int | None
    smallest: CardTried | None
    tried: tuple[CardTried, ...]
    passed_over: int
    interrupted: bool
    seconds: float
    runs: int


class CardSearch:
    """A search for the smallest card; what is known so far can be taken at any time."""

    def __init__(self, what: str, trial: Trial, trials: Trials, cards: Sequence[Device], say: Say) -> None:
        self._what = what
        self._trial = trial
        self._trials = trials
        self._all = len(cards)
        self._cards = sorted(cards, key=lambda card: (card.total_memory, card.name))
        self._say = say
        self._started = time.monotonic()
        self._tried: dict[int, CardTried] = {}
        self._wanted: int | None = None
        self._certain = False

    def run(self) -> None:
        """Find it.

        Raises:
            PeakmemError: the run fails by itself.
        """
        self._say("running without a limit, to see what it wants")
        free = self._trials.forecast(replace(self._trial, limited=False))
        if free.error is not None:
            raise PeakmemError(f"the script fails: {free.error.type}: {free.error.message}")
        self._wanted = free.peak.used
        supported = self._trials.architectures
        self._cards = [card for card in self._cards if supports(supported, card)]
        self._climb(next((i for i, c in enumerate(self._cards) if c.total_memory >= self._wanted), len(self._cards)))
        self._certain = True

    def _climb(self, start: int) -> None:
        """From the first card that is large enough by the figures, up until one fits, then down until none does."""
        place = start
        while place < len(self._cards) and not self._fits(place, place + 1):
            place += 1
        lowest = self._lowest()
        below = (lowest if lowest is not None else len(self._cards)) - 1
        failures = 0
        while below >= 0 and failures < FAILURES_BELOW:
            if self._fits(below, below - 1):
                failures = 0
            else:
                failures += 1
            below -= 1

    def _lowest(self) -> int | None:
        return min((place for place, card in self._tried.items() if card.attempt.fits), default=None)

    def _fits(self, place: int, likely_next: int) -> bool:
        """Whether a card fits; the one that is likely to be asked for next is run beside it."""
        places = [p for p in (place, likely_next) if 0 <= p < len(self._cards) and p not in self._tried]
        if place in places:
            names = " and ".join(self._cards[p].short_name for p in places)
            self._say(f"trying {names}")
            trials = [replace(self._trial, device=self._cards[p]) for p in places]
            for p, made in zip(places, self._trials.forecasts(trials), strict=True):
                card = self._cards[p]
                if isinstance(made, PeakmemError):
                    attempt = Attempt(value=p, fits=False, peak=None, error=made.message)
                else:
                    attempt = attempt_of(p, made, limited=True)
                self._tried[p] = CardTried(
                    name=card.short_name,
                    full_name=card.name,
                    total=card.total_memory,
                    compute_capability=card.capability,
                    attempt=attempt,
                )
        return self._tried[place].attempt.fits

    def result(self) -> SmallestCard:
        """What is known by now."""
        lowest = self._lowest()
        return SmallestCard(
            what=self._what,
            wanted=self._wanted,
            smallest=None if lowest is None else self._tried[lowest],
            tried=tuple(self._tried[place] for place in sorted(self._tried)),
            passed_over=self._all - len(self._cards),
            interrupted=not self._certain,
            seconds=round(time.monotonic() - self._started, 2),
            runs=self._trials.count,
        )


def supports(architectures: Sequence[str], card: Device) -> bool:
    """Whether a PyTorch built for these architectures (`sm_80`, `compute_90`, ...) has kernels for a card.

    Kernels run on cards of the same major compute capability and the same or a higher minor one; `compute_` is code
    that the driver can compile for any later card (CUDA C++ Programming Guide, "Binary Compatibility", "PTX
    Compatibility"). Nothing is left out if the architectures are not known.
    """
    if not architectures:
        return True
    major, minor = card.compute_capability
    for text in architectures:
        kind, _, digits = text.partition("_")
        number = "".join(letter for letter in digits if letter.isdigit())
        if not number:
            continue
        built = (int(number[:-1]), int(number[-1]))
        only_this = digits != number  # sm_90a and its like run on that card alone
        if kind == "compute" and built <= (major, minor) and not only_this:
            return True
        if kind == "sm" and built[0] == major and (built[1] == minor if only_this else built[1] <= minor):
            return True
    return False
