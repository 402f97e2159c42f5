"""Recording changes nothing: the peaks of a script that nobody watches, to the byte."""

from __future__ import annotations

import pytest

from tests.e2e.recorded_run import bare, record

pytestmark = pytest.mark.torch

SCRIPT = """
import json, sys
import torch, torchvision
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

case, amp = sys.argv[1], sys.argv[2]
dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(amp)

class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(128, 4, 512, batch_first=True) for _ in range(4))
    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x

class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(64, 128, 2, batch_first=True, dropout=0.1), nn.Linear(128, 100)
    def forward(self, x):
        return self.head(self.rnn(x)[0])

if case == "mlp":
    model, x = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10)), torch.randn(512, 1024)
elif case == "checkpointed":
    model, x = Checkpointed(), torch.randn(8, 100, 128)
elif case == "lstm":
    model, x = Lstm(), torch.randn(16, 50, 64)
else:
    model, x = getattr(torchvision.models, case)(weights=None), torch.randn(8, 3, 224, 224)
model = model.cuda().train()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda", enabled=amp == "fp16")
peaks = []
for _ in range(3):
    batch = x.cuda()
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        loss = model(batch).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    peaks.append([torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()])
stats = torch.cuda.memory_stats()
peaks.append([stats["requested_bytes.all.allocated"], stats["allocation.all.allocated"], stats["num_device_alloc"]])
print(json.dumps(peaks))
"""

CASES = [("mlp", ""), ("checkpointed", "bf16"), ("lstm", ""), ("resnet18", "fp16"), ("vit_b_16", "bf16")]


@pytest.mark.parametrize(("case", "amp"), CASES)
def test_the_allocator_sees_no_difference(script, case, amp):
    path = script(SCRIPT)
    unwatched = bare(path, case, amp)
    assert record(path, case, amp).said == unwatched
