"""From a recording of training with TensorFlow on the CPU to a `CpuForecast`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.forecast.test_cpu_build import recording

from peakmem.forecast.cpu_build import build_cpu_forecast
from peakmem.forecast.cpu_tensorflow import really_taken, tensorflow_parts
from peakmem.host.tensorflow import TensorflowCpuFacts

MIB = 2**20
FACTS = TensorflowCpuFacts(
    python=Path("/usr/bin/python"), machine="x86_64", version="2.21.0", folder=Path("/tensorflow"), libc="glibc 2.36"
)


def tensorflow_recording(**highest: int) -> dict[str, Any]:
    found = {
        "resident": 3002, "live": 1500, "regions": 2000, "shared": 1900, "pool": 16, "step": 1, "phase": "other",
    } | highest  # fmt: skip
    sized = {key: value * MIB if isinstance(value, int) and key != "step" else value for key, value in found.items()}
    return recording(
        torch="",
        framework="TensorFlow 2.21.0",
        base=560 * MIB,
        left=None,
        highest=sized,
        steps=[
            {"phases": {"other": 2002 * MIB}, "end": 1902 * MIB},
            {"phases": {"other": 3002 * MIB}, "end": 2902 * MIB},
        ],
        roles={"parameter": [100 * MIB, 3], "activation or temporary": [1400 * MIB, 0]},
    )


def test_the_parts_add_up_and_the_shared_pages_are_not_taken() -> None:
    forecast = build_cpu_forecast(
        tensorflow_recording(), facts=FACTS, command=("train.py",), limit=None, processes=(), exit_code=0, seconds=1.0
    )
    assert forecast.host.peak_rss == 3000 * MIB
    assert {part.name: part.bytes // MIB for part in forecast.host.parts} == {
        "libraries": 560,
        "tensors": 1500,
        "allocator held": 500,
        "all else": 440,
    }
    assert forecast.own_peak == (3002 - 1900 + 16) * MIB
    assert (forecast.framework, forecast.torch) == ("TensorFlow 2.21.0", "")
    assert [step.peak_rss // MIB for step in forecast.host.steps] == [2000, 3000]
    assert [role.name for role in forecast.host.roles] == ["parameter", "activation or temporary"]


sizes = st.integers(0, 5000)


@given(peak=sizes, base=sizes, live=sizes, regions=sizes)
def test_no_part_is_negative_whenever_things_were_counted(peak: int, base: int, live: int, regions: int) -> None:
    found = tensorflow_recording(live=live, regions=regions) | {"base": base * MIB}
    parts = tensorflow_parts(found, peak * MIB)
    assert sum(part.bytes for part in parts) == peak * MIB
    assert all(part.bytes >= 0 for part in parts)


def test_what_is_really_taken_is_the_peak_where_nothing_is_shared() -> None:
    found = tensorflow_recording(shared=0, pool=0)
    assert really_taken(found) == found["highest"]["resident"]
