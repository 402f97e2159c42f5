"""What transformers imports and a script does not use is loaded when it is used, and counted all the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import platformdirs
import pytest

from peakmem.session.launching import Run, launch
from peakmem.session.running import Question
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.probe import probe
from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch
pytest.importorskip("transformers")

TRAIN = """
import json, sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel
{use}
config = GPT2Config(vocab_size=1000, n_positions=64, n_embd=64, n_layer=2, n_head=2)
model = GPT2LMHeadModel(config).to({device!r})
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.randint(1000, (2, 64), device={device!r})
for step in range(3):
    optimizer.zero_grad()
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()
heavy = ("torch.distributed.tensor._api", "scipy.optimize._optimize", "sympy", "torch._dynamo.eval_frame")
print(json.dumps([name for name in heavy if name in sys.modules]))
"""


def run(script, use="", *, late=True):
    """What the GPU held at most, and which of the heavy modules were loaded."""
    path = script(TRAIN.format(use=use, device="cuda"))
    plan = Run(
        command=(sys.executable, str(path)),
        facts=probe(sys.executable),
        device=find_device("a100-80"),
        context=0,
        question=Question(steps="all", late_libraries=late),
    )
    ended = launch(plan, limited=False)
    recording = ended.outcome.main()
    assert recording is not None and recording["error"] is None, "\n".join(ended.last_lines)
    return recording["devices"][0]["peak"], json.loads(ended.last_lines[-1])


def test_training_loads_none_of_them_and_takes_the_same(script):
    peak, loaded = run(script)
    same, all_of_them = run(script, late=False)
    assert loaded == []
    assert {"sympy", "torch._dynamo.eval_frame"} <= set(all_of_them)
    assert peak == same


def test_a_distributed_tensor_is_one(script):
    use = """
import os
from transformers.distributed import sharding_utils, tensor_parallel
from torch.distributed.device_mesh import init_device_mesh
kept = [sharding_utils.DTensor]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29541", RANK="0", WORLD_SIZE="1")
torch.distributed.init_process_group("gloo")
tensor = tensor_parallel.distribute_tensor(torch.ones(4, 4), init_device_mesh("cpu", (1,)), [tensor_parallel.Shard(0)])
assert isinstance(tensor, kept[0]) and isinstance(tensor, sharding_utils.DTensor)
assert sharding_utils.DTensor is sys.modules["torch.distributed.tensor"].DTensor is type(tensor)
assert not isinstance(torch.ones(2), kept[0])
torch.distributed.destroy_process_group()
"""
    assert "torch.distributed.tensor._api" in run(script, use)[1]


def test_a_loss_that_assigns(script):
    use = """
from transformers.loss.loss_for_object_detection import linear_sum_assignment
assert [list(map(int, each)) for each in linear_sum_assignment([[4, 1], [2, 3]])] == [[0, 1], [1, 0]]
"""
    assert run(script, use)[1] == ["scipy.optimize._optimize"]


def test_a_mask_of_blocks(script):
    use = """
from transformers import masking_utils
mask = masking_utils.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 256, 256, device="cpu")
assert isinstance(mask, masking_utils.BlockMask) and not isinstance(3, masking_utils.BlockMask)
"""
    assert "sympy" in run(script, use)[1]


@pytest.fixture
def no_sizes(tmp_path):
    """A cache of what was built, without the sizes that were found out."""
    cache = tmp_path / "cache" / "peakmem"
    cache.mkdir(parents=True)
    for entry in Path(platformdirs.user_cache_dir("peakmem", appauthor=False)).iterdir():
        if not entry.name.endswith("-sizes.json"):
            (cache / entry.name).symlink_to(entry)
    return str(cache.parent)


def test_what_is_left_out_on_the_cpu_is_counted(script, no_sizes):
    path = script(TRAIN.format(use="", device="cpu"))
    words = ("run", "--device", "cpu", "--steps", "all", "--json", "-", "--output", "show", path)
    first, again = (run_peakmem(*words, XDG_CACHE_HOME=no_sizes) for _ in range(2))
    assert first.code == again.code == 0, first.err + again.err
    parts = [{part["name"]: part["bytes"] for part in done.json["host"]["parts"]} for done in (first, again)]
    assert "torch._dynamo.eval_frame" in first.err  # printed by the script: loaded to see what it takes
    assert "│ []" in again.err
    assert abs(parts[0]["loaded later"] - parts[1]["loaded later"]) < 20 << 20
    assert again.json["own_peak"] < first.json["own_peak"]
