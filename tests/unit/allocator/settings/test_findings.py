"""What is inert, harmful, or worth a note, by version and platform."""

from __future__ import annotations

import pytest

from peakmem.allocator.settings import TorchVersion, parse
from peakmem.allocator.settings.findings import Finding, Kind, Platform, examine
from peakmem.allocator.settings.wording import effect


def found(string: str, version: str = "2.14.1", platform: Platform | None = None) -> tuple[Finding, ...]:
    result = parse(string, version=TorchVersion.parse(version))
    assert result.accepted, result.refusal
    return examine(result, platform or Platform())


def kinds(string: str, version: str = "2.14.1", platform: Platform | None = None) -> set[Kind]:
    return {finding.kind for finding in found(string, version, platform)} - {Kind.NOTE}


@pytest.mark.parametrize(
    ("string", "fragment"),
    [
        ("garbage_collection_threshold:0.8", "unless a memory fraction below 1 is set"),
        ("garbage_collection_threshold:0.8,per_process_memory_fraction:1.0", "unless a memory fraction below 1 is set"),
        (
            "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9,expandable_segments:True",
            "never frees memory of expandable segments",
        ),
        ("max_non_split_rounding_mb:40", "without max_split_size_mb"),
        ("max_split_size_mb:-1", "so large that it is no limit"),
        ("roundup_power2_divisions:1", "1 division means off"),
        ("roundup_power2_divisions:[>:1]", "1 division means off"),
        ("roundup_power2_divisions:[]", "every entry is 0"),
        ("pinned_num_register_threads:8", "without pinned_use_cuda_host_register:True"),
        ("per_process_memory_fraction:1.0", "is the default"),
        ("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.9", "acts only with a memory fraction of 1"),
        ("backend:cudaMallocAsync,max_split_size_mb:64", "the driver's pool does the caching"),
        ("max_split_size_mb:64,max_split_size_mb:128", "the last wins, 64 is forgotten"),
        ("max_split_size_mb:64:garbage_collection_threshold:0.5,per_process_memory_fraction:0.9", "skips ':'"),
    ],
)
def test_what_does_nothing(string: str, fragment: str) -> None:
    assert any(finding.kind is Kind.INERT and fragment in finding.text for finding in found(string))


@pytest.mark.parametrize(
    ("string", "fragment"),
    [
        ("max_split_size_mb:128,expandable_segments:True", "reserved grows until the card is full"),
        ("throw_on_cudamalloc_oom:True", "even where giving cached segments back"),
        ("per_process_memory_fraction:0", "forbids every allocation"),
        ("expandable_segments:True,large_segment_size_mb:21", "multiples of 2 MiB"),
    ],
)
def test_what_harms_comes_first(string: str, fragment: str) -> None:
    first = found(string)[0]
    assert first.kind is Kind.HARMFUL
    assert fragment in first.text


@pytest.mark.parametrize(
    "string",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:128",
        "roundup_power2_divisions:8",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "garbage_collection_threshold:0.8,per_process_memory_fraction:0.95",
        "pinned_use_cuda_host_register:True,pinned_num_register_threads:8",
        "backend:cudaMallocAsync",
        "expandable_segments:True,roundup_power2_divisions:16",
    ],
)
def test_what_is_sensible_is_neither_inert_nor_harmful(string: str) -> None:
    assert kinds(string) == set()


def test_garbage_collection_needs_only_a_call_before_the_fraction_option_existed() -> None:
    (finding,) = found("garbage_collection_threshold:0.8", "2.6")
    assert "set_per_process_memory_fraction" in finding.text
    assert "1.0 counts" in finding.text


def test_one_division_did_round_up_to_1_13() -> None:
    assert kinds("roundup_power2_divisions:1", "1.13") == set()


@pytest.mark.parametrize(
    ("platform", "inert"),
    [
        (Platform(system="windows"), True),
        (Platform(runtime="rocm", rocm=(6, 4)), True),
        (Platform(runtime="rocm", rocm=(7, 0)), False),
        (Platform(), False),
    ],
)
def test_expandable_segments_by_platform(platform: Platform, inert: bool) -> None:
    assert (Kind.INERT in kinds("expandable_segments:True", platform=platform)) is inert


def test_a_list_of_divisions_tells_its_gaps_and_where_the_rest_begins() -> None:
    texts = " ".join(finding.text for finding in found("roundup_power2_divisions:[2:8,64:4,>:1]"))
    assert "4 MiB, 8 MiB, 16 MiB, 32 MiB" in texts
    assert "begins after the last listed size" in texts
    old = " ".join(finding.text for finding in found("roundup_power2_divisions:[2:8,64:4,>:1]", "2.6"))
    assert "begins at the last listed size itself" in old


@pytest.mark.parametrize(
    ("string", "fragments"),
    [
        ("max_split_size_mb:128", ["128 MiB or more are never split", "less than 20 MiB larger", "not an upper limit"]),
        ("roundup_power2_divisions:2", ["514.0 MiB becomes 768.0 MiB"]),
        ("roundup_power2_divisions:1", ["Rounds none"]),
        ("expandable_segments:True", ["20 MiB for large ones"]),
        ("expandable_segments:True,large_segment_size_mb:40", ["40 MiB for large ones"]),
        ("expandable_segments:False", ["Off"]),
        ("per_process_memory_fraction:0.5", ["50.0%", "total memory"]),
        ("pinned_max_cached_size_mb:64", ["above 64 MiB"]),
        ("garbage_collection_threshold:0.25", ["0.25"]),
    ],
)
def test_each_option_is_told_with_its_own_numbers(string: str, fragments: list[str]) -> None:
    result = parse(string)
    text = effect(result.named[0], result)
    assert all(fragment in text for fragment in fragments), text
