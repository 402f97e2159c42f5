"""The allocator's rules, as worked examples through the installed PyTorch's own allocator on the virtual GPU."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.catalogue import custom_device
from peakmem.vgpu.launch import Options, environment
from peakmem.vgpu.probe import probe

from .worked_examples import EXAMPLES, MIB, Example

pytestmark = pytest.mark.torch

TOTAL = 1024 * MIB  # a power of two: limits are exact fractions of it
STATS = {
    "a": "allocated_bytes.all.current", "r": "reserved_bytes.all.current", "q": "requested_bytes.all.current",
    "i": "inactive_split_bytes.all.current", "active": "active_bytes.all.current", "retries": "num_alloc_retries",
    "ooms": "num_ooms", "syncs": "num_sync_all_streams", "device_allocs": "num_device_alloc",
    "device_frees": "num_device_free", "segments": "segment.all.current", "peak_a": "allocated_bytes.all.peak",
    "peak_r": "reserved_bytes.all.peak", "oversize_segments": "oversize_segments.current",
}  # fmt: skip
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

Segment = tuple[bool, int, tuple[tuple[str, int], ...]]


def size_of(text: str) -> int:
    return sum(int(sign + number) * UNITS[unit] for sign, number, unit in re.findall(r"([+-]?)(\d+)([KMG]?)", text))


def segment_of(text: str) -> Segment:
    match = re.fullmatch(r"(x?)([^\[]+)\[(.*)\]", text)
    assert match is not None, text
    total = size_of(match[2])
    blocks = [(block[0], size_of(block[1:]) if block[1:] else -1) for block in match[3].split()]
    rest = total - sum(size for _, size in blocks if size >= 0)
    return bool(match[1]), total, tuple((state, rest if size < 0 else size) for state, size in blocks)


def test_a_segment_is_read_as_it_is_written() -> None:
    assert segment_of("x20M[A3M -]") == (True, 20 * MIB, (("A", 3 * MIB), ("-", 17 * MIB)))
    assert size_of("10M-512") == 10 * MIB - 512


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[Example, dict[str, Any]]:
    """What each example leads to; one process for all of them."""
    facts = probe(sys.executable)
    version = tuple(int(part) for part in facts.version.split("+")[0].split(".")[:2])
    if version < (2, 14):
        pytest.skip("the examples are those of PyTorch 2.14")
    folder = tmp_path_factory.mktemp("examples")
    programs, states = folder / "programs.json", folder / "states.json"
    programs.write_text(
        json.dumps([{"conf": e.conf, "capacity": e.capacity * MIB, "program": e.program} for e in EXAMPLES])
    )
    variables = environment(
        library=ensure_library(facts),
        device=custom_device(memory=TOTAL),
        facts=facts,
        options=Options(events="sync", capacity=1 << 60),
    )
    child = Path(__file__).with_name("worked_examples_child.py")
    done = subprocess.run(
        [sys.executable, child, programs, states],
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(EXAMPLES, json.loads(states.read_text()), strict=True))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.section}: {e.conf} {e.program}"[:100])
def test_the_allocator_does_as_the_example_says(example: Example, states: dict[Example, dict[str, Any]]) -> None:
    state = states[example]
    assert "error" not in state, state
    expected: list[Segment] = []
    for word in re.findall(r"\S+\[[^\]]*\]|\S+", example.expected):
        if "[" in word:
            expected.append(segment_of(word))
        elif word != "none":
            name, value = word.split("=")
            assert state["stats"].get(STATS[name], 0) == size_of(value), word
    if expected or "none" in example.expected.split():
        found = [(kind, size, tuple((s, n) for s, n in blocks)) for kind, size, blocks in state["segments"]]
        assert sorted(found) == sorted(expected)
