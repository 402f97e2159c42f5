"""What a request becomes, by the worked examples that were run through PyTorch 2.14.1's allocator."""

from __future__ import annotations

import pytest

from peakmem.allocator.settings import Settings, TorchVersion, parse
from peakmem.allocator.settings.rounding import block_size, segment_size
from peakmem.units import KIB, MIB

DEFAULT = Settings()
LIST = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"


@pytest.mark.parametrize(
    ("string", "request_size", "block"),
    [
        ("", 0, 0),
        ("", 1, 512),
        ("", 513, 1024),
        ("", MIB - 1, MIB),
        ("roundup_power2_divisions:4", 1000, 1024),
        ("roundup_power2_divisions:4", 1200, 1536),
        ("roundup_power2_divisions:4", 2049, 2560),
        ("roundup_power2_divisions:4", 102401, 114688),
        ("roundup_power2_divisions:4", MIB + 1, MIB + 256 * KIB),
        ("roundup_power2_divisions:4", 33 * MIB, 40 * MIB),
        ("roundup_power2_divisions:2", 524800, 786432),
        (LIST, 100 * MIB + 1, 100 * MIB + 512),
        (LIST, 512 * MIB + 1, 768 * MIB),
        (LIST, 1300 * MIB, 1536 * MIB),
        (LIST, 2048 * MIB + 1, 2304 * MIB),
        (LIST, 71680 * MIB, 73728 * MIB),
        ("roundup_power2_divisions:[2:8,64:4,>:1]", 4 * MIB + 1, 4 * MIB + 512),
        ("roundup_power2_divisions:[2:8,64:4,>:1]", 64 * MIB + 1, 80 * MIB),
        ("roundup_power2_divisions:1", 514 * MIB, 514 * MIB),
    ],
)
def test_blocks(string: str, request_size: int, block: int) -> None:
    assert block_size(request_size, parse(string).require()) == block


@pytest.mark.parametrize(
    ("block", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),
        (100 * MIB + 512, 102 * MIB),
    ],
)
def test_segments(block: int, segment: int) -> None:
    assert segment_size(block, DEFAULT) == segment


def test_one_division_rounds_to_powers_of_two_up_to_1_13_only() -> None:
    # Public report: pytorch/pytorch issue 161139.
    settings = Settings(roundup_power2_divisions=(1,) * 16)
    assert block_size(514 * MIB, settings, version=TorchVersion.parse("1.13")) == 1024 * MIB
    assert block_size(514 * MIB, settings, version=TorchVersion.parse("2.0")) == 514 * MIB


def test_large_requests_were_not_rounded_above_the_bypass_of_1_13() -> None:
    version = TorchVersion.parse("1.13")
    settings = parse("roundup_power2_divisions:4,roundup_bypass_threshold_mb:64", version=version).require()
    assert block_size(33 * MIB, settings, version=version) == 40 * MIB
    assert block_size(65 * MIB, settings, version=version) == 65 * MIB
