"""Scripts that a launcher starts, on one process: torchrun with DDP and FSDP, accelerate."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch

SETUP = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
"""
LOOP = """
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    model(torch.randn(8, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
DDP = """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())
"""
FSDP = """
from torch.distributed.fsdp import fully_shard
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(3)]).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
"""
ACCELERATE = """
import torch
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16")
model = torch.nn.Sequential(torch.nn.Linear(100, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 2))
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.TensorDataset(torch.randn(100, 100), torch.randint(2, (100,)))
model, optimizer, data = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=10))
for x, y in data:
    accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
    optimizer.step()
    optimizer.zero_grad()
"""


def program(name: str) -> str:
    """A console script of the environment that the tests run in."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.parametrize("parallel", [DDP, FSDP], ids=["ddp", "fsdp"])
def test_torchrun(parallel, script):
    done = run_peakmem(
        "run", "--json", "-", "--", program("torchrun"), "--nproc_per_node=1", script(SETUP + parallel + LOOP)
    )
    assert done.code == 0, done.err
    assert done.json["steady"] and done.json["stopped"] == "enough"
    assert done.json["roles_at_peak"]["parameter"] > 0


def test_accelerate(script):
    done = run_peakmem(
        "run", "--json", "-", "--", program("accelerate"), "launch", "--num_processes", "1", script(ACCELERATE)
    )
    assert done.code == 0, done.err
    assert done.json["steady"] and len(done.json["steps"]) >= 3


def test_that_ranks_are_taken_to_agree_is_told(script):
    done = run_peakmem(
        "run", "--json", "-", "--", program("torchrun"), "--nproc_per_node=1", script(SETUP + DDP + LOOP)
    )
    told = {row["what"]: row["assumed"] for row in done.json["assumptions"]}
    assert told["all ranks hold the same parameters"] == "true"
