"""The smallest memory that works, as the report gives it, is the smallest by trial."""

from pathlib import Path

import pytest

from tests.e2e.conftest import run_peakmem

pytestmark = [pytest.mark.torch, pytest.mark.slow]

CASES = Path(__file__).with_name("training_cases.py")


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_the_floor_is_the_smallest_memory_that_works(conf):
    def run(memory):
        words = ["--gpu", "a100-80", "--memory", memory, "--context", "0", "--alloc-conf", conf]
        return run_peakmem("run", *words, "--json", "-", CASES, "tinygpt", "--amp", "bf16")

    small = run("700MiB")
    assert small.code == 1, small.err
    floor = small.json["floor"]
    # Below the peak of a card with room to spare: the allocator gives cached segments back and tries again.
    assert floor < small.json["peak"]["reserved"]
    assert run(str(floor)).code == 0
    assert run(str(floor - 2 * 2**20)).code == 1
