"""Messages that the installed PyTorch itself prints on a virtual card, explained."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from textwrap import dedent

import pytest

from peakmem.allocator.messages import Explanation, Verdict, explain
from peakmem.units import GIB, MIB

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

CAPACITY = GIB
PRELUDE = """
import torch
MIB = 2**20
def take(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.int8, device="cuda")
"""


@pytest.fixture(scope="module")
def card() -> dict[str, str]:
    """The environment of a process that has a virtual card of 1 GiB."""
    from peakmem.vgpu.build import ensure_library
    from peakmem.vgpu.catalogue import custom_device
    from peakmem.vgpu.launch import environment
    from peakmem.vgpu.probe import probe

    facts = probe(sys.executable)
    base = {name: value for name, value in os.environ.items() if not name.startswith("PYTORCH_")}
    device = custom_device(memory=CAPACITY, like="a100-80")
    return environment(library=ensure_library(facts), device=device, facts=facts, base=base)


def fail(script: str, environment: dict[str, str], alloc_conf: str = "") -> Explanation:
    """Run a script that runs out of memory, and explain what it printed."""
    if alloc_conf:
        environment = {**environment, "PYTORCH_CUDA_ALLOC_CONF": alloc_conf}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + dedent(script)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done.stderr
    found = explain(done.stderr)
    assert found, done.stderr
    return found[0]


def test_a_shortage(card: dict[str, str]) -> None:
    found = fail("kept = [take(300), take(300), take(300)]\ntake(300)", card)
    assert found.verdict is Verdict.SHORTAGE
    figures = found.figures
    assert figures.requested == 300 * MIB
    assert figures.capacity == CAPACITY
    assert figures.allocated == 900 * MIB
    assert figures.free == 124 * MIB
    assert figures.missing == 176 * MIB


def test_fragmentation(card: dict[str, str]) -> None:
    # Every other block of 11 MiB is freed in segments of 20 MiB that others hold: nothing can be given back.
    script = """
        blocks = [take(2) for _ in range(480)]
        del blocks[::2]
        take(400)
        """
    found = fail(script, card)
    assert found.verdict is Verdict.FRAGMENTATION
    assert found.option_helps is True
    assert found.alloc_conf == "expandable_segments:True"
    assert found.figures.allocated == 480 * MIB
    assert found.figures.missing == 0


def test_expandable_segments_already_on(card: dict[str, str]) -> None:
    script = """
        blocks = [take(2) for _ in range(480)]
        del blocks[::2]
        take(600)
        """
    found = fail(script, card, "expandable_segments:True")
    # 2 MiB blocks that alternate leave no whole page of 20 MiB free, so the pages can't be given back.
    assert found.verdict is Verdict.SHORTAGE
    assert found.figures.requested == 600 * MIB
    fits = fail(script.replace("600", "500"), card, "expandable_segments:True")
    assert fits.verdict is Verdict.FRAGMENTATION
    assert "PyTorch's own hint is missing" in fits.notes[-1]


def test_a_limit(card: dict[str, str]) -> None:
    found = fail("torch.cuda.set_per_process_memory_fraction(0.5)\nkept = take(400)\ntake(200)", card)
    assert found.verdict is Verdict.CAP
    assert found.figures.allowed == 512 * MIB
    assert found.figures.free == 624 * MIB


def test_an_impossible_request(card: dict[str, str]) -> None:
    assert fail("take(5000)", card).verdict is Verdict.IMPOSSIBLE


def test_more_than_an_exbibyte(card: dict[str, str]) -> None:
    assert fail('torch.empty(2**61, dtype=torch.int8, device="cuda")', card).verdict is Verdict.OVERFLOW


def test_a_refused_settings_string(card: dict[str, str]) -> None:
    found = fail("take(1)", card, "max_split_mb:64,expandable_segments:True")
    assert found.verdict is Verdict.SETTINGS
    assert "max_split_size_mb" in found.first


def test_the_summary(card: dict[str, str]) -> None:
    script = """
        blocks = [take(2) for _ in range(480)]
        del blocks[::2]
        print(torch.cuda.memory_summary())
        """
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + dedent(script)], env=card, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (found,) = explain(done.stdout)
    assert found.figures.reserved == 960 * MIB
    assert found.figures.allocated == 960 * MIB
    assert "480.00 MiB of it is in segments that are partly in use" in found.notes[0]


def test_the_driver_s_pool(card: dict[str, str]) -> None:
    found = fail("kept = take(600)\ntake(600)", card, "backend:cudaMallocAsync")
    assert "cudaMallocAsync" in found.wording
    assert found.figures.requested == 600 * MIB
    assert found.verdict is Verdict.SHORTAGE
