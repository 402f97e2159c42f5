"""The calculation by hand of the dense example, beside what is held."""

import re

import pytest

from tests.e2e.conftest import EXAMPLES, run_peakmem

pytestmark = pytest.mark.torch


def test_the_dense_example_is_explained():
    done = run_peakmem("run", "--gpu", "a100-80", "--explain", EXAMPLES / "dense.py", COLUMNS="80")
    assert done.code == 0
    assert re.search(r"together +1,820 +465,920 +1\.78 MiB", done.out)
    assert re.search(r"weights and biases +131,410 +513\.32 KiB", done.out)
    assert "2 x 8.125 MiB" in done.out
    assert re.search(r"\(\d of 2\.00 MiB, 1 of 20\.00 MiB\)", done.out)
    assert "gradients and optimizer state are 3.0 more values for each weight" in " ".join(done.out.split())
    assert max(len(line.rstrip()) for line in done.out.splitlines()) <= 100


def test_where_memory_runs_out_the_operator_is_told(script):
    text = """
import torch
model = torch.nn.Linear(4096, 65536).cuda()
model(torch.randn(65536, 4096, device="cuda")).sum().backward()
"""
    done = run_peakmem("run", "--memory", "8GiB", "--json", "-", script(text))
    assert done.code == 1
    oom = done.json["oom"]
    assert (oom["phase"], oom["op"], oom["module"]) == ("forward", "aten::linear", "Linear")
