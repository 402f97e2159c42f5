"""The compiler is loaded when a script asks for it, and not before; what it is told until then it is told later."""

from __future__ import annotations

import json
import sys

import pytest

from peakmem.session.launching import Run, launch
from peakmem.session.running import Question
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.probe import probe
from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch

TRAIN = """
import json, sys
import torch
from torch import nn
{before}
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
{after}
optimizer = torch.optim.AdamW(model.parameters())
for step in range({steps}):
    optimizer.zero_grad()
    model(torch.randn(16, 64).cuda()).sum().backward()
    optimizer.step()
import atexit
print(json.dumps(sorted(name for name in sys.modules if name in ("torch._dynamo.eval_frame", "torch._inductor"))))
{end}
"""


def run(script, *, before="", after="", steps=2, late=True):
    """The recording, and what the script printed."""
    path = script(TRAIN.format(before=before, after=after, end="", steps=steps))
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
    return recording, ended.last_lines


def test_plain_training_does_not_load_it(script):
    _, lines = run(script)
    assert json.loads(lines[-1]) == []


def test_a_script_of_the_user_s_own_loads_it_as_ever(script):
    _, lines = run(script, late=False)
    assert "torch._dynamo.eval_frame" in json.loads(lines[-1])


@pytest.mark.parametrize(
    "statement",
    [
        "import torch._dynamo.utils",
        "from torch._dynamo.utils import counters",
        "from torch._dynamo import config",
        "torch._dynamo.config.cache_size_limit = 9",
        "torch.compiler.reset()",
        "import torch._dynamo.config",
        "from torch._dynamo._trace_wrapped_higher_order_op import trace_wrapped",
    ],
)
def test_it_is_loaded_when_it_is_asked_for(script, statement):
    twice = (
        "import torch._dynamo, torch._dynamo.utils as u; assert u is sys.modules['torch._dynamo.utils']\n"
        "assert sys.modules['torch._dynamo.convert_frame'].counters is u.counters, 'loaded twice'"
    )
    _, lines = run(script, before=statement, after=twice)
    assert "torch._dynamo.eval_frame" in json.loads(lines[-1])


def test_what_was_marked_before_is_known_to_it(script):
    before = """
def ones():
    return [1, 1]
@torch._dynamo.disable
def left_alone(x):
    return x + torch.compiler.is_compiling()
marked = torch._dynamo.assume_constant_result(ones)
assert marked is ones and not hasattr(ones, "_dynamo_marked_constant")
"""
    after = """
counter = torch._dynamo.testing.CompileCounter()
def f(x):
    return left_alone(x * 2) * 3
host = torch.ones(3)
assert torch.compile(f, backend=counter)(host).tolist() == [6, 6, 6]
assert ones._dynamo_marked_constant
print("frames", counter.frame_count)
"""
    _, lines = run(script, before=before, after="import torch._dynamo.testing\n" + after)
    assert "frames 2" in lines  # before and after the function that is left alone


def test_compiled_training_and_its_optimizer(script):
    compiled, _ = run(script, after="model.compile(backend='eager')")
    plain, _ = run(script)
    assert compiled["devices"][0]["peak"] == plain["devices"][0]["peak"]


def test_exit_handlers_run_before_the_process_is_left(script, tmp_path):
    mark = tmp_path / "mark"
    path = script(
        "import atexit, pathlib\n"
        f"atexit.register(pathlib.Path({str(mark)!r}).write_text, 'left')\n"
        + TRAIN.format(before="print('no newline', end='')", after="", end="", steps=9)
    )
    log = tmp_path / "log"
    done = run_peakmem("run", "--steps", "3", "--no-range", "--json", "-", "--output", log, path)
    assert done.code == 0, done.err
    assert mark.read_text() == "left"
    assert log.read_text() == "no newline\n"


def test_initial_values_are_left_out_for_known_models_alone(tmp_path):
    pytest.importorskip("torchvision")
    words = ("--batch", "1", "--steps", "2", "--no-range", "--json", "-")
    told = run_peakmem("predict", "torchvision:resnet18", *words, "--save-script", tmp_path / "t.py")
    same = run_peakmem("run", "--steps", "2", "--no-range", "--json", "-", tmp_path / "t.py")
    assert told.json["peak"] == same.json["peak"]
    assert told.json["steps"] == same.json["steps"]


@pytest.mark.parametrize(
    "what",
    [
        ("dense:4096-8192-8192-4096", "--batch", "8"),
        ("torchvision:resnet18", "--batch", "2"),
        ("torchvision:vit_b_16", "--batch", "1"),
    ],
    ids=str,
)
def test_the_host_s_side_counts_what_was_left_out(tmp_path, what):
    if what[0].startswith("torchvision"):
        pytest.importorskip("torchvision")
    words = ("--steps", "3", "--no-range", "--json", "-")
    told = run_peakmem("predict", *what, *words, "--save-script", tmp_path / "train.py")
    again = run_peakmem("predict", *what, *words)
    same = run_peakmem("run", *words, tmp_path / "train.py")
    left_out = "unused libraries" if what[0].startswith("torchvision") else "initial values"
    assert {part["name"]: part["bytes"] for part in told.json["host"]["parts"]}[left_out] > 50 * 2**20
    assert left_out not in {part["name"] for part in same.json["host"]["parts"]}
    for forecast in (told.json, again.json):
        assert forecast["host"]["peak_rss"] == pytest.approx(same.json["host"]["peak_rss"], rel=0.06)
        assert forecast["peak"]["allocated"] == same.json["peak"]["allocated"]
