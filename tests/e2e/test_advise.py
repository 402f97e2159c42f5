"""`peakmem run --set` and `peakmem advise`: a change in the running script is what the edited script takes."""

import json
from importlib import util

import pytest

from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch

TRAINING = """
import torch
from torch import nn
{imports}

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self, width=768, depth=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        for block in self.blocks:
            x = {block}
        return self.head(x)

model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(){arguments})
for step in range(12):
    {start}
    x = torch.randn({batch}, 768, device="cuda")
    y = torch.randint(1000, ({batch},), device="cuda")
    with {context}:
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    {end}
"""
PLAIN = {
    "imports": "import contextlib",
    "block": "block(x)",
    "arguments": "",
    "start": "optimizer.zero_grad(set_to_none=True)",
    "context": "contextlib.nullcontext()",
    "end": "optimizer.step()",
    "batch": "512",
}
EDITS = {
    "amp=bf16": {"context": 'torch.autocast("cuda", dtype=torch.bfloat16)'},
    "optimizer.fused=true": {"arguments": ", fused=True"},
    "optimizer.foreach=false": {"arguments": ", foreach=False"},
    "zero_grad=end": {"end": "optimizer.step(); optimizer.zero_grad()", "start": "pass"},
    "checkpoint=blocks": {"block": "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"},
    "accumulate=3": {
        "start": "optimizer.zero_grad() if step % 3 == 0 else None",
        "end": "optimizer.step() if step % 3 == 2 else None",
    },
}


def written(script, name, **parts):
    text = TRAINING
    for key, value in {**PLAIN, **parts}.items():
        text = text.replace("{" + key + "}", value)
    return script(text, name)


def peak(*words):
    done = run_peakmem("run", "--json", "-", "--gpu", "a100-80", *words)
    assert done.code == 0, done.err
    return done.json


@pytest.mark.parametrize("change", list(EDITS))
def test_a_change_in_the_running_script_takes_what_the_edited_script_takes(change, script):
    changed = peak("--set", change, written(script, "plain.py"))
    edited = peak(written(script, "edited.py", **EDITS[change]))
    assert changed["changed"][0]["count"] > 0
    for figure in ("requested", "allocated", "reserved"):
        assert changed["peak"][figure] == edited["peak"][figure], figure


DISTRIBUTED = """
import os, sys
import torch
from torch import nn
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512", "RANK": "0", "WORLD_SIZE": "1"}
torch.distributed.init_process_group("nccl")
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
model = nn.parallel.DistributedDataParallel(model%s)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 1024).cuda()).sum().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
"""


def test_gradients_as_views_of_buckets(script):
    plain = script(DISTRIBUTED % "", "plain.py")
    edited = script(DISTRIBUTED % ", gradient_as_bucket_view=True", "edited.py")
    changed, same, without = peak("--set", "ddp.gradient_as_bucket_view=true", plain), peak(edited), peak(plain)
    assert changed["changed"][0]["count"] == 1
    for figure in ("requested", "allocated", "reserved"):
        assert changed["peak"][figure] == same["peak"][figure], figure
    assert without["peak"]["allocated"] - same["peak"]["allocated"] > 0.8 * 8 * 1024 * 1024 * 4
    already = peak("--set", "ddp.gradient_as_bucket_view=true", edited)
    assert already["changed"][0]["why_not"] == "the script does so already"


@pytest.mark.skipif(not util.find_spec("peft"), reason="peft is not here")
def test_adapters_are_tried_for_a_model(tmp_path):
    pytest.importorskip("transformers")
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 4, "vocab_size": 1000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = (f"hf:{tmp_path}", "--batch", "1", "--tokens", "64")
    done = run_peakmem("advise", "--memory", "1GiB", "--all", "--json", "-", *words, timeout=900)
    [advised] = done.json["results"]
    [adapters] = [advice for advice in advised["advices"] if advice["keys"] == ["lora"]]
    assert adapters["why_not"] == "" and not adapters["keeps_mathematics"]
    told = run_peakmem("predict", *words, "--lora", "16", "--memory", "80GiB", "--json", "-", "--no-range")
    assert adapters["allocated"] == told.json["peak"]["allocated"] < advised["allocated"]


def test_a_change_without_effect_says_why(script):
    forecast = peak("--set", "amp=bf16", "--set", "zero_grad=none", written(script, "amp.py", **EDITS["amp=bf16"]))
    assert [row["count"] for row in forecast["changed"]] == [0, 0]
    assert forecast["changed"][0]["why_not"] == "the script uses autocast itself"
    assert forecast["peak"] == peak(written(script, "amp.py", **EDITS["amp=bf16"]))["peak"]


def test_no_such_change_is_an_error(script):
    done = run_peakmem("run", "--set", "amp=int4", script("pass"))
    assert done.code == 2 and "amp=int4" in done.err and "bf16" in done.err


@pytest.mark.slow
def test_there_is_a_plan_and_it_holds(script):
    path = written(script, "train.py", batch="8192")
    done = run_peakmem("advise", "--memory", "2GiB", "--json", "-", "--", path, timeout=1200)
    assert done.code == 0, done.err
    [advised] = done.json["results"]
    assert not advised["fits_already"] and advised["plan"]["fits"]
    by_key = {advice["keys"][0]: advice for advice in advised["advices"]}
    assert by_key["zero_grad=none"]["why_not"] and by_key["checkpoint"]["saving"] > 0
    changes = {"checkpoint": "checkpoint=blocks", "amp": "amp=bf16", "zero_grad=end": "zero_grad=end",
               "optimizer.fused": "optimizer.fused=true", "optimizer.foreach": "optimizer.foreach=false"}  # fmt: skip
    words = [w for key in advised["plan"]["keys"] if key in changes for w in ("--set", changes[key])]
    if "expandable_segments" in advised["plan"]["keys"]:
        words += ["--alloc-conf", "expandable_segments:True"]
    assert run_peakmem("run", "--memory", "2GiB", *words, path).code == 0
    assert run_peakmem("run", "--memory", "2GiB", path).code == 1


def test_the_foreach_implementation_holds_about_one_more_copy_of_the_parameters():
    """pytorch issue 97712: since 2.0 lists of temporaries as large as the parameters; foreach=False is the old way."""
    words = ("predict", "dense:2048-8192-8192-8192-10", "--batch", "4", "--gpu", "a100-80", "--json", "-")
    peaks = {
        kind: run_peakmem(*words, "--optimizer", f"adam:{kind}").json["peak"]["allocated"]
        for kind in ("foreach", "loop", "fused")
    }
    parameters = 4 * (2048 * 8192 + 2 * 8192**2 + 8192 * 10 + 3 * 8192 + 10)
    assert peaks["foreach"] - peaks["fused"] == pytest.approx(parameters, rel=0.1)
    assert peaks["loop"] < peaks["foreach"]


SCRATCH = """
import torch
model = torch.nn.Linear(8192, 8192, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x = torch.randn(4, 8192, device="cuda")
    torch.empty(2**30, dtype=torch.uint8, device="cuda")
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
"""Its forward pass needs the most, with the gradients of the step before still there."""


def test_gradients_dropped_after_the_step_are_not_there_in_the_forward_pass(script):
    late, early = (peak(*words, script(SCRATCH))["peak"]["allocated"] for words in ((), ("--set", "zero_grad=end")))
    assert late - early == 4 * (8192 * 8192 + 8192)


def test_the_logits_of_a_large_vocabulary_are_found():
    """flash-attention issue 922: 81,920 tokens, 128,256 words: 19.57 GiB of logits, 20.0 GiB of checkpointed inputs."""
    done = run_peakmem(
        "run", "--memory", "400GiB", "--steps", "1", "--json", "-", "tests/e2e/scripts/large_vocabulary.py"
    )
    assert done.code == 0, done.err
    gib = 2**30
    holders = done.json["holders_at_peak"]
    logits = [h["bytes"] / h["count"] for h in holders if h["shape"] == [81920, 128256] and h["dtype"] == "bfloat16"]
    assert logits and logits[0] / gib == pytest.approx(19.57, abs=0.1)
    inputs = sum(h["bytes"] for h in holders if h["shape"] == [81920, 4096] and h["role"] == "activation")
    assert inputs / gib == pytest.approx(20.0, abs=1.3)  # with the input of the head, another 0.6 GiB each


def test_scenarios_of_a_distribution_of_lengths(tmp_path):
    """The longest batch of a file and of a distribution; batches as they come leave segments the next can't use."""
    pytest.importorskip("transformers")
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 256, "n_head": 4}
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 2000}))
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("tokens,id\n" + "".join(f"{50 + 7 * i},{i}\n" for i in range(40)) + "500,40\n")
    for text, longest in ((str(lengths), 500), ("normal:350,120:512", 512)):
        words = (f"hf:{tmp_path}", "--batch", "8", "--tokens", "64", "--lengths", text)
        done = run_peakmem("scenarios", "--gpu", "a100-80", "--json", "-", *words, timeout=900)
        assert done.code == 0, done.err
        rows = {row["key"]: row for row in done.json["results"]}
        assert f"{longest} tokens" in rows["longest"]["title"]
        assert rows["mixed_lengths"]["title"].startswith("12 batches as they come")
        told = run_peakmem(
            "predict", words[0], "--batch", "8", "--tokens", str(longest), "--json", "-", "--no-range", "--steps", "4"
        )
        assert rows["longest"]["allocated"] == told.json["peak"]["allocated"]
        assert rows["longest"]["allocated"] > 2 * rows["steady_step"]["allocated"]
        # The longest comes once, at the end, with the gradients of a shorter batch before it.
        assert rows["mixed_lengths"]["allocated"] == pytest.approx(rows["longest"]["allocated"], rel=0.02)
        assert rows["mixed_lengths"]["reserved"] > rows["longest"]["reserved"]


def test_lengths_are_for_sequences():
    done = run_peakmem("scenarios", "dense:10-10", "--batch", "2", "--lengths", "normal:350,120:512")
    assert done.code == 2 and "takes no sequences" in done.err


def test_scenarios_of_a_model():
    """mmsegmentation issue 2144 (validation is larger), transformers issue 22123 (resuming needs more)."""
    done = run_peakmem(
        "scenarios", "--gpu", "a100-80", "--json", "-", "dense:1000-4000-4000-10", "--batch", "64",
        "--eval-batch", "65536", "--last-batch", "3", timeout=600,
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = {row["key"]: row for row in done.json["results"]}
    assert all(row["fits"] for row in rows.values()), [row for row in rows.values() if not row["fits"]]
    steady, evaluation = rows["steady_step"]["allocated"], rows["evaluation"]["allocated"]
    assert evaluation > 2 * steady
    assert rows["first_step"]["allocated"] <= steady
    parameters = 4 * (1000 * 4000 + 4000 * 4000 + 4000 * 10 + 8010)
    loaded_too = rows["resume"]["allocated"] - steady
    assert loaded_too == pytest.approx(parameters, rel=0.1), "the loaded parameters are held beside the model's own"
    assert rows["resume_cpu"]["allocated"] == pytest.approx(steady, rel=0.01)
    assert rows["last_batch"]["allocated"] <= steady <= rows["kept_graph"]["allocated"]
