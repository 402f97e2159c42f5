"""Memory budgets as tests: `pytest test_memory.py`. Copy the fixture to your conftest.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def memory_check():
    """Run `peakmem check` on a command; fail with its own words if it does not keep to the budget."""

    def check(*command: str, budget: str, **options: str) -> dict:
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        done = subprocess.run(
            [sys.executable, "-m", "peakmem", "check", "--budget", budget, *words, "--json", "-", "--", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.fail(done.stderr, pytrace=False)
        return json.loads(done.stdout)["results"][0]

    return check


def test_training_fits_a_small_card(memory_check):
    result = memory_check(sys.executable, str(HERE / "train.py"), budget="1GiB", gpu="t4")
    assert result["measured"] < result["budget"]
