"""`peakmem check` and the examples for continuous integration."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import EXAMPLES, run_peakmem

pytestmark = pytest.mark.torch
CI = EXAMPLES / "ci"


def test_a_run_is_held_to_its_budget_and_its_baseline(tmp_path):
    baseline = tmp_path / "memory.json"
    command = ("--gpu", "t4", "--", CI / "train.py")
    done = run_peakmem("check", "--baseline", baseline, "--update-baseline", *command)
    assert done.code == 0, done.err
    used = json.loads(baseline.read_text())["peak"]["used"]
    same = run_peakmem("check", "--budget", str(used), "--baseline", baseline, "--json", "-", *command)
    assert same.code == 0, same.err
    assert same.json["results"][0]["measured"] == used
    assert "as in the baseline, to the byte" in same.err
    over = run_peakmem("check", "--budget", str(used - 1), *command)
    assert over.code == 1 and over.out.startswith("peakmem check: over budget: ")

    grown = tmp_path / "train.py"
    grown.write_text((CI / "train.py").read_text().replace("4096", "8192"))
    done = run_peakmem("check", "--budget", "15GiB", "--baseline", baseline, "--gpu", "t4", "--", grown)
    assert done.code == 1, done.err
    assert done.out.startswith("peakmem check: grown: ")
    assert "optimizer state" in done.out and "by module" in done.out


def test_a_script_that_fails_is_no_verdict(script):
    done = run_peakmem("check", "--budget", "1GiB", "--", script("import torch; torch.zeros(1).cuda(); 1 / 0"))
    assert done.code == 3 and "ZeroDivisionError" in done.err


def test_the_pytest_example_works():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CI / "test_memory.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "pattern"), [("github-workflow.yml", r"run: (peakmem .*)"), ("pre-commit-config.yaml", r"entry: (.*)")]
)
def test_the_commands_of_the_other_examples_work(name, pattern, tmp_path):
    [line] = re.findall(pattern, (CI / name).read_text())
    (tmp_path / "train.py").write_text((CI / "train.py").read_text())
    words = shlex.split(line)
    assert words.pop(0) == "peakmem"
    words = [sys.executable if word == "python" else word for word in words]
    at = words.index("--")
    done = run_peakmem(*words[:at], "--update-baseline", *words[at:], cwd=tmp_path, PYTHONPATH=source())
    assert done.code == 0, done.err
    done = run_peakmem(*words, cwd=tmp_path, PYTHONPATH=source())
    assert done.code == 0 and "as in the baseline" in done.out, done.err


def source() -> str:
    return str(Path(__file__).parents[2] / "src")
