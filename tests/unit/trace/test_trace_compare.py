from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from trace_samples import DATA
from training_trace import training_trace

from peakmem.errors import PeakmemError
from peakmem.report.diff import diff_json, print_diff
from peakmem.trace.compare import Comparison, compare, load_side
from peakmem.trace.file import write_trace
from peakmem.trace.replay import Replay


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    a = write_trace(training_trace(batch=24), tmp_path / "a.peakmem")
    b = write_trace(training_trace(batch=32), tmp_path / "b.peakmem")
    return compare(load_side(a), load_side(b))


def printed(comparison: Comparison, top: int = 12) -> str:
    out = io.StringIO()
    print_diff(comparison, Console(file=out, width=80), top=top)
    return out.getvalue()


def test_a_trace_does_not_differ_from_itself(tmp_path: Path) -> None:
    path = write_trace(training_trace(), tmp_path / "a.peakmem")
    same = compare(load_side(path), load_side(path))
    assert all(one.change == 0 for one in (*same.sums, *same.roles, *same.places))
    assert same.tensors == ()
    assert "The same tensors are alive at both peaks." in printed(same)


def test_roles_places_and_tensors_explain_the_whole_change(comparison: Comparison) -> None:
    allocated = next(one for one in comparison.sums if one.name == "allocated")
    assert (
        allocated.change
        == Replay(training_trace(batch=32)).peak().allocated - Replay(training_trace()).peak().allocated
    )
    assert sum(one.change for one in comparison.roles) == allocated.change
    assert sum(one.change for one in comparison.places) == allocated.change
    assert sum(one.change for one in comparison.tensors) == allocated.change


def test_a_tensor_of_another_shape_grew_and_did_not_appear(comparison: Comparison) -> None:
    assert {one.what for one in comparison.tensors} <= {"grew", "shrank"}
    activation = next(one for one in comparison.tensors if one.role == "activation")
    assert (activation.shape_a[0], activation.shape[0]) == (24, 32)
    assert "float32 [24, 21400] -> [32, 21400]" in printed(comparison)


def test_states_belong_to_the_module_of_their_parameter(comparison: Comparison) -> None:
    names = {one.name for one in comparison.places}
    assert "encoder.layers.0.mlp" in names
    assert not any(name.endswith("weight") for name in names)


def test_what_is_new_appeared(tmp_path: Path) -> None:
    a = write_trace(training_trace(steps=0), tmp_path / "a.peakmem")
    b = write_trace(training_trace(steps=1), tmp_path / "b.peakmem")
    changes = compare(load_side(a), load_side(b)).tensors
    assert {one.what for one in changes if one.role == "optimizer_state"} == {"appeared"}
    back = compare(load_side(b), load_side(a)).tensors
    assert {one.what for one in back if one.role == "optimizer_state"} == {"went"}


def test_the_json_holds_everything_in_bytes(comparison: Comparison) -> None:
    made = json.loads(json.dumps(diff_json(comparison)))
    assert made["schema"] == "peakmem/diff/1"
    assert made["peak"]["allocated"]["change"] == sum(row["change"] for row in made["tensors"])
    assert set(made["tensors"][0]) >= {
        "what",
        "role",
        "name",
        "module",
        "line",
        "shape",
        "shape_a",
        "a",
        "b",
        "count_a",
    }


def forecast(path: Path, allocated: int, **more: object) -> Path:
    peak = {"requested": 5, "allocated": allocated, "active": 9, "reserved": 20, "context": 3, "used": 23, "op": None}
    path.write_text(json.dumps({"schema": "peakmem/forecast/1", "peak": peak, **more}))
    return path


def test_forecasts_are_compared_by_sums_and_roles(tmp_path: Path) -> None:
    a = forecast(tmp_path / "a.json", 1000, roles_at_peak={"parameter": 600, "activation": 400})
    b = forecast(tmp_path / "b.json", 1500, roles_at_peak={"parameter": 600, "activation": 900})
    found = compare(load_side(a), load_side(b))
    assert {one.name: one.change for one in found.sums} == {
        "requested": 0, "allocated": 500, "active": 0, "reserved": 0, "context": 0, "used": 0,
    }  # fmt: skip
    assert [(one.name, one.change) for one in found.roles] == [("activation", 500), ("parameter", 0)]
    assert "give two traces" in " ".join(printed(found).split())


def test_a_forecast_and_a_trace_are_compared_by_what_both_know(tmp_path: Path) -> None:
    found = compare(load_side(forecast(tmp_path / "a.json", 1000)), load_side(DATA / "plain.pickle"))
    assert [one.name for one in found.sums] == ["requested", "allocated", "active", "reserved"]
    assert found.roles == () and found.tensors == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": "peakmem/solve/1", "results": []}', "not a forecast"),
        ('{"schema": "peakmem/forecast/1"}', "without a peak"),
        ('{"schema": "peakmem/forecast/1", ', "damaged JSON"),
        ('{"other": 1}', "no memory snapshot"),
        ("hello", "neither"),
    ],
)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(PeakmemError, match=message):
        load_side(path)


def test_the_tables_look_as_they_should(tmp_path: Path) -> None:
    a = forecast(tmp_path / "a.json", 10 << 30, roles_at_peak={"parameter": 6 << 30, "optimizer_state": 4 << 30})
    b = forecast(tmp_path / "b.json", 12 << 30, roles_at_peak={"parameter": 8 << 30, "optimizer_state": 4 << 30})
    found = compare(load_side(a), load_side(b))
    lines = [line.rstrip() for line in printed(found).splitlines()[2:]]
    assert (
        "\n".join(lines)
        == """
at the peak          a          b     change
requested          5 B        5 B       same
allocated    10.00 GiB  12.00 GiB  +2.00 GiB
active             9 B        9 B       same
reserved          20 B       20 B       same
context            3 B        3 B       same
used              23 B       23 B       same

by role                 a         b     change
parameter        6.00 GiB  8.00 GiB  +2.00 GiB
optimizer state  4.00 GiB  4.00 GiB       same

To compare modules and tensors give two traces (peakmem run --save), or two
forecasts with holders."""
    )


def test_two_forecasts_are_compared_by_module_and_tensor_too(tmp_path: Path) -> None:
    def holder(module: str, size: int) -> dict[str, object]:
        return {
            "role": "activation",
            "name": module,
            "module": module,
            "op": "aten::linear",
            "line": "train.py:3",
            "shape": [4, 4],
            "dtype": "float32",
            "step": 1,
            "phase": "forward",
            "count": 1,
            "bytes": size,
        }

    a = forecast(tmp_path / "a.json", 100, holders_at_peak=[holder("encoder", 60), holder("head", 40)])
    b = forecast(tmp_path / "b.json", 170, holders_at_peak=[holder("encoder", 90), holder("tail", 80), {"role": "odd"}])
    found = compare(load_side(a), load_side(b))
    assert [(one.name, one.change) for one in found.places] == [("tail", 80), ("head", -40), ("encoder", 30)]
    assert [(one.module, one.what) for one in found.tensors] == [
        ("tail", "appeared"),
        ("head", "went"),
        ("encoder", "grew"),
    ]
    assert "A forecast lists its largest holders alone" in printed(found)
