"""Makes the snapshots of this folder: run it on the virtual GPU (or a real one), once for each name.

    python make_snapshots.py NAME FOLDER

Writes FOLDER/NAME.pickle, and FOLDER/NAME.json with what PyTorch's own counters said.
"""

import gc
import json
import os
import pickle
import sys
from pathlib import Path

import torch

CASES = {
    "plain": "",
    "expandable": "expandable_segments:True",
    "rounded": "roundup_power2_divisions:4",
    "unsplit": "max_split_size_mb:32",
    "ring": "",
    "streams": "",
}


def work(name):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(1000, 3000),
        torch.nn.GELU(),
        torch.nn.Linear(3000, 700),
        torch.nn.GELU(),
        torch.nn.Linear(700, 10),
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    for step in range(4):
        batch = torch.randn(700 + 300 * step, 1000, device="cuda")
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(torch.empty(37_000_001 + step * 3_000_000, dtype=torch.uint8, device="cuda"))
        del kept[:-2]
        if step == 2:
            kept.clear()
            gc.collect()
            torch.cuda.empty_cache()
    if name == "streams":
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                block = torch.empty(5_000_000, dtype=torch.uint8, device="cuda")
                block.record_stream(torch.cuda.default_stream())
                del block
        kept.append(torch.empty(3_000_000, dtype=torch.uint8, device="cuda"))
    return model, optimizer, kept


def shorten(snapshot):
    """Leave out where this machine keeps its files."""
    traces = (event for trace in snapshot["device_traces"] for event in trace)
    blocks = (block for segment in snapshot["segments"] for block in segment["blocks"])
    for holder in (*traces, *snapshot["segments"], *blocks):
        for frame in holder.get("frames", ()):
            _, found, rest = frame["filename"].rpartition("site-packages/")
            frame["filename"] = found + rest if found else "project/train.py" if frame["line"] else frame["filename"]


def main():
    name, folder = sys.argv[1:]
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = CASES[name]
    torch.cuda.memory._record_memory_history(max_entries=150 if name == "ring" else 100_000, stacks="python")
    alive = work(name)
    snapshot = torch.cuda.memory._snapshot()
    stats = torch.cuda.memory_stats()
    shorten(snapshot)
    with Path(folder, f"{name}.pickle").open("wb") as stream:
        pickle.dump(snapshot, stream)
    wanted = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")
    figures = {w.removesuffix("_bytes"): {k: stats[f"{w}.all.{k}"] for k in ("peak", "current")} for w in wanted}
    figures["torch"] = torch.__version__
    with Path(folder, f"{name}.json").open("w") as stream:
        json.dump(figures, stream, indent=1)
    del alive


main()
