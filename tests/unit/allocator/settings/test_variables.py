"""Which variable wins, by version and platform."""

from __future__ import annotations

import pytest

from peakmem.allocator.settings import TorchVersion
from peakmem.allocator.settings.findings import Platform
from peakmem.allocator.settings.in_force import InForce, from_environment
from peakmem.allocator.settings.installed import InstalledTorch
from peakmem.allocator.settings.variables import CUDA, HIP, PLAIN, preferred, sources
from peakmem.units import MIB


@pytest.mark.parametrize(
    ("version", "platform", "names", "common", "cuda"),
    [
        ("2.14.1", "cuda", {CUDA, PLAIN}, CUDA, CUDA),
        ("2.14.1", "cuda", {PLAIN}, PLAIN, PLAIN),
        # The two readers of one build disagree about the name of ROCm.
        ("2.14.1", "cuda", {HIP}, HIP, None),
        ("2.14.1", "cuda", {HIP, PLAIN}, HIP, PLAIN),
        ("2.14.1", "rocm", {HIP, PLAIN}, HIP, HIP),
        ("2.10", "cuda", {CUDA, HIP, PLAIN}, CUDA, CUDA),
        # 2.9 warns that the CUDA name is deprecated, and its CUDA allocator reads no other.
        ("2.9", "cuda", {PLAIN}, None, None),
        ("2.9", "cuda", {CUDA, PLAIN}, CUDA, CUDA),
        ("2.6", "cuda", {CUDA, HIP}, CUDA, CUDA),
        ("2.8", "rocm", {CUDA, HIP}, CUDA, CUDA),
        ("2.6", "rocm", {HIP}, HIP, HIP),
        ("2.14.1", "cuda", set(), None, None),
    ],
)
def test_the_first_variable_that_is_set_wins(
    version: str, platform: str, names: set[str], common: str | None, cuda: str | None
) -> None:
    found = sources(dict.fromkeys(names, "x"), TorchVersion.parse(version), platform=platform)
    assert (found.common, found.cuda) == (common, cuda)
    assert set(found.ignored) == names - {common, cuda}


def in_force(environment: dict[str, str], version: str = "2.14.1") -> InForce:
    torch = InstalledTorch(version=TorchVersion.parse(version), platform=Platform(), found=True, where="a test")
    return from_environment(("python",), environment, torch)


def test_each_reader_takes_its_own_keys_from_its_own_variable() -> None:
    string = "max_split_size_mb:64,pinned_num_register_threads:4"
    only_hip = in_force({HIP: string}).result
    assert only_hip is not None
    assert only_hip.settings.max_split_size == 64 * MIB
    assert only_hip.settings.pinned_num_register_threads == 1
    both = in_force({HIP: "max_split_size_mb:64", PLAIN: "max_split_size_mb:32,pinned_num_register_threads:8"}).result
    assert both is not None
    assert (both.settings.max_split_size, both.settings.pinned_num_register_threads) == (64 * MIB, 8)
    bad = in_force({HIP: "max_split_size_mb:64", PLAIN: "pinned_num_register_threads:3"}).result
    assert bad is not None
    assert not bad.accepted
    assert in_force({PLAIN: string}, "2.9").result is None


def test_an_empty_variable_counts_as_set() -> None:
    assert sources({CUDA: "", PLAIN: "x"}, TorchVersion.parse("2.14.1")).common == CUDA


def test_the_variable_to_write() -> None:
    assert preferred(TorchVersion.parse("2.14.1")) == CUDA
    assert preferred(TorchVersion.parse("2.9")) == CUDA
    assert preferred(TorchVersion.parse("2.6"), platform="rocm") == HIP
