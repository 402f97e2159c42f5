"""`peakmem run --device cpu` against the same training done for real."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import measured, run_peakmem

pytestmark = pytest.mark.torch

MIB = 2**20

DENSE = """
import torch
from torch import nn
widths = [1000, 100, 100, 100, 100]
hidden = [part for m, n in zip(widths, widths[1:]) for part in (nn.Linear(m, n), nn.ReLU())]
model = nn.Sequential(*hidden, nn.Linear(100, 10))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(256, 1000)), torch.randint(10, (256,)))
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
"""

ATTENTION = """
import torch
from torch import nn
torch.manual_seed(0)
embedding = nn.Embedding(8000, 512)
layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
encoder, head = nn.TransformerEncoder(layer, 3), nn.Linear(512, 8000)
parameters = [*embedding.parameters(), *encoder.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(parameters)
for _ in range(2):
    tokens = torch.randint(8000, (8, 128))
    keep = tokens[tokens > 10]
    assert len(keep) > 900, "true values: token ids are integers"
    optimizer.zero_grad()
    logits = head(encoder(embedding(tokens)))
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("text", [DENSE, ATTENTION], ids=["dense", "attention"])
def test_the_peak_is_that_of_the_real_training(script, text: str, threads: str) -> None:
    path = script(text)
    done = run_peakmem("run", "--device", "cpu", "--steps", "all", "--json", "-", path, OMP_NUM_THREADS=threads)
    assert done.code == 0, done.err
    _, truth = measured(sys.executable, path, OMP_NUM_THREADS=threads)
    host = done.json["host"]
    assert host["peak_rss"] == pytest.approx(truth, rel=0.08)
    assert host["threads"] == int(threads)
    assert sum(part["bytes"] for part in host["parts"]) == host["peak_rss"]
    assert [step["index"] for step in host["steps"]] == list(range(len(host["steps"])))
    assert done.json["device"] == "cpu"


def test_the_dense_example_says_what_a_count_by_hand_leaves_out(script) -> None:
    done = run_peakmem("run", "--device", "cpu", script(DENSE))
    assert done.code == 0, done.err
    assert (
        "a count by hand of parameters, gradients and optimizer states: 2.01 MiB" in done.out
    )  # 4 x 131,410 x 4 bytes, and 10 counts of steps
    assert "libraries" in done.out


def test_the_dense_example_is_explained(script) -> None:
    done = run_peakmem("run", "--device", "cpu", "--explain", script(DENSE), COLUMNS="80")
    assert done.code == 0, done.err
    assert re.search(r"together +1,820 +465,920 +1\.78 MiB", done.out)
    assert re.search(r"weights and biases +131,410 +513\.32 KiB", done.out)
    assert "Python and torch take" in done.out and "GPU" not in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_layers_are_counted_once_where_they_run_again_in_the_backward_pass(script) -> None:
    text = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
first, last = nn.Sequential(nn.Linear(100, 200), nn.ReLU()), nn.Linear(200, 10)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = first, last
    def forward(self, x):
        return self.last(checkpoint(self.first, x, use_reentrant=False))
model = Net()
optimizer = torch.optim.SGD(model.parameters())
for _ in range(2):
    model(torch.randn(8, 100)).sum().backward()
    optimizer.step()
"""
    done = run_peakmem("run", "--device", "cpu", "--explain", script(text))
    assert re.search(r"outputs of 2 layers, forward +210 +1,680", done.out), done.out + done.err


def test_memory_that_is_not_enough_is_told_by_the_exit_code(script) -> None:
    done = run_peakmem("run", "--device", "cpu", "--memory", "100MiB", script(DENSE))
    assert done.code == 1
    assert "does not fit in 100.00 MiB (--memory)" in done.out


def test_a_script_that_fails_is_no_forecast(script) -> None:
    done = run_peakmem("run", "--device", "cpu", "--steps", "all", script(DENSE + "raise ValueError('boom')\n"))
    assert done.code == 3
    assert "ValueError: boom" in done.out


def test_options_of_cards_are_refused(script) -> None:
    done = run_peakmem("run", "--device", "cpu", "--gpu", "t4", script(DENSE))
    assert done.code == 2
    assert "--gpu says nothing about training on the CPU" in done.err
    for words, instead in {
        ("--set", "amp=bf16"): "change the setting in the script",
        ("--save", "run.peakmem"): "--json FILE keeps the forecast",
        ("--assume", "bool=false"): "the script's own",
    }.items():
        done = run_peakmem("run", "--device", "cpu", *words, script(DENSE))
        assert done.code == 2
        assert f"{words[0]} works on the virtual GPU only" in done.err and instead in done.err


def test_a_checkpoint_is_not_read_but_takes_its_memory(script, tmp_path: Path) -> None:
    checkpoint = tmp_path / "weights.pt"
    what = "{'w': torch.ones(50_000_000), 'ids': torch.arange(2_000_000)}"
    make = f"import torch; torch.save({what}, {str(checkpoint)!r})"
    subprocess.run([sys.executable, "-c", make], check=True)
    step = "import torch\nw = torch.nn.Parameter(torch.zeros(1000))\ntorch.optim.SGD([w], 0.1).step()\n"
    done = run_peakmem(
        "run", "--device", "cpu", "--json", "-",
        script(f"""
import torch
state = torch.load({str(checkpoint)!r})
assert state["ids"][1_999_999] == 1_999_999
assert state["w"].shape == (50_000_000,)
{step}
"""),
    )  # fmt: skip
    assert done.code == 0, done.err
    tensors = next(part["bytes"] for part in done.json["host"]["parts"] if part["name"] == "tensors")
    assert tensors >= 216_000_000
    # Less than it says by the weights; some CUDA builds touch more when the process ends.
    small = run_peakmem("run", "--device", "cpu", "--json", "-", script(step))
    assert done.json["own_peak"] < small.json["own_peak"] + 100 * MIB


def test_workers_of_a_loader_compute_and_are_counted(script) -> None:
    done = run_peakmem(
        "run", "--device", "cpu", "--json", "-",
        script("""
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        time.sleep(0.01)  # as reading takes; a worker that lives for less than a look of the tape is not seen
        x = torch.full((100, 1000), float(index))
        assert x.sum() == 100_000 * index
        return x, index

model = nn.Linear(1000, 10)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(Data(), batch_size=16, num_workers=2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x).mean(1), y % 10).backward()
    optimizer.step()
"""),
    )  # fmt: skip
    assert done.code == 0, done.err
    host = done.json["host"]
    assert host["tree_rss"] > host["peak_rss"] + 2 * MIB
