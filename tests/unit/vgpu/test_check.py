from __future__ import annotations

from typing import Any

import pytest

from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.check import Check, judge

DEVICE = find_device("4090")


def wrote(**changes: Any) -> dict[str, Any]:
    report = {"devices": [{"used": 2097152}], "unsupported": {"b": 1, "a": 2}, "estimate": {}}
    whole = {
        "torch": "2.14.1",
        "device": DEVICE.name,
        "cudnn": 92400,
        "allocated": 512,
        "reserved": 2097152,
        "events": 9,
    }
    return whole | {"report": report} | changes


def judged(**changes: Any) -> Check:
    return judge(wrote(**changes), seconds=2.5, missing=("cudaNew",), device=DEVICE)


def test_a_step_whose_books_agree_works() -> None:
    check = judged()
    assert check.works
    assert check.problem == ""
    assert (check.allocated, check.reserved, check.seconds, check.cudnn) == (512, 2097152, 2.5, 92400)
    assert check.unsupported == (("a", 2), ("b", 1))
    assert check.missing_symbols == ("cudaNew",)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"device": "Tesla T4"}, "torch sees 'Tesla T4', not the virtual GPU"),
        ({"events": 0}, "no block of memory was recorded"),
        ({"reserved": 4194304}, "PyTorch holds 4194304 bytes, the virtual GPU gave 2097152"),
    ],
)
def test_books_that_disagree_are_a_problem(changes: dict[str, Any], problem: str) -> None:
    check = judged(**changes)
    assert not check.works
    assert problem in check.problem
