"""Which settings are tried, and from what their values come."""

from __future__ import annotations

import numpy as np
import pytest
from tests.replay_traces import MIB, program, variable_length

from peakmem.allocator.replay.requests import requests_of
from peakmem.allocator.search.candidates import Candidate, Situation, pairs, singles, size_groups
from peakmem.allocator.settings import TorchVersion, parse
from peakmem.allocator.settings.findings import Kind, examine
from peakmem.trace.model import Trace

NOW = TorchVersion.parse("2.14.1")


def situation(trace: Trace, *, version: TorchVersion = NOW, capacity: int | None = None) -> Situation:
    return Situation(requests=requests_of(trace), version=version, capacity=capacity, total=80 << 30, active=300 * MIB)


def confs(candidates: list[Candidate]) -> list[str]:
    return [candidate.alloc_conf for candidate in candidates]


@pytest.mark.parametrize("version", ["2.14.1", "2.11.0", "2.10.0", "2.6.0", "2.1.0", "2.0.0", "1.13.0", "1.10.0"])
def test_only_what_the_version_takes_and_what_does_something_is_tried(version: str) -> None:
    torch = TorchVersion.parse(version)
    found = situation(variable_length(3), version=torch, capacity=2 << 30)
    alone = singles(found)
    assert alone
    for candidate in [*alone, *pairs(found, alone)]:
        result = parse(candidate.alloc_conf, version=torch)
        assert result.accepted, candidate
        assert all(finding.kind is Kind.NOTE for finding in examine(result)), candidate


def test_options_appear_with_the_versions_that_know_them() -> None:
    trace = program("a=5M b=30M c=100M").trace()
    old = " ".join(confs(singles(situation(trace, version=TorchVersion.parse("2.6.0"), capacity=1 << 30))))
    new = " ".join(confs(singles(situation(trace, capacity=1 << 30))))
    assert "expandable_segments" in old
    assert "large_segment_size_mb" not in old
    assert "garbage_collection_threshold" not in old
    assert "large_segment_size_mb" in new
    assert "garbage_collection_threshold" in new


def test_limits_of_splitting_lie_below_the_groups_of_sizes_that_the_trace_asks_for() -> None:
    trace = program("a=30M b=31M c=200M d=210M e=201M f=3M").trace()
    values = [conf for conf in confs(singles(situation(trace))) if conf.startswith("max_split_size_mb")]
    assert values == ["max_split_size_mb:200", "max_split_size_mb:30"]


def test_a_trace_of_small_blocks_gets_no_limit_of_splitting() -> None:
    found = confs(singles(situation(program("a=0.5M b=0.25M").trace())))
    assert not any("max_split_size" in conf or "large_segment" in conf for conf in found)


def test_groups_hold_sizes_that_lie_close_together() -> None:
    sizes = np.array([25, 30, 36, 100, 110, 500, 3]) * MIB
    assert size_groups(sizes) == [(500 * MIB, 500 * MIB), (100 * MIB, 210 * MIB), (25 * MIB, 91 * MIB)]


def test_rounding_by_ranges_touches_only_those_where_sizes_vary() -> None:
    trace = program("a=33M b=37M c=41M d=50M e=200M").trace()
    lists = [conf for conf in confs(singles(situation(trace))) if "[" in conf]
    assert lists[0] == "roundup_power2_divisions:[1:0,2:0,4:0,8:0,16:0,32:8,>:0]"
    table = parse(lists[0], version=NOW).settings.roundup_power2_divisions
    assert table[5] == 8
    assert sum(table) == 8


def test_pairs_never_join_a_limit_of_splitting_with_expandable_segments() -> None:
    found = situation(variable_length(3))
    joined = pairs(found, singles(found))
    assert joined
    assert not any("max_split_size_mb" in c.alloc_conf and "expandable" in c.alloc_conf for c in joined)
