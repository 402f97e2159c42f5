"""However a script is started, one process of it is watched and the figures are the same."""

import os
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch

TRAIN = """
import sys, torch
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(6):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(64, 256).cuda()), torch.zeros(64).long().cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("words", sys.argv[1:])
"""
# The programs of the environment that the tests run in, as if it were active.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("started")
    (folder / "train.py").write_text(TRAIN)
    (folder / "train.sh").write_text('#!/bin/sh\nexport OMP_NUM_THREADS=1\npython train.py "$@"\n')
    return folder, forecast(folder, "train.py", "--lr", "1")


def forecast(folder, *words):
    done = run_peakmem(
        "run", "--steps", "all", "--output", "log", "--force", "--json", "-", *words, cwd=folder, PATH=PATH
    )
    assert done.code == 0, done.err
    # What stands behind the script's name is the script's, options included.
    assert "words ['--lr', '1']" in (folder / "log").read_text()
    return done.json


WAYS = {
    "python": ["--", "python", "train.py"],
    "module": ["-m", "train"],
    "python -m": ["--", "python", "-m", "train"],
    "shell script": ["--", "sh", "train.sh"],
    "torchrun": ["--", "torchrun", "--standalone", "--nproc-per-node=1", "train.py"],
}


@pytest.mark.parametrize("way", WAYS)
def test_the_figures_are_those_of_the_plain_script(way, plain):
    folder, expected = plain
    found = forecast(folder, *WAYS[way], "--lr", "1")
    assert found["peak"] == expected["peak"]
    assert found["steps"] == expected["steps"] and len(found["steps"]) == 6
