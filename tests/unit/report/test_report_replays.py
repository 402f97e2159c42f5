"""Replays and the result of a search as printed, 80 columns wide."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tests.replay_traces import GIB, MIB

from peakmem.allocator.replay.model import POINTS, Curve, Floor, RanOut, Replayed
from peakmem.allocator.search import Candidate, Found, Tried, judge
from peakmem.allocator.settings import TorchVersion
from peakmem.report.replay_json import document, replayed_as_json
from peakmem.report.replays import print_replays, sparkline
from peakmem.report.tuning import Verified, print_tuning, tuning_as_json

GOLDEN = Path(__file__).parent / "golden"
EXPAND = "expandable_segments:True"
LONG = "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:8]"
NOW = TorchVersion.parse("2.14.1")


def compare_with_golden(name: str, printed: str) -> None:
    """Texts are kept as files; PEAKMEM_UPDATE_GOLDEN=1 writes them anew."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("PEAKMEM_UPDATE_GOLDEN"):
        path.write_text(printed, encoding="utf-8")
    assert max(map(len, printed.splitlines())) <= 80
    assert printed == path.read_text(encoding="utf-8")


def console() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=80, highlight=False), text


def replayed(conf: str, reserved: int, active: int, *, start: int, retries: int = 0, points: int = POINTS) -> Replayed:
    curve = np.linspace(start, reserved, points).astype("i8")
    return Replayed(
        alloc_conf=conf, torch="2.14.1+cu130", capacity=None, exact_start=False, reserved=reserved, active=active,
        stranded=reserved - active, at=7, most_stranded=reserved - active, end_reserved=reserved, segments=1234,
        device_allocs=2000, retries=retries, ran_out=None,
        curve=Curve(reserved=curve, active=np.full(points, active)), requests=12_345, seconds=0.0123,
    )  # fmt: skip


DEFAULT = replayed("", 30 * GIB, 6 * GIB, start=6 * GIB)
BETTER = replayed(EXPAND, 7 * GIB, 6 * GIB, start=7 * GIB)
OTHER = replayed(LONG, 12 * GIB, 6 * GIB, start=7 * GIB, retries=3)
NO_ROOM = replace(
    replayed("", 8 * GIB, 6 * GIB, start=6 * GIB, retries=2, points=90),
    ran_out=RanOut(
        event=4711, requested=512 * MIB, reserved=8 * GIB, active=5 * GIB, step=41, module="layers.3.mlp",
        op="AddmmBackward0", where="train.py:40 loss", text="...",
    ),
)  # fmt: skip


def floor(conf: str, size: int | None) -> Floor:
    return Floor(alloc_conf=conf, size=size, reserved=0, active=0, runs=9, seconds=0.1)


def test_replays_are_printed_as_a_table_and_timelines() -> None:
    screen, text = console()
    print_replays([DEFAULT, BETTER, OTHER], screen)
    compare_with_golden("replays", text.getvalue())


def test_a_shortage_says_where_and_what() -> None:
    screen, text = console()
    print_replays([NO_ROOM, BETTER], screen, floors=[floor("", 9 * GIB), floor(EXPAND, None)], capacity=8 * GIB)
    compare_with_golden("replays_short", text.getvalue())


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [([0, 1, 4, 8], 4, " ▁▄█"), ([8, 8, 1, 1], 2, "█▁"), ([], 5, ""), ([5], 40, "▅")],
)
def test_a_column_shows_the_highest_of_its_stretch(values: list[int], width: int, expected: str) -> None:
    assert sparkline(np.asarray(values), highest=8, width=width) == expected


def tried(one: Replayed, size: int | None, *, limited: Replayed | None = None, baseline: bool = False) -> Tried:
    return Tried(
        candidate=Candidate(alloc_conf=one.alloc_conf, why="a reason"), free=one, limited=limited,
        floor=None if size is None else floor(one.alloc_conf, size), is_baseline=baseline,
    )  # fmt: skip


HELPS = Found(
    baseline=tried(DEFAULT, 8 * GIB, baseline=True),
    tried=(tried(BETTER, 6 * GIB + 2 * MIB), tried(OTHER, None)), capacity=None, left=0, stopped=False, seconds=12.4,
)  # fmt: skip
VERIFIED = Verified(alloc_conf=EXPAND, reserved=7 * GIB, retries=0, fits=True, limited=False, steps=200)
SHORT = replace(
    HELPS, baseline=tried(DEFAULT, 8 * GIB, limited=NO_ROOM, baseline=True), tried=(), capacity=5 * GIB, left=9,
    stopped=True,
)  # fmt: skip


def test_settings_that_help_are_printed_with_what_to_paste() -> None:
    screen, text = console()
    print_tuning(HELPS, judge(HELPS), screen, version=NOW, verified=VERIFIED, notes=["a note"])
    compare_with_golden("tune_helps", text.getvalue())


def test_a_shortage_that_no_option_cures_is_printed_without_anything_to_paste() -> None:
    screen, text = console()
    print_tuning(SHORT, judge(SHORT), screen, version=NOW, why_room="6.00 GiB less the CUDA context")
    compare_with_golden("tune_short", text.getvalue())


def test_a_run_that_differs_from_its_replay_is_not_called_the_same() -> None:
    screen, text = console()
    print_tuning(HELPS, judge(HELPS), screen, version=NOW, verified=replace(VERIFIED, reserved=7 * GIB + 2 * MIB))
    assert "the replay said 7.00 GiB" in " ".join(text.getvalue().split())


def test_json_closes_its_sums() -> None:
    result = replayed_as_json(DEFAULT, floor("", 8 * GIB))
    assert result["peak"]["reserved"] == result["peak"]["active"] + result["peak"]["stranded"]
    assert result["floor"] == 8 * GIB
    whole = document("replay", [result], trace="x")
    assert (whole["schema"], whole["trace"]) == ("peakmem/replay/1", "x")


def test_json_of_a_search_names_the_best_and_what_is_missing() -> None:
    helps = tuning_as_json(HELPS, judge(HELPS), version=NOW, verified=VERIFIED)
    assert (helps["outcome"], helps["best"], helps["short"]) == ("helps", EXPAND, 0)
    assert helps["verified"]["steps"] == 200
    short = tuning_as_json(SHORT, judge(SHORT), version=NOW)
    assert (short["outcome"], short["short"], short["least"]) == ("too_little", 3 * GIB, 6 * GIB)
    assert short["results"][0]["with_capacity"]["oom"]["module"] == "layers.3.mlp"
