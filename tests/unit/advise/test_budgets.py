"""Budgets and baselines: what passes, the one-line reason, what grew."""

import io

import msgspec
import pytest
from rich.console import Console

from peakmem.advise.budgets import Baseline, Tolerance, judge, read_baseline
from peakmem.errors import PeakmemError
from peakmem.report.checking import print_checked

GIB, MIB = 2**30, 2**20


def baseline(used, **more):
    values = {
        "peakmem": "0.1.0",
        "torch": "2.14.1+cu130",
        "gpu": "NVIDIA A100-SXM4-80GB",
        "alloc_conf": "",
        "command": ("train.py",),
        "peak": {"used": used, "reserved": used - 500 * MIB, "allocated": used - 900 * MIB},
        "roles": {"parameter": GIB, "activation": used - GIB - 900 * MIB},
        "modules": {"layers.*.mlp": used - 2 * GIB, "head": GIB},
    }
    return Baseline(**{**values, **more})


def judged(now, *, budget=None, before=None, tolerance="1%", **more):
    return judge(now, figure="used", budget=budget, before=before, tolerance=Tolerance.parse(tolerance), **more)


def test_within_the_budget():
    checked = judged(baseline(20 * GIB), budget=22 * GIB)
    assert checked.passed
    assert checked.reason == "ok: 20.00 GiB used; budget 22.00 GiB, 2.00 GiB to spare"


def test_the_budget_itself_is_allowed_and_one_byte_more_is_not():
    assert judged(baseline(22 * GIB), budget=22 * GIB).passed
    assert not judged(baseline(22 * GIB + 1), budget=22 * GIB).passed


def test_growth_fails_within_the_budget_too():
    checked = judged(baseline(21 * GIB), budget=22 * GIB, before=baseline(20 * GIB))
    assert not checked.passed
    assert checked.reason.startswith("grown: 21.00 GiB used; budget 22.00 GiB, 1.00 GiB to spare; +1.00 GiB since")
    assert [(one.name, one.change) for one in checked.roles] == [("activation", GIB)]
    assert [(one.name, one.change) for one in checked.modules] == [("layers.*.mlp", GIB)]


@pytest.mark.parametrize(("tolerance", "passed"), [("0%", False), ("6%", True), ("1GiB", True), ("1000MiB", False)])
def test_tolerance_is_a_share_or_a_size(tolerance, passed):
    assert judged(baseline(21 * GIB), before=baseline(20 * GIB), tolerance=tolerance).passed is passed


def test_less_than_the_baseline_passes():
    checked = judged(baseline(19 * GIB), before=baseline(20 * GIB))
    assert checked.passed and "-1.00 GiB since the baseline" in checked.reason


def test_the_same_is_said_to_the_byte():
    assert "as in the baseline, to the byte" in judged(baseline(GIB * 3), before=baseline(GIB * 3)).reason


def test_a_run_that_does_not_fit_its_card_fails_within_any_budget():
    checked = judged(baseline(20 * GIB), budget=22 * GIB, too_large_for="Tesla T4")
    assert not checked.passed and checked.reason.startswith("too large: 20.00 GiB used; does not fit Tesla T4")


def test_what_else_changed_is_named():
    checked = judged(baseline(20 * GIB, torch="2.15.0+cu130"), before=baseline(20 * GIB))
    assert checked.remarks == ("PyTorch changed: 2.14.1+cu130 -> 2.15.0+cu130",)


def test_a_baseline_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "memory.json"
    path.write_bytes(msgspec.json.encode(baseline(20 * GIB)))
    assert read_baseline(path) == baseline(20 * GIB)


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"schema": "peakmem/baseline/9"}'])
def test_no_baseline_is_an_error_that_says_how_to_write_one(tmp_path, content):
    path = tmp_path / "memory.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PeakmemError) as caught:
        read_baseline(path)
    assert "--update-baseline" in caught.value.hint


@pytest.mark.parametrize("text", ["x%", "-1%", "much"])
def test_what_is_no_tolerance_is_refused(text):
    with pytest.raises(PeakmemError):
        Tolerance.parse(text)


def test_what_is_printed():
    out = io.StringIO()
    checked = judged(baseline(21 * GIB), budget=20 * GIB, before=baseline(20 * GIB))
    print_checked(checked, Console(file=out, width=80))
    assert out.getvalue() == (
        "peakmem check: over budget: 21.00 GiB used; budget 20.00 GiB, 1.00 GiB over; "
        "+1.00 GiB since the baseline, of which 1% is let pass\n"
        "\n"
        "by role      baseline        now     change\n"
        "activation  18.12 GiB  19.12 GiB  +1.00 GiB\n"
        "\n"
        "by module      baseline        now     change\n"
        "layers.*.mlp  18.00 GiB  19.00 GiB  +1.00 GiB\n"
    )
