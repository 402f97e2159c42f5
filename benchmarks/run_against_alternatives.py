"""What `peakmem run` costs, against the two other ways of asking without a GPU, as ratios in one run.

    python benchmarks/run_against_alternatives.py [gpt2] [resnet50]

Each way is a process of its own, import of torch included, and runs three training steps of the same model:

* fake: FakeTensorMode with MemTracker on the CPU, which gives allocated bytes only (no rounding, no segments);
* cpu: the three steps for real on the CPU, which gives no GPU figure at all.

A ratio above 1 means that peakmem is faster.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ON = """
def on(device, thing):
    # Modules of fake tensors can't be moved, not even to where they are.
    return thing if device == "cpu" else thing.to(device)
"""
GPT2 = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
def make(device):
    return on(device, GPT2LMHeadModel(GPT2Config())).train(), (on(device, torch.randint(50257, (4, 512))),)
def loss_of(model, tokens):
    return model(input_ids=tokens, labels=tokens, use_cache=False).loss
"""
RESNET50 = """
import torch, torchvision
def make(device):
    batch = (on(device, torch.randn(32, 3, 224, 224)), on(device, torch.randint(1000, (32,))))
    return on(device, torchvision.models.resnet50(weights=None)), batch
def loss_of(model, images, labels):
    return torch.nn.functional.cross_entropy(model(images), labels)
"""
STEPS = """
def train(device, steps=3):
    model, batch = make(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, *batch).backward()
        optimizer.step()
    return model, optimizer
"""
PEAKMEM = STEPS + "train('cuda', 100)\n"
CPU = STEPS + "train('cpu')\n"
FAKE = """
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
with FakeTensorMode():
    model, batch = make("cpu")
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(model, *batch).backward()
            optimizer.step()
            tracker.reset_mod_stats()
    print(tracker.get_tracker_snapshot("peak"))
"""
MODELS = {"gpt2": GPT2, "resnet50": RESNET50}


def seconds(*command: str) -> float:
    """Wall time of a command that must end well."""
    start = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help=", ".join(MODELS))
    chosen = parser.parse_args().models
    print(f"{'model':10} {'peakmem s':>10} {'fake s':>8} {'cpu s':>8} {'fake/peakmem':>13} {'cpu/peakmem':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            scripts = {}
            for way, rest in (("peakmem", PEAKMEM), ("fake", FAKE), ("cpu", CPU)):
                scripts[way] = Path(folder) / f"{name}_{way}.py"
                scripts[way].write_text(ON + MODELS[name] + rest)
            ours = seconds(
                sys.executable, "-m", "peakmem", "run", "--no-range", "--steps", "3", str(scripts["peakmem"])
            )
            fake = seconds(sys.executable, str(scripts["fake"]))
            cpu = seconds(sys.executable, str(scripts["cpu"]))
            print(f"{name:10} {ours:10.1f} {fake:8.1f} {cpu:8.1f} {fake / ours:13.2f} {cpu / ours:12.2f}")


if __name__ == "__main__":
    main()
