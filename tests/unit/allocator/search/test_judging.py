"""What is said of a search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.replay_traces import GIB, MIB

from peakmem.allocator.replay.model import Curve, Floor, RanOut, Replayed
from peakmem.allocator.search import Candidate, Found, Outcome, Tried, judge
from peakmem.report.tuning import growth, verdict


def replayed(conf: str, reserved: float, active: float, *, capacity: float | None = None, retries: int = 0) -> Replayed:
    short = capacity is not None and reserved > capacity
    curve = np.linspace(reserved * GIB / 2, reserved * GIB, 240).astype("i8")
    return Replayed(
        alloc_conf=conf, torch="2.14.1", capacity=None if capacity is None else int(capacity * GIB), exact_start=False,
        reserved=int(reserved * GIB), active=int(active * GIB), stranded=int((reserved - active) * GIB), at=0,
        most_stranded=0, end_reserved=0, segments=1, device_allocs=1, retries=retries,
        ran_out=RanOut(event=3, requested=MIB, reserved=0, active=0) if short else None,
        curve=Curve(reserved=curve, active=np.full(240, int(active * GIB))), requests=100, seconds=0.1,
    )  # fmt: skip


def tried(
    conf: str, reserved: float, active: float, floor: float, *, capacity: float | None = None, baseline: bool = False,
    retries: int = 0,
) -> Tried:  # fmt: skip
    """`floor` also decides whether it fits."""
    free = replayed(conf, reserved, active)
    limited = None
    if capacity is not None:
        limited = replayed(conf, min(reserved, capacity) if floor <= capacity else floor, active, capacity=capacity,
                           retries=retries)  # fmt: skip
    size = Floor(alloc_conf=conf, size=int(floor * GIB), reserved=0, active=0, runs=1, seconds=0)
    return Tried(
        candidate=Candidate(alloc_conf=conf, why=""), free=free, limited=limited, floor=size, is_baseline=baseline
    )


def found(baseline: Tried, *others: Tried, capacity: float | None = None) -> Found:
    return Found(
        baseline=baseline, tried=others, capacity=None if capacity is None else int(capacity * GIB), left=0,
        stopped=False, seconds=1,
    )  # fmt: skip


EXPAND = "expandable_segments:True"


def test_a_true_shortage_is_called_that_with_the_figure() -> None:
    search = found(
        tried("", 26, 25, 25.4, capacity=24, baseline=True), tried(EXPAND, 25.4, 25, 25.4, capacity=24), capacity=24
    )
    judgement = judge(search)
    assert judgement.outcome is Outcome.TOO_LITTLE
    assert verdict(search, judgement).startswith("You are 1.40 GiB short; nothing here is fragmentation")


def test_fragmentation_that_no_option_removes_is_called_that() -> None:
    search = found(
        tried("", 40, 20, 26, capacity=24, baseline=True), tried(EXPAND, 40, 20, 25, capacity=24), capacity=24
    )
    judgement = judge(search)
    assert judgement.is_fragmentation
    text = verdict(search, judgement)
    assert "1.00 GiB short even under the best settings tried, expandable_segments:True" in text
    assert "5.00 GiB are fragmentation" in text


def test_settings_that_make_it_fit_are_named() -> None:
    search = found(
        tried("", 30, 20, 26, capacity=24, baseline=True), tried(EXPAND, 21, 20, 21, capacity=24), capacity=24
    )
    judgement = judge(search)
    assert judgement.outcome is Outcome.MAKES_IT_FIT
    assert judgement.best is not None
    assert judgement.best.candidate.alloc_conf == EXPAND
    assert "makes it fit: 21.00 GiB reserved, 24.00 GiB to be had" in verdict(search, judgement)


def test_of_near_equals_the_one_with_fewer_options_wins() -> None:
    both = f"{EXPAND},roundup_power2_divisions:8"
    search = found(tried("", 30, 20, 26, baseline=True), tried(both, 20.99, 20, 21), tried(EXPAND, 21.1, 20, 21))
    judgement = judge(search)
    assert judgement.best is not None
    assert judgement.best.candidate.alloc_conf == EXPAND


def test_settings_that_fit_only_with_retries_give_way() -> None:
    search = found(
        tried("", 30, 20, 26, capacity=24, baseline=True),
        tried("max_split_size_mb:100", 28, 20, 20.5, capacity=24, retries=40),
        tried(EXPAND, 23.9, 20, 23.9, capacity=24), capacity=24,
    )  # fmt: skip
    judgement = judge(search)
    assert judgement.best is not None
    assert judgement.best.candidate.alloc_conf == EXPAND


def test_a_gain_not_worth_a_setting_is_no_advice() -> None:
    search = found(tried("", 20.4, 20, 20.4, baseline=True), tried(EXPAND, 20.3, 20, 20.3))
    judgement = judge(search)
    assert judgement.outcome is Outcome.NO_HELP
    assert judgement.best is None
    assert verdict(search, judgement) == "No option helps: nothing here is fragmentation."


def test_what_fits_already_is_left_alone() -> None:
    search = found(
        tried("", 20.4, 20, 20.4, capacity=24, baseline=True), tried(EXPAND, 20.3, 20, 20.3, capacity=24), capacity=24
    )
    judgement = judge(search)
    assert judgement.outcome is Outcome.FITS_ALREADY
    assert verdict(search, judgement) == ("It fits as it is, with 3.60 GiB spare, and no option takes noticeably less.")


def test_growth_is_told_with_figures() -> None:
    steady = tried(EXPAND, 21, 20, 21)
    search = found(tried("", 40, 20, 22, baseline=True), steady)
    text = growth(search, judge(search).best)
    assert "stranded memory grows: by 15.06 GiB" in text


def test_what_can_be_given_back_under_pressure_counts_for_less() -> None:
    search = found(
        tried("", 30, 6, 8, baseline=True), tried("roundup_power2_divisions:2", 7, 6, 7), tried(EXPAND, 7.3, 6, 6.1)
    )
    judgement = judge(search)
    assert judgement.best is not None
    assert judgement.best.candidate.alloc_conf == EXPAND
    assert verdict(search, judgement) == (
        "expandable_segments:True takes 22.70 GiB less: 7.30 GiB reserved instead of 30.00 GiB under default settings. "
        "It needs 6.10 GiB at least, instead of 8.00 GiB."
    )


def test_a_candidate_that_ran_into_its_own_limit_says_nothing_about_what_is_in_use() -> None:
    limit = "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5"
    cut = tried(limit, 26, 3, 26, capacity=24)
    cut = replace(cut, free=replayed(limit, 26, 3, capacity=24))
    search = found(tried("", 26, 25, 25.4, capacity=24, baseline=True), cut, capacity=24)
    assert judge(search).least == 25 * GIB


def test_values_made_for_one_trace_must_gain_more_than_a_little_over_a_simple_option() -> None:
    made = "max_split_size_mb:164,max_non_split_rounding_mb:806"
    search = found(tried("", 7.3, 4.6, 6.4, baseline=True), tried(made, 5.08, 4.6, 4.82), tried(EXPAND, 5.41, 4.6, 4.7))
    best = judge(search).best
    assert best is not None
    assert best.candidate.alloc_conf == EXPAND
