"""The calculation by hand beside the recording of a training on the CPU."""

from __future__ import annotations

from typing import Any

from tests.unit.forecast.test_cpu_build import MIB, forecast, recording

from peakmem.forecast.explain_cpu import BATCH, HELD, LATER, WEIGHTS, explain_cpu
from peakmem.report.explain_cpu import cpu_reasons

MODEL: dict[str, Any] = {
    "parameters": 10 * MIB,
    "parameter_bytes": 40 * MIB,
    "inputs": [["", [256, 1000], 4, True]],
    "layers": [["0", "Linear", [256, 100], 4], ["2", "Linear", [256, 10], 4]],
}
ROLES = {
    "parameter": [40 * MIB, 4],
    "gradient": [40 * MIB, 4],
    "optimizer state": [80 * MIB, 8],
    "activation or temporary": [30 * MIB, 9],
}


def test_what_is_held_adds_up_to_what_is_resident() -> None:
    explained = explain_cpu(recording(model=MODEL, roles=ROLES))
    assert explained is not None
    assert explained.count.elements == 256_000 + 2 * (25_600 + 2_560)
    assert explained.resident == 600 * MIB  # of 602, 2 are peakmem's own
    assert sum(line.at_peak for line in explained.lines) == explained.resident
    assert explained.at_peak(HELD) == (600 - 220 - 90 - 190) * MIB
    assert explained.at_peak(LATER) == 90 * MIB
    assert {line.what: line.by_hand for line in explained.lines}[WEIGHTS] == 40 * MIB


def test_the_largest_reason_comes_first() -> None:
    found = recording(model=MODEL, roles=ROLES)
    explained = explain_cpu(found)
    assert explained is not None
    reasons = cpu_reasons(explained, forecast(found))
    assert reasons[0].startswith("Python and torch take 220.00 MiB")
    assert reasons[1] == "gradients and optimizer state are 3.0 more values for each weight"
    by_hand = explained.count.bytes
    assert explained.at_peak(BATCH) > by_hand and any("other tensors take 30.00 MiB" in text for text in reasons)
    small = explain_cpu(recording(model=MODEL, roles={**ROLES, "activation or temporary": [1000, 1]}))
    assert small is not None and any("given back as soon" in text for text in cpu_reasons(small, forecast(found)))


def test_the_end_of_the_process_may_take_more() -> None:
    left = {"live": 0, "mapped": 0, "heap": 0, "touched": 400 * MIB}
    found = recording(model=MODEL, roles=ROLES, left=left)
    explained, told = explain_cpu(found), forecast(found)
    assert explained is not None and told.host.phase == "exit"
    assert f"takes {told.host.peak_rss // MIB - 600}.00 MiB more, when libraries" in " ".join(
        cpu_reasons(explained, told)
    )


def test_without_layers_there_is_nothing_to_count() -> None:
    assert explain_cpu(recording(model=None, roles=ROLES)) is None
    assert explain_cpu(recording(model=MODEL, roles={})) is None
