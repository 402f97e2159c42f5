"""The search for the largest value that fits, on curves that are known."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakmem.advise.searching import Point, Search
from peakmem.advise.varying import Vary
from peakmem.errors import PeakmemError

GIB = 2**30


class Card:
    """A card on which need is a known function of the value; `fits` may say more than the need does."""

    def __init__(self, usable, need, fits=None):
        self.usable = usable
        self.need = need
        self.fits = fits or (lambda value: need(value) <= usable)
        self.rounds = []

    def measure(self, values):
        assert 1 <= len(values) <= 2
        self.rounds.append(tuple(values))
        return [
            Point(fits=True, allocated=int(self.need(v) * 0.9), reserved=min(self.need(v), self.usable))
            if self.fits(v)
            else Point(fits=False)
            for v in values
        ]

    def search(self, values):
        search = Search(values, self.measure, lambda: self.usable)
        search.run()
        return search


def test_a_straight_line_takes_few_rounds():
    card = Card(24 * GIB, lambda batch: GIB + batch * 87_654_321)
    search = card.search(range(1, 513))
    assert search.largest() == (23 * GIB) // 87_654_321
    assert search.known[search.values.index(search.following())].fits is False
    assert len(card.rounds) <= 6


def test_the_end_of_the_range_is_an_answer():
    search = Card(80 * GIB, lambda batch: batch * 1000).search(range(1, 65))
    assert (search.largest(), search.following()) == (64, None)


def test_nothing_fits():
    search = Card(GIB, lambda batch: 2 * GIB).search(range(4, 65))
    assert (search.largest(), search.following()) == (None, 4)


def test_a_cliff_is_found_to_the_value():
    card = Card(24 * GIB, lambda side: side * 35_000_000 + (110 * GIB if side >= 362 else 0))
    search = card.search(range(8, 1025))
    assert (search.largest(), search.following()) == (361, 362)


def test_a_quadratic_is_found():
    card = Card(24 * GIB, lambda tokens: tokens * 3_000_000 + tokens**2 * 700)
    search = card.search(range(64, 16385, 64))
    best = search.largest()
    assert card.fits(best) and not card.fits(best + 64)
    assert len(card.rounds) <= 9


def test_a_larger_value_that_fits_again_is_found():
    # A plan that wants a workspace unless the batch is a multiple of 8.
    card = Card(10_000, lambda batch: batch * 100 + (900 if batch % 8 else 0))
    search = card.search(range(1, 200))
    assert search.largest() == 96
    assert not search.known[search.values.index(97)].fits


def test_memory_given_back_lets_more_fit_than_the_reserved_line_says():
    card = Card(24 * GIB, lambda batch: batch * 100_000_000, fits=lambda batch: batch * 90_000_000 <= 24 * GIB)
    assert card.search(range(1, 2049)).largest() == 24 * GIB // 90_000_000


def test_a_flat_start_does_not_leap_far():
    card = Card(24 * GIB, lambda batch: max(2 * GIB, batch * 1_000_000))
    card.search(range(1, 1_000_000))
    assert max(card.rounds[1]) <= 32 * max(card.rounds[0])


def test_what_is_known_can_be_read_after_an_interruption():
    class Interrupted(Card):
        def measure(self, values):
            if len(self.rounds) == 2:
                raise KeyboardInterrupt
            return super().measure(values)

    card = Interrupted(24 * GIB, lambda batch: batch * 87_654_321)
    search = Search(range(1, 513), card.measure, lambda: card.usable)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert search.largest() is not None and card.fits(search.largest())


@given(
    steps=st.lists(st.integers(0, 5_000_000), min_size=2, max_size=300),
    usable=st.integers(1_000_000, 400_000_000),
)
def test_on_any_rising_curve_the_answer_is_the_last_that_fits(steps, usable):
    needs = [sum(steps[: i + 1]) for i in range(len(steps))]
    search = Card(usable, lambda value: needs[value - 1]).search(range(1, len(needs) + 1))
    assert (search.largest() or 0) == bisect_right(needs, usable)


@given(fits=st.lists(st.booleans(), min_size=1, max_size=120))
def test_on_any_curve_at_all_the_answer_fits_and_the_next_does_not(fits):
    card = Card(1000, lambda value: value, fits=lambda value: fits[value])
    search = card.search(range(len(fits)))
    best, following = search.largest(), search.following()
    if best is None:
        assert not fits[0]
        return
    assert fits[best] and search.known[best].fits
    assert following is None or (following == best + 1 and not fits[following])
    seen = [value for values in card.rounds for value in values]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("batch=1..4", [1, 2, 3, 4]),
        ("tokens=64..256:64", [64, 128, 192, 256]),
        ("n=3..40:powers", [4, 8, 16, 32]),
        ("env:B=2..2", [2]),
    ],
)
def test_vary_is_read(text, values):
    assert list(Vary.parse(text).values) == values


@pytest.mark.parametrize("text", ["batch", "batch=4..1", "b=1..2:0", "b=1..2:x", "b=5..7:powers", "=1..2", "b=-1..2"])
def test_what_is_no_vary_is_refused_with_an_example(text):
    with pytest.raises(PeakmemError) as caught:
        Vary.parse(text)
    assert "--vary" in caught.value.hint
